/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/quant.h - the element formats of GGUF that can be computed with.
 *
 * A row is n elements: plain F32, F16, BF16, or blocks as ggml lays them out (its block_q* structures
 * and dequantize_row_* functions are the definition; the Python package `gguf` has the same in
 * quants.py).  Little-endian, no padding; `d`, `m`, `dmin` are F16:
 *
 *   blocks of 32: the low nibble of qs[j] is element j, the high one element 16 + j; bit i of qh is
 *   the fifth bit of element i
 *   Q8_0  d, int8 q[32]                        x = q * d
 *   Q4_0  d, qs[16]                            x = (q - 8) * d
 *   Q4_1  d, m, qs[16]                         x = q * d + m
 *   Q5_0  d, qh[4], qs[16]                     x = (q - 16) * d
 *   Q5_1  d, m, qh[4], qs[16]                  x = q * d + m
 *
 *   super-blocks of 256, whose parts of 32 or 16 have whole-number scales sc and minima mn
 *   Q2_K  (mn << 4 | sc)[16], qs[64], d, dmin  x = (d * sc) * q - dmin * mn     parts of 16
 *   Q3_K  hmask[32], qs[64], sc[12], d         x = (d * sc) * (q - 4)           parts of 16
 *   Q4_K  d, dmin, sc/mn[12], qs[128]          x = (d * sc) * q - dmin * mn     parts of 32
 *   Q5_K  d, dmin, sc/mn[12], qh[32], qs[128]  x = (d * sc) * q - dmin * mn     parts of 32
 *   Q6_K  ql[128], qh[64], int8 sc[16], d      x = (d * sc) * (q - 32)          parts of 16
 *   Which bits are whose is said at the readers in quant_block.c.
 *
 * All are looked at through one form, 32 elements at a time: struct tr_quant_block.
 * Pure functions; any process, any thread. */
#ifndef TR_CPU_KERNELS_QUANT_H
#define TR_CPU_KERNELS_QUANT_H

#include "base/gguf.h"
#include "cpu_kernels/half.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TR_QK = 32,            /* elements that are scaled and summed together */
    TR_QK_SUPER = 256,     /* elements of a super-block */
    TR_QK_SUPER_PARTS = 8, /* TR_QK_SUPER / TR_QK */
};

/* What a quantised type is made of. */
struct tr_quant_form {
    uint16_t block; /* elements of a block in the file: TR_QK or TR_QK_SUPER; 0: not quantised */
    uint16_t bytes; /* of that block; of an element where it is not quantised; 0: type not known */
    uint8_t low;    /* a quant's lower bits: 8, 4 or 2 */
    uint8_t high;   /* and the rest of them: 0, 1 or 2 */
    uint8_t bias;   /* taken off a quant: x = (q - bias) * scale */
    bool halves;    /* 16 elements have a scale, not 32 */
    bool mins;      /* a minimum is added */
};

/* Inline so that kernels for one type see constants. */
static inline struct tr_quant_form tr_quant_form(enum tr_tensor_type type)
{
    switch ((int)type) {
    case TR_T_F32:
        return (struct tr_quant_form){0, 4, 0, 0, 0, false, false};
    case TR_T_F16:
    case TR_T_BF16:
        return (struct tr_quant_form){0, 2, 0, 0, 0, false, false};
    case TR_T_Q8_0:
        return (struct tr_quant_form){TR_QK, 34, 8, 0, 128, false, false};
    case TR_T_Q4_0:
        return (struct tr_quant_form){TR_QK, 18, 4, 0, 8, false, false};
    case TR_T_Q4_1:
        return (struct tr_quant_form){TR_QK, 20, 4, 0, 0, false, true};
    case TR_T_Q5_0:
        return (struct tr_quant_form){TR_QK, 22, 4, 1, 16, false, false};
    case TR_T_Q5_1:
        return (struct tr_quant_form){TR_QK, 24, 4, 1, 0, false, true};
    case TR_T_Q2_K:
        return (struct tr_quant_form){TR_QK_SUPER, 84, 2, 0, 0, true, true};
    case TR_T_Q3_K:
        return (struct tr_quant_form){TR_QK_SUPER, 110, 2, 1, 4, true, false};
    case TR_T_Q4_K:
        return (struct tr_quant_form){TR_QK_SUPER, 144, 4, 0, 0, false, true};
    case TR_T_Q5_K:
        return (struct tr_quant_form){TR_QK_SUPER, 176, 4, 1, 0, false, true};
    case TR_T_Q6_K:
        return (struct tr_quant_form){TR_QK_SUPER, 210, 4, 2, 32, true, false};
    default:
        return (struct tr_quant_form){0, 0, 0, 0, 0, false, false};
    }
}

/* True for the types above. */
bool tr_quant_known(enum tr_tensor_type type);

/* True for the types above that come in blocks. */
bool tr_quant_blocked(enum tr_tensor_type type);

/* Bytes of a row of n elements; 0 if the type is not known or n does not fill its blocks. */
size_t tr_quant_row_bytes(enum tr_tensor_type type, size_t n);

/* Thirty-two elements of a quantised row: x[k] = (q[k] - bias) * (d * sc[k / 16]) + minimum, where
 * the minimum is 0, m (Q4_1, Q5_1), or -(m * mn[k / 16]) (Q2_K, Q4_K, Q5_K).  The products in
 * brackets are exact in single precision; then each operation rounds. */
struct tr_quant_block {
    uint8_t q[TR_QK]; /* as stored; of Q8_0 with 128 added, so that no quant is negative */
    uint16_t d;       /* F16 */
    uint16_t m;       /* F16 */
    int8_t sc[2];     /* of either half; 1 where the type has none; of Q3_K without its offset */
    uint8_t mn[2];
};

/* Elements [TR_QK * i, TR_QK * (i + 1)) of a row of a blocked type. */
void tr_quant_block_read(enum tr_tensor_type type, const void *row, size_t i,
                         struct tr_quant_block *out);

/* The same as floats. */
void tr_quant_block_floats(enum tr_tensor_type type, const struct tr_quant_block *b, float *out);

/* out[n] = the elements of a row.  src may be unaligned; the type must be known. */
void tr_quant_row(enum tr_tensor_type type, const void *src, size_t n, float *out);

#ifdef __cplusplus
}
#endif

#endif
