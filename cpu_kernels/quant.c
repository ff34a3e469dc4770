/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/quant.c - the element formats of GGUF that can be computed with. */
#include "cpu_kernels/quant.h"

#include "base/assert.h"

#include <string.h>

/* Bytes of a block of a blocked type, of an element of the others; 0 for unknown types. */
static size_t unit_bytes(enum tr_tensor_type type)
{
    switch ((int)type) {
    case TR_T_F32:
        return 4;
    case TR_T_F16:
    case TR_T_BF16:
        return 2;
    case TR_T_Q8_0:
        return 2 + TR_QK;
    case TR_T_Q4_0:
        return 2 + TR_QK / 2;
    case TR_T_Q4_1:
        return 4 + TR_QK / 2;
    default:
        return 0;
    }
}

bool tr_quant_known(enum tr_tensor_type type)
{
    return unit_bytes(type) != 0;
}

bool tr_quant_blocked(enum tr_tensor_type type)
{
    return type == TR_T_Q8_0 || type == TR_T_Q4_0 || type == TR_T_Q4_1;
}

size_t tr_quant_row_bytes(enum tr_tensor_type type, size_t n)
{
    if (!tr_quant_blocked(type))
        return n * unit_bytes(type);
    return n % TR_QK == 0 ? n / TR_QK * unit_bytes(type) : 0;
}

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

static uint16_t read_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static void row_f16(const uint8_t *p, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = tr_f16_to_f32(read_u16(p + 2 * i));
}

static void row_bf16(const uint8_t *p, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = bits_float((uint32_t)read_u16(p + 2 * i) << 16);
}

static void row_q8_0(const uint8_t *p, size_t n, float *out)
{
    for (size_t b = 0; b < n / TR_QK; b++, p += 2 + TR_QK) {
        float d = tr_f16_to_f32(read_u16(p));
        for (size_t i = 0; i < TR_QK; i++)
            out[b * TR_QK + i] = (float)(int8_t)p[2 + i] * d;
    }
}

static void row_q4_0(const uint8_t *p, size_t n, float *out)
{
    for (size_t b = 0; b < n / TR_QK; b++, p += 2 + TR_QK / 2) {
        float d = tr_f16_to_f32(read_u16(p));
        float *o = out + b * TR_QK;
        for (size_t i = 0; i < TR_QK / 2; i++) {
            o[i] = (float)((int)(p[2 + i] & 15U) - 8) * d;
            o[i + TR_QK / 2] = (float)((int)(p[2 + i] >> 4) - 8) * d;
        }
    }
}

static void row_q4_1(const uint8_t *p, size_t n, float *out)
{
    for (size_t b = 0; b < n / TR_QK; b++, p += 4 + TR_QK / 2) {
        float d = tr_f16_to_f32(read_u16(p));
        float m = tr_f16_to_f32(read_u16(p + 2));
        float *o = out + b * TR_QK;
        for (size_t i = 0; i < TR_QK / 2; i++) {
            o[i] = (float)(p[4 + i] & 15U) * d + m;
            o[i + TR_QK / 2] = (float)(p[4 + i] >> 4) * d + m;
        }
    }
}

void tr_quant_row(enum tr_tensor_type type, const void *src, size_t n, float *out)
{
    TR_ASSERT(tr_quant_row_bytes(type, n) != 0 || n == 0);
    switch ((int)type) {
    case TR_T_F32:
        memcpy(out, src, n * sizeof *out);
        break;
    case TR_T_F16:
        row_f16(src, n, out);
        break;
    case TR_T_BF16:
        row_bf16(src, n, out);
        break;
    case TR_T_Q8_0:
        row_q8_0(src, n, out);
        break;
    case TR_T_Q4_0:
        row_q4_0(src, n, out);
        break;
    default:
        row_q4_1(src, n, out);
        break;
    }
}
