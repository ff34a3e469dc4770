/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/strip.h - how weights lie in a device's memory for products.
 *
 * A strip is TR_CUDA_STRIP rows of W (outputs) side by side, a lane of a warp each, so that what a warp loads
 * lies together, and a strip's bytes are read from the first to the last while K goes up (N2 of
 * cpu_kernels/ops.h).  The last strip is filled up with rows of zeros.
 *
 * Float types: [n_in / e][32 outputs][e elements] of 16 bytes; elements from n_in on are zeros.
 *
 * Quantised types: K-blocks of 32 elements, one after the other, each with its quants and its scales.
 * A quant q of a type with a bias is stored as q - bias, a two's complement number of its bits (its topmost
 * bit is turned round), so that no product needs the sum of the activations; the others as they are, from 0 on.
 * Four neighbours in K are a *group*, a byte each of a word; group g is elements 4g .. 4g + 3.  First the
 * quants' lower bits, then the upper ones:
 *   8 bits  [2 halves][32 outputs][16 bytes]  word p of half h is group 4h + p
 *   4 bits  [32 outputs][16 bytes]            word p has group p in the low nibbles, group p + 4 in the high ones
 *   2 bits  [32 outputs][8 bytes]             word p has group 4p + i in bits 2i, 2i + 1 of its bytes
 *   1 bit   [32 outputs][4 bytes]             bit g of its bytes is group g
 * (lower ones 8, 4 or 2 bits, upper ones 2 or 1).  So lane l of a tensor core's m16n8k32, which wants groups
 * l % 4 and 4 + l % 4 of outputs l / 4 and l / 4 + 8, finds both in one word of 4 bits, and 32 lanes read 128
 * bytes that lie together.  Then the scales:
 *   of a block of 32     F16 d[32], and F16 m[32] where there are minima
 *   of a super-block     the same before its eight K-blocks; behind the quants of each 64 bytes:
 *     Q4_K Q5_K  sc[32], mn[32]
 *     Q3_K Q6_K  int8 sc[32] of the first 16 elements, sc[32] of the others
 *     Q2_K       (mn << 4 | sc)[32] of the first 16 elements, of the others
 * All pieces begin at multiples of 64 bytes, strips at multiples of 128.  A weight takes as many bits as in the
 * file, but an eighth of a bit more for Q3_K, Q4_K and Q5_K, whose scales of six bits lie in bytes.
 *
 * Pure functions of shapes, for host and device, constants where the type is one. */
#ifndef TR_CUDA_KERNELS_STRIP_H
#define TR_CUDA_KERNELS_STRIP_H

#include "base/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define TR_STRIP_FN static __host__ __device__ inline constexpr
#elif defined(__cplusplus)
#define TR_STRIP_FN static inline constexpr
#else
#define TR_STRIP_FN static inline
#endif

enum {
    TR_CUDA_STRIP = 32,
    TR_CUDA_K = 32,    /* elements of a K-block */
    TR_CUDA_PARTS = 8, /* K-blocks of a super-block */
    TR_CUDA_F16S = 64, /* bytes of an F16 for each output; of a K-block's scales in a super-block */
};

/* ---- what a type is made of ---- */

/* A quant's lower bits and its upper ones; 0, 0: not quantised. */
TR_STRIP_FN uint32_t tr_cuda_low(enum tr_tensor_type type)
{
    switch ((int)type) {
    case TR_T_Q8_0:
        return 8;
    case TR_T_Q4_0:
    case TR_T_Q4_1:
    case TR_T_Q5_0:
    case TR_T_Q5_1:
    case TR_T_Q4_K:
    case TR_T_Q5_K:
    case TR_T_Q6_K:
        return 4;
    case TR_T_Q2_K:
    case TR_T_Q3_K:
        return 2;
    default:
        return 0;
    }
}

TR_STRIP_FN uint32_t tr_cuda_high(enum tr_tensor_type type)
{
    switch ((int)type) {
    case TR_T_Q5_0:
    case TR_T_Q5_1:
    case TR_T_Q5_K:
    case TR_T_Q3_K:
        return 1;
    case TR_T_Q6_K:
        return 2;
    default:
        return 0;
    }
}

/* Quants are two's complement numbers. */
TR_STRIP_FN bool tr_cuda_signed(enum tr_tensor_type type)
{
    return type == TR_T_Q8_0 || type == TR_T_Q4_0 || type == TR_T_Q5_0 || type == TR_T_Q3_K ||
           type == TR_T_Q6_K;
}

TR_STRIP_FN bool tr_cuda_super(enum tr_tensor_type type)
{
    return type == TR_T_Q2_K || type == TR_T_Q3_K || type == TR_T_Q4_K || type == TR_T_Q5_K ||
           type == TR_T_Q6_K;
}

/* Sixteen elements have a scale, not 32. */
TR_STRIP_FN bool tr_cuda_halves(enum tr_tensor_type type)
{
    return type == TR_T_Q2_K || type == TR_T_Q3_K || type == TR_T_Q6_K;
}

TR_STRIP_FN bool tr_cuda_mins(enum tr_tensor_type type)
{
    return type == TR_T_Q4_1 || type == TR_T_Q5_1 || type == TR_T_Q2_K || type == TR_T_Q4_K ||
           type == TR_T_Q5_K;
}

