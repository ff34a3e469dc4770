/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/lanes_avx512.h - sixteen floats at a time, in one AVX-512 register.
 *
 * What each operation means is said in lanes_generic.h. */
#ifndef TR_CPU_KERNELS_LANES_AVX512_H
#define TR_CPU_KERNELS_LANES_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define TR_INLINE static inline __attribute__((always_inline))

typedef __m512 v16;

/* Accumulators that fit into the 32 registers beside what they are made from. */
#define V16_ACC 24

TR_INLINE v16 v16_set1(float x)
{
    return _mm512_set1_ps(x);
}

TR_INLINE v16 v16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

TR_INLINE void v16_store(float *p, v16 x)
{
    _mm512_storeu_ps(p, x);
}

TR_INLINE __mmask16 first_lanes(uint32_t n)
{
    return (__mmask16)((1U << n) - 1U);
}

TR_INLINE v16 v16_load_n(const float *p, uint32_t n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
}

TR_INLINE void v16_store_n(float *p, v16 x, uint32_t n)
{
    _mm512_mask_storeu_ps(p, first_lanes(n), x);
}

TR_INLINE v16 v16_add(v16 x, v16 y)
{
    return _mm512_add_ps(x, y);
}

TR_INLINE v16 v16_sub(v16 x, v16 y)
{
    return _mm512_sub_ps(x, y);
}

TR_INLINE v16 v16_mul(v16 x, v16 y)
{
    return _mm512_mul_ps(x, y);
}

TR_INLINE v16 v16_div(v16 x, v16 y)
{
    return _mm512_div_ps(x, y);
}

TR_INLINE v16 v16_fma(v16 x, v16 y, v16 z)
{
    return _mm512_fmadd_ps(x, y, z);
}

TR_INLINE v16 v16_max(v16 x, v16 y)
{
    return _mm512_max_ps(x, y);
}

TR_INLINE v16 v16_min(v16 x, v16 y)
{
    return _mm512_min_ps(x, y);
}

TR_INLINE v16 v16_zero_below(v16 y, v16 x, float limit)
{
    __mmask16 below = _mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_LT_OQ);
    return _mm512_maskz_mov_ps(_knot_mask16(below), y);
}

TR_INLINE float v16_sum(v16 x)
{
    __m256 e = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}

TR_INLINE float v16_top(v16 x)
{
    __m256 e = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}

TR_INLINE v16 v16_max_abs(v16 m, v16 x)
{
    __m512i i = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MAX));
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(m), i));
}

TR_INLINE v16 v16_scale_bits(v16 x, v16 y)
{
    __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(y), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), shifted));
}

TR_INLINE uint32_t v16_top_bits(v16 x)
{
    return (uint32_t)_mm512_reduce_max_epi32(_mm512_castps_si512(x));
}

/* Sum of sixteen signed bytes: as unsigned ones above -128, which is what psadbw adds. */
TR_INLINE int32_t sum_bytes(__m128i bytes)
{
    __m128i up = _mm_xor_si128(bytes, _mm_set1_epi8((char)0x80));
    __m128i s = _mm_sad_epu8(up, _mm_setzero_si128());
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_unpackhi_epi64(s, s))) - 16 * 128;
}

TR_INLINE int32_t v16_store_low_bytes(int8_t *p, v16 x)
{
    __m128i bytes = _mm512_cvtepi32_epi8(_mm512_castps_si512(x));
    _mm_storeu_si128((__m128i *)(void *)p, bytes);
    return sum_bytes(bytes);
}

TR_INLINE v16 v16_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

TR_INLINE void v16_store_f16(uint16_t *p, v16 x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

TR_INLINE v16 v16_load_bf16(const uint16_t *p)
{
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

TR_INLINE v16 v16_load_i8(const int8_t *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(x));
}

TR_INLINE v16 v16_load_u8(const uint8_t *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(x));
}

TR_INLINE v16 v16_load_u4(const uint8_t *p, const int shift)
{
    __m512i x = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    x = _mm512_and_si512(_mm512_srl_epi32(x, _mm_cvtsi32_si128(shift)), _mm512_set1_epi32(15));
    return _mm512_cvtepi32_ps(x);
}

/* --- whole numbers: sixteen lanes of four bytes, of two words or of one int32 --- */

typedef __m512i i16;

TR_INLINE i16 i16_load(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}

TR_INLINE i16 i16_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}

TR_INLINE i16 i16_sub(i16 x, i16 y)
{
    return _mm512_sub_epi32(x, y);
}

TR_INLINE i16 i16_shift_left(i16 x, const int n)
{
    return _mm512_slli_epi32(x, n & 31);
}

TR_INLINE v16 v16_from_i16(i16 x)
{
    return _mm512_cvtepi32_ps(x);
}

/* Bits may cross into the neighbouring byte: what comes in is masked off afterwards. */
TR_INLINE i16 i16_shift_bytes(i16 x, const int left)
{
    return left >= 0 ? _mm512_slli_epi16(x, left & 15) : _mm512_srli_epi16(x, -left & 15);
}

TR_INLINE i16 i16_and(i16 x, i16 mask)
{
    return _mm512_and_si512(x, mask);
}

/* x | (y & mask) */
TR_INLINE i16 i16_or_and(i16 x, i16 y, i16 mask)
{
    return _mm512_ternarylogic_epi32(x, y, mask, 0xF8);
}

/* Neighbouring bytes, unsigned times signed, added to words with saturation; words added. */
TR_INLINE i16 i16_madd_bytes(i16 t, i16 w, i16 q)
{
    return _mm512_add_epi16(t, _mm512_maddubs_epi16(w, q));
}

/* sum + both words of a lane times `by`. */
TR_INLINE i16 i16_madd_words(i16 sum, i16 t, int16_t by)
{
    return _mm512_add_epi32(sum, _mm512_madd_epi16(t, _mm512_set1_epi16(by)));
}

#endif
