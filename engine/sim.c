/* SPDX-License-Identifier: Apache-2.0 */
/* engine/sim.c - a scripted token source that still needs its KV.
 *
 * In the KV cell of every position it keeps a hash over all tokens up to it, made from that in the cell
 * before, and makes the logits of a row from the row's.  A block remembers the hash that it went on from
 * and how far it is written; a row goes through its whole block table and checks that each block goes on
 * from the end of the one before.  A wrong block table, a chunk at the wrong place, a block given away
 * too early or a recompute that differs changes the output, so scheduler tests that compare text test
 * all of that.  A row costs a look at each of its blocks, not at each of its tokens.
 *
 * Logits: a fixed table of noise in [-4, 4), turned by the hash, with a favourite at 10 and a
 * second at 8; about one row in 64 wants to end the answer.  |x| < 12: a logit_bias of 100 forces. */
#include "engine/backend.h"

#include "base/gguf.h"
#include "base/sim_vocab.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEFAULT_CTX = 8192, SLICE_US = 100000, EOG_IN = 64 };
/* A simulated block is as large as its token ids, whatever the simulation keeps of it. */
#define BLOCK_BYTES (TR_KV_BLOCK * sizeof(uint32_t))
#define BROKEN 0x5bd1e995c0ffee11u
#define FAVOURITE 10.0F
#define SECOND 8.0F

/* What a row checks of each block that its table names. */
struct block {
    uint64_t before, end; /* hashes up to its first position, exclusive, and up to its last */
    uint32_t n;           /* positions written, from the first on, since the last write at each */
};

struct tr_backend {
    uint32_t n_vocab, n_ctx, n_blocks;
    uint32_t step_us, prefill_us;
    uint32_t eog;
    bool own_vocab;
    uint32_t n_text;
    uint32_t *text;       /* [n_text]: ids a favourite is drawn from */
    uint64_t *kv;         /* [n_blocks, TR_KV_BLOCK] */
    struct block *blocks; /* [n_blocks] */
    float *noise;         /* [n_vocab] */
};

static uint64_t mix(uint64_t h)
{
    h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
    h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
    return h ^ (h >> 32);
}

/* ---- open ---- */

static int list_text(struct tr_backend *b, uint32_t cap)
{
    b->text = calloc(cap ? cap : 1, sizeof(uint32_t));
    b->n_text = 0;
    return b->text ? 0 : -ENOMEM;
}

/* Words, characters, and the first halves of characters in pieces. */
static int own_vocab(struct tr_backend *b)
{
    b->own_vocab = true;
    b->n_vocab = TR_SIM_VOCAB_SIZE;
    b->eog = TR_SIM_EOS;
    if (list_text(b, TR_SIM_VOCAB_SIZE))
        return -ENOMEM;
    for (uint32_t id = TR_SIM_TEXT; id < TR_SIM_VOCAB_SIZE; id++)
        if (id < TR_SIM_TEXT_END || (id - TR_SIM_TEXT_END) % 2 == 0)
            b->text[b->n_text++] = id;
    return 0;
}

enum { TYPE_NORMAL = 1 };

static int vocab_of(struct tr_backend *b, const struct tr_gguf *g, const char *path,
                    struct tr_errbuf *err)
{
    struct tr_gguf_array tokens, types;
    if (tr_gguf_array(g, "tokenizer.ggml.tokens", &tokens) || tokens.len == 0 ||
        tokens.len > INT32_MAX)
        return tr_errf(err, -EINVAL, "%s: no vocabulary", path);
    b->n_vocab = (uint32_t)tokens.len;
    bool typed = tr_gguf_array(g, "tokenizer.ggml.token_type", &types) == 0;
    if (list_text(b, b->n_vocab))
        return tr_errf(err, -ENOMEM, "out of memory");
    for (uint32_t id = 0; id < b->n_vocab; id++) {
        int64_t type = TYPE_NORMAL;
        if (typed && tr_gguf_next_i64(&types, &type))
            return tr_errf(err, -EINVAL, "%s: tokenizer.ggml.token_type is too short", path);
        if (type == TYPE_NORMAL)
            b->text[b->n_text++] = id;
    }
    uint64_t eog;
    b->eog = tr_gguf_u64(g, "tokenizer.ggml.eos_token_id", &eog) == 0 && eog < b->n_vocab
                 ? (uint32_t)eog
                 : UINT32_MAX;
    return b->n_text ? 0 : tr_errf(err, -EINVAL, "%s: no token is text", path);
}

