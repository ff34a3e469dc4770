/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/lanes_avx2.h - sixteen floats at a time, as two AVX registers.
 *
 * What each operation means is said in lanes_generic.h. */
#ifndef TR_CPU_KERNELS_LANES_AVX2_H
#define TR_CPU_KERNELS_LANES_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define TR_INLINE static inline __attribute__((always_inline))

typedef struct {
    __m256 a;
    __m256 b;
} v16;

#define TR_BOTH(expr_a, expr_b) ((v16){(expr_a), (expr_b)})

/* Accumulators that fit into the 16 registers beside what they are made from. */
#define V16_ACC 6

TR_INLINE v16 v16_set1(float x)
{
    return TR_BOTH(_mm256_set1_ps(x), _mm256_set1_ps(x));
}

TR_INLINE v16 v16_load(const float *p)
{
    return TR_BOTH(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}

TR_INLINE void v16_store(float *p, v16 x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}

TR_INLINE v16 v16_load_n(const float *p, uint32_t n)
{
    float t[16] = {0};
    memcpy(t, p, n * sizeof *p);
    return v16_load(t);
}

TR_INLINE void v16_store_n(float *p, v16 x, uint32_t n)
{
    float t[16];
    v16_store(t, x);
    memcpy(p, t, n * sizeof *p);
}

TR_INLINE v16 v16_add(v16 x, v16 y)
{
    return TR_BOTH(_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b));
}

TR_INLINE v16 v16_sub(v16 x, v16 y)
{
    return TR_BOTH(_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b));
}

TR_INLINE v16 v16_mul(v16 x, v16 y)
{
    return TR_BOTH(_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b));
}

TR_INLINE v16 v16_div(v16 x, v16 y)
{
    return TR_BOTH(_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b));
}

TR_INLINE v16 v16_fma(v16 x, v16 y, v16 z)
{
    return TR_BOTH(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b));
}

TR_INLINE v16 v16_max(v16 x, v16 y)
{
    return TR_BOTH(_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b));
}

TR_INLINE v16 v16_min(v16 x, v16 y)
{
    return TR_BOTH(_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b));
}

TR_INLINE v16 v16_zero_below(v16 y, v16 x, float limit)
{
    __m256 lim = _mm256_set1_ps(limit);
    return TR_BOTH(_mm256_andnot_ps(_mm256_cmp_ps(x.a, lim, _CMP_LT_OQ), y.a),
                   _mm256_andnot_ps(_mm256_cmp_ps(x.b, lim, _CMP_LT_OQ), y.b));
}

TR_INLINE float v16_sum(v16 x)
{
    __m256 e = _mm256_add_ps(x.a, x.b);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}

TR_INLINE float v16_top(v16 x)
{
    __m256 e = _mm256_max_ps(x.a, x.b);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}

TR_INLINE __m256 max_abs8(__m256 m, __m256 x)
{
    __m256i i = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(INT32_MAX));
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(m), i));
}

TR_INLINE v16 v16_max_abs(v16 m, v16 x)
{
    return TR_BOTH(max_abs8(m.a, x.a), max_abs8(m.b, x.b));
}

TR_INLINE __m256 scale_bits8(__m256 x, __m256 y)
{
    __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(y), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), shifted));
}

TR_INLINE v16 v16_scale_bits(v16 x, v16 y)
{
    return TR_BOTH(scale_bits8(x.a, y.a), scale_bits8(x.b, y.b));
}

TR_INLINE uint32_t v16_top_bits(v16 x)
{
    __m256i m = _mm256_max_epi32(_mm256_castps_si256(x.a), _mm256_castps_si256(x.b));
    __m128i n = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    n = _mm_max_epi32(n, _mm_shuffle_epi32(n, 0x4E));
    n = _mm_max_epi32(n, _mm_shuffle_epi32(n, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(n);
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
    __m256i mask = _mm256_set1_epi32(0xFF);
    __m256i lo = _mm256_and_si256(_mm256_castps_si256(x.a), mask);
    __m256i hi = _mm256_and_si256(_mm256_castps_si256(x.b), mask);
    /* Packing works within halves of a register: put the quarters back in order. */
    __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xD8);
    __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)(void *)p, bytes);
    return sum_bytes(bytes);
}

TR_INLINE v16 v16_load_f16(const uint16_t *p)
{
    return TR_BOTH(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)),
                   _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8))));
}

