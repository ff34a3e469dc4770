/* SPDX-License-Identifier: Apache-2.0 */
#include "late_backend.h"

#include "engine/pick.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum state { IDLE, LAUNCHED, PASSED }; /* what the scheduler may count on */

struct tr_backend {
    const struct tr_backend_ops *over;
    struct tr_backend *inner;
    enum state state;
    struct tr_batch batch; /* the noted one, in memory of our own */
    struct tr_batch_row *rows;
    struct tr_kv_table *tables;
    uint32_t *blocks; /* [max_seqs, per_seq] */
    uint32_t per_seq;
    float *logits;
    uint32_t n_vocab;
    struct tr_sampler *sampler;
    const struct tr_pick *picks;
    uint32_t n_picks;
};

struct tr_late tr_late;

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "late backend: %s\n", what);
    abort();
}

static void *take(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    must(p, "no memory");
    return p;
}

static void tell(enum tr_late_call call, const struct tr_backend *b)
{
    if (tr_late.told)
        tr_late.told(call, &b->batch);
}

static struct tr_backend *late_open(const struct tr_backend_config *c, struct tr_backend_info *info,
                                    struct tr_errbuf *err)
{
    struct tr_backend *b = take(1, sizeof(*b));
    b->over = tr_late.over;
    b->inner = b->over->open(c, info, err);
    if (!b->inner) {
        free(b);
        return NULL;
    }
    b->rows = take(c->max_rows, sizeof(*b->rows));
    b->tables = take(c->max_seqs, sizeof(*b->tables));
    b->per_seq = info->n_ctx / TR_KV_BLOCK + 1;
    b->blocks = take((size_t)c->max_seqs * b->per_seq, sizeof(*b->blocks));
    b->n_vocab = info->n_vocab;
    b->logits = take((size_t)c->max_out * info->n_vocab, sizeof(float));
    b->sampler = tr_sampler_new(c->max_out, info->n_vocab, info->n_ctx, NULL);
    must(b->sampler, "no memory for a sampler");
    return b;
}

static void late_forward(struct tr_backend *b, const struct tr_batch *batch, float *logits,
                         void (*beat)(void *), void *arg)
{
    (void)beat;
    (void)arg;
    must(b->state != LAUNCHED, "a pass is launched before the last one is waited for");
    must(!logits, "logits are asked for");
    b->batch = *batch;
    memcpy(b->rows, batch->rows, batch->n_rows * sizeof(*b->rows));
    for (uint32_t i = 0; i < batch->n_seqs; i++) {
        const struct tr_kv_table *t = &batch->seqs[i];
        uint32_t *blocks = b->blocks + (size_t)i * b->per_seq;
        must(t->n_blocks <= b->per_seq, "a table of more than the context");
        memcpy(blocks, t->blocks, t->n_blocks * sizeof(*blocks));
        b->tables[i] = (struct tr_kv_table){.blocks = blocks, .n_blocks = t->n_blocks};
    }
    b->batch.rows = b->rows;
    b->batch.seqs = b->tables;
    b->state = LAUNCHED;
    tell(TR_LATE_FORWARD, b);
}

static void late_pick(struct tr_backend *b, const struct tr_pick *p, uint32_t n)
{
    must(b->state != IDLE && !b->n_picks, "picks without a pass");
    must(n > 0 && n <= b->batch.n_out, "as many picks as rows have logits");
    for (uint32_t i = 0; i < n; i++)
        must(p[i].out < b->batch.n_out && (i == 0 || p[i - 1].out < p[i].out), "picks in order");
    b->picks = p;
    b->n_picks = n;
    tell(TR_LATE_PICK, b);
}

static void late_collect(struct tr_backend *b, struct tr_picked *out, uint32_t n,
                         void (*beat)(void *), void *arg)
{
    must(b->state != IDLE, "collected without a pass");
    must(n == b->n_picks, "as many as were picked");
    tell(TR_LATE_COLLECT, b);
    if (b->state == LAUNCHED)
        b->over->forward(b->inner, &b->batch, b->logits, beat, arg);
    for (uint32_t i = 0; i < n; i++)
        tr_pick_by_host(b->sampler, i, b->logits + (size_t)b->picks[i].out * b->n_vocab,
                        &b->picks[i], &out[i]);
    b->n_picks = 0;
    b->state = n ? IDLE : PASSED;
}

static void late_close(struct tr_backend *b)
{
    if (!b)
        return;
    b->over->close(b->inner);
    tr_sampler_free(b->sampler);
    free(b->rows);
    free(b->tables);
    free(b->blocks);
    free(b->logits);
    free(b);
}

const struct tr_backend_ops tr_backend_late = {.name = "late",
                                               .open = late_open,
                                               .forward = late_forward,
                                               .pick = late_pick,
                                               .collect = late_collect,
                                               .close = late_close};
