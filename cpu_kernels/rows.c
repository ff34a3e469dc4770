/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/rows.c - operations whose rows do not meet: norms, activations, rope, storing K and V. */
#include "cpu_kernels/dev.h"

#include "base/assert.h"
#include "cpu_kernels/kv.h"
#include "cpu_kernels/rope.h"

struct rows_job {
    const struct tr_dev *dev;
    void (*row)(const struct rows_job *j, size_t r);
    uint32_t n_rows;
    uint32_t n_tasks;
    uint32_t dim;
    float *x;
    const float *y;
    const float *w;
    const float *w_next;
    float eps;
    float factor;
    float *out;
    const struct tr_rope *rope;
    const struct tr_kv *kv;
    const struct tr_place *places;
    uint32_t layer;
    uint32_t n_head;
};

static void rows_task(void *arg, uint32_t i)
{
    const struct rows_job *j = arg;
    uint32_t end = tr_cpu_share(j->n_rows, i + 1, j->n_tasks);
    for (size_t r = tr_cpu_share(j->n_rows, i, j->n_tasks); r < end; r++)
        j->row(j, r);
}

static void run_rows(struct tr_dev *dev, struct rows_job *j)
{
    j->dev = dev;
    j->n_tasks = tr_cpu_row_tasks(dev, j->n_rows, j->dim);
    tr_threads_for(dev->threads, j->n_tasks, rows_task, j);
}

static void norm_row(const struct rows_job *j, size_t r)
{
    const float *x = j->x + r * j->dim;
    j->dev->k->rms_norm(NULL, x, NULL, j->w, j->eps, j->dim, j->out + r * j->dim);
}

void tr_cpu_rms_norm(struct tr_dev *dev, const float *x, const float *w, float eps, uint32_t n_rows,
                     uint32_t dim, float *out)
{
    /* x is only read: the job's field is shared with operations that write it. */
    struct rows_job job = {.row = norm_row,
                           .n_rows = n_rows,
                           .dim = dim,
                           .x = (float *)x,
                           .w = w,
                           .eps = eps,
                           .out = out};
    run_rows(dev, &job);
}

static void add_norm_row(const struct rows_job *j, size_t r)
{
    float *x = j->x + r * j->dim;
    j->dev->k->rms_norm(x, x, j->y + r * j->dim, j->w, j->eps, j->dim, j->out + r * j->dim);
}

void tr_cpu_add_rms_norm(struct tr_dev *dev, float *x, const float *y, const float *w, float eps,
                         uint32_t n_rows, uint32_t dim, float *out)
{
    struct rows_job job = {.row = add_norm_row,
                           .n_rows = n_rows,
                           .dim = dim,
                           .x = x,
                           .y = y,
                           .w = w,
                           .eps = eps,
                           .out = out};
    run_rows(dev, &job);
}

static void norm_add_norm_row(const struct rows_job *j, size_t r)
{
    float *x = j->x + r * j->dim;
    j->dev->k->norm_add(x, j->y + r * j->dim, j->w, j->eps, j->dim);
    j->dev->k->rms_norm(NULL, x, NULL, j->w_next, j->eps, j->dim, j->out + r * j->dim);
}

void tr_cpu_norm_add_rms_norm(struct tr_dev *dev, float *x, const float *y, const float *w_post,
                              const float *w_next, float eps, uint32_t n_rows, uint32_t dim,
                              float *out)
{
    struct rows_job job = {.row = norm_add_norm_row,
                           .n_rows = n_rows,
                           .dim = dim,
                           .x = x,
                           .y = y,
                           .w = w_post,
                           .w_next = w_next,
                           .eps = eps,
                           .out = out};
    run_rows(dev, &job);
}

static void head_norm_row(const struct rows_job *j, size_t r)
{
    uint32_t dim = j->dim / j->n_head;
    float *x = j->x + r * j->dim;
    for (uint32_t h = 0; h < j->n_head; h++, x += dim)
        j->dev->k->rms_norm(NULL, x, NULL, j->w, j->eps, dim, x);
}

void tr_cpu_head_norm(struct tr_dev *dev, float *x, const float *w, float eps, uint32_t n_rows,
                      uint32_t n_head, uint32_t head_dim)
{
    struct rows_job job = {.row = head_norm_row,
                           .n_rows = n_rows,
                           .dim = n_head * head_dim,
                           .n_head = n_head,
                           .x = x,
                           .w = w,
                           .eps = eps};
    run_rows(dev, &job);
}

