/* SPDX-License-Identifier: Apache-2.0 */
/* Promise P10 at the level of logits: the bytes of a row do not depend on what it was computed
 * with.  Tiny models with random weights; tests/golden does the same on a real one. */
#include "engine/forward.h"

#include "testlib/gguf_write.h"
#include "testrig/apart.h"
#include "testrig/model_rig.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SEQS = 5, N_TOKENS = 300, N_VOCAB = 100, MAX_ROWS = 320 };

/* Token of a sequence at a position. */
static uint32_t token(uint32_t seq, uint32_t pos)
{
    return (pos * 31 + seq * 17 + pos * pos % 7) % N_VOCAB;
}

/* Sequences have different lengths, some beyond one partition of attention. */
static uint32_t seq_len(uint32_t seq)
{
    return N_TOKENS - seq * 57;
}

struct model_file {
    uint8_t *bytes;
    size_t len;
};

static struct model_file tiny(enum tr_tensor_type type, enum tr_tensor_type embd)
{
    struct model_file f;
    struct tr_gw *w = tr_gw_new(3);
    tr_gw_llama(w, &(struct tr_gw_llama){.type = type,
                                         .embd_type = embd,
                                         .n_head = 4,
                                         .n_embd = 128,
                                         .n_head_kv = 2,
                                         .n_ctx = 512,
                                         .seed = 7});
    f.bytes = tr_gw_finish(w, &f.len);
    return f;
}

/* Seven layers of Gemma 3, one of which sees everything, or three of another architecture; an
 * output matrix of its own, heads that do not divide the rows. */
static struct model_file tiny_arch(const char *arch, uint32_t n_head_kv)
{
    struct model_file f;
    bool gemma = !strcmp(arch, "gemma3");
    struct tr_gw *w = tr_gw_new(3);
    tr_gw_llama(w, &(struct tr_gw_llama){.arch = arch,
                                         .type = gemma ? TR_T_Q8_0 : TR_T_Q4_1,
                                         .embd_type = TR_T_BF16,
                                         .output = !gemma,
                                         .n_layer = gemma ? 7 : 3,
                                         .window = gemma ? 40 : 0,
                                         .n_head = 4,
                                         .n_head_kv = n_head_kv,
                                         .head_dim = strcmp(arch, "qwen2") ? 32 : 0,
                                         .n_ctx = 512,
                                         .seed = 7});
    f.bytes = tr_gw_finish(w, &f.len);
    return f;
}

static struct tr_rig *rig(const struct model_file *f, enum tr_ops_math math, enum tr_kv_type kv,
                          uint32_t n_threads, uint64_t seed)
{
    return tr_rig_open(&(struct tr_rig_config){.bytes = f->bytes,
                                               .len = f->len,
                                               .math = math,
                                               .level = TR_CPU_AVX512,
                                               .kv_type = kv,
                                               .n_threads = n_threads,
                                               .n_seqs = N_SEQS,
                                               .max_rows = MAX_ROWS,
                                               .seed = seed});
}

/* [N_SEQS, N_TOKENS, N_VOCAB], each sequence in one prefill of its own. */
static float *reference(struct tr_rig *r)
{
    float *ref = calloc((size_t)N_SEQS * N_TOKENS * N_VOCAB, sizeof(float));
    cr_assert(ne(ptr, ref, NULL));
    for (uint32_t s = 0; s < N_SEQS; s++) {
        for (uint32_t i = 0; i < seq_len(s); i++)
            tr_rig_add(r, s, token(s, i), true);
        tr_rig_run(r);
        memcpy(ref + (size_t)s * N_TOKENS * N_VOCAB, r->logits,
               (size_t)seq_len(s) * N_VOCAB * sizeof(float));
    }
    return ref;
}

static void check_finite(const float *ref)
{
    float lo = INFINITY, hi = -INFINITY;
    for (size_t i = 0; i < (size_t)N_TOKENS * N_VOCAB; i++) {
        lo = fminf(lo, ref[i]);
        hi = fmaxf(hi, ref[i]);
        cr_assert(isfinite(ref[i]));
    }
    cr_expect(hi - lo > 0.1f, "logits do not vary: the test would prove nothing");
}

struct wanted {
    uint32_t seq, pos, out;
};

