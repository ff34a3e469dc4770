/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/cpu.c - the table of operations on the CPU.
 *
 * Cuts each operation into tasks (strips of outputs, rows, heads) for the threads.  How it is cut
 * depends on shape and threads, what is computed does not (N1). */
#include "base/assert.h"
#include "cpu_kernels/blas.h"
#include "cpu_kernels/kernels.h"
#include "cpu_kernels/kv.h"
#include "cpu_kernels/quant.h"
#include "cpu_kernels/rope.h"
#include "cpu_kernels/strip.h"
#include "cpu_kernels/threads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Work of fewer elements than this is done by the caller alone: waking others costs more. */
enum { PARALLEL_MIN = 16384 };

/* Rows of a prompt that one task attends with: enough to share what is read of K and V. */
enum { ATTEND_ROWS = 8 };

struct tr_dev {
    enum tr_ops_math math;
    const struct tr_kernels *k;
    struct tr_threads *threads;
    struct tr_blas blas;
};

/* --- weights --- */

/* The type a weight has once packed. */
static enum tr_tensor_type packed_type(const struct tr_dev *dev, enum tr_tensor_type type)
{
    if (dev->math == TR_OPS_BLAS || (dev->math == TR_OPS_F32 && tr_quant_blocked(type)))
        return TR_T_F32;
    return type;
}

static size_t mat_bytes(const struct tr_dev *dev, enum tr_tensor_type type, uint32_t n_in,
                        uint32_t n_out)
{
    /* Above this sizes could overflow; no model comes near. */
    const uint32_t limit = 1U << 28;
    if (n_in < 1 || n_out < 1 || n_in > limit || n_out > limit ||
        tr_quant_row_bytes(type, n_in) == 0)
        return 0;
    if (dev->math == TR_OPS_BLAS)
        return (size_t)n_in * n_out * sizeof(float);
    return tr_strip_count(n_out) * tr_strip_bytes(packed_type(dev, type), n_in);
}

static void mat_adopt(struct tr_dev *dev, struct tr_mat *m, enum tr_tensor_type type, uint32_t n_in,
                      uint32_t n_out, const void *mem)
{
    TR_ASSERT((uintptr_t)mem % TR_OPS_ALIGN == 0);
    *m = (struct tr_mat){.packed = mem,
                         .type = packed_type(dev, type),
                         .n_in = n_in,
                         .n_out = n_out,
                         .row_major = dev->math == TR_OPS_BLAS};
}

struct prepare_job {
    enum tr_tensor_type type;
    uint32_t n_in;
    uint32_t n_out;
    const uint8_t *data;
    uint8_t *mem;
    enum tr_tensor_type packed;
    bool row_major;
};

/* Strip i, or sixteen rows for BLAS. */
static void prepare_strip(void *arg, uint32_t i)
{
    const struct prepare_job *j = arg;
    uint32_t first = i * TR_STRIP;
    uint32_t n = j->n_out - first < TR_STRIP ? j->n_out - first : TR_STRIP;
    size_t row_bytes = tr_quant_row_bytes(j->type, j->n_in);
    const uint8_t *rows = j->data + first * row_bytes;
    uint8_t *strip = j->mem + i * tr_strip_bytes(j->packed, j->n_in);

    if (j->row_major) {
        float *out = (float *)(void *)j->mem + (size_t)first * j->n_in;
        tr_quant_row(j->type, rows, (size_t)n * j->n_in, out);
    } else if (j->packed == j->type) {
        tr_strip_pack(j->type, j->n_in, n, rows, strip);
    } else {
        /* Dequantised, 32 elements of K at a time: no memory is needed for it. */
        float *out = (float *)(void *)strip;
        memset(strip, 0, tr_strip_bytes(TR_T_F32, j->n_in));
        for (uint32_t r = 0; r < n; r++, rows += row_bytes) {
            for (uint32_t k0 = 0; k0 < j->n_in; k0 += TR_QK) {
                float x[TR_QK];
                tr_quant_row(j->type, rows + tr_quant_row_bytes(j->type, k0), TR_QK, x);
                for (uint32_t k = 0; k < TR_QK; k++)
                    out[(size_t)(k0 + k) * TR_STRIP + r] = x[k];
            }
        }
    }
}

