/* SPDX-License-Identifier: Apache-2.0 */
/* Promise P10 at the level of logits for the prefix cache: with the real kernels a row has the same
 * bytes whether what stands before it was computed for it or found.  The pool and its index
 * (engine/kv.h) hand out the blocks, the forward pass reads and writes them. */
#include "engine/forward.h"
#include "engine/kv.h"
#include "engine/prefix.h"

#include "testlib/gguf_write.h"
#include "testrig/model_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { B = TR_KV_BLOCK, SEQS = 4, CTX = 320, PER_SEQ = CTX / B, N_VOCAB = 100, CHUNK = 48 };
#ifdef __SANITIZE_ADDRESS__ /* arithmetic at a quarter of the speed */
enum { PROMPTS = 10, ROUNDS = 100 };
#else
enum { PROMPTS = 10, ROUNDS = 250 };
#endif

struct model_file {
    uint8_t *bytes;
    size_t len;
};

/* Gemma has windows of 40 positions in six of its seven layers: shorter than what is found. */
static struct model_file tiny(const char *arch)
{
    struct model_file f;
    bool gemma = !strcmp(arch, "gemma3");
    struct tr_gw *w = tr_gw_new(3);
    tr_gw_llama(w, &(struct tr_gw_llama){.arch = arch,
                                         .type = gemma ? TR_T_Q8_0 : TR_T_Q4_1,
                                         .embd_type = TR_T_Q8_0,
                                         .n_layer = gemma ? 7 : 2,
                                         .window = gemma ? 40 : 0,
                                         .n_embd = 128,
                                         .n_head = 4,
                                         .n_head_kv = 2,
                                         .head_dim = gemma ? 32 : 0,
                                         .n_ctx = 512,
                                         .seed = 7});
    f.bytes = tr_gw_finish(w, &f.len);
    return f;
}

static struct tr_rig *rig(const struct model_file *f, enum tr_kv_type kv, uint32_t n_threads)
{
    return tr_rig_open(&(struct tr_rig_config){.bytes = f->bytes,
                                               .len = f->len,
                                               .level = TR_CPU_AVX512,
                                               .kv_type = kv,
                                               .n_threads = n_threads,
                                               .n_ctx = CTX,
                                               .n_seqs = SEQS,
                                               .max_rows = CTX,
                                               .seed = 1});
}

/* Prompts that share nothing, a beginning that ends inside a block, or all but the end. */
static uint32_t token(uint32_t prompt, uint32_t pos)
{
    uint32_t common = prompt % 5 * 37;
    uint32_t t = pos * 31 + pos * pos % 7 + (pos < common ? 0 : 1 + prompt * 17);
    return t % N_VOCAB;
}

static uint32_t len_of(uint32_t prompt)
{
    static const uint32_t len[PROMPTS] = {1,         5 * B, 5 * B + 1, 5 * B - 1, 9 * B,
                                          9 * B + 7, B,     200,       3 * B,     7 * B + 1};
    return len[prompt];
}

struct test {
    struct tr_rig *r;
    struct tr_kv *kv;
    float *want; /* [PROMPTS, CTX, N_VOCAB], each computed alone in one piece */
    uint32_t ids[SEQS][CTX], len[SEQS], prompt[SEQS];
    bool on[SEQS];
    uint32_t found, found_max;
};

static const float *want_at(const struct test *t, uint32_t prompt, uint32_t pos)
{
    return t->want + ((size_t)prompt * CTX + pos) * N_VOCAB;
}

static void compute_alone(struct test *t, const struct model_file *f, enum tr_kv_type kv)
{
    struct tr_rig *r = rig(f, kv, 1);
    t->want = calloc((size_t)PROMPTS * CTX * N_VOCAB, sizeof(float));
    cr_assert(t->want);
    for (uint32_t p = 0; p < PROMPTS; p++) {
        tr_rig_reset(r, 0);
        for (uint32_t i = 0; i < len_of(p); i++)
            tr_rig_add(r, 0, token(p, i), true);
        tr_rig_run(r);
        memcpy(t->want + (size_t)p * CTX * N_VOCAB, r->logits,
               (size_t)len_of(p) * N_VOCAB * sizeof(float));
    }
    tr_rig_close(r);
}

