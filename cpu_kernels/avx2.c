/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/avx2.c - the kernels for AVX2, FMA and F16C. */
#include "cpu_kernels/lanes_avx2.h"

#include "cpu_kernels/kernels.h"
#include "cpu_kernels/kv.h"
#include "cpu_kernels/quant.h"
#include "cpu_kernels/strip.h"

#include <math.h>

#define TILE 4

/* vpmaddubsw multiplies unsigned by signed bytes and adds neighbours with saturation at 16 bits.
 * It never saturates here: its unsigned side is always a nibble, and even the sum over a whole
 * block stays within 16 products of 15 * 127, below 2^15.  Bytes of Q8_0 are split in nibbles. */

/* Four activations, for every lane. */
TR_INLINE __m256i four(const int8_t *q)
{
    int32_t x;
    memcpy(&x, q, sizeof x);
    return _mm256_set1_epi32(x);
}

TR_INLINE __m256i load_bytes(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

TR_INLINE __m256i nibbles_lo(__m256i x)
{
    return _mm256_and_si256(x, _mm256_set1_epi8(15));
}

TR_INLINE __m256i nibbles_hi(__m256i x)
{
    return _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(15));
}

/* Block sums of R rows against eight outputs; q is the first row's block, rows dim apart. */
TR_INLINE void dot_q4(const int R, const uint8_t *quants, const int8_t *q, size_t dim, __m256i *sum)
{
    __m256i lo[4];
    __m256i hi[4];
    TR_UNROLL
    for (int g = 0; g < 4; g++) {
        __m256i x = load_bytes(quants + (size_t)g * 64);
        lo[g] = nibbles_lo(x);
        hi[g] = nibbles_hi(x);
    }
    TR_UNROLL
    for (int r = 0; r < R; r++) {
        const int8_t *x = q + (size_t)r * dim;
        __m256i t = _mm256_setzero_si256();
        TR_UNROLL
        for (int g = 0; g < 4; g++) {
            t = _mm256_add_epi16(t, _mm256_maddubs_epi16(lo[g], four(x + (size_t)g * 4)));
            t = _mm256_add_epi16(t, _mm256_maddubs_epi16(hi[g], four(x + 16 + (size_t)g * 4)));
        }
        sum[r] = _mm256_madd_epi16(t, _mm256_set1_epi16(1));
    }
}

TR_INLINE void dot_q8(const int R, const uint8_t *quants, const int8_t *q, size_t dim, __m256i *sum)
{
    __m256i t[TILE];
    __m256i u[TILE];
    TR_UNROLL
    for (int r = 0; r < R; r++)
        t[r] = u[r] = _mm256_setzero_si256();
    TR_UNROLL
    for (int g = 0; g < 8; g++) {
        __m256i x = load_bytes(quants + (size_t)g * 64);
        __m256i lo = nibbles_lo(x);
        __m256i hi = nibbles_hi(x);
        TR_UNROLL
        for (int r = 0; r < R; r++) {
            __m256i y = four(q + (size_t)r * dim + (size_t)g * 4);
            t[r] = _mm256_add_epi16(t[r], _mm256_maddubs_epi16(lo, y));
            u[r] = _mm256_add_epi16(u[r], _mm256_maddubs_epi16(hi, y));
        }
    }
    TR_UNROLL
    for (int r = 0; r < R; r++)
        sum[r] = _mm256_add_epi32(_mm256_madd_epi16(t[r], _mm256_set1_epi16(1)),
                                  _mm256_madd_epi16(u[r], _mm256_set1_epi16(16)));
}

/* What was added to each weight when it was stored, to be taken off the block sum. */
TR_INLINE int32_t weight_bias(const enum tr_tensor_type type)
{
    if (type == TR_T_Q8_0)
        return 128;
    return type == TR_T_Q4_0 ? 8 : 0;
}

TR_INLINE void quant_tile(const int R, const enum tr_tensor_type type, const uint8_t *strip,
                          const struct tr_act *a, uint32_t row, v16 *acc)
{
    size_t n_blocks = a->dim / 32;
    size_t qb = tr_strip_quant_bytes(type);
    size_t sb = tr_strip_scale_bytes(type);
    size_t first = row * n_blocks;

    for (size_t b = 0; b < n_blocks; b++) {
        const uint8_t *quants = strip + b * qb;
        const uint16_t *scales = (const uint16_t *)(const void *)(strip + n_blocks * qb + b * sb);
        const int8_t *q = a->q + (first + b) * 32;
        __m256i lo[TILE];
        __m256i hi[TILE];
        if (type == TR_T_Q8_0) {
            dot_q8(R, quants, q, a->dim, lo);
            dot_q8(R, quants + 32, q, a->dim, hi);
        } else {
            dot_q4(R, quants, q, a->dim, lo);
            dot_q4(R, quants + 32, q, a->dim, hi);
        }
        v16 d = v16_load_f16(scales);
        v16 m = v16_load_f16(type == TR_T_Q4_1 ? scales + 16 : scales);
        TR_UNROLL
        for (int r = 0; r < R; r++) {
            size_t at = first + (size_t)r * n_blocks + b;
            if (weight_bias(type)) {
                __m256i off = _mm256_set1_epi32(weight_bias(type) * a->sum[at]);
                lo[r] = _mm256_sub_epi32(lo[r], off);
                hi[r] = _mm256_sub_epi32(hi[r], off);
            }
            v16 sum = TR_BOTH(_mm256_cvtepi32_ps(lo[r]), _mm256_cvtepi32_ps(hi[r]));
            acc[r] = v16_fma(sum, v16_mul(d, v16_set1(a->d[at])), acc[r]);
            if (type == TR_T_Q4_1)
                acc[r] = v16_fma(m, v16_set1(a->s[at]), acc[r]);
        }
    }
}

#include "cpu_kernels/product.inl"
#include "cpu_kernels/rows.inl"
#include "cpu_kernels/attention.inl"

const struct tr_kernels tr_kernels_avx2 = TR_KERNEL_TABLE;
