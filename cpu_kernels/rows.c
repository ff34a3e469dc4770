/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/rows.c - operations whose rows do not meet: norms, activations, rope, storing K and V;
 * and rows put elsewhere. */
#include "cpu_kernels/dev.h"

#include "base/assert.h"
#include "cpu_kernels/kv.h"
#include "cpu_kernels/quant.h"
#include "cpu_kernels/rope.h"
#include "cpu_kernels/strip.h"

#include <string.h>

/* --- what waits --- */

/* All that waits, row by row: a row is in the cache while one operation after the other passes
 * over it. */
static void rows_range(void *arg, uint32_t first, uint32_t end)
{
    const struct tr_dev *dev = arg;
    for (size_t r = first; r < end; r++)
        for (uint32_t i = 0; i < dev->n_waiting; i++)
            dev->waiting[i].row(&dev->waiting[i], r);
}

void tr_cpu_flush(struct tr_dev *dev)
{
    if (!dev->n_waiting)
        return;
    uint32_t n_rows = dev->waiting[0].n_rows;
    uint64_t row = 0; /* elements of a row in all operations */
    for (uint32_t i = 0; i < dev->n_waiting; i++)
        row += dev->waiting[i].dim;
    /* A chunk is worth half of what others are woken for, so two threads have one each. */
    uint32_t grain = (uint32_t)(TR_CPU_PARALLEL_MIN / 2 / row) + 1;
    tr_threads_ranges(dev->threads, n_rows, n_rows * row < TR_CPU_PARALLEL_MIN ? n_rows : grain,
                      rows_range, dev);
    dev->n_waiting = 0;
}

static void run_rows(struct tr_dev *dev, const struct tr_row_op *op)
{
    if (!op->n_rows)
        return;
    if (dev->n_waiting == TR_CPU_WAITING ||
        (dev->n_waiting && dev->waiting[0].n_rows != op->n_rows))
        tr_cpu_flush(dev);
    dev->waiting[dev->n_waiting] = *op;
    dev->waiting[dev->n_waiting++].k = dev->k;
    if (!dev->deferring)
        tr_cpu_flush(dev);
}

void tr_cpu_defer(struct tr_dev *dev, bool on)
{
    tr_cpu_flush(dev);
    dev->deferring = on;
}

/* --- the operations --- */

static void embed_row(const struct tr_row_op *j, size_t r)
{
    const struct tr_mat *m = j->mat;
    uint32_t token = j->tokens[r];
    if (m->row_major)
        memcpy(j->out + r * j->dim, (const float *)m->packed + (size_t)token * j->dim,
               j->dim * sizeof(float));
    else
        tr_strip_row(m->type, m->n_in, m->packed, token, j->out + r * j->dim);
}

void tr_cpu_embed(struct tr_dev *dev, const struct tr_mat *m, const uint32_t *tokens,
                  uint32_t n_rows, float *out)
{
    struct tr_row_op op = {
        .row = embed_row, .n_rows = n_rows, .dim = m->n_in, .mat = m, .tokens = tokens, .out = out};
    for (uint32_t i = 0; i < n_rows; i++)
        TR_ASSERT(tokens[i] < m->n_out);
    run_rows(dev, &op);
}

static void quantise_row(const struct tr_row_op *j, size_t r)
{
    struct tr_act *a = j->act;
    size_t blocks = a->dim / TR_QK;
    j->k->quantise(j->y + r * a->dim, a->dim, a->q + r * a->dim, a->d + r * blocks,
                   a->s + r * blocks, a->sum + r * blocks, a->low + r * blocks);
}

void tr_cpu_act_set(struct tr_dev *dev, struct tr_act *a, const float *x, uint32_t n_rows)
{
    TR_ASSERT(n_rows <= a->max_rows);
    a->x = x;
    a->n_rows = n_rows;
    if (dev->math != TR_OPS_INT8 || a->dim % TR_QK != 0)
        return;
    struct tr_row_op op = {.row = quantise_row, .n_rows = n_rows, .dim = a->dim, .act = a, .y = x};
    run_rows(dev, &op);
}