static void add_row(const struct rows_job *j, size_t r)
{
    j->dev->k->add(j->x + r * j->dim, j->y + r * j->dim, j->dim);
}

void tr_cpu_add(struct tr_dev *dev, float *x, const float *y, uint32_t n_rows, uint32_t dim)
{
    struct rows_job job = {.row = add_row, .n_rows = n_rows, .dim = dim, .x = x, .y = y};
    run_rows(dev, &job);
}

static void add_bias_row(const struct rows_job *j, size_t r)
{
    j->dev->k->add(j->x + r * j->dim, j->w, j->dim);
}

void tr_cpu_add_bias(struct tr_dev *dev, float *x, const float *b, uint32_t n_rows, uint32_t dim)
{
    struct rows_job job = {.row = add_bias_row, .n_rows = n_rows, .dim = dim, .x = x, .w = b};
    run_rows(dev, &job);
}

static void scale_row(const struct rows_job *j, size_t r)
{
    j->dev->k->scale(j->x + r * j->dim, j->factor, j->dim);
}

void tr_cpu_scale(struct tr_dev *dev, float *x, float s, uint32_t n_rows, uint32_t dim)
{
    struct rows_job job = {.row = scale_row, .n_rows = n_rows, .dim = dim, .x = x, .factor = s};
    run_rows(dev, &job);
}

static void silu_mul_row(const struct rows_job *j, size_t r)
{
    j->dev->k->silu_mul(j->x + r * j->dim, j->y + r * j->dim, j->dim);
}

void tr_cpu_silu_mul(struct tr_dev *dev, float *gate, const float *up, uint32_t n_rows,
                     uint32_t dim)
{
    struct rows_job job = {.row = silu_mul_row, .n_rows = n_rows, .dim = dim, .x = gate, .y = up};
    run_rows(dev, &job);
}

static void gelu_mul_row(const struct rows_job *j, size_t r)
{
    j->dev->k->gelu_mul(j->x + r * j->dim, j->y + r * j->dim, j->dim);
}

void tr_cpu_gelu_mul(struct tr_dev *dev, float *gate, const float *up, uint32_t n_rows,
                     uint32_t dim)
{
    struct rows_job job = {.row = gelu_mul_row, .n_rows = n_rows, .dim = dim, .x = gate, .y = up};
    run_rows(dev, &job);
}

static void rope_row(const struct rows_job *j, size_t r)
{
    tr_rope_row(j->rope, j->x + r * j->dim, j->places[r].pos, j->n_head, j->dim / j->n_head);
}

void tr_cpu_rope(struct tr_dev *dev, const struct tr_rope *r, float *x,
                 const struct tr_place *places, uint32_t n_rows, uint32_t n_head, uint32_t head_dim)
{
    TR_ASSERT(r->n_rot <= head_dim);
    struct rows_job job = {.row = rope_row,
                           .n_rows = n_rows,
                           .dim = n_head * head_dim,
                           .x = x,
                           .rope = r,
                           .places = places,
                           .n_head = n_head};
    for (uint32_t i = 0; i < n_rows; i++)
        TR_ASSERT(places[i].pos < r->n_ctx);
    run_rows(dev, &job);
}

static void kv_write_row(const struct rows_job *j, size_t r)
{
    uint32_t pos = j->places[r].pos;
    uint32_t block = j->places[r].blocks[pos / TR_OPS_KV_BLOCK];
    TR_ASSERT(block < j->kv->n_blocks);
    j->dev->k->kv_write(j->kv, tr_kv_block(j->kv, j->layer, block), pos % TR_OPS_KV_BLOCK,
                        j->x + r * j->dim, j->y + r * j->dim);
}

void tr_cpu_kv_write(struct tr_dev *dev, const struct tr_kv *kv, uint32_t layer,
                     const struct tr_place *places, uint32_t n_rows, const float *k, const float *v)
{
    TR_ASSERT(layer < kv->n_layer);
    /* k is only read. */
    struct rows_job job = {.row = kv_write_row,
                           .n_rows = n_rows,
                           .x = (float *)k,
                           .y = v,
                           .dim = kv->n_head_kv * kv->head_dim,
                           .kv = kv,
                           .layer = layer,
                           .places = places};
    run_rows(dev, &job);
}