static void mat_prepare(struct tr_dev *dev, struct tr_mat *m, enum tr_tensor_type type,
                        uint32_t n_in, uint32_t n_out, const void *data, void *mem)
{
    TR_ASSERT(mat_bytes(dev, type, n_in, n_out) != 0);
    mat_adopt(dev, m, type, n_in, n_out, mem);
    struct prepare_job job = {.type = type,
                              .n_in = n_in,
                              .n_out = n_out,
                              .data = data,
                              .mem = mem,
                              .packed = m->type,
                              .row_major = m->row_major};
    tr_threads_for(dev->threads, tr_strip_count(n_out), prepare_strip, &job);
}

static void embed(struct tr_dev *dev, const struct tr_mat *m, const uint32_t *tokens,
                  uint32_t n_rows, float *out)
{
    (void)dev;
    for (uint32_t i = 0; i < n_rows; i++, out += m->n_in) {
        TR_ASSERT(tokens[i] < m->n_out);
        if (m->row_major)
            memcpy(out, (const float *)m->packed + (size_t)tokens[i] * m->n_in,
                   m->n_in * sizeof *out);
        else
            tr_strip_row(m->type, m->n_in, m->packed, tokens[i], out);
    }
}

/* --- activations --- */

static size_t align_up(size_t n)
{
    return (n + TR_OPS_ALIGN - 1) / TR_OPS_ALIGN * TR_OPS_ALIGN;
}

static size_t act_bytes(const struct tr_dev *dev, uint32_t max_rows, uint32_t dim)
{
    (void)dev;
    size_t blocks = (size_t)max_rows * (dim / TR_QK);
    return align_up(blocks * TR_QK) + 3 * align_up(blocks * 4);
}

static void act_init(struct tr_dev *dev, struct tr_act *a, uint32_t max_rows, uint32_t dim,
                     void *mem)
{
    (void)dev;
    TR_ASSERT((uintptr_t)mem % TR_OPS_ALIGN == 0);
    size_t blocks = (size_t)max_rows * (dim / TR_QK);
    uint8_t *p = mem;
    *a = (struct tr_act){.dim = dim, .max_rows = max_rows};
    a->q = (int8_t *)p;
    p += align_up(blocks * TR_QK);
    a->d = (float *)(void *)p;
    p += align_up(blocks * 4);
    a->s = (float *)(void *)p;
    p += align_up(blocks * 4);
    a->sum = (int32_t *)(void *)p;
}

/* Rows [lo, hi) of task i out of n. */
static uint32_t share(uint32_t n_rows, uint32_t i, uint32_t n)
{
    return (uint32_t)((uint64_t)n_rows * i / n);
}

/* How many tasks n_rows rows of dim elements are worth. */
static uint32_t row_tasks(const struct tr_dev *dev, uint32_t n_rows, size_t dim)
{
    uint32_t most = 4 * tr_threads_count(dev->threads);
    if (tr_threads_count(dev->threads) == 1 || n_rows * dim < PARALLEL_MIN)
        return 1;
    return n_rows < most ? n_rows : most;
}

struct act_job {
    const struct tr_dev *dev;
    struct tr_act *a;
    uint32_t n_tasks;
};

static void act_task(void *arg, uint32_t i)
{
    const struct act_job *j = arg;
    struct tr_act *a = j->a;
    size_t blocks = a->dim / TR_QK;
    uint32_t end = share(a->n_rows, i + 1, j->n_tasks);
    for (size_t r = share(a->n_rows, i, j->n_tasks); r < end; r++)
        j->dev->k->quantise(a->x + r * a->dim, a->dim, a->q + r * a->dim, a->d + r * blocks,
                            a->s + r * blocks, a->sum + r * blocks);
}