TR_INLINE void v16_store_f16(uint16_t *p, v16 x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(void *)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}

TR_INLINE __m256 load_bf16_8(const uint16_t *p)
{
    __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}

TR_INLINE v16 v16_load_bf16(const uint16_t *p)
{
    return TR_BOTH(load_bf16_8(p), load_bf16_8(p + 8));
}

TR_INLINE __m256 load_i8_8(const int8_t *p)
{
    __m128i x = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x));
}

TR_INLINE v16 v16_load_i8(const int8_t *p)
{
    return TR_BOTH(load_i8_8(p), load_i8_8(p + 8));
}

TR_INLINE __m256i load_u8_8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

TR_INLINE v16 v16_load_u8(const uint8_t *p)
{
    return TR_BOTH(_mm256_cvtepi32_ps(load_u8_8(p)), _mm256_cvtepi32_ps(load_u8_8(p + 8)));
}

TR_INLINE __m256 load_u4_8(const uint8_t *p, const int shift)
{
    __m256i x = _mm256_srl_epi32(load_u8_8(p), _mm_cvtsi32_si128(shift));
    return _mm256_cvtepi32_ps(_mm256_and_si256(x, _mm256_set1_epi32(15)));
}

TR_INLINE v16 v16_load_u4(const uint8_t *p, const int shift)
{
    return TR_BOTH(load_u4_8(p, shift), load_u4_8(p + 8, shift));
}

/* --- whole numbers: sixteen lanes of four bytes, of two words or of one int32 --- */

typedef struct {
    __m256i a;
    __m256i b;
} i16;

#define TR_BOTH_I(expr_a, expr_b) ((i16){(expr_a), (expr_b)})

TR_INLINE i16 i16_load(const uint8_t *p)
{
    return TR_BOTH_I(_mm256_loadu_si256((const __m256i *)(const void *)p),
                     _mm256_loadu_si256((const __m256i *)(const void *)(p + 32)));
}

TR_INLINE i16 i16_set1(int32_t x)
{
    return TR_BOTH_I(_mm256_set1_epi32(x), _mm256_set1_epi32(x));
}

TR_INLINE i16 i16_sub(i16 x, i16 y)
{
    return TR_BOTH_I(_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b));
}

TR_INLINE i16 i16_shift_left(i16 x, const int n)
{
    return TR_BOTH_I(_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n));
}

TR_INLINE v16 v16_from_i16(i16 x)
{
    return TR_BOTH(_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b));
}

/* Bits may cross into the neighbouring byte: what comes in is masked off afterwards. */
TR_INLINE i16 i16_shift_bytes(i16 x, const int left)
{
    if (left >= 0)
        return TR_BOTH_I(_mm256_slli_epi16(x.a, left), _mm256_slli_epi16(x.b, left));
    return TR_BOTH_I(_mm256_srli_epi16(x.a, -left), _mm256_srli_epi16(x.b, -left));
}

TR_INLINE i16 i16_and(i16 x, i16 mask)
{
    return TR_BOTH_I(_mm256_and_si256(x.a, mask.a), _mm256_and_si256(x.b, mask.b));
}

/* x | (y & mask) */
TR_INLINE i16 i16_or_and(i16 x, i16 y, i16 mask)
{
    return TR_BOTH_I(_mm256_or_si256(x.a, _mm256_and_si256(y.a, mask.a)),
                     _mm256_or_si256(x.b, _mm256_and_si256(y.b, mask.b)));
}

/* Neighbouring bytes, unsigned times signed, added to words with saturation; words added. */
TR_INLINE i16 i16_madd_bytes(i16 t, i16 w, i16 q)
{
    return TR_BOTH_I(_mm256_add_epi16(t.a, _mm256_maddubs_epi16(w.a, q.a)),
                     _mm256_add_epi16(t.b, _mm256_maddubs_epi16(w.b, q.b)));
}

/* sum + both words of a lane times `by`. */
TR_INLINE i16 i16_madd_words(i16 sum, i16 t, int16_t by)
{
    __m256i x = _mm256_set1_epi16(by);
    return TR_BOTH_I(_mm256_add_epi32(sum.a, _mm256_madd_epi16(t.a, x)),
                     _mm256_add_epi32(sum.b, _mm256_madd_epi16(t.b, x)));
}

#endif
