/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/half.c - IEEE half precision and bfloat16 in plain C. */
#include "cpu_kernels/half.h"

#include <string.h>

static uint32_t float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float bits_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

float tr_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000U) << 16;
    uint32_t exponent = (h >> 10) & 0x1FU;
    uint32_t mantissa = h & 0x3FFU;

    if (exponent == 0) {
        /* Zero or subnormal: mantissa * 2^-24, exact in single precision. */
        float f = (float)mantissa * 0x1p-24F;
        return bits_float(float_bits(f) | sign);
    }
    if (exponent == 31) {
        uint32_t quiet = mantissa != 0 ? 0x00400000U : 0;
        return bits_float(sign | 0x7F800000U | mantissa << 13 | quiet);
    }
    return bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t tr_f32_to_f16(float f)
{
    uint32_t u = float_bits(f);
    uint32_t sign = u >> 16 & 0x8000U;
    uint32_t a = u & 0x7FFFFFFFU;

    if (a > 0x7F800000U) /* NaN: keep the top of its payload, quiet */
        return (uint16_t)(sign | 0x7E00U | (a >> 13 & 0x3FFU));
    if (a >= 0x47800000U) /* 2^16 and more, infinity too */
        return (uint16_t)(sign | 0x7C00U);
    if (a < 0x38800000U) {
        /* Below 2^-14: adding 2^-1 puts the bit of weight 2^-24 last, so that the addition itself
         * rounds to nearest even; what is left above 0.5 are the half's bits. */
        uint32_t r = float_bits(bits_float(a) + 0.5F) - float_bits(0.5F);
        return (uint16_t)(sign | r);
    }
    /* Rounding may carry into the exponent, up to infinity, as it should. */
    uint32_t rounded = a + 0xFFFU + (a >> 13 & 1U);
    return (uint16_t)(sign | (rounded - 0x38000000U) >> 13);
}

float tr_bf16_to_f32(uint16_t h)
{
    return bits_float((uint32_t)h << 16);
}
