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

/* Eight accumulators, eight block sums and a block's eight registers of weights: 24 of 32, and
 * enough independent chains to hide vpdpbusd's latency. */
#define TILE 8

/* Four activations, for every lane; becomes the broadcast operand of vpdpbusd. */
TR_INLINE i16 four(const int8_t *q)
{
    int32_t x;
    memcpy(&x, q, sizeof x);
    return _mm512_set1_epi32(x);
}

TR_INLINE void dot(const int R, const int max, const i16 *w, const int8_t *q, size_t dim, i16 *sum)
{
    (void)max;
    TR_UNROLL
    for (int g = 0; g < 4; g++) {
        TR_UNROLL
        for (int r = 0; r < R; r++)
            sum[r] = _mm512_dpbusd_epi32(sum[r], w[g], four(q + (size_t)r * dim + (size_t)g * 4));
    }
}

#include "cpu_kernels/quant_tile.inl"

#include "cpu_kernels/product.inl"
#include "cpu_kernels/rows.inl"
#include "cpu_kernels/kv.inl"

#include "cpu_kernels/attention.inl"

const struct tr_kernels tr_kernels_avx512 = TR_KERNEL_TABLE;
