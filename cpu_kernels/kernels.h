/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/kernels.h - what an instruction level fills in.
 *
 * The operations of ops.h are cut into pieces of work by cpu.c (rows, strips, heads) and given to
 * the threads; a kernel does one piece.  A file fills the table for each level: generic.c, avx2.c,
 * avx512_plain.c, avx512.c.
 * Each includes its lanes_*.h first, then this, then the same *.inl bodies over those lanes, and
 * adds its own integer products. */
#ifndef TR_CPU_KERNELS_KERNELS_H
#define TR_CPU_KERNELS_KERNELS_H

#include "cpu_kernels/ops.h"

#include <stdint.h>

/* Quantises one row of dim (a multiple of 32) floats: fields as in struct tr_act. */
typedef void tr_quantise_fn(const float *x, uint32_t dim, int8_t *q, float *d, float *s,
                            int32_t *sum, int32_t *low);

/* Strips [first, last) of w against all rows of a. */
typedef void tr_product_fn(const struct tr_mat *w, const struct tr_act *a, uint32_t first,
                           uint32_t last, float *out);

/* Queries (rows times heads of a group) of a prompt that are worth a task: enough to share what is
 * read of K and V. */
enum { TR_ATTEND_QUERIES = 48 };

/* Floats in which one query's partition is kept. */
static inline size_t tr_attend_slot_floats(uint32_t head_dim)
{
    return 16 + (size_t)head_dim;
}

/* A run of rows of one sequence at consecutive positions, against one KV head. */
struct tr_attend {
    const struct tr_kv *kv;
    uint32_t layer;
    const uint32_t *blocks;
    uint32_t pos; /* of the first row */
    uint32_t n_rows;
    uint32_t n_head;
    uint32_t head_kv;
    struct tr_attend_params p;
    const float *q; /* [n_rows, n_head, head_dim] */
    float *out;     /* the same shape; only the heads that read head_kv are written */
    uint32_t part;  /* partitions [part, part_end) of the context are the task's */
    uint32_t part_end;
    float *slots;        /* NULL: they are all there are.  Else others compute the other ones: */
    uint32_t first_part; /* all n_parts from this one on lie in slots, [queries, n_parts] of */
    uint32_t n_parts;    /* tr_attend_slot_floats, and attend_merge joins them at the end */
};

struct tr_kernels {
    tr_quantise_fn *quantise;
    tr_product_fn *product[TR_T_BF16 + 1]; /* by type of the packed weights */
    /* One row; y may be NULL, else x += y first. */
    void (*rms_norm)(float *x_sum, const float *x, const float *y, const float *w, float eps,
                     uint32_t dim, float *out);
    /* One row: x += rms_norm(y, w). */
    void (*norm_add)(float *x, const float *y, const float *w, float eps, uint32_t dim);
    void (*add)(float *x, const float *y, uint32_t n);
    void (*scale)(float *x, float s, uint32_t n);
    void (*silu_mul)(float *gate, const float *up, uint32_t n);
    void (*gelu_mul)(float *gate, const float *up, uint32_t n);
    /* One row's k and v [n_head_kv, head_dim] to position `off` of a layer's block. */
    void (*kv_write)(const struct tr_kv *kv, uint8_t *block, uint32_t off, const float *k,
                     const float *v);
    void (*attend)(const struct tr_attend *a);
    void (*attend_merge)(const struct tr_attend *a);
};

extern const struct tr_kernels tr_kernels_generic;
extern const struct tr_kernels tr_kernels_avx2; /* only on x86-64, as the next two */
extern const struct tr_kernels tr_kernels_avx512_plain;
extern const struct tr_kernels tr_kernels_avx512;

/* The table of a file that has included all bodies. */
#define TR_KERNEL_TABLE                                                                             \
    {                                                                                               \
        .quantise = quantise,                                                                       \
        .product =                                                                                  \
            {                                                                                       \
                [TR_T_F32] = product_f32,   [TR_T_F16] = product_f16,   [TR_T_BF16] = product_bf16, \
                [TR_T_Q8_0] = product_q8_0, [TR_T_Q4_0] = product_q4_0, [TR_T_Q4_1] = product_q4_1, \
                [TR_T_Q5_0] = product_q5_0, [TR_T_Q5_1] = product_q5_1, [TR_T_Q2_K] = product_q2_k, \
                [TR_T_Q3_K] = product_q3_k, [TR_T_Q4_K] = product_q4_k, [TR_T_Q5_K] = product_q5_k, \
                [TR_T_Q6_K] = product_q6_k,                                                         \
            },                                                                                      \
        .rms_norm = rms_norm, .norm_add = norm_add, .add = add, .scale = scale,                     \
        .silu_mul = silu_mul, .gelu_mul = gelu_mul, .kv_write = kv_write, .attend = attend,         \
        .attend_merge = attend_merge                                                                \
    }

/* Unrolls the loop that follows; its bound is a constant after inlining. */
#if defined(TR_PLAIN)
#define TR_UNROLL
#elif defined(__clang__)
#define TR_UNROLL _Pragma("unroll")
#else
#define TR_UNROLL _Pragma("GCC unroll 16")
#endif

#endif
