/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/quant.h - the element formats of GGUF that can be computed with.
 *
 * A row is n elements, in blocks of 32 where the type is quantised (layouts of ggml, as the GGUF
 * files carry them, little-endian):
 *   Q8_0  f16 d, int8 q[32]                 x = q * d
 *   Q4_0  f16 d, uint8 qs[16]               x = (nibble - 8) * d
 *   Q4_1  f16 d, f16 m, uint8 qs[16]        x = nibble * d + m
 * where the low nibbles of qs are elements 0..15 and the high ones 16..31.
 * Pure functions; any process, any thread. */
#ifndef TR_CPU_KERNELS_QUANT_H
#define TR_CPU_KERNELS_QUANT_H

#include "base/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TR_QK = 32 }; /* elements in a quantised block */

/* True for F32 F16 BF16 Q8_0 Q4_0 Q4_1. */
bool tr_quant_known(enum tr_tensor_type type);

/* True for the types above that come in blocks of TR_QK. */
bool tr_quant_blocked(enum tr_tensor_type type);

/* Bytes of a row of n elements; 0 if the type is not known or n does not fill its blocks. */
size_t tr_quant_row_bytes(enum tr_tensor_type type, size_t n);

/* out[n] = the elements of a row.  src may be unaligned; the type must be known. */
void tr_quant_row(enum tr_tensor_type type, const void *src, size_t n, float *out);

/* IEEE half precision; exact one way, round to nearest even the other (overflow is infinity,
 * NaNs stay NaN and become quiet).  The same results as F16C. */
float tr_f16_to_f32(uint16_t h);
uint16_t tr_f32_to_f16(float f);

#endif
