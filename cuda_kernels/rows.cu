/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/rows.cu - operations on elements: add, add_bias, scale, silu_mul, gelu_mul.
 *
 * A thread has four neighbours (a load of 16 bytes) where rows allow it, else one element.  They are bound by
 * memory: 12 bytes an element and less than 40 instructions, so nothing else matters but that all processors
 * have enough of them: blocks of 256 threads over all elements. */
#include "cuda_kernels/curves.cuh"
#include "cuda_kernels/dev.cuh"

enum { THREADS = 256 };

struct add_op {
    static __device__ float at(float x, float y, float)
    {
        return x + y;
    }
};
struct scale_op {
    static __device__ float at(float x, float, float s)
    {
        return x * s;
    }
};
/* Below -87, where tr_exp stops growing, silu is nearer to 0 than 1e-35: 0. */
struct silu_op {
    static __device__ float at(float g, float up, float)
    {
        float silu = g / (1.0f + tr_exp(0.0f - g));
        return (g < -87.0f ? 0.0f : silu) * up;
    }
};
struct gelu_op {
    static __device__ float at(float g, float up, float)
    {
        float u = fmaf(g * g * 0.044715f, g, g) * 1.5957691216f; /* 2 sqrt(2/pi) */
        float gelu = g / (1.0f + tr_exp(0.0f - u));
        return (u < -87.0f ? 0.0f : gelu) * up;
    }
};

/* x[i] = f(x[i], y[i % y_len], s); by fours where both lengths are multiples of four. */
template <class F>
static __global__ void each(float *x, const float *y, float s, size_t n, size_t y_len)
{
    size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * 4;
    if (i >= n)
        return;
    if (n % 4 == 0 && y_len % 4 == 0) {
        float4 a = *(const float4 *)(x + i);
        float4 b = y ? *(const float4 *)(y + i % y_len) : make_float4(0, 0, 0, 0);
        *(float4 *)(x + i) = make_float4(F::at(a.x, b.x, s), F::at(a.y, b.y, s), F::at(a.z, b.z, s),
                                         F::at(a.w, b.w, s));
        return;
    }
    for (size_t end = i + 4 < n ? i + 4 : n; i < end; i++)
        x[i] = F::at(x[i], y ? y[i % y_len] : 0.0f, s);
}

template <class F>
static void launch(struct tr_dev *dev, float *x, const float *y, float s, size_t n, size_t y_len)
{
    size_t per_block = (size_t)THREADS * 4;
    if (n)
        TR_LAUNCH(each<F>, dim3((unsigned)((n + per_block - 1) / per_block)), dim3(THREADS), 0,
                  dev->stream, x, y, s, n, y_len);
}

void tr_cuda_add(struct tr_dev *dev, float *x, const float *y, uint32_t n_rows, uint32_t dim)
{
    size_t n = (size_t)n_rows * dim;
    launch<add_op>(dev, x, y, 0, n, n);
}

void tr_cuda_add_bias(struct tr_dev *dev, float *x, const float *b, uint32_t n_rows, uint32_t dim)
{
    launch<add_op>(dev, x, b, 0, (size_t)n_rows * dim, dim);
}

void tr_cuda_scale(struct tr_dev *dev, float *x, float s, uint32_t n_rows, uint32_t dim)
{
    launch<scale_op>(dev, x, nullptr, s, (size_t)n_rows * dim, 4);
}

void tr_cuda_silu_mul(struct tr_dev *dev, float *gate, const float *up, uint32_t n_rows,
                      uint32_t dim)
{
    size_t n = (size_t)n_rows * dim;
    launch<silu_op>(dev, gate, up, 0, n, n);
}

void tr_cuda_gelu_mul(struct tr_dev *dev, float *gate, const float *up, uint32_t n_rows,
                      uint32_t dim)
{
    size_t n = (size_t)n_rows * dim;
    launch<gelu_op>(dev, gate, up, 0, n, n);
}
