/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/strip.c - how weights lie in memory for products. */
#include "cpu_kernels/strip.h"

#include "cpu_kernels/quant.h"

#include <string.h>

enum {
    Q8_QUANTS = TR_QK * TR_STRIP,
    Q4_QUANTS = TR_QK / 2 * TR_STRIP,
    SCALE = 2 * TR_STRIP, /* f16 for each row */
};

size_t tr_strip_quant_bytes(enum tr_tensor_type type)
{
    if (!tr_quant_blocked(type))
        return 0;
    return type == TR_T_Q8_0 ? Q8_QUANTS : Q4_QUANTS;
}

size_t tr_strip_scale_bytes(enum tr_tensor_type type)
{
    if (!tr_quant_blocked(type))
        return 0;
    return type == TR_T_Q4_1 ? 2 * SCALE : SCALE;
}

size_t tr_strip_bytes(enum tr_tensor_type type, uint32_t n_in)
{
    size_t bytes;
    if (tr_quant_blocked(type))
        bytes = n_in / TR_QK * (tr_strip_quant_bytes(type) + tr_strip_scale_bytes(type));
    else
        bytes = tr_quant_row_bytes(type, n_in) * TR_STRIP;
    return (bytes + 63) / 64 * 64;
}

/* Row `lane` of a strip of a float type. */
static void pack_float_row(size_t element, uint32_t n_in, const uint8_t *row, uint32_t lane,
                           uint8_t *strip)
{
    for (size_t k = 0; k < n_in; k++)
        memcpy(strip + (k * TR_STRIP + lane) * element, row + k * element, element);
}

/* Row `lane` of a strip of a quantised type. */
static void pack_block_row(enum tr_tensor_type type, uint32_t n_in, const uint8_t *row,
                           uint32_t lane, uint8_t *strip)
{
    size_t qb = tr_strip_quant_bytes(type);
    size_t sb = tr_strip_scale_bytes(type);
    size_t n_blocks = n_in / TR_QK;
    size_t n_bytes = qb / TR_STRIP;              /* of this row in a block */
    uint8_t flip = type == TR_T_Q8_0 ? 0x80 : 0; /* int8 q -> uint8 q + 128 */
    uint8_t *quants = strip;
    uint8_t *scales = strip + n_blocks * qb;

    for (size_t b = 0; b < n_blocks; b++) {
        for (size_t s = 0; s < sb; s += SCALE, row += 2)
            memcpy(scales + b * sb + s + (size_t)2 * lane, row, 2);
        for (size_t i = 0; i < n_bytes; i++)
            quants[b * qb + i / 4 * 4 * TR_STRIP + (size_t)4 * lane + i % 4] = row[i] ^ flip;
        row += n_bytes;
    }
}

void tr_strip_pack(enum tr_tensor_type type, uint32_t n_in, uint32_t n_out, const void *rows,
                   void *mem)
{
    size_t row_bytes = tr_quant_row_bytes(type, n_in);
    size_t strip_bytes = tr_strip_bytes(type, n_in);
    const uint8_t *src = rows;

    for (uint32_t s = 0; s < tr_strip_count(n_out); s++) {
        uint8_t *strip = (uint8_t *)mem + s * strip_bytes;
        uint32_t n = n_out - s * TR_STRIP < TR_STRIP ? n_out - s * TR_STRIP : TR_STRIP;
        if (n < TR_STRIP) {
            memset(strip, 0, strip_bytes);
            if (type == TR_T_Q8_0) /* zero, as stored */
                memset(strip, 0x80, n_in / TR_QK * (size_t)Q8_QUANTS);
        }
        for (uint32_t lane = 0; lane < n; lane++, src += row_bytes) {
            if (tr_quant_blocked(type))
                pack_block_row(type, n_in, src, lane, strip);
            else
                pack_float_row(tr_quant_row_bytes(type, 1), n_in, src, lane, strip);
        }
    }
}

/* One block of a quantised row, put back into the file's layout. */
static void unpack_block(enum tr_tensor_type type, const uint8_t *quants, const uint8_t *scales,
                         uint32_t lane, uint8_t *block)
{
    size_t n_bytes = tr_strip_quant_bytes(type) / TR_STRIP;
    uint8_t flip = type == TR_T_Q8_0 ? 0x80 : 0;

    for (size_t s = 0; s < tr_strip_scale_bytes(type); s += SCALE, block += 2)
        memcpy(block, scales + s + (size_t)2 * lane, 2);
    for (size_t i = 0; i < n_bytes; i++)
        block[i] = quants[i / 4 * 4 * TR_STRIP + (size_t)4 * lane + i % 4] ^ flip;
}

void tr_strip_row(enum tr_tensor_type type, uint32_t n_in, const void *mem, uint32_t row,
                  float *out)
{
    const uint8_t *strip = (const uint8_t *)mem + row / TR_STRIP * tr_strip_bytes(type, n_in);
    uint32_t lane = row % TR_STRIP;

    if (!tr_quant_blocked(type)) {
        size_t element = tr_quant_row_bytes(type, 1);
        for (size_t k = 0; k < n_in; k++)
            tr_quant_row(type, strip + (k * TR_STRIP + lane) * element, 1, out + k);
        return;
    }
    size_t qb = tr_strip_quant_bytes(type);
    size_t sb = tr_strip_scale_bytes(type);
    size_t n_blocks = n_in / TR_QK;
    for (size_t b = 0; b < n_blocks; b++) {
        uint8_t block[4 + TR_QK];
        unpack_block(type, strip + b * qb, strip + n_blocks * qb + b * sb, lane, block);
        tr_quant_row(type, block, TR_QK, out + b * TR_QK);
    }
}