static void compare(const struct tr_rig *r, const float *ref, const struct wanted *w, uint32_t n,
                    const char *what)
{
    for (uint32_t i = 0; i < n; i++)
        cr_assert(memcmp(r->logits + (size_t)w[i].out * N_VOCAB,
                         ref + ((size_t)w[i].seq * N_TOKENS + w[i].pos) * N_VOCAB,
                         N_VOCAB * sizeof(float)) == 0,
                  "%s: sequence %u position %u differs", what, w[i].seq, w[i].pos);
}

/* One step: a random subset of the sequences in random order, each with a random chunk, some rows
 * with logits or all of them, in random order of the logits. */
static void random_step(struct tr_rig *r, const float *ref, uint32_t chunk_max, bool all,
                        const char *what)
{
    static struct wanted w[MAX_ROWS];
    uint32_t n = 0, first = tr_rig_random(r, N_SEQS), stride = 1 + tr_rig_random(r, N_SEQS - 1);
    for (uint32_t k = 0; k < N_SEQS; k++) {
        uint32_t s = (first + k * stride) % N_SEQS; /* N_SEQS is prime: each once */
        uint32_t chunk = tr_rig_random(r, chunk_max + 1);
        for (; chunk && r->len[s] < seq_len(s) && r->n_rows < MAX_ROWS; chunk--) {
            bool out = tr_rig_random(r, 3) != 0 || all;
            uint32_t pos = r->len[s], o = tr_rig_add(r, s, token(s, pos), out);
            if (out)
                w[n++] = (struct wanted){s, pos, o};
        }
    }
    if (!r->n_rows)
        return;
    for (uint32_t i = n; i > 1; i--) { /* permute which row of the logits each fills */
        uint32_t j = tr_rig_random(r, i), t = w[i - 1].out;
        w[i - 1].out = w[j].out;
        w[j].out = t;
    }
    uint32_t k = 0;
    for (uint32_t i = 0; i < r->n_rows; i++)
        if (r->rows[i].out != TR_NO_LOGITS)
            r->rows[i].out = w[k++].out;
    tr_rig_run(r);
    compare(r, ref, w, n, what);
}

static bool all_done(const struct tr_rig *r)
{
    for (uint32_t s = 0; s < N_SEQS; s++)
        if (r->len[s] < seq_len(s))
            return false;
    return true;
}

static void p10_of(struct model_file f, const char *name, enum tr_ops_math math, enum tr_kv_type kv)
{
    char what[96];
    snprintf(what, sizeof(what), "%s math %d kv %d", name, (int)math, (int)kv);
    struct tr_rig *a = rig(&f, math, kv, 1, 1);
    float *ref = reference(a);
    check_finite(ref);
    for (uint32_t chunk_max = 1; chunk_max <= 90; chunk_max = chunk_max * 4 + 1) {
        struct tr_rig *b = rig(&f, math, kv, 1 + chunk_max % 2, 100 + chunk_max);
        while (!all_done(b))
            random_step(b, ref, chunk_max, false, what);
        tr_rig_close(b);
    }
    free(ref);
    tr_rig_close(a);
    free(f.bytes);
}

static void p10(enum tr_tensor_type type, enum tr_ops_math math, enum tr_kv_type kv)
{
    char buf[24];
    p10_of(tiny(type, TR_T_Q8_0), tr_tensor_type_name(type, buf), math, kv);
}

Test(forward, rows_of_other_architectures_do_not_depend_on_their_company)
{
    p10_of(tiny_arch("gemma3", 1), "gemma3", TR_OPS_INT8, TR_KV_F16);
    p10_of(tiny_arch("gemma3", 4), "gemma3", TR_OPS_F32, TR_KV_F32);
    p10_of(tiny_arch("gemma3", 2), "gemma3", TR_OPS_INT8, TR_KV_Q8_0);
    p10_of(tiny_arch("qwen2", 2), "qwen2", TR_OPS_INT8, TR_KV_F16);
    p10_of(tiny_arch("qwen3", 2), "qwen3", TR_OPS_INT8, TR_KV_F16);
}

/* One local layer: what is a window's length or more behind a row does not move its bytes, and what
 * is nearer does. */
