/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/quant_block.c - the readers of GGUF's quantised blocks, 32 elements at a time.
 *
 * Each takes the block that holds the elements and, of a super-block, which of its eight parts. */
#include "cpu_kernels/quant.h"

#include "base/assert.h"

#include <string.h>

static uint16_t u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static void read_q8_0(const uint8_t *p, struct tr_quant_block *b)
{
    b->d = u16(p);
    for (size_t k = 0; k < TR_QK; k++)
        b->q[k] = p[2 + k] ^ 0x80; /* int8 q -> q + 128 */
}

static void nibbles(const uint8_t *qs, uint8_t *q)
{
    for (size_t j = 0; j < TR_QK / 2; j++) {
        q[j] = qs[j] & 15;
        q[j + TR_QK / 2] = qs[j] >> 4;
    }
}

static void fifth_bits(const uint8_t *qh, uint8_t *q)
{
    for (size_t k = 0; k < TR_QK; k++)
        q[k] |= (uint8_t)((qh[k / 8] >> k % 8 & 1) << 4);
}

/* Q4_0 Q4_1 Q5_0 Q5_1: scale, minimum if there is one, fifth bits if there are, nibbles. */
static void read_q45(const struct tr_quant_form *f, const uint8_t *p, struct tr_quant_block *b)
{
    b->d = u16(p);
    p += 2;
    if (f->mins) {
        b->m = u16(p);
        p += 2;
    }
    nibbles(p + (f->high ? 4 : 0), b->q);
    if (f->high)
        fifth_bits(p, b->q);
}

/* Part 4n + j: bits 2j of qs[32n ...]; a byte of scales for every 16 elements. */
static void read_q2_k(const uint8_t *p, size_t part, struct tr_quant_block *b)
{
    const uint8_t *qs = p + 16 + part / 4 * 32;
    for (size_t k = 0; k < TR_QK; k++)
        b->q[k] = qs[k] >> 2 * (part % 4) & 3;
    for (size_t h = 0; h < 2; h++) {
        b->sc[h] = (int8_t)(p[2 * part + h] & 15);
        b->mn[h] = p[2 * part + h] >> 4;
    }
    b->d = u16(p + 80);
    b->m = u16(p + 82);
}

/* Part 4n + j: bits 2j of qs[32n ...] and, above them, bit `part` of hmask.  Sixteen scales of six
 * bits with 32 added: low nibbles in sc[0..8), low halves first, the other bits in sc[8..12), bits
 * 2i of byte j being those of scale 4i + j. */
static void read_q3_k(const uint8_t *p, size_t part, struct tr_quant_block *b)
{
    const uint8_t *qs = p + 32 + part / 4 * 32;
    const uint8_t *sc = p + 96;
    for (size_t k = 0; k < TR_QK; k++)
        b->q[k] = (uint8_t)((qs[k] >> 2 * (part % 4) & 3) | (p[k] >> part & 1) << 2);
    for (size_t h = 0; h < 2; h++) {
        size_t i = 2 * part + h;
        int low = i < 8 ? sc[i] & 15 : sc[i - 8] >> 4;
        int high = sc[8 + i % 4] >> 2 * (i / 4) & 3;
        b->sc[h] = (int8_t)((low | high << 4) - 32);
    }
    b->d = u16(p + 108);
}

/* Scale and minimum of a part, six bits each: the first four in the low six bits of s[part] and
 * s[4 + part]; of the last four the low nibbles share s[4 + part], their upper bits are the upper
 * two of s[part - 4] and s[part]. */
static void six_bits(const uint8_t *s, size_t part, struct tr_quant_block *b)
{
    int sc;
    int mn;
    if (part < 4) {
        sc = s[part] & 63;
        mn = s[part + 4] & 63;
    } else {
        sc = (s[part + 4] & 15) | s[part - 4] >> 6 << 4;
        mn = s[part + 4] >> 4 | s[part] >> 6 << 4;
    }
    b->sc[0] = b->sc[1] = (int8_t)sc;
    b->mn[0] = b->mn[1] = (uint8_t)mn;
}

/* Q4_K and Q5_K: parts 2i and 2i + 1 are the low and the high nibbles of qs[32i ...]; bit `part` of
 * qh is the fifth. */
static void read_q45_k(const struct tr_quant_form *f, const uint8_t *p, size_t part,
                       struct tr_quant_block *b)
{
    const uint8_t *qh = p + 16;
    const uint8_t *qs = p + (f->high ? 48 : 16) + part / 2 * 32;
    b->d = u16(p);
    b->m = u16(p + 2);
    six_bits(p + 4, part, b);
    for (size_t k = 0; k < TR_QK; k++) {
        b->q[k] = part % 2 ? qs[k] >> 4 : qs[k] & 15;
        if (f->high)
            b->q[k] |= (uint8_t)((qh[k] >> part & 1) << 4);
    }
}

/* Part 4n + j: nibbles of ql[64n + 32(j % 2) ...], low ones for j < 2, and bits 2j of qh[32n ...]. */
static void read_q6_k(const uint8_t *p, size_t part, struct tr_quant_block *b)
{
    size_t j = part % 4;
    const uint8_t *ql = p + part / 4 * 64 + j % 2 * 32;
    const uint8_t *qh = p + 128 + part / 4 * 32;
    for (size_t k = 0; k < TR_QK; k++)
        b->q[k] = (uint8_t)((j < 2 ? ql[k] & 15 : ql[k] >> 4) | (qh[k] >> 2 * j & 3) << 4);
    for (size_t h = 0; h < 2; h++)
        b->sc[h] = (int8_t)p[192 + 2 * part + h];
    b->d = u16(p + 208);
}

void tr_quant_block_read(enum tr_tensor_type type, const void *row, size_t i,
                         struct tr_quant_block *out)
{
    struct tr_quant_form f = tr_quant_form(type);
    TR_ASSERT(f.block);
    size_t parts = f.block / TR_QK;
    const uint8_t *p = (const uint8_t *)row + i / parts * f.bytes;
    size_t part = i % parts;

    out->m = 0;
    memset(out->sc, 1, sizeof out->sc);
    memset(out->mn, 0, sizeof out->mn);
    switch ((int)type) {
    case TR_T_Q8_0:
        read_q8_0(p, out);
        break;
    case TR_T_Q2_K:
        read_q2_k(p, part, out);
        break;
    case TR_T_Q3_K:
        read_q3_k(p, part, out);
        break;
    case TR_T_Q4_K:
    case TR_T_Q5_K:
        read_q45_k(&f, p, part, out);
        break;
    case TR_T_Q6_K:
        read_q6_k(p, part, out);
        break;
    default:
        read_q45(&f, p, out);
        break;
    }
}
