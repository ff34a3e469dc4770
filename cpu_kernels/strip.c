/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/strip.c - how weights lie in memory for products. */
#include "cpu_kernels/strip.h"

#include "base/assert.h"
#include "cpu_kernels/quant.h"

#include <string.h>

enum { GROUPS = TR_QK / 4 };

size_t tr_strip_bytes(enum tr_tensor_type type, uint32_t n_in)
{
    struct tr_quant_form f = tr_quant_form(type);
    size_t bytes;
    if (f.block)
        bytes =
            n_in / TR_QK * tr_strip_quant_bytes(type) + n_in / f.block * tr_strip_scale_bytes(type);
    else
        bytes = tr_quant_row_bytes(type, n_in) * TR_STRIP;
    return (bytes + 63) / 64 * 64;
}

/* --- quants --- */

/* Four quants, one to a byte: whatever the byte order, shifts by less than 8 stay in place. */
static uint32_t load_group(const uint8_t *p)
{
    uint32_t u;
    memcpy(&u, p, sizeof u);
    return u;
}

static uint32_t every_byte(unsigned mask)
{
    return mask * 0x01010101U;
}

/* Where group g lies among planes of `bits` bits: plane and shift. */
static uint32_t plane_of(unsigned bits, uint32_t g)
{
    return bits == 4 ? g % 4 : g * bits / 8;
}

static uint32_t shift_of(unsigned bits, uint32_t g)
{
    return bits == 4 ? g / 4 * 4 : g * bits % 8;
}

/* The planes of a block are zero at this lane, but for what was packed before. */
static void pack_group(unsigned bits, uint32_t g, uint32_t lane, uint32_t group, uint8_t *planes)
{
    uint8_t *p = planes + (size_t)plane_of(bits, g) * TR_STRIP_PLANE + (size_t)lane * 4;
    uint32_t u = load_group(p) | group << shift_of(bits, g);
    memcpy(p, &u, sizeof u);
}

static uint32_t unpack_group(unsigned bits, uint32_t g, uint32_t lane, const uint8_t *planes)
{
    const uint8_t *p = planes + (size_t)plane_of(bits, g) * TR_STRIP_PLANE + (size_t)lane * 4;
    return load_group(p) >> shift_of(bits, g) & every_byte((1U << bits) - 1);
}

static void pack_quants(const struct tr_quant_form *f, const uint8_t *q, uint32_t lane,
                        uint8_t *planes)
{
    uint8_t *upper = planes + (size_t)f->low * TR_STRIP_PLANE;
    for (uint32_t p = 0; p < (uint32_t)(f->low + f->high); p++)
        memset(planes + (size_t)p * TR_STRIP_PLANE + (size_t)lane * 4, 0, 4);
    for (uint32_t g = 0; g < GROUPS; g++) {
        uint32_t u = load_group(q + (size_t)g * 4);
        pack_group(f->low, g, lane, u & every_byte((1U << f->low) - 1), planes);
        if (f->high)
            pack_group(f->high, g, lane, u >> f->low & every_byte((1U << f->high) - 1), upper);
    }
}

static void unpack_quants(const struct tr_quant_form *f, const uint8_t *planes, uint32_t lane,
                          uint8_t *q)
{
    const uint8_t *upper = planes + (size_t)f->low * TR_STRIP_PLANE;
    for (uint32_t g = 0; g < GROUPS; g++) {
        uint32_t u = unpack_group(f->low, g, lane, planes);
        if (f->high)
            u |= unpack_group(f->high, g, lane, upper) << f->low;
        memcpy(q + (size_t)g * 4, &u, sizeof u);
    }
}

/* --- scales --- */

/* Where the two bytes that a block of a super-block has for a lane are in `sub`, and what is in
 * them: scales of the halves, or scale and minimum; of Q2_K both in either. */