Test(forward, a_window_hides_what_is_behind_it)
{
    enum { WINDOW = 40, N = 120 };
    struct tr_gw *w = tr_gw_new(3);
    struct model_file f;
    tr_gw_llama(w, &(struct tr_gw_llama){.arch = "gemma3", .n_layer = 1, .window = WINDOW});
    f.bytes = tr_gw_finish(w, &f.len);
    struct tr_rig *r = rig(&f, TR_OPS_INT8, TR_KV_F16, 1, 5);
    uint32_t ids[N];
    float want[N_VOCAB];
    for (uint32_t changed = 0; changed <= N; changed++) {
        for (uint32_t i = 0; i < N; i++)
            ids[i] = (token(0, i) + (i + 1 == changed)) % N_VOCAB;
        const float *got = tr_rig_prefill(r, 0, ids, N);
        tr_rig_reset(r, 0);
        if (changed == 0)
            memcpy(want, got, sizeof(want));
        bool same = memcmp(want, got, sizeof(want)) == 0;
        cr_expect(same == (changed == 0 || changed - 1 + WINDOW < N), "token %u changed", changed);
    }
    tr_rig_close(r);
    free(f.bytes);
}

Test(forward, int8_rows_do_not_depend_on_their_company)
{
    p10(TR_T_Q8_0, TR_OPS_INT8, TR_KV_F16);
    p10(TR_T_Q4_0, TR_OPS_INT8, TR_KV_Q8_0);
    p10(TR_T_Q4_1, TR_OPS_INT8, TR_KV_F32);
    p10(TR_T_Q4_1, TR_OPS_INT8, TR_KV_F16);
}

Test(forward, float_weights_in_int8_mode_do_not_depend_on_their_company)
{
    p10(TR_T_F32, TR_OPS_INT8, TR_KV_F16);
    p10(TR_T_F16, TR_OPS_INT8, TR_KV_Q8_0);
    p10(TR_T_BF16, TR_OPS_INT8, TR_KV_F16);
}

Test(forward, f32_rows_do_not_depend_on_their_company)
{
    p10(TR_T_Q4_1, TR_OPS_F32, TR_KV_F32);
    p10(TR_T_Q8_0, TR_OPS_F32, TR_KV_F16);
    p10(TR_T_F16, TR_OPS_F32, TR_KV_Q8_0);
}

/* The plain C level is slow: one sequence, long enough for two partitions of attention only once
 * per KV type. */
static void levels(struct model_file f, enum tr_kv_type kv, uint32_t n)
{
    static float want[N_TOKENS * N_VOCAB];
    for (int level = TR_CPU_GENERIC; level <= TR_CPU_AVX512; level++) {
        struct tr_rig *r = tr_rig_open(&(struct tr_rig_config){.bytes = f.bytes,
                                                               .len = f.len,
                                                               .level = (enum tr_cpu_level)level,
                                                               .kv_type = kv,
                                                               .n_threads = 1,
                                                               .n_seqs = 1,
                                                               .max_rows = N_TOKENS});
        for (uint32_t i = 0; i < n; i++)
            tr_rig_add(r, 0, token(0, i), true);
        tr_rig_run(r);
        if (level == TR_CPU_GENERIC)
            memcpy(want, r->logits, n * N_VOCAB * sizeof(float));
        cr_expect(memcmp(want, r->logits, n * N_VOCAB * sizeof(float)) == 0, "kv %d level %d",
                  (int)kv, level);
        tr_rig_close(r);
    }
    free(f.bytes);
}

Test(forward, instruction_levels_agree_bit_for_bit)
{
    levels(tiny(TR_T_Q8_0, TR_T_Q8_0), TR_KV_F16, 270);
    levels(tiny(TR_T_Q4_0, TR_T_Q4_0), TR_KV_Q8_0, 270);
    levels(tiny(TR_T_Q4_1, TR_T_Q4_1), TR_KV_F32, 270);
    levels(tiny(TR_T_F16, TR_T_F16), TR_KV_F16, 40);
    levels(tiny(TR_T_BF16, TR_T_BF16), TR_KV_F16, 40);
    levels(tiny(TR_T_F32, TR_T_F32), TR_KV_F16, 40);
    levels(tiny_arch("gemma3", 2), TR_KV_F16, 100);
    levels(tiny_arch("qwen2", 2), TR_KV_F16, 40);
    levels(tiny_arch("qwen3", 2), TR_KV_F16, 40);
}