static void act_set(struct tr_dev *dev, struct tr_act *a, const float *x, uint32_t n_rows)
{
    TR_ASSERT(n_rows <= a->max_rows);
    a->x = x;
    a->n_rows = n_rows;
    if (dev->math != TR_OPS_INT8 || a->dim % TR_QK != 0)
        return;
    struct act_job job = {.dev = dev, .a = a, .n_tasks = row_tasks(dev, n_rows, a->dim)};
    tr_threads_for(dev->threads, job.n_tasks, act_task, &job);
}

/* --- products --- */

static tr_product_fn *product_of(const struct tr_kernels *k, enum tr_tensor_type type)
{
    switch ((int)type) {
    case TR_T_F32:
        return k->product_f32;
    case TR_T_F16:
        return k->product_f16;
    case TR_T_BF16:
        return k->product_bf16;
    case TR_T_Q8_0:
        return k->product_q8_0;
    case TR_T_Q4_0:
        return k->product_q4_0;
    default:
        return k->product_q4_1;
    }
}

struct product_job {
    tr_product_fn *fn;
    const struct tr_mat *w;
    const struct tr_act *a;
    float *out;
    uint32_t n_tasks;
};

static void product_task(void *arg, uint32_t i)
{
    const struct product_job *j = arg;
    uint32_t n = tr_strip_count(j->w->n_out);
    j->fn(j->w, j->a, share(n, i, j->n_tasks), share(n, i + 1, j->n_tasks), j->out);
}

static void matmul(struct tr_dev *dev, const struct tr_mat *w, const struct tr_act *a, float *out)
{
    TR_ASSERT(a->dim == w->n_in);
    if (w->row_major) {
        tr_blas_product(&dev->blas, a->x, w->packed, a->n_rows, w->n_in, w->n_out, out);
        return;
    }
    /* A few tasks to a thread: one whose core is shared takes fewer of them. */
    uint32_t n_strips = tr_strip_count(w->n_out);
    uint32_t n_threads = tr_threads_count(dev->threads);
    uint32_t n_tasks = n_threads == 1 ? 1 : 4 * n_threads;
    struct product_job job = {.fn = product_of(dev->k, w->type),
                              .w = w,
                              .a = a,
                              .out = out,
                              .n_tasks = n_tasks < n_strips ? n_tasks : n_strips};
    tr_threads_for(dev->threads, job.n_tasks, product_task, &job);
}

/* --- row by row --- */

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
    uint32_t end = share(j->n_rows, i + 1, j->n_tasks);
    for (size_t r = share(j->n_rows, i, j->n_tasks); r < end; r++)
        j->row(j, r);
}

static void run_rows(struct tr_dev *dev, struct rows_job *j)
{
    j->dev = dev;
    j->n_tasks = row_tasks(dev, j->n_rows, j->dim);
    tr_threads_for(dev->threads, j->n_tasks, rows_task, j);
}

static void norm_row(const struct rows_job *j, size_t r)
{
    const float *x = j->x + r * j->dim;
    j->dev->k->rms_norm(NULL, x, NULL, j->w, j->eps, j->dim, j->out + r * j->dim);
}