static int file_vocab(struct tr_backend *b, const char *path, struct tr_errbuf *err)
{
    struct tr_gguf *g = tr_gguf_open(path, err);
    if (!g)
        return -EINVAL;
    int ret = vocab_of(b, g, path, err);
    struct tr_str arch;
    char key[128];
    uint64_t ctx;
    if (!ret && tr_gguf_str(g, "general.architecture", &arch) == 0 && arch.len < 64) {
        snprintf(key, sizeof(key), "%.*s.context_length", (int)arch.len, arch.p);
        if (tr_gguf_u64(g, key, &ctx) == 0 && ctx > 0 && ctx <= INT32_MAX)
            b->n_ctx = (uint32_t)ctx;
    }
    tr_gguf_close(g);
    return ret;
}

static int make_pool(struct tr_backend *b, const struct tr_backend_config *c, struct tr_errbuf *err)
{
    uint64_t per_seq = (b->n_ctx + TR_KV_BLOCK - 1) / TR_KV_BLOCK;
    uint64_t bytes = BLOCK_BYTES;
    uint64_t n = c->kv_bytes ? c->kv_bytes / bytes : per_seq * c->max_seqs;
    if (n < 1 || n > INT32_MAX)
        return tr_errf(err, -EINVAL, "KV memory for %llu blocks makes no sense",
                       (unsigned long long)n);
    b->n_blocks = (uint32_t)n;
    b->kv = calloc(n, TR_KV_BLOCK * sizeof(*b->kv));
    b->blocks = calloc(n, sizeof(*b->blocks));
    b->noise = calloc(b->n_vocab, sizeof(float));
    if (!b->kv || !b->blocks || !b->noise)
        return tr_errf(err, -ENOMEM, "out of memory for %llu KV blocks", (unsigned long long)n);
    for (uint32_t i = 0; i < b->n_vocab; i++)
        b->noise[i] = (float)(mix(i + 1) >> 40) * 0x1p-21F - 4.0F;
    return 0;
}

static void sim_close(struct tr_backend *b)
{
    if (!b)
        return;
    free(b->text);
    free(b->kv);
    free(b->blocks);
    free(b->noise);
    free(b);
}

static struct tr_backend *sim_open(const struct tr_backend_config *c, struct tr_backend_info *info,
                                   struct tr_errbuf *err)
{
    struct tr_backend *b = calloc(1, sizeof(*b));
    if (!b) {
        tr_errf(err, -ENOMEM, "out of memory");
        return NULL;
    }
    b->n_ctx = DEFAULT_CTX;
    b->step_us = c->sim_step_us;
    b->prefill_us = c->sim_prefill_us;
    if (c->model_path ? file_vocab(b, c->model_path, err) : own_vocab(b)) {
        sim_close(b);
        return NULL;
    }
    /* A file's context is a limit; the built-in vocabulary has none. */
    if (c->n_ctx && (!c->model_path || c->n_ctx < b->n_ctx))
        b->n_ctx = c->n_ctx;
    if (make_pool(b, c, err)) {
        sim_close(b);
        return NULL;
    }
    *info = (struct tr_backend_info){.n_vocab = b->n_vocab,
                                     .n_ctx = b->n_ctx,
                                     .n_layer = 0,
                                     .n_kv_blocks = b->n_blocks,
                                     .kv_block_bytes = BLOCK_BYTES,
                                     .deterministic = true};
    snprintf(info->description, sizeof(info->description),
             "sim: scripted tokens, vocabulary of %u, %u us a step, %u us a prompt token",
             b->n_vocab, b->step_us, b->prefill_us);
    return b;
}

/* ---- forward ---- */

/* The hash that block k of a table has to go on from. */
static uint64_t end_before(const struct tr_backend *b, const struct tr_kv_table *t, uint32_t k)
{
    if (k == 0)
        return 0;
    const struct block *last = &b->blocks[t->blocks[k - 1]];
    return last->n == TR_KV_BLOCK ? last->end : mix(last->end ^ BROKEN);
}