static void norm_row(const struct tr_row_op *j, size_t r)
{
    const float *x = j->x + r * j->dim;
    j->k->rms_norm(NULL, x, NULL, j->w, j->eps, j->dim, j->out + r * j->dim);
}

void tr_cpu_rms_norm(struct tr_dev *dev, const float *x, const float *w, float eps, uint32_t n_rows,
                     uint32_t dim, float *out)
{
    /* x is only read: the job's field is shared with operations that write it. */
    struct tr_row_op op = {.row = norm_row,
                           .n_rows = n_rows,
                           .dim = dim,
                           .x = (float *)x,
                           .w = w,
                           .eps = eps,
                           .out = out};
    run_rows(dev, &op);
}

static void add_norm_row(const struct tr_row_op *j, size_t r)
{
    float *x = j->x + r * j->dim;
    j->k->rms_norm(x, x, j->y + r * j->dim, j->w, j->eps, j->dim, j->out + r * j->dim);
}

void tr_cpu_add_rms_norm(struct tr_dev *dev, float *x, const float *y, const float *w, float eps,
                         uint32_t n_rows, uint32_t dim, float *out)
{
    struct tr_row_op op = {.row = add_norm_row,
                           .n_rows = n_rows,
                           .dim = dim,
                           .x = x,
                           .y = y,
                           .w = w,
                           .eps = eps,
                           .out = out};
    run_rows(dev, &op);
}

static void norm_add_norm_row(const struct tr_row_op *j, size_t r)
{
    float *x = j->x + r * j->dim;
    j->k->norm_add(x, j->y + r * j->dim, j->w, j->eps, j->dim);
    j->k->rms_norm(NULL, x, NULL, j->w_next, j->eps, j->dim, j->out + r * j->dim);
}

void tr_cpu_norm_add_rms_norm(struct tr_dev *dev, float *x, const float *y, const float *w_post,
                              const float *w_next, float eps, uint32_t n_rows, uint32_t dim,
                              float *out)
{
    struct tr_row_op op = {.row = norm_add_norm_row,
                           .n_rows = n_rows,
                           .dim = dim,
                           .x = x,
                           .y = y,
                           .w = w_post,
                           .w_next = w_next,
                           .eps = eps,
                           .out = out};
    run_rows(dev, &op);
}

static void head_norm_row(const struct tr_row_op *j, size_t r)
{
    uint32_t dim = j->dim / j->n_head;
    float *x = j->x + r * j->dim;
    for (uint32_t h = 0; h < j->n_head; h++, x += dim)
        j->k->rms_norm(NULL, x, NULL, j->w, j->eps, dim, x);
}

void tr_cpu_head_norm(struct tr_dev *dev, float *x, const float *w, float eps, uint32_t n_rows,
                      uint32_t n_head, uint32_t head_dim)
{
    struct tr_row_op op = {.row = head_norm_row,
                           .n_rows = n_rows,
                           .dim = n_head * head_dim,
                           .n_head = n_head,
                           .x = x,
                           .w = w,
                           .eps = eps};
    run_rows(dev, &op);
}

static void add_row(const struct tr_row_op *j, size_t r)
{
    j->k->add(j->x + r * j->dim, j->y + r * j->dim, j->dim);
}

void tr_cpu_add(struct tr_dev *dev, float *x, const float *y, uint32_t n_rows, uint32_t dim)
{
    struct tr_row_op op = {.row = add_row, .n_rows = n_rows, .dim = dim, .x = x, .y = y};
    run_rows(dev, &op);
}

static void add_bias_row(const struct tr_row_op *j, size_t r)
{
    j->k->add(j->x + r * j->dim, j->w, j->dim);
}

void tr_cpu_add_bias(struct tr_dev *dev, float *x, const float *b, uint32_t n_rows, uint32_t dim)
{
    struct tr_row_op op = {.row = add_bias_row, .n_rows = n_rows, .dim = dim, .x = x, .w = b};
    run_rows(dev, &op);
}

static void scale_row(const struct tr_row_op *j, size_t r)
{
    j->k->scale(j->x + r * j->dim, j->factor, j->dim);
}

void tr_cpu_scale(struct tr_dev *dev, float *x, float s, uint32_t n_rows, uint32_t dim)
{
    struct tr_row_op op = {.row = scale_row, .n_rows = n_rows, .dim = dim, .x = x, .factor = s};
    run_rows(dev, &op);
}