/* ---- quantised types: bytes, and where they begin ---- */

/* Of a K-block: its lower bits are at 0, its upper ones at `high_at`, its scales at `scale_at` (d, then m; of
 * a super-block the 64 bytes of small ones). */
TR_STRIP_FN uint32_t tr_cuda_high_at(enum tr_tensor_type type)
{
    return tr_cuda_low(type) * (TR_CUDA_K * TR_CUDA_STRIP / 8);
}

TR_STRIP_FN uint32_t tr_cuda_scale_at(enum tr_tensor_type type)
{
    return (tr_cuda_low(type) + tr_cuda_high(type)) * (TR_CUDA_K * TR_CUDA_STRIP / 8);
}

TR_STRIP_FN uint32_t tr_cuda_block_bytes(enum tr_tensor_type type)
{
    return tr_cuda_scale_at(type) +
           (!tr_cuda_super(type) && tr_cuda_mins(type) ? 2 * TR_CUDA_F16S : TR_CUDA_F16S);
}

/* Of what stands before a super-block's K-blocks: d, then m. */
TR_STRIP_FN uint32_t tr_cuda_head_bytes(enum tr_tensor_type type)
{
    return !tr_cuda_super(type) ? 0 : tr_cuda_mins(type) ? 2 * TR_CUDA_F16S : TR_CUDA_F16S;
}

/* In a strip: K-block i, and the head of the super-block that it belongs to. */
TR_STRIP_FN size_t tr_cuda_head_at(enum tr_tensor_type type, size_t i)
{
    return i / TR_CUDA_PARTS *
           (tr_cuda_head_bytes(type) + TR_CUDA_PARTS * (size_t)tr_cuda_block_bytes(type));
}

TR_STRIP_FN size_t tr_cuda_block_at(enum tr_tensor_type type, size_t i)
{
    return tr_cuda_head_bytes(type) * (tr_cuda_super(type) ? i / TR_CUDA_PARTS + 1 : 0) +
           i * tr_cuda_block_bytes(type);
}

/* ---- float types ---- */

/* Bytes of an element. */
TR_STRIP_FN uint32_t tr_cuda_element(enum tr_tensor_type type)
{
    return type == TR_T_F32 ? 4 : 2;
}

/* In a strip: element k of an output. */
TR_STRIP_FN size_t tr_cuda_element_at(enum tr_tensor_type type, size_t k, uint32_t output)
{
    uint32_t element = tr_cuda_element(type);
    uint32_t e = 16 / element;
    return (k / e * TR_CUDA_STRIP + output) * 16 + k % e * element;
}

/* ---- strips ---- */

TR_STRIP_FN uint32_t tr_cuda_strip_count(uint32_t n_out)
{
    return n_out / TR_CUDA_STRIP + (n_out % TR_CUDA_STRIP != 0);
}

/* Bytes of a strip; n_in fills the blocks of a quantised type. */
TR_STRIP_FN size_t tr_cuda_strip_bytes(enum tr_tensor_type type, uint32_t n_in)
{
    size_t bytes = tr_cuda_low(type)
                       ? tr_cuda_block_at(type, n_in / TR_CUDA_K) - tr_cuda_head_bytes(type)
                       : ((size_t)n_in * tr_cuda_element(type) + 15) / 16 * 16 * TR_CUDA_STRIP;
    return (bytes + 127) / 128 * 128;
}

/* q - bias of element k of an output, in a K-block. */
TR_STRIP_FN int tr_cuda_quant(enum tr_tensor_type type, const uint8_t *block, uint32_t output,
                              uint32_t k)
{
    uint32_t low = tr_cuda_low(type), high = tr_cuda_high(type), bits = low + high;
    uint32_t g = k / 4, q = 0;
    const uint8_t *upper = block + tr_cuda_high_at(type);
    if (low == 8)
        q = block[(k / 16 * TR_CUDA_STRIP + output) * 16 + k % 16];
    else if (low == 4)
        q = block[output * 16 + k % 16] >> k / 16 * 4 & 15;
    else
        q = block[output * 8 + g / 4 * 4 + k % 4] >> g % 4 * 2 & 3;
    if (high == 2)
        q |= ((unsigned)upper[output * 8 + g / 4 * 4 + k % 4] >> g % 4 * 2 & 3u) << low;
    else if (high == 1)
        q |= ((unsigned)upper[output * 4 + k % 4] >> g & 1u) << low;
    return (int)q - (tr_cuda_signed(type) && q >> (bits - 1) ? 1 << bits : 0);
}

/* ---- packing, on the host (strip.c) ---- */

#ifdef __cplusplus
extern "C" {
#endif

/* Packs strip s of a matrix of n_out GGUF rows at `rows` into its place in mem, where the whole matrix goes
 * (tr_cuda_strip_count strips).  Any thread; other strips are not touched. */
void tr_cuda_strip_pack(enum tr_tensor_type type, uint32_t n_in, uint32_t n_out, const void *rows,
                        uint32_t s, void *mem);

#ifdef __cplusplus
}
#endif

#endif