static void pack_sub(const struct tr_quant_form *f, const struct tr_quant_block *b, uint32_t lane,
                     uint8_t *sub)
{
    for (size_t h = 0; h < 2; h++) {
        unsigned byte = (uint8_t)b->sc[h];
        if (f->mins && f->halves)
            byte |= (unsigned)b->mn[h] << 4;
        else if (f->mins && h)
            byte = b->mn[0];
        sub[h * TR_STRIP + lane] = (uint8_t)byte;
    }
}

static void unpack_sub(const struct tr_quant_form *f, const uint8_t *sub, uint32_t lane,
                       struct tr_quant_block *b)
{
    uint8_t byte[2] = {sub[lane], sub[TR_STRIP + lane]};
    for (size_t h = 0; h < 2; h++) {
        b->sc[h] = (int8_t)byte[f->halves ? h : 0];
        if (f->mins && f->halves)
            b->sc[h] = byte[h] & 15;
        if (f->mins)
            b->mn[h] = f->halves ? byte[h] >> 4 : byte[1];
    }
}

/* --- rows --- */

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
    struct tr_quant_form f = tr_quant_form(type);
    size_t quant_bytes = tr_strip_quant_bytes(type);
    size_t parts = f.block / TR_QK;
    size_t n_blocks = n_in / TR_QK;
    uint8_t *scales = strip + n_blocks * quant_bytes;
    size_t head = (f.mins ? 2 : 1) * (size_t)TR_STRIP_SCALE;
    TR_ASSERT(parts);

    for (size_t i = 0; i < n_blocks; i++) {
        struct tr_quant_block b;
        uint8_t *s = scales + i / parts * tr_strip_scale_bytes(type);
        tr_quant_block_read(type, row, i, &b);
        pack_quants(&f, b.q, lane, strip + i * quant_bytes);
        memcpy(s + (size_t)2 * lane, &b.d, 2);
        if (f.mins)
            memcpy(s + TR_STRIP_SCALE + (size_t)2 * lane, &b.m, 2);
        if (parts > 1)
            pack_sub(&f, &b, lane, s + head + i % parts * TR_STRIP_SUB);
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
        /* Scales of zero make a row of zeros, whatever its quants. */
        if (n < TR_STRIP)
            memset(strip, 0, strip_bytes);
        for (uint32_t lane = 0; lane < n; lane++, src += row_bytes) {
            if (tr_quant_blocked(type))
                pack_block_row(type, n_in, src, lane, strip);
            else
                pack_float_row(tr_quant_row_bytes(type, 1), n_in, src, lane, strip);
        }
    }
}

void tr_strip_block(enum tr_tensor_type type, uint32_t n_in, const void *strip, size_t i,
                    uint32_t lane, struct tr_quant_block *out)
{
    struct tr_quant_form f = tr_quant_form(type);
    size_t quant_bytes = tr_strip_quant_bytes(type);
    size_t parts = f.block / TR_QK;
    const uint8_t *quants = strip;
    TR_ASSERT(parts);
    const uint8_t *s = quants + n_in / TR_QK * quant_bytes + i / parts * tr_strip_scale_bytes(type);

    *out = (struct tr_quant_block){.sc = {1, 1}};
    unpack_quants(&f, quants + i * quant_bytes, lane, out->q);
    memcpy(&out->d, s + (size_t)2 * lane, 2);
    if (f.mins)
        memcpy(&out->m, s + TR_STRIP_SCALE + (size_t)2 * lane, 2);
    if (parts > 1)
        unpack_sub(&f, s + (f.mins ? 2 : 1) * (size_t)TR_STRIP_SCALE + i % parts * TR_STRIP_SUB,
                   lane, out);
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
    for (size_t i = 0; i < n_in / TR_QK; i++) {
        struct tr_quant_block b;
        tr_strip_block(type, n_in, strip, i, lane, &b);
        tr_quant_block_floats(type, &b, out + i * TR_QK);
    }
}
