/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/lanes_generic.h - sixteen floats at a time, in plain C.
 *
 * The kernels in *.inl are written once over `v16` and compiled once per instruction level; this
 * is the meaning of each operation on it, and lanes_avx2.h and lanes_avx512.h do the same bit for
 * bit.  Lanes do not meet, but for v16_sum and v16_top. */
#ifndef TR_CPU_KERNELS_LANES_GENERIC_H
#define TR_CPU_KERNELS_LANES_GENERIC_H

#include "cpu_kernels/half.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* The bodies are not specialised for shapes here (sizes stay variables, nothing is unrolled): it
 * would gain little and take minutes to compile under sanitizers. */
#define TR_PLAIN 1
#define TR_INLINE static inline
#define TR_EACH_LANE for (int l = 0; l < 16; l++)

typedef struct {
    float f[16];
} v16;

/* Accumulators that fit into registers beside what they are made from (here: any number). */
#define V16_ACC 24

TR_INLINE v16 v16_set1(float x)
{
    v16 r;
    TR_EACH_LANE r.f[l] = x;
    return r;
}

TR_INLINE v16 v16_load(const float *p)
{
    v16 r;
    memcpy(r.f, p, sizeof r.f);
    return r;
}

TR_INLINE void v16_store(float *p, v16 a)
{
    memcpy(p, a.f, sizeof a.f);
}

/* The first n lanes (1..16); the others are zero, or are not written. */
TR_INLINE v16 v16_load_n(const float *p, uint32_t n)
{
    v16 r = v16_set1(0.0F);
    memcpy(r.f, p, n * sizeof *p);
    return r;
}

TR_INLINE void v16_store_n(float *p, v16 a, uint32_t n)
{
    memcpy(p, a.f, n * sizeof *p);
}

TR_INLINE v16 v16_add(v16 a, v16 b)
{
    TR_EACH_LANE a.f[l] = a.f[l] + b.f[l];
    return a;
}

TR_INLINE v16 v16_sub(v16 a, v16 b)
{
    TR_EACH_LANE a.f[l] = a.f[l] - b.f[l];
    return a;
}

TR_INLINE v16 v16_mul(v16 a, v16 b)
{
    TR_EACH_LANE a.f[l] = a.f[l] * b.f[l];
    return a;
}

TR_INLINE v16 v16_div(v16 a, v16 b)
{
    TR_EACH_LANE a.f[l] = a.f[l] / b.f[l];
    return a;
}

/* a * b + c, rounded once. */
TR_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    TR_EACH_LANE c.f[l] = fmaf(a.f[l], b.f[l], c.f[l]);
    return c;
}

/* As the x86 instruction: b where either is NaN, and where both are zero. */
TR_INLINE v16 v16_max(v16 a, v16 b)
{
    TR_EACH_LANE b.f[l] = a.f[l] > b.f[l] ? a.f[l] : b.f[l];
    return b;
}

TR_INLINE v16 v16_min(v16 a, v16 b)
{
    TR_EACH_LANE b.f[l] = a.f[l] < b.f[l] ? a.f[l] : b.f[l];
    return b;
}

/* y where x >= limit or x is NaN, else 0. */
TR_INLINE v16 v16_zero_below(v16 y, v16 x, float limit)
{
    TR_EACH_LANE y.f[l] = x.f[l] < limit ? 0.0F : y.f[l];
    return y;
}

/* The sum of the lanes, folded in halves: l and l + 8, then l and l + 4, ... */
TR_INLINE float v16_sum(v16 a)
{
    for (int half = 8; half >= 1; half /= 2) {
        for (int l = 0; l < half; l++)
            a.f[l] += a.f[l + half];
    }
    return a.f[0];
}

/* The largest lane; no lane is NaN. */
TR_INLINE float v16_top(v16 a)
{
    for (int l = 1; l < 16; l++)
        a.f[0] = a.f[l] > a.f[0] ? a.f[l] : a.f[0];
    return a.f[0];
}

/* The larger of m and |a| by their bits: NaN counts as more than infinity.  m is not negative. */
TR_INLINE v16 v16_max_abs(v16 m, v16 a)
{
    TR_EACH_LANE
    {
        int32_t x;
        int32_t y;
        memcpy(&x, &a.f[l], sizeof x);
        memcpy(&y, &m.f[l], sizeof y);
        x &= INT32_MAX;
        y = x > y ? x : y;
        memcpy(&m.f[l], &y, sizeof y);
    }
    return m;
}

/* The bits of a, plus the bits of b shifted into the exponent's place. */
TR_INLINE v16 v16_scale_bits(v16 a, v16 b)
{
    TR_EACH_LANE
    {
        uint32_t x;
        uint32_t y;
        memcpy(&x, &a.f[l], sizeof x);
        memcpy(&y, &b.f[l], sizeof y);
        x += y << 23;
        memcpy(&a.f[l], &x, sizeof x);
    }
    return a;
}

/* The largest of the lanes' bits; no lane is negative. */
TR_INLINE uint32_t v16_top_bits(v16 a)
{
    uint32_t top = 0;
    TR_EACH_LANE
    {
        uint32_t x;
        memcpy(&x, &a.f[l], sizeof x);
        top = x > top ? x : top;
    }
    return top;
}

/* Stores the low byte of each lane's bits; returns the sum of what was stored. */
TR_INLINE int32_t v16_store_low_bytes(int8_t *p, v16 a)
{
    int32_t sum = 0;
    TR_EACH_LANE
    {
        uint32_t x;
        memcpy(&x, &a.f[l], sizeof x);
        p[l] = (int8_t)(uint8_t)x;
        sum += p[l];
    }
    return sum;
}

TR_INLINE v16 v16_load_f16(const uint16_t *p)
{
    v16 r;
    TR_EACH_LANE r.f[l] = tr_f16_to_f32(p[l]);
    return r;
}

TR_INLINE void v16_store_f16(uint16_t *p, v16 a)
{
    TR_EACH_LANE p[l] = tr_f32_to_f16(a.f[l]);
}

TR_INLINE v16 v16_load_bf16(const uint16_t *p)
{
    v16 r;
    TR_EACH_LANE
    {
        uint32_t x = (uint32_t)p[l] << 16;
        memcpy(&r.f[l], &x, sizeof x);
    }
    return r;
}

TR_INLINE v16 v16_load_i8(const int8_t *p)
{
    v16 r;
    TR_EACH_LANE r.f[l] = (float)p[l];
    return r;
}

#endif