static void silu_mul_row(const struct tr_row_op *j, size_t r)
{
    j->k->silu_mul(j->x + r * j->dim, j->y + r * j->dim, j->dim);
}

void tr_cpu_silu_mul(struct tr_dev *dev, float *gate, const float *up, uint32_t n_rows,
                     uint32_t dim)
{
    struct tr_row_op op = {.row = silu_mul_row, .n_rows = n_rows, .dim = dim, .x = gate, .y = up};
    run_rows(dev, &op);
}

static void gelu_mul_row(const struct tr_row_op *j, size_t r)
{
    j->k->gelu_mul(j->x + r * j->dim, j->y + r * j->dim, j->dim);
}

void tr_cpu_gelu_mul(struct tr_dev *dev, float *gate, const float *up, uint32_t n_rows,
                     uint32_t dim)
{
    struct tr_row_op op = {.row = gelu_mul_row, .n_rows = n_rows, .dim = dim, .x = gate, .y = up};
    run_rows(dev, &op);
}

static void rope_row(const struct tr_row_op *j, size_t r)
{
    uint32_t pos = j->places[r].pos;
    if (pos != TR_NO_POS)
        tr_rope_row(j->rope, j->x + r * j->dim, pos, j->n_head, j->dim / j->n_head);
}

void tr_cpu_rope(struct tr_dev *dev, const struct tr_rope *r, float *x,
                 const struct tr_place *places, uint32_t n_rows, uint32_t n_head, uint32_t head_dim)
{
    TR_ASSERT(r->n_rot <= head_dim);
    struct tr_row_op op = {.row = rope_row,
                           .n_rows = n_rows,
                           .dim = n_head * head_dim,
                           .x = x,
                           .rope = r,
                           .places = places,
                           .n_head = n_head};
    for (uint32_t i = 0; i < n_rows; i++)
        TR_ASSERT(places[i].pos < r->n_filled || places[i].pos == TR_NO_POS);
    run_rows(dev, &op);
}

static void kv_write_row(const struct tr_row_op *j, size_t r)
{
    uint32_t pos = j->places[r].pos;
    if (pos == TR_NO_POS)
        return;
    uint32_t block = j->places[r].blocks[pos / TR_OPS_KV_BLOCK];
    TR_ASSERT(block < j->kv->n_blocks);
    j->k->kv_write(j->kv, tr_kv_block(j->kv, j->layer, block), pos % TR_OPS_KV_BLOCK,
                   j->x + r * j->dim, j->y + r * j->dim);
}

void tr_cpu_kv_write(struct tr_dev *dev, const struct tr_kv *kv, uint32_t layer,
                     const struct tr_place *places, uint32_t n_rows, const float *k, const float *v)
{
    TR_ASSERT(layer < kv->n_layer);
    /* k is only read. */
    struct tr_row_op op = {.row = kv_write_row,
                           .n_rows = n_rows,
                           .x = (float *)k,
                           .y = v,
                           .dim = kv->n_head_kv * kv->head_dim,
                           .kv = kv,
                           .layer = layer,
                           .places = places};
    run_rows(dev, &op);
}

void tr_cpu_gather(struct tr_dev *dev, const float *x, const uint32_t *rows, uint32_t n,
                   uint32_t dim, float *out)
{
    tr_cpu_flush(dev);
    for (size_t i = 0; i < n; i++)
        memcpy(out + i * dim, x + (size_t)rows[i] * dim, dim * sizeof(float));
}

void tr_cpu_note_ids(struct tr_dev *dev, const struct tr_kv *kv, const struct tr_place *places,
                     const uint32_t *tokens, uint32_t n_rows)
{
    (void)dev;
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t pos = places[i].pos;
        if (pos == TR_NO_POS)
            continue;
        uint32_t block = places[i].blocks[pos / TR_OPS_KV_BLOCK];
        TR_ASSERT(block < kv->n_blocks);
        kv->ids[(size_t)block * TR_OPS_KV_BLOCK + pos % TR_OPS_KV_BLOCK] = tokens[i];
    }
}
