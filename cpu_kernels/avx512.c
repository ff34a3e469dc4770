/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/avx512.c - the kernels for AVX-512 (F, BW, DQ, VL) with VNNI. */
#include "cpu_kernels/lanes_avx512.h"

#include "cpu_kernels/ahead.h"
#include "cpu_kernels/kernels.h"
#include "cpu_kernels/kv.h"
#include "cpu_kernels/quant.h"
#include "cpu_kernels/strip.h"

#include <math.h>
#include <string.h>

/* One strip: eight accumulators, eight block sums and a block's eight registers of weights. */
#define TILE 8

/* Several strips share what is spread from memory: a processor that multiplies twice in a cycle
 * loads twice as well, and has the weights to load beside.  Twelve accumulators and twelve sums. */
#define ACROSS 3
#define ACROSS_ROWS 4
#define SUMS (ACROSS * ACROSS_ROWS)

#include "cpu_kernels/group.inl"

/* Four activations, for every lane. */
TR_INLINE i16 four(const int8_t *q)
{
    int32_t x;
    memcpy(&x, q, sizeof x);
    return _mm512_set1_epi32(x);
}

/* See quant_tile.inl. */
TR_INLINE void half_sums(const int S, const int R, const enum tr_tensor_type type,
                         const uint8_t *planes, size_t apart, const int h, const int8_t *q,
                         size_t dim, i16 *sum)
{
    TR_UNROLL
    for (int g = 4 * h; g < 4 * h + 4; g++) {
        i16 w[ACROSS];
        TR_UNROLL
        for (int s = 0; s < S; s++)
            w[s] = group(type, planes + (size_t)s * apart, g);
        TR_UNROLL
        for (int r = 0; r < R; r++) {
            i16 x = four(q + (size_t)r * dim + (size_t)g * 4);
            /* Kept in a register; else it is an operand in memory of each instruction. */
            if (S > 1)
                __asm__("" : "+v"(x));
            TR_UNROLL
            for (int s = 0; s < S; s++)
                sum[s * R + r] = _mm512_dpbusd_epi32(sum[s * R + r], w[s], x);
        }
    }
}

#include "cpu_kernels/quant_tile.inl"

#include "cpu_kernels/product.inl"
#include "cpu_kernels/rows.inl"
#include "cpu_kernels/kv.inl"

#include "cpu_kernels/attention.inl"

const struct tr_kernels tr_kernels_avx512 = TR_KERNEL_TABLE;
