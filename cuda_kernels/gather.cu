/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/gather.cu - gather: the rows that go on, one after the other.
 *
 * A thread has four neighbours of a row (16 bytes) where rows allow it, else one element; blockIdx.x is the row,
 * so which one it is is read once for a warp.  Bound by memory, and once a step. */
#include "cuda_kernels/dev.cuh"

enum { THREADS = 256 };

template <class T>
static __global__ void gather(const T *x, const uint32_t *rows, uint32_t n_each, T *out)
{
    uint32_t i = blockIdx.y * THREADS + threadIdx.x;
    if (i < n_each)
        out[(size_t)blockIdx.x * n_each + i] = x[(size_t)rows[blockIdx.x] * n_each + i];
}

template <class T>
static void launch(struct tr_dev *dev, const float *x, const uint32_t *rows, uint32_t n,
                   uint32_t n_each, float *out)
{
    TR_LAUNCH((gather<T>), dim3(n, (n_each + THREADS - 1) / THREADS), dim3(THREADS), 0, dev->stream,
              (const T *)x, rows, n_each, (T *)out);
}

void tr_cuda_gather(struct tr_dev *dev, const float *x, const uint32_t *rows, uint32_t n,
                    uint32_t dim, float *out)
{
    if (!n || !dim)
        return;
    if (dim % 4 == 0)
        launch<float4>(dev, x, rows, n, dim / 4, out);
    else
        launch<float>(dev, x, rows, n, dim, out);
}