/* A sequence that starts again in blocks that hold an older one sees nothing of it. */
Test(forward, old_contents_of_blocks_do_not_show)
{
    struct model_file f = tiny(TR_T_Q8_0, TR_T_Q8_0);
    struct tr_rig *r = rig(&f, TR_OPS_INT8, TR_KV_F16, 1, 3);
    uint32_t ids[40];
    for (uint32_t i = 0; i < 40; i++)
        ids[i] = token(0, i);
    float first[N_VOCAB];
    memcpy(first, tr_rig_prefill(r, 0, ids, 40), sizeof(first));
    tr_rig_reset(r, 0);
    for (uint32_t i = 0; i < 300; i++)
        tr_rig_add(r, 0, token(3, i), false);
    tr_rig_run(r);
    tr_rig_reset(r, 0);
    cr_expect(memcmp(first, tr_rig_prefill(r, 0, ids, 40), sizeof(first)) == 0);
    tr_rig_close(r);
    free(f.bytes);
}

/* Two sequences that share the blocks of a common beginning get what one alone gets. */
Test(forward, shared_blocks_give_the_same_rows)
{
    struct model_file f = tiny(TR_T_Q8_0, TR_T_Q8_0);
    struct tr_rig *r = rig(&f, TR_OPS_INT8, TR_KV_F16, 1, 4);
    uint32_t common = 2 * TR_KV_BLOCK;
    for (uint32_t i = 0; i < common + 20; i++)
        tr_rig_add(r, 0, token(0, i), false);
    tr_rig_run(r);
    uint32_t o = tr_rig_add(r, 0, 9, true);
    tr_rig_run(r);
    float want[N_VOCAB];
    memcpy(want, r->logits + (size_t)o * N_VOCAB, sizeof(want));

    uint32_t *mine = r->blocks + r->tables[0].n_blocks; /* the table of sequence 1 */
    memcpy(mine, r->blocks, 2 * sizeof(*mine));
    r->len[1] = common;
    for (uint32_t i = common; i < common + 20; i++)
        tr_rig_add(r, 1, token(0, i), false);
    o = tr_rig_add(r, 1, 9, true);
    tr_rig_run(r);
    cr_expect(memcmp(want, r->logits + (size_t)o * N_VOCAB, sizeof(want)) == 0);
    tr_rig_close(r);
    free(f.bytes);
}

/* --- on a device whose memory is not the host's (tests/lib/apart.h) --- */

static struct tr_rig *apart_rig(const struct model_file *f, enum tr_kv_type kv, uint64_t seed)
{
    return tr_rig_open(&(struct tr_rig_config){.bytes = f->bytes,
                                               .len = f->len,
                                               .level = TR_CPU_AVX512,
                                               .kv_type = kv,
                                               .n_threads = 1,
                                               .apart = true,
                                               .ids = true,
                                               .n_seqs = N_SEQS,
                                               .max_rows = MAX_ROWS,
                                               .seed = seed});
}

static void apart_of(struct model_file f, const char *what, enum tr_kv_type kv)
{
    struct tr_rig *a = rig(&f, TR_OPS_INT8, kv, 1, 1);
    float *ref = reference(a);
    for (uint32_t chunk_max = 1; chunk_max <= 31; chunk_max += 30) {
        struct tr_rig *b = apart_rig(&f, kv, 200 + chunk_max);
        for (uint32_t i = 0; !all_done(b); i++)
            random_step(b, ref, chunk_max, i % 2, what);
        struct tr_apart_count n = tr_apart_count(b->dev);
        cr_expect(chunk_max > 1 || (n.recorded > 0 && n.replayed > n.recorded),
                  "%s: %u recorded, %u replayed", what, n.recorded, n.replayed);
        tr_rig_close(b);
    }
    free(ref);
    tr_rig_close(a);
    free(f.bytes);
}

/* Passes as they come, recorded ones and rows that are not there among them. */
Test(forward, a_device_apart_gives_the_same_rows)
{
    apart_of(tiny(TR_T_Q8_0, TR_T_Q4_0), "llama", TR_KV_Q8_0);
    apart_of(tiny_arch("gemma3", 2), "gemma3", TR_KV_F16);
    apart_of(tiny_arch("qwen2", 2), "qwen2", TR_KV_F32);
}

