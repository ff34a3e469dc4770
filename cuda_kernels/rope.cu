/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/rope.cu - rotary embedding by the table of angles (cpu_kernels/ops.h, rope).
 *
 * A thread turns one pair: 8 bytes in and out and 8 of the table, which all heads of a row share (L1), so memory
 * is what limits it.  Neighbours in a block have neighbouring pairs: adjacent pairs are one load of 8 bytes,
 * pairs of halves two coalesced ones.  A row of 32 heads of 128 is 2,048 threads, so a single row has eight
 * blocks; 256 rows of 40 heads are expected to take about as long as their 10 MB in and out take. */
#include "cuda_kernels/dev.cuh"

enum { THREADS = 256 };

/* Grid: (rows, pairs of a row / THREADS): of rows there may be more than the 65,535 that y takes. */
static __global__ void turn(bool adjacent, uint32_t half, const float *table, float *x,
                            const struct tr_place *places, uint32_t n_head, uint32_t head_dim)
{
    uint32_t pair = blockIdx.y * THREADS + threadIdx.x, row = blockIdx.x;
    uint32_t pos = places[row].pos;
    if (pair >= n_head * half || pos == TR_NO_POS)
        return;
    uint32_t i = pair % half;
    float c = table[(size_t)pos * 2 * half + i], s = table[((size_t)pos * 2 + 1) * half + i];
    float *head = x + ((size_t)row * n_head + pair / half) * head_dim;
    float *first = adjacent ? head + 2 * i : head + i;
    float *second = first + (adjacent ? 1 : half);
    float a = *first, b = *second;
    *first = a * c - b * s;
    *second = a * s + b * c;
}

void tr_cuda_rope(struct tr_dev *dev, const struct tr_rope *r, float *x,
                  const struct tr_place *places, uint32_t n_rows, uint32_t n_head,
                  uint32_t head_dim)
{
    uint32_t half = r->n_rot / 2;
    if (n_rows && half)
        TR_LAUNCH(turn, dim3(n_rows, (n_head * half + THREADS - 1) / THREADS), dim3(THREADS), 0,
                  dev->stream, r->style == TR_ROPE_ADJACENT, half, (const float *)r->cos_sin, x,
                  places, n_head, head_dim);
}
