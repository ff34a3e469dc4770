/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/generic.c - the kernels in plain C: the meaning of every operation (N6). */
#include "cpu_kernels/lanes_generic.h"

#include "cpu_kernels/kernels.h"
#include "cpu_kernels/kv.h"
#include "cpu_kernels/quant.h"
#include "cpu_kernels/strip.h"

#define TILE 1

/* The whole number in block b of weight row `lane`, element k. */
TR_INLINE int32_t weight_int(const enum tr_tensor_type type, const uint8_t *quants, int lane, int k)
{
    if (type == TR_T_Q8_0)
        return (int32_t)quants[k / 4 * 64 + lane * 4 + k % 4] - 128;
    int i = k % 16;
    int32_t byte = quants[i / 4 * 64 + lane * 4 + i % 4];
    int32_t q = k < 16 ? byte & 15 : byte >> 4;
    return type == TR_T_Q4_0 ? q - 8 : q;
}

/* Integer products of R rows: the exact sum within a block, then one fma into the accumulator with
 * the product of both scales (rounded), and for Q4_1 one more with minimum and activation sum. */
TR_INLINE void quant_tile(const int R, const enum tr_tensor_type type, const uint8_t *strip,
                          const struct tr_act *a, uint32_t row, v16 *acc)
{
    size_t n_blocks = a->dim / 32;
    size_t qb = tr_strip_quant_bytes(type);
    size_t sb = tr_strip_scale_bytes(type);

    for (size_t b = 0; b < n_blocks; b++) {
        const uint8_t *quants = strip + b * qb;
        const uint16_t *scales = (const uint16_t *)(const void *)(strip + n_blocks * qb + b * sb);
        v16 d = v16_load_f16(scales);
        v16 m = v16_load_f16(type == TR_T_Q4_1 ? scales + 16 : scales);
        for (int r = 0; r < R; r++) {
            size_t at = (row + (size_t)r) * n_blocks + b;
            const int8_t *q = a->q + at * 32;
            v16 sum;
            TR_EACH_LANE
            {
                int32_t s = 0;
                for (int k = 0; k < 32; k++)
                    s += weight_int(type, quants, l, k) * q[k];
                sum.f[l] = (float)s;
            }
            acc[r] = v16_fma(sum, v16_mul(d, v16_set1(a->d[at])), acc[r]);
            if (type == TR_T_Q4_1)
                acc[r] = v16_fma(m, v16_set1(a->s[at]), acc[r]);
        }
    }
}

#include "cpu_kernels/product.inl"
#include "cpu_kernels/rows.inl"
#include "cpu_kernels/attention.inl"

const struct tr_kernels tr_kernels_generic = TR_KERNEL_TABLE;
