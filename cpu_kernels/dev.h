/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/dev.h - the CPU's device, and the operations that fill the table of ops.h.
 *
 * Each file cuts the operations of one noun into tasks (strips of outputs, rows, heads) for the
 * threads: weights.c, products.c, rows.c, cache.c.  How an operation is cut depends on shape and
 * threads, what is computed does not (N1).  Only these files include this header. */
#ifndef TR_CPU_KERNELS_DEV_H
#define TR_CPU_KERNELS_DEV_H

#include "cpu_kernels/blas.h"
#include "cpu_kernels/kernels.h"
#include "cpu_kernels/threads.h"

/* Work of fewer elements than this is done by the caller alone: waking others costs more. */
enum { TR_CPU_PARALLEL_MIN = 16384 };

struct tr_dev {
    enum tr_ops_math math;
    const struct tr_kernels *k;
    struct tr_threads *threads;
    struct tr_blas blas;
};

static inline size_t tr_cpu_align(size_t n)
{
    return (n + TR_OPS_ALIGN - 1) / TR_OPS_ALIGN * TR_OPS_ALIGN;
}

/* Task i out of n works on [share(i), share(i + 1)) of n_things. */
static inline uint32_t tr_cpu_share(uint32_t n_things, uint32_t i, uint32_t n)
{
    return (uint32_t)((uint64_t)n_things * i / n);
}

/* How many tasks n_rows rows of dim elements are worth. */
static inline uint32_t tr_cpu_row_tasks(const struct tr_dev *dev, uint32_t n_rows, size_t dim)
{
    uint32_t most = 4 * tr_threads_count(dev->threads);
    if (tr_threads_count(dev->threads) == 1 || n_rows * dim < TR_CPU_PARALLEL_MIN)
        return 1;
    return n_rows < most ? n_rows : most;
}

/* As in struct tr_ops. */

/* weights.c */
size_t tr_cpu_mat_bytes(const struct tr_dev *dev, enum tr_tensor_type type, uint32_t n_in,
                        uint32_t n_out);
void tr_cpu_mat_prepare(struct tr_dev *dev, struct tr_mat *m, enum tr_tensor_type type,
                        uint32_t n_in, uint32_t n_out, const void *data, void *mem);
void tr_cpu_mat_adopt(struct tr_dev *dev, struct tr_mat *m, enum tr_tensor_type type, uint32_t n_in,
                      uint32_t n_out, const void *mem);
void tr_cpu_embed(struct tr_dev *dev, const struct tr_mat *m, const uint32_t *tokens,
                  uint32_t n_rows, float *out);

/* products.c */
size_t tr_cpu_act_bytes(const struct tr_dev *dev, uint32_t max_rows, uint32_t dim);
void tr_cpu_act_init(struct tr_dev *dev, struct tr_act *a, uint32_t max_rows, uint32_t dim,
                     void *mem);
void tr_cpu_act_set(struct tr_dev *dev, struct tr_act *a, const float *x, uint32_t n_rows);
void tr_cpu_matmul(struct tr_dev *dev, const struct tr_mat *w, const struct tr_act *a, float *out);
void tr_cpu_matmul_n(struct tr_dev *dev, uint32_t n, const struct tr_mat *const *w,
                     const struct tr_act *a, float *const *out);

/* rows.c */
void tr_cpu_rms_norm(struct tr_dev *dev, const float *x, const float *w, float eps, uint32_t n_rows,
                     uint32_t dim, float *out);
void tr_cpu_add_rms_norm(struct tr_dev *dev, float *x, const float *y, const float *w, float eps,
                         uint32_t n_rows, uint32_t dim, float *out);
void tr_cpu_norm_add_rms_norm(struct tr_dev *dev, float *x, const float *y, const float *w_post,
                              const float *w_next, float eps, uint32_t n_rows, uint32_t dim,
                              float *out);
void tr_cpu_head_norm(struct tr_dev *dev, float *x, const float *w, float eps, uint32_t n_rows,
                      uint32_t n_head, uint32_t head_dim);
void tr_cpu_add(struct tr_dev *dev, float *x, const float *y, uint32_t n_rows, uint32_t dim);
void tr_cpu_add_bias(struct tr_dev *dev, float *x, const float *b, uint32_t n_rows, uint32_t dim);
void tr_cpu_scale(struct tr_dev *dev, float *x, float s, uint32_t n_rows, uint32_t dim);
void tr_cpu_silu_mul(struct tr_dev *dev, float *gate, const float *up, uint32_t n_rows,
                     uint32_t dim);
void tr_cpu_gelu_mul(struct tr_dev *dev, float *gate, const float *up, uint32_t n_rows,
                     uint32_t dim);
void tr_cpu_rope(struct tr_dev *dev, const struct tr_rope *r, float *x,
                 const struct tr_place *places, uint32_t n_rows, uint32_t n_head,
                 uint32_t head_dim);
void tr_cpu_kv_write(struct tr_dev *dev, const struct tr_kv *kv, uint32_t layer,
                     const struct tr_place *places, uint32_t n_rows, const float *k,
                     const float *v);

/* cache.c */
void tr_cpu_attention(struct tr_dev *dev, const struct tr_kv *kv, uint32_t layer,
                      const struct tr_place *places, uint32_t n_rows, const float *q,
                      uint32_t n_head, const struct tr_attend_params *p, float *out);

#endif