/* A write makes what stands behind it in the block worthless; one behind a hole is worthless itself. */
static void write_cell(struct tr_backend *b, const struct tr_kv_table *t, uint32_t pos,
                       uint32_t token)
{
    uint32_t at = pos % TR_KV_BLOCK, id = t->blocks[pos / TR_KV_BLOCK];
    struct block *k = &b->blocks[id];
    uint64_t *cells = b->kv + (size_t)id * TR_KV_BLOCK;
    if (at == 0)
        k->before = end_before(b, t, pos / TR_KV_BLOCK);
    uint64_t h = at == 0 ? k->before : k->n >= at ? cells[at - 1] : mix(cells[at - 1] ^ BROKEN);
    cells[at] = mix(h ^ (token + 0x9e3779b97f4a7c15u * (pos + 1u)));
    k->n = at + 1;
    k->end = cells[at];
}

/* Over all tokens up to `pos`; something else if the table's blocks are not theirs, one after the
 * other. */
static uint64_t read_hash(const struct tr_backend *b, const struct tr_kv_table *t, uint32_t pos)
{
    uint32_t last = pos / TR_KV_BLOCK, at = pos % TR_KV_BLOCK, id = t->blocks[last];
    uint64_t h = b->kv[(size_t)id * TR_KV_BLOCK + at];
    bool good = b->blocks[id].n > at;
    for (uint32_t k = 0; k <= last; k++)
        good &= b->blocks[t->blocks[k]].before == end_before(b, t, k);
    return good ? h : mix(h ^ BROKEN);
}

static void fill_logits(const struct tr_backend *b, uint64_t h, uint32_t last, float *logits)
{
    uint32_t turn = (uint32_t)(h % b->n_vocab);
    memcpy(logits, b->noise + turn, (b->n_vocab - turn) * sizeof(float));
    memcpy(logits + (b->n_vocab - turn), b->noise, turn * sizeof(float));
    uint64_t h2 = mix(h + 1), h3 = mix(h + 2);
    uint32_t favourite = b->text[h2 % b->n_text];
    /* The second half of a character follows its first. */
    bool half = b->own_vocab && last >= TR_SIM_TEXT_END && (last - TR_SIM_TEXT_END) % 2 == 0;
    if (half)
        favourite = last + 1;
    else if (b->eog != UINT32_MAX && h3 % EOG_IN == 0)
        favourite = b->eog;
    logits[b->text[(h3 >> 32) % b->n_text]] = SECOND;
    logits[favourite] = FAVOURITE;
}

/* Time passes in slices, with a sign of life before each. */
static void pass_time(uint64_t us, void (*beat)(void *), void *arg)
{
    while (us) {
        uint64_t slice = us < SLICE_US ? us : SLICE_US;
        struct timespec t = {.tv_sec = 0, .tv_nsec = (long)(slice * 1000)};
        beat(arg);
        while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
            ;
        us -= slice;
    }
}

static void sim_forward(struct tr_backend *b, const struct tr_batch *batch, float *logits,
                        void (*beat)(void *), void *arg)
{
    uint64_t prefilled = 0;
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        const struct tr_batch_row *r = &batch->rows[i];
        write_cell(b, &batch->seqs[r->seq], r->pos, r->token);
        bool run = (i > 0 && r[-1].seq == r->seq) ||
                   (i + 1 < batch->n_rows && r[1].seq == r->seq) || r->out == TR_NO_LOGITS;
        prefilled += run;
    }
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        const struct tr_batch_row *r = &batch->rows[i];
        if (r->out == TR_NO_LOGITS)
            continue;
        uint64_t h = read_hash(b, &batch->seqs[r->seq], r->pos);
        fill_logits(b, h, r->token, logits + (size_t)r->out * b->n_vocab);
    }
    pass_time(b->step_us + prefilled * b->prefill_us, beat, arg);
    beat(arg);
}

static void sim_parallel(struct tr_backend *b, uint32_t n, void (*fn)(void *, uint32_t), void *arg)
{
    (void)b;
    for (uint32_t i = 0; i < n; i++)
        fn(arg, i);
}

const struct tr_backend_ops tr_backend_sim = {.name = "sim",
                                              .open = sim_open,
                                              .forward = sim_forward,
                                              .parallel = sim_parallel,
                                              .close = sim_close};
