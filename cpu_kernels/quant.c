/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/quant.c - the element formats of GGUF that can be computed with. */
#include "cpu_kernels/quant.h"

#include "base/assert.h"

#include <string.h>

bool tr_quant_known(enum tr_tensor_type type)
{
    return tr_quant_form(type).bytes != 0;
}

bool tr_quant_blocked(enum tr_tensor_type type)
{
    return tr_quant_form(type).block != 0;
}

size_t tr_quant_row_bytes(enum tr_tensor_type type, size_t n)
{
    struct tr_quant_form f = tr_quant_form(type);
    if (!f.block)
        return n * f.bytes;
    return n % f.block == 0 ? n / f.block * f.bytes : 0;
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
        out[i] = tr_bf16_to_f32(read_u16(p + 2 * i));
}

void tr_quant_block_floats(enum tr_tensor_type type, const struct tr_quant_block *b, float *out)
{
    struct tr_quant_form f = tr_quant_form(type);
    float d = tr_f16_to_f32(b->d);
    float m = f.mins ? tr_f16_to_f32(b->m) : 0.0F;

    for (size_t h = 0; h < 2; h++) {
        float scale = d * (float)b->sc[h];
        float minimum = f.block == TR_QK_SUPER ? -(m * (float)b->mn[h]) : m;
        for (size_t k = 16 * h; k < 16 * (h + 1); k++) {
            out[k] = (float)(b->q[k] - f.bias) * scale;
            if (f.mins)
                out[k] += minimum;
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
    default:
        for (size_t i = 0; i < n / TR_QK; i++) {
            struct tr_quant_block b;
            tr_quant_block_read(type, src, i, &b);
            tr_quant_block_floats(type, &b, out + i * TR_QK);
        }
        break;
    }
}
