/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/dev.h - the CPU's device, and the operations that fill the table of ops.h.
 *
 * Each file cuts the operations of one noun into tasks (strips of outputs, rows, heads) for the
 * threads: weights.c, products.c, rows.c, cache.c; memory.c is the rest of the table.  How an operation is cut depends on shape and
 * threads, what is computed does not (N1).  Only these files include this header. */
#ifndef TR_CPU_KERNELS_DEV_H
#define TR_CPU_KERNELS_DEV_H

#include "cpu_kernels/blas.h"
#include "cpu_kernels/kernels.h"
#include "cpu_kernels/threads.h"

/* Work of fewer elements than this is done by the caller alone: waking others costs more. */
enum { TR_CPU_PARALLEL_MIN = 16384 };

/* An operation whose rows do not meet, and what it is to work on: row(op, r) for each row. */
struct tr_row_op {
    void (*row)(const struct tr_row_op *op, size_t r);
    const struct tr_kernels *k;
    uint32_t n_rows;
    uint32_t dim;
    float *x;
    const float *y;
    const float *w;
    const float *w_next;
    float eps;
    float factor;
    float *out;
    struct tr_act *act;
    const struct tr_mat *mat;
    const uint32_t *tokens;
    const struct tr_rope *rope;
    const struct tr_kv *kv;
    const struct tr_place *places;
    uint32_t layer;
    uint32_t n_head;
};

/* So many of them wait for each other at most. */
enum { TR_CPU_WAITING = 12 };
struct tr_attend_room; /* cache.c */

struct tr_dev {
    enum tr_ops_math math;
    const struct tr_kernels *k;
    struct tr_threads *threads;
    struct tr_attend_room *attend;
    struct tr_blas blas;
    bool deferring;
    uint32_t n_waiting;
    struct tr_row_op waiting[TR_CPU_WAITING]; /* all of the same number of rows */
};

/* Does what waits (rows.c).  Every operation that reads what rows of others wrote calls it first. */
void tr_cpu_flush(struct tr_dev *dev);

static inline size_t tr_cpu_align(size_t n)
{
    return (n + TR_OPS_ALIGN - 1) / TR_OPS_ALIGN * TR_OPS_ALIGN;
}

/* As in struct tr_ops. */

/* memory.c */
void *tr_cpu_take(struct tr_dev *dev, size_t len, bool huge);
void *tr_cpu_take_host(struct tr_dev *dev, size_t len);
void tr_cpu_give(struct tr_dev *dev, void *mem, size_t len);
const void *tr_cpu_resident(struct tr_dev *dev, const void *mem, size_t len);
void tr_cpu_evict(struct tr_dev *dev, const void *mem, size_t len);
void tr_cpu_upload(struct tr_dev *dev, void *to, const void *from, size_t len);
void tr_cpu_download(struct tr_dev *dev, void *to, const void *from, size_t len);

/* weights.c */
size_t tr_cpu_mat_bytes(const struct tr_dev *dev, enum tr_tensor_type type, uint32_t n_in,
                        uint32_t n_out);
void tr_cpu_mat_prepare(struct tr_dev *dev, struct tr_mat *m, enum tr_tensor_type type,
                        uint32_t n_in, uint32_t n_out, const void *data, void *mem);
void tr_cpu_mat_adopt(struct tr_dev *dev, struct tr_mat *m, enum tr_tensor_type type, uint32_t n_in,
                      uint32_t n_out, const void *mem);

/* products.c */
size_t tr_cpu_act_bytes(const struct tr_dev *dev, uint32_t max_rows, uint32_t dim);
void tr_cpu_act_init(struct tr_dev *dev, struct tr_act *a, uint32_t max_rows, uint32_t dim,
                     void *mem);
void tr_cpu_matmul(struct tr_dev *dev, const struct tr_mat *w, const struct tr_act *a, float *out);
void tr_cpu_matmul_n(struct tr_dev *dev, uint32_t n, const struct tr_mat *const *w,
                     const struct tr_act *a, float *const *out);

/* rows.c */
void tr_cpu_defer(struct tr_dev *dev, bool on);
void tr_cpu_embed(struct tr_dev *dev, const struct tr_mat *m, const uint32_t *tokens,
                  uint32_t n_rows, float *out);
void tr_cpu_act_set(struct tr_dev *dev, struct tr_act *a, const float *x, uint32_t n_rows);
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
void tr_cpu_gather(struct tr_dev *dev, const float *x, const uint32_t *rows, uint32_t n,
                   uint32_t dim, float *out);
void tr_cpu_note_ids(struct tr_dev *dev, const struct tr_kv *kv, const struct tr_place *places,
                     const uint32_t *tokens, uint32_t n_rows);

/* cache.c */
struct tr_attend_room *tr_attend_room_new(void);    /* NULL without memory */
void tr_attend_room_free(struct tr_attend_room *m); /* NULL is fine */
void tr_cpu_attention(struct tr_dev *dev, const struct tr_kv *kv, uint32_t layer,
                      const struct tr_place *places, uint32_t n_rows, const float *q,
                      uint32_t n_head, const struct tr_attend_params *p, float *out);

#endif
