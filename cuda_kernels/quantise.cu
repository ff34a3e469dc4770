/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/quantise.cu - activations on their way into products: act_bytes, act_init, act_set.
 *
 * Eight threads have a block of 32: four elements each (a load of 16 bytes, a store of 4), a warp four blocks
 * that lie together.  So a warp reads 512 bytes and writes 128 of quants and 16 of each number of a block,
 * all whole sectors; the largest element and the two sums take three shuffles each.  It is bound by memory:
 * 5.5 bytes an element, some 40 instructions for four. */
#include "cuda_kernels/dev.cuh"

extern "C" {
#include "base/assert.h"
}

enum { QK = 32, LANES = 8, EACH = QK / LANES, THREADS = 256 };

/* As QUANT_MIN and ROUNDER in cpu_kernels/rows.inl. */
#define QUANT_MIN 0x1p-50f
#define ROUNDER 0x1.8p23f
#define INFINITE 0x7F800000u

static __device__ uint32_t top_bits(uint32_t top, float x)
{
    uint32_t bits = tr_bits_of(x) & 0x7FFFFFFFu;
    return bits > top ? bits : top;
}

/* A float below 2^22 rounded to an integer: its low byte, as a number. */
static __device__ int32_t quant_of(float x, float inverse)
{
    float t = x * inverse;
    return (int8_t)(uint8_t)tr_bits_of(t + ROUNDER);
}

static __global__ void quantise(const float *x, size_t n_blocks, struct tr_act a)
{
    size_t at = (size_t)blockIdx.x * THREADS + threadIdx.x, block = at / LANES;
    uint32_t lane = threadIdx.x % LANES;
    bool there = block < n_blocks;
    float4 v = there ? *(const float4 *)(x + at * EACH) : make_float4(0, 0, 0, 0);
    uint32_t top = top_bits(top_bits(top_bits(top_bits(0, v.x), v.y), v.z), v.w);
    for (int with = LANES / 2; with >= 1; with /= 2) {
        uint32_t other = __shfl_xor_sync(~0u, top, with, LANES);
        top = other > top ? other : top;
    }
    float amax = tr_float_of(top);
    int32_t q[EACH] = {0, 0, 0, 0};
    float d = top >= INFINITE ? tr_float_of(0x7FC00000u) : 0.0f;
    if (top < INFINITE && amax >= QUANT_MIN) {
        float inverse = 127.0f / amax;
        q[0] = quant_of(v.x, inverse);
        q[1] = quant_of(v.y, inverse);
        q[2] = quant_of(v.z, inverse);
        q[3] = quant_of(v.w, inverse);
        d = amax / 127.0f;
    }
    int32_t half = q[0] + q[1] + q[2] + q[3];
    half += __shfl_xor_sync(~0u, half, 1, LANES);
    half += __shfl_xor_sync(~0u, half, 2, LANES);
    int32_t other = __shfl_xor_sync(~0u, half, 4, LANES);
    if (!there)
        return;
    *(uint32_t *)(a.q + at * EACH) = (uint32_t)(q[0] & 255) | (uint32_t)(q[1] & 255) << 8 |
                                     (uint32_t)(q[2] & 255) << 16 | (uint32_t)(q[3] & 255) << 24;
    if (lane)
        return;
    a.d[block] = d;
    a.s[block] = d * (float)(half + other);
    a.sum[block] = half + other;
    a.low[block] = half;
}

static size_t blocks_of(uint32_t rows, uint32_t dim)
{
    return (size_t)rows * (dim / QK);
}

/* Of a piece of the memory, such as has `each` bytes for a block. */
static size_t piece(size_t blocks, size_t each)
{
    return (blocks * each + TR_OPS_LINE - 1) / TR_OPS_LINE * TR_OPS_LINE;
}

size_t tr_cuda_act_bytes(const struct tr_dev *dev, uint32_t max_rows, uint32_t dim)
{
    (void)dev;
    size_t blocks = blocks_of(max_rows, dim);
    return piece(blocks, QK) + 4 * piece(blocks, sizeof(float));
}

void tr_cuda_act_init(struct tr_dev *dev, struct tr_act *a, uint32_t max_rows, uint32_t dim,
                      void *mem)
{
    (void)dev;
    size_t blocks = blocks_of(max_rows, dim), number = piece(blocks, sizeof(float));
    uint8_t *p = (uint8_t *)mem + piece(blocks, QK);
    *a = {};
    a->dim = dim;
    a->max_rows = max_rows;
    a->q = (int8_t *)mem;
    a->d = (float *)p;
    a->s = (float *)(p + number);
    a->sum = (int32_t *)(p + 2 * number);
    a->low = (int32_t *)(p + 3 * number);
}

void tr_cuda_act_set(struct tr_dev *dev, struct tr_act *a, const float *x, uint32_t n_rows)
{
    TR_ASSERT(n_rows <= a->max_rows);
    a->x = x;
    a->n_rows = n_rows;
    /* Rows that do not fill blocks meet float weights only, which take them as they are. */
    if (a->dim % QK != 0 || !n_rows)
        return;
    size_t blocks = blocks_of(n_rows, a->dim), per_block = THREADS / LANES;
    TR_LAUNCH(quantise, dim3((unsigned)((blocks + per_block - 1) / per_block)), dim3(THREADS), 0,
              dev->stream, x, blocks, *a);
}
