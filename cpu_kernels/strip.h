/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/strip.h - how weights lie in memory for products.
 *
 * A strip is TR_STRIP rows of W (outputs) side by side, so that lanes run over outputs and each
 * lane's sum runs over K in order (N2).  The last strip is filled up with rows of zeros.
 *
 * F32, F16, BF16:   [n_in][16] elements.
 * Quantised types:  [n_in/32] blocks of quants, then [n_in/32] blocks of scales.
 *   quants of Q8_0: [8 groups][16 rows][4] uint8, q + 128: four neighbours in K to a lane
 *   quants of Q4_*: [4 groups][16 rows][4] uint8; group g holds elements 4g..4g+3 in the low
 *                   nibbles, 16+4g..16+4g+3 in the high ones: the file's own pairing
 *   scales:         f16 d[16], and for Q4_1 f16 m[16] after it
 * Strips start at multiples of 64 bytes. */
#ifndef TR_CPU_KERNELS_STRIP_H
#define TR_CPU_KERNELS_STRIP_H

#include "base/gguf.h"

#include <stddef.h>
#include <stdint.h>

enum { TR_STRIP = 16 };

/* Bytes of the quants and of the scales of one block of one strip; 0 for float types. */
size_t tr_strip_quant_bytes(enum tr_tensor_type type);
size_t tr_strip_scale_bytes(enum tr_tensor_type type);

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

#endif