static void rms_norm(struct tr_dev *dev, const float *x, const float *w, float eps, uint32_t n_rows,
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

static void add_rms_norm(struct tr_dev *dev, float *x, const float *y, const float *w, float eps,
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

static void norm_add_rms_norm(struct tr_dev *dev, float *x, const float *y, const float *w_post,
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

static void head_norm(struct tr_dev *dev, float *x, const float *w, float eps, uint32_t n_rows,
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

static void add(struct tr_dev *dev, float *x, const float *y, uint32_t n_rows, uint32_t dim)
{
    struct rows_job job = {.row = add_row, .n_rows = n_rows, .dim = dim, .x = x, .y = y};
    run_rows(dev, &job);
}

static void add_bias_row(const struct rows_job *j, size_t r)
{
    j->dev->k->add(j->x + r * j->dim, j->w, j->dim);
}

static void add_bias(struct tr_dev *dev, float *x, const float *b, uint32_t n_rows, uint32_t dim)
{
    struct rows_job job = {.row = add_bias_row, .n_rows = n_rows, .dim = dim, .x = x, .w = b};
    run_rows(dev, &job);
}

static void scale_row(const struct rows_job *j, size_t r)
{
    j->dev->k->scale(j->x + r * j->dim, j->factor, j->dim);
}

static void scale(struct tr_dev *dev, float *x, float s, uint32_t n_rows, uint32_t dim)
{
    struct rows_job job = {.row = scale_row, .n_rows = n_rows, .dim = dim, .x = x, .factor = s};
    run_rows(dev, &job);
}

static void silu_mul_row(const struct rows_job *j, size_t r)
{
    j->dev->k->silu_mul(j->x + r * j->dim, j->y + r * j->dim, j->dim);
}

static void silu_mul(struct tr_dev *dev, float *gate, const float *up, uint32_t n_rows,
                     uint32_t dim)
{
    struct rows_job job = {.row = silu_mul_row, .n_rows = n_rows, .dim = dim, .x = gate, .y = up};
    run_rows(dev, &job);
}

static void gelu_mul_row(const struct rows_job *j, size_t r)
{
    j->dev->k->gelu_mul(j->x + r * j->dim, j->y + r * j->dim, j->dim);
}

static void gelu_mul(struct tr_dev *dev, float *gate, const float *up, uint32_t n_rows,
                     uint32_t dim)
{
    struct rows_job job = {.row = gelu_mul_row, .n_rows = n_rows, .dim = dim, .x = gate, .y = up};
    run_rows(dev, &job);
}

static void rope_row(const struct rows_job *j, size_t r)
{
    tr_rope_row(j->rope, j->x + r * j->dim, j->places[r].pos, j->n_head, j->dim / j->n_head);
}

static void rope(struct tr_dev *dev, const struct tr_rope *r, float *x,
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

/* --- the KV cache --- */

size_t tr_kv_block_bytes(enum tr_ops_kv type, uint32_t n_head_kv, uint32_t head_dim)
{
    uint32_t unit = type == TR_OPS_KV_Q8_0 ? 32 : 16;
    if (n_head_kv < 1 || n_head_kv > 1U << 16 || head_dim < unit || head_dim % unit != 0 ||
        head_dim > TR_OPS_HEAD_MAX)
        return 0;
    return align_up(2 * (size_t)n_head_kv * tr_kv_head_bytes(type, head_dim));
}

static void kv_write_row(const struct rows_job *j, size_t r)
{
    uint32_t pos = j->places[r].pos;
    uint32_t block = j->places[r].blocks[pos / TR_OPS_KV_BLOCK];
    TR_ASSERT(block < j->kv->n_blocks);
    j->dev->k->kv_write(j->kv, tr_kv_block(j->kv, j->layer, block), pos % TR_OPS_KV_BLOCK,
                        j->x + r * j->dim, j->y + r * j->dim);
}

static void kv_write(struct tr_dev *dev, const struct tr_kv *kv, uint32_t layer,
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

struct attend_job {
    const struct tr_dev *dev;
    const struct tr_kv *kv;
    const struct tr_place *places;
    uint32_t n_rows;
    uint32_t rows_per_task;
    struct tr_attend a; /* what all tasks share */
};

/* Rows from r on that stand in one sequence at consecutive positions, below `end`. */
static uint32_t run_length(const struct tr_place *places, uint32_t r, uint32_t end)
{
    uint32_t n = 1;
    while (r + n < end && places[r + n].blocks == places[r].blocks &&
           places[r + n].pos == places[r].pos + n)
        n++;
    return n;
}

/* Some rows against one KV head. */
static void attend_task(void *arg, uint32_t i)
{
    const struct attend_job *j = arg;
    struct tr_attend a = j->a;
    size_t width = (size_t)a.n_head * j->kv->head_dim;
    uint32_t first = i / j->kv->n_head_kv * j->rows_per_task;
    uint32_t end = j->n_rows - first < j->rows_per_task ? j->n_rows : first + j->rows_per_task;

    a.head_kv = i % j->kv->n_head_kv;
    for (uint32_t r = first; r < end; r += a.n_rows) {
        a.n_rows = run_length(j->places, r, end);
        a.blocks = j->places[r].blocks;
        a.pos = j->places[r].pos;
        a.q = j->a.q + r * width;
        a.out = j->a.out + r * width;
        j->dev->k->attend(&a);
    }
}

static void attention(struct tr_dev *dev, const struct tr_kv *kv, uint32_t layer,
                      const struct tr_place *places, uint32_t n_rows, const float *q,
                      uint32_t n_head, const struct tr_attend_params *p, float *out)
{
    TR_ASSERT(layer < kv->n_layer && n_head % kv->n_head_kv == 0);
    uint32_t n_threads = tr_threads_count(dev->threads);
    struct attend_job job = {
        .dev = dev,
        .kv = kv,
        .places = places,
        .n_rows = n_rows,
        .rows_per_task = n_rows <= 4 * n_threads ? 1 : ATTEND_ROWS,
        .a = {.kv = kv, .layer = layer, .n_head = n_head, .p = *p, .q = q, .out = out}};
    uint32_t n_parts = (n_rows + job.rows_per_task - 1) / job.rows_per_task;
    tr_threads_for(dev->threads, n_parts * kv->n_head_kv, attend_task, &job);
}

/* --- the device --- */

static void parallel(struct tr_dev *dev, uint32_t n, void (*fn)(void *arg, uint32_t i), void *arg)
{
    tr_threads_for(dev->threads, n, fn, arg);
}

static const struct tr_kernels *kernels_of(enum tr_cpu_level level)
{
#if defined(__x86_64__)
    if (level == TR_CPU_AVX512)
        return &tr_kernels_avx512;
    if (level == TR_CPU_AVX2)
        return &tr_kernels_avx2;
#endif
    (void)level;
    return &tr_kernels_generic;
}

static void cpu_close(struct tr_dev *dev)
{
    if (!dev)
        return;
    tr_threads_stop(dev->threads);
    free(dev);
}

struct tr_dev *tr_cpu_open(const struct tr_cpu_config *c, struct tr_errbuf *err)
{
    struct tr_dev *dev = calloc(1, sizeof *dev);
    if (!dev) {
        tr_errf(err, -ENOMEM, "no memory for the CPU backend");
        return NULL;
    }
    dev->math = c->math;
    dev->k = kernels_of(tr_cpu_level_find(c->level_max));
    dev->threads = tr_threads_start(c->n_threads, err);
    if (!dev->threads || (c->math == TR_OPS_BLAS && tr_blas_load(&dev->blas, c->n_threads, err))) {
        cpu_close(dev);
        return NULL;
    }
    return dev;
}

const struct tr_ops tr_ops_cpu = {
    .name = "cpu",
    .mat_bytes = mat_bytes,
    .mat_prepare = mat_prepare,
    .mat_adopt = mat_adopt,
    .embed = embed,
    .act_bytes = act_bytes,
    .act_init = act_init,
    .act_set = act_set,
    .matmul = matmul,
    .rms_norm = rms_norm,
    .add_rms_norm = add_rms_norm,
    .norm_add_rms_norm = norm_add_rms_norm,
    .head_norm = head_norm,
    .add = add,
    .add_bias = add_bias,
    .scale = scale,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
    .rope = rope,
    .kv_write = kv_write,
    .attention = attention,
    .parallel = parallel,
    .close = cpu_close,
};