Test(forward, recorded_passes_are_all_there_after_the_start)
{
    struct model_file f = tiny(TR_T_Q4_1, TR_T_Q8_0);
    struct tr_rig *r = apart_rig(&f, TR_KV_F16, 9);
    tr_forward_record(r->f);
    struct tr_apart_count n = tr_apart_count(r->dev);
    cr_expect(n.recorded == 7 && n.replayed == 0 && n.waiting == 0, "1, 2, 4 to 64 rows: %u",
              n.recorded);
    for (uint32_t rows = 1; rows <= 70; rows++) {
        for (uint32_t i = 0; i < rows; i++)
            tr_rig_add(r, 0, token(0, r->len[0]), true);
        tr_rig_run(r);
        tr_rig_reset(r, 0);
    }
    n = tr_apart_count(r->dev);
    cr_expect(n.recorded == 7 && n.replayed == 64, "%u recorded, %u replayed", n.recorded,
              n.replayed);
    tr_rig_close(r);
    free(f.bytes);
}

/* Room for fewer rows of logits than the device would record: the last kind has as many as there is
 * room for. */
Test(forward, the_largest_recorded_pass_has_the_rows_there_is_room_for)
{
    struct model_file f = tiny(TR_T_Q8_0, TR_T_Q8_0);
    struct tr_rig_config c = {.bytes = f.bytes,
                              .len = f.len,
                              .n_threads = 1,
                              .level = TR_CPU_AVX512,
                              .n_seqs = 1,
                              .max_rows = 11};
    struct tr_rig *cpu = tr_rig_open(&c);
    c.apart = true;
    struct tr_rig *r = tr_rig_open(&c);
    tr_forward_record(r->f);
    cr_expect(eq(u32, tr_apart_count(r->dev).recorded, 5)); /* 1, 2, 4, 8, 11 */
    for (uint32_t rows = 1; rows <= 11; rows++)
        for (uint32_t both = 0; both < 2; both++) {
            struct tr_rig *x = both ? r : cpu;
            for (uint32_t i = 0; i < rows; i++)
                tr_rig_add(x, 0, token(2, x->len[0]), true);
            tr_rig_run(x);
            cr_expect(memcmp(x->logits, cpu->logits, (size_t)rows * N_VOCAB * sizeof(float)) == 0,
                      "%u rows", rows);
        }
    cr_expect(eq(u32, tr_apart_count(r->dev).recorded, 5));
    tr_rig_close(r);
    tr_rig_close(cpu);
    free(f.bytes);
}

/* Nothing that the host does before it waits changes a pass: rows, tables and blocks were read. */
Test(forward, a_pass_without_logits_for_the_host_is_under_way)
{
    enum { N = 40 };
    struct model_file f = tiny(TR_T_Q8_0, TR_T_Q8_0);
    struct tr_rig *cpu = rig(&f, TR_OPS_INT8, TR_KV_F16, 1, 6);
    uint32_t ids[N];
    for (uint32_t i = 0; i < N; i++)
        ids[i] = token(1, i);
    const float *want = tr_rig_prefill(cpu, 1, ids, N);

    struct tr_rig *r = apart_rig(&f, TR_KV_F16, 6);
    for (uint32_t i = 0; i < N; i++)
        tr_rig_add(r, 1, ids[i], i + 1 == N);
    struct tr_kv_table *t = &r->tables[1];
    uint32_t blocks[2] = {t->blocks[0], t->blocks[1]};
    tr_forward_run(r->f,
                   &(struct tr_batch){.rows = r->rows,
                                      .n_rows = r->n_rows,
                                      .seqs = r->tables,
                                      .n_seqs = N_SEQS,
                                      .n_out = r->n_out},
                   NULL, NULL, NULL);
    cr_expect(tr_apart_count(r->dev).waiting > 0, "it is not under way");
    memset(r->rows, 0xff, N * sizeof(*r->rows));
    memset(r->blocks, 0xff, N_SEQS * sizeof(*r->blocks));
    memset(t, 0xff, sizeof(*t));

    struct tr_forward_out out = tr_forward_out(r->f);
    static float got[N_VOCAB];
    uint32_t noted[TR_KV_BLOCK];
    struct tr_place place;
    r->ops->download(r->dev, got, out.logits, sizeof(got));
    cr_expect(memcmp(got, want, sizeof(got)) == 0);
    r->ops->download(r->dev, &place, out.places, sizeof(place));
    cr_expect(eq(u32, place.pos, N - 1));
    for (uint32_t b = 0; b < 2; b++) {
        uint32_t n = b ? N - TR_KV_BLOCK : TR_KV_BLOCK;
        r->ops->download(r->dev, noted, out.kv->ids + (size_t)blocks[b] * TR_KV_BLOCK,
                         sizeof(noted));
        cr_expect(memcmp(noted, ids + b * TR_KV_BLOCK, n * sizeof(*ids)) == 0, "block %u", b);
    }
    tr_rig_close(r);
    tr_rig_close(cpu);
    free(f.bytes);
}

