/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/strip.c - weights on their way into strips. */
#include "cuda_kernels/strip.h"

#include "base/assert.h"
#include "cpu_kernels/quant.h"

#include <string.h>

enum { GROUPS = TR_CUDA_K / 4 };

static uint32_t every_byte(uint32_t mask)
{
    return mask * 0x01010101U;
}

/* Words of 4, 2 or 1 bits a quant, from bit `from` of the groups g on: 4, 2 or 1 of them. */
static void pack_bits(uint32_t bits, const uint32_t g[GROUPS], uint32_t from, uint8_t *to)
{
    uint32_t mask = every_byte((1U << bits) - 1);
    uint32_t w[4] = {0};
    for (uint32_t i = 0; i < GROUPS; i++) {
        uint32_t word = bits == 4 ? i % 4 : i * bits / 8;
        uint32_t shift = bits == 4 ? i / 4 * 4 : i * bits % 8;
        w[word] |= (g[i] >> from & mask) << shift;
    }
    memcpy(to, w, (size_t)bits * sizeof(*w));
}

static inline void pack_quants(enum tr_tensor_type type, uint32_t lane, const uint8_t *q,
                               uint8_t *block)
{
    const uint32_t low = tr_cuda_low(type);
    const uint32_t high = tr_cuda_high(type);
    const uint32_t turn = tr_cuda_signed(type) ? every_byte(1U << (low + high - 1)) : 0;
    uint32_t g[GROUPS];
    memcpy(g, q, sizeof(g));
    for (uint32_t i = 0; i < GROUPS; i++)
        g[i] ^= turn;

    if (low == 8) {
        memcpy(block + (size_t)lane * 16, g, 16);
        memcpy(block + ((size_t)TR_CUDA_STRIP + lane) * 16, g + 4, 16);
        return;
    }
    pack_bits(low, g, 0, block + (size_t)lane * low * 4);
    if (high)
        pack_bits(high, g, low, block + tr_cuda_high_at(type) + (size_t)lane * high * 4);
}

/* The two bytes that a K-block of a super-block has for a lane. */
static inline void pack_small(enum tr_tensor_type type, uint32_t lane,
                              const struct tr_quant_block *b, uint8_t *to)
{
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t byte = (uint8_t)b->sc[h];
        if (tr_cuda_halves(type) && tr_cuda_mins(type))
            byte |= (uint32_t)b->mn[h] << 4;
        else if (tr_cuda_mins(type) && h)
            byte = b->mn[0];
        to[h * TR_CUDA_STRIP + lane] = (uint8_t)byte;
    }
}

/* F16 for each output: d, and m behind it. */
static inline void pack_scales(enum tr_tensor_type type, uint32_t lane,
                               const struct tr_quant_block *b, uint8_t *to)
{
    memcpy(to + (size_t)lane * 2, &b->d, 2);
    if (tr_cuda_mins(type))
        memcpy(to + TR_CUDA_F16S + (size_t)lane * 2, &b->m, 2);
}

/* Row `lane` of a strip.  Inline, so that each type has a loop of its own. */
static inline void pack_blocks(enum tr_tensor_type type, uint32_t n_in, const uint8_t *row,
                               uint32_t lane, uint8_t *strip)
{
    for (size_t i = 0; i < n_in / TR_CUDA_K; i++) {
        struct tr_quant_block b;
        uint8_t *block = strip + tr_cuda_block_at(type, i);
        tr_quant_block_read(type, row, i, &b);
        pack_quants(type, lane, b.q, block);
        if (!tr_cuda_super(type)) {
            pack_scales(type, lane, &b, block + tr_cuda_scale_at(type));
            continue;
        }
        pack_small(type, lane, &b, block + tr_cuda_scale_at(type));
        if (i % TR_CUDA_PARTS == 0)
            pack_scales(type, lane, &b, strip + tr_cuda_head_at(type, i));
    }
}

static void pack_floats(enum tr_tensor_type type, uint32_t n_in, const uint8_t *row, uint32_t lane,
                        uint8_t *strip)
{
    size_t len = (size_t)n_in * tr_cuda_element(type);
    for (size_t at = 0; at < len; at += 16)
        memcpy(strip + at * TR_CUDA_STRIP + (size_t)lane * 16, row + at,
               len - at < 16 ? len - at : 16);
}

static void pack_row(enum tr_tensor_type type, uint32_t n_in, const uint8_t *row, uint32_t lane,
                     uint8_t *strip)
{
#define CASE(t)                                                                                    \
    case t:                                                                                        \
        pack_blocks(t, n_in, row, lane, strip);                                                    \
        break
    switch ((int)type) {
        CASE(TR_T_Q8_0);
        CASE(TR_T_Q4_0);
        CASE(TR_T_Q4_1);
        CASE(TR_T_Q5_0);
        CASE(TR_T_Q5_1);
        CASE(TR_T_Q2_K);
        CASE(TR_T_Q3_K);
        CASE(TR_T_Q4_K);
        CASE(TR_T_Q5_K);
        CASE(TR_T_Q6_K);
    default:
        pack_floats(type, n_in, row, lane, strip);
    }
#undef CASE
}

void tr_cuda_strip_pack(enum tr_tensor_type type, uint32_t n_in, uint32_t n_out, const void *rows,
                        uint32_t s, void *mem)
{
    size_t row_bytes = tr_quant_row_bytes(type, n_in);
    size_t strip_bytes = tr_cuda_strip_bytes(type, n_in);
    uint32_t first = s * TR_CUDA_STRIP;
    TR_ASSERT(row_bytes && first < n_out);
    uint32_t n = n_out - first < TR_CUDA_STRIP ? n_out - first : TR_CUDA_STRIP;
    const uint8_t *row = (const uint8_t *)rows + first * row_bytes;
    uint8_t *strip = (uint8_t *)mem + s * strip_bytes;

    /* Outputs that are not there, elements behind n_in and what fills up the last 128 bytes. */
    if (n < TR_CUDA_STRIP || row_bytes * TR_CUDA_STRIP < strip_bytes)
        memset(strip, 0, strip_bytes);
    for (uint32_t lane = 0; lane < n; lane++, row += row_bytes)
        pack_row(type, n_in, row, lane, strip);
}