static void begin(struct test *t, uint32_t s)
{
    uint32_t p = tr_rig_random(t->r, PROMPTS);
    t->prompt[s] = p;
    t->len[s] = len_of(p);
    for (uint32_t i = 0; i < t->len[s]; i++)
        t->ids[s][i] = token(p, i);
    tr_kv_begin(t->kv, s, 0);
    uint32_t hit = tr_kv_seek(t->kv, s, t->ids[s], t->len[s] - 1);
    tr_kv_take(t->kv, s);
    t->r->len[s] = hit;
    t->found += hit;
    t->found_max = hit > t->found_max ? hit : t->found_max;
    t->on[s] = true;
}

static void end(struct test *t, uint32_t s)
{
    tr_kv_give(t->kv, s);
    t->on[s] = false;
}

/* One more chunk of one sequence, beside those of others; false without blocks. */
static bool add_chunk(struct test *t, uint32_t s, uint32_t *first)
{
    uint32_t n = 1 + tr_rig_random(t->r, CHUNK);
    *first = t->r->len[s];
    n = n < t->len[s] - *first ? n : t->len[s] - *first;
    if (tr_kv_reserve(t->kv, s, *first + n))
        return false;
    for (uint32_t i = 0; i < n; i++)
        tr_rig_add(t->r, s, t->ids[s][*first + i], true);
    return true;
}

static void step(struct test *t)
{
    uint32_t first[SEQS], out[SEQS], n[SEQS] = {0};
    for (uint32_t s = 0; s < SEQS; s++) {
        if (!t->on[s])
            begin(t, s);
        out[s] = t->r->n_out;
        if (!add_chunk(t, s, &first[s]))
            end(t, s); /* as who is preempted: what it has is cached */
        else
            n[s] = t->r->n_out - out[s];
        t->r->tables[s] = tr_kv_table_of(t->kv, s);
    }
    if (t->r->n_rows)
        tr_rig_run(t->r);
    for (uint32_t s = 0; s < SEQS; s++) {
        for (uint32_t i = 0; i < n[s]; i++)
            cr_assert(memcmp(t->r->logits + (size_t)(out[s] + i) * N_VOCAB,
                             want_at(t, t->prompt[s], first[s] + i), N_VOCAB * sizeof(float)) == 0,
                      "prompt %u position %u differs", t->prompt[s], first[s] + i);
        if (n[s])
            tr_kv_keep(t->kv, s, t->ids[s], t->r->len[s]);
        if (n[s] && (t->r->len[s] == t->len[s] || tr_rig_random(t->r, 5) == 0))
            end(t, s); /* it is whole, or was cancelled */
    }
}

/* The pool is too small for all: blocks of the cache are taken for others again and again. */
static void equal_rows(const char *arch, enum tr_kv_type kv, uint32_t n_blocks)
{
    struct model_file f = tiny(arch);
    struct test t = {0};
    compute_alone(&t, &f, kv);
    t.r = rig(&f, kv, 2);
    t.kv = tr_kv_new(n_blocks, SEQS, PER_SEQ, tr_prefix_new(n_blocks, (const uint64_t[]){1, 2}));
    cr_assert(t.kv);
    for (uint32_t i = 0; i < ROUNDS; i++)
        step(&t);
    cr_assert_geq(t.found_max, 5 * B, "%s: at most %u found", arch, t.found_max);
    cr_assert_gt(t.found, 10 * B, "%s: only %u found", arch, t.found);
    tr_kv_free(t.kv);
    tr_rig_close(t.r);
    free(t.want);
    free(f.bytes);
}

Test(cached_rows, are_those_of_a_prompt_that_was_computed_whole, .timeout = 200)
{
    equal_rows("llama", TR_KV_F16, SEQS * PER_SEQ);
    equal_rows("llama", TR_KV_Q8_0, PER_SEQ + 6);
    equal_rows("qwen3", TR_KV_F32, PER_SEQ + 6);
}

Test(cached_rows, with_windows_shorter_than_what_was_found, .timeout = 200)
{
    equal_rows("gemma3", TR_KV_F16, SEQS * PER_SEQ);
    equal_rows("gemma3", TR_KV_F16, PER_SEQ + 6);
    equal_rows("gemma3", TR_KV_Q8_0, PER_SEQ + 6);
}