struct tapped {
    float x[16][MAX_ROWS * 8];
    uint32_t n_stages;
};

static void note_tap(void *arg, uint32_t stage, const float *x, uint32_t n_rows)
{
    struct tapped *t = arg;
    cr_assert(stage == t->n_stages && stage < 16);
    t->n_stages++;
    memcpy(t->x[stage], x, n_rows * 64 * sizeof(float));
}

Test(forward, what_a_test_taps_of_a_device_is_what_it_taps_of_the_cpu)
{
    static struct tapped t[2];
    struct model_file f = tiny_arch("qwen3", 2); /* rows of 64 */
    for (uint32_t i = 0; i < 2; i++) {
        struct tr_rig *r = i ? apart_rig(&f, TR_KV_F16, 3) : rig(&f, TR_OPS_INT8, TR_KV_F16, 1, 3);
        tr_forward_tap(r->f, note_tap, &t[i]);
        for (uint32_t k = 0; k < 5; k++)
            tr_rig_add(r, 0, token(0, k), true);
        tr_rig_run(r);
        tr_rig_close(r);
    }
    cr_expect(t[0].n_stages == 5 && memcmp(&t[0], &t[1], sizeof(t[0])) == 0);
    free(f.bytes);
}

/* Whatever is missing, there is a sentence, and what was there before is given back: apart.h looks. */
Test(forward, a_device_without_memory_is_refused_in_a_sentence)
{
    enum { STEP = 10000 };
    struct model_file f = tiny(TR_T_Q8_0, TR_T_Q8_0);
    struct tr_errbuf err = {""};
    struct tr_gguf *g = tr_gguf_parse(f.bytes, f.len, "m.gguf", &err);
    uint32_t refused = 0;
    for (size_t bytes = 0;; bytes += STEP) {
        struct tr_errbuf why = {""};
        struct tr_dev *dev = tr_apart_open(&(struct tr_cpu_config){.n_threads = 1}, &err);
        cr_assert(dev != NULL);
        tr_apart_limit(dev, bytes);
        struct tr_model *m = tr_model_load(g, "m.gguf", 0, &tr_ops_apart, dev, NULL, NULL, &why);
        struct tr_forward_config c = {
            .kv_type = TR_KV_F16, .n_ctx = 64, .n_kv_blocks = 4, .max_rows = 8, .max_out = 4};
        struct tr_forward *fw = m ? tr_forward_open(m, &tr_ops_apart, dev, &c, &why) : NULL;
        if (fw) {
            uint64_t kv = 4 * tr_forward_kv_block_bytes(m, TR_KV_F16);
            cr_expect(bytes >= m->weights_len + kv + tr_forward_scratch_bytes(fw));
            cr_expect(bytes < m->weights_len + kv + tr_forward_scratch_bytes(fw) + STEP);
        } else {
            cr_expect(strstr(why.msg, "no memory for ") != NULL, "%zu bytes: \"%s\"", bytes,
                      why.msg);
        }
        bool done = fw != NULL;
        refused += !done;
        tr_forward_close(fw);
        tr_model_free(m);
        tr_ops_apart.close(dev);
        if (done)
            break;
    }
    cr_expect(refused > 10);
    tr_gguf_close(g);
    free(f.bytes);
}
