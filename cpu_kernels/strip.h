/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/strip.h - how weights lie in memory for products.
 *
 * A strip is TR_STRIP rows of W (outputs) side by side, so that lanes run over outputs and each
 * lane's sum runs over K in order (N2).  The last strip is filled up with rows of zeros.
 *
 * F32, F16, BF16:   [n_in][16] elements.
 * Quantised types:  [n_in/32] blocks of quants, then their scales.
 *
 * A block's quants are planes of [16 rows][4] bytes; four neighbours in K, a *group*, meet in a
 * lane, and group g is elements 4g .. 4g+3.  First the lower bits, then, in planes of their own,
 * the upper ones (struct tr_quant_form):
 *   8 bits  8 planes   plane g is group g
 *   4 bits  4 planes   plane p has group p in the low nibbles, group p + 4 in the high ones
 *   2 bits  2 planes   plane p has group 4p + i in bits 2i, 2i + 1
 *   1 bit   1 plane    bit g is group g
 * A weight takes as many bits as in the file.
 *
 * Scales of a block of 32:     F16 d[16], and F16 m[16] where there are minima.
 * Scales of a super-block:     the same, then for each of its eight blocks 32 bytes:
 *   Q4_K Q5_K  sc[16], mn[16]
 *   Q3_K Q6_K  int8 sc[16] of the first half, sc[16] of the second
 *   Q2_K       (mn << 4 | sc)[16] of the first half, of the second
 * That is an eighth of a bit a weight more than the file has for Q3_K, Q4_K and Q5_K, whose scales of
 * six bits lie in bytes, and nothing for the others.
 *
 * Strips start at multiples of 64 bytes. */
#ifndef TR_CPU_KERNELS_STRIP_H
#define TR_CPU_KERNELS_STRIP_H

#include "base/gguf.h"
#include "cpu_kernels/quant.h"

#include <stddef.h>
#include <stdint.h>

enum {
    TR_STRIP = 16,
    TR_STRIP_PLANE = 64,           /* bytes of a plane */
    TR_STRIP_SUB = 2 * TR_STRIP,   /* bytes of a block's scales in a super-block */
    TR_STRIP_SCALE = 2 * TR_STRIP, /* bytes of an F16 for each row */
};

/* Bytes of the quants of one block of one strip, and of the scales of as many elements as the file
 * has in a block; 0 for float types. */
static inline size_t tr_strip_quant_bytes(enum tr_tensor_type type)
{
    struct tr_quant_form f = tr_quant_form(type);
    return (size_t)(f.low + f.high) * TR_STRIP_PLANE;
}

static inline size_t tr_strip_scale_bytes(enum tr_tensor_type type)
{
    struct tr_quant_form f = tr_quant_form(type);
    if (!f.block)
        return 0;
    return (f.mins ? 2 : 1) * (size_t)TR_STRIP_SCALE +
           (f.block == TR_QK_SUPER ? (size_t)TR_QK_SUPER_PARTS * TR_STRIP_SUB : 0);
}

/* Bytes of one strip; the type is known and n_in fills its blocks. */
size_t tr_strip_bytes(enum tr_tensor_type type, uint32_t n_in);

static inline uint32_t tr_strip_count(uint32_t n_out)
{
    return n_out / TR_STRIP + (n_out % TR_STRIP != 0);
}

/* Packs GGUF rows (n_out of them) into strips at mem, 64-byte aligned. */
void tr_strip_pack(enum tr_tensor_type type, uint32_t n_in, uint32_t n_out, const void *rows,
                   void *mem);

/* out[n_in] = row `row` of the packed matrix, the same floats as tr_quant_row of its source. */
void tr_strip_row(enum tr_tensor_type type, uint32_t n_in, const void *mem, uint32_t row,
                  float *out);

/* Block i of row `lane` of a strip of a quantised type, as it was read from the file. */
void tr_strip_block(enum tr_tensor_type type, uint32_t n_in, const void *strip, size_t i,
                    uint32_t lane, struct tr_quant_block *out);

#endif
