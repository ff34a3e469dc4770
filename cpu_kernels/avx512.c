/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/avx512.c - the kernels for AVX-512 (F, BW, DQ, VL) with VNNI. */
#include "cpu_kernels/lanes_avx512.h"

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
TR_INLINE __m512i four(const int8_t *q)
{
    int32_t x;
    memcpy(&x, q, sizeof x);
    return _mm512_set1_epi32(x);
}

/* A block's weights, as eight groups of four neighbours in K: unsigned bytes. */
TR_INLINE void load_block(const enum tr_tensor_type type, const uint8_t *quants, __m512i *w)
{
    if (type == TR_T_Q8_0) {
        TR_UNROLL
        for (int g = 0; g < 8; g++)
            w[g] = _mm512_loadu_si512(quants + (size_t)g * 64);
        return;
    }
    __m512i mask = _mm512_set1_epi8(15);
    TR_UNROLL
    for (int g = 0; g < 4; g++) {
        __m512i x = _mm512_loadu_si512(quants + (size_t)g * 64);
        w[g] = _mm512_and_si512(x, mask);
        w[g + 4] = _mm512_and_si512(_mm512_srli_epi16(x, 4), mask);
    }
}

/* Where a block's sum starts: what the offset of the stored weights will have added. */
TR_INLINE int32_t start(const enum tr_tensor_type type, int32_t sum)
{
    if (type == TR_T_Q8_0)
        return -128 * sum;
    return type == TR_T_Q4_0 ? -8 * sum : 0;
}

TR_INLINE void quant_tile(const int R, const enum tr_tensor_type type, const uint8_t *strip,
                          const struct tr_act *a, uint32_t row, v16 *acc)
{
    size_t n_blocks = a->dim / 32;
    size_t qb = tr_strip_quant_bytes(type);
    size_t sb = tr_strip_scale_bytes(type);
    const uint8_t *scales = strip + n_blocks * qb;
    size_t first = row * n_blocks;

    for (size_t b = 0; b < n_blocks; b++) {
        __m512i w[8];
        __m512i sum[TILE];
        load_block(type, strip + b * qb, w);
        const uint16_t *dm = (const uint16_t *)(const void *)(scales + b * sb);
        v16 d = v16_load_f16(dm);
        v16 m = v16_load_f16(type == TR_T_Q4_1 ? dm + 16 : dm);

        TR_UNROLL
        for (int r = 0; r < R; r++)
            sum[r] = _mm512_set1_epi32(start(type, a->sum[first + (size_t)r * n_blocks + b]));
        TR_UNROLL
        for (int g = 0; g < 8; g++) {
            TR_UNROLL
            for (int r = 0; r < R; r++) {
                const int8_t *q = a->q + (first + (size_t)r * n_blocks + b) * 32;
                sum[r] = _mm512_dpbusd_epi32(sum[r], w[g], four(q + (size_t)g * 4));
            }
        }
        TR_UNROLL
        for (int r = 0; r < R; r++) {
            size_t at = first + (size_t)r * n_blocks + b;
            acc[r] = v16_fma(_mm512_cvtepi32_ps(sum[r]), v16_mul(d, v16_set1(a->d[at])), acc[r]);
            if (type == TR_T_Q4_1)
                acc[r] = v16_fma(m, v16_set1(a->s[at]), acc[r]);
        }
    }
}

#include "cpu_kernels/product.inl"
#include "cpu_kernels/rows.inl"
#include "cpu_kernels/attention.inl"

const struct tr_kernels tr_kernels_avx512 = TR_KERNEL_TABLE;
