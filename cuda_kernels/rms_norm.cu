/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/rms_norm.cu - rms_norm, add_rms_norm, norm_add_rms_norm, head_norm.
 *
 * The squares of a row are summed by `lanes` threads, thread l those of elements l, l + lanes, ..., and the
 * sums are folded in halves.
 *
 * Exact: 16 lanes, which is the order that cpu_kernels/rows.inl means.  A row of 4,096 is a chain of 256 fmaf
 * (4 cycles each, its loads ahead of it), expected 1 to 2 us; eight rows in a block of 128 threads, so that the
 * rows of a decode step lie on several processors.  More lanes would be another sum.
 *
 * Fast: a block of 256 threads has a row: 16 elements a thread of 4,096, so nothing but the latency of two
 * trips to memory and a tree over eight warps is left.  Heads are short (64 to 256 elements): they are exact
 * in both. */
#include "cuda_kernels/dev.cuh"

enum { LANES = 16, ROWS = 8, BLOCK = 256 };

/* A row and what is made of it. */
struct norm {
    float *x;        /* the residual stream, or what is only normed */
    const float *y;  /* what is added to x first; NULL: nothing */
    const float *wy; /* a norm of y before that; NULL: none */
    const float *w;
    float *out;
    float eps;
    uint32_t n_rows, dim;
};

/* The threads that have a row, and how they come to one sum. */
struct exact_lanes {
    static __device__ uint32_t lane()
    {
        return threadIdx.x % LANES;
    }
    static __device__ uint32_t row()
    {
        return blockIdx.x * ROWS + threadIdx.x / LANES;
    }
    enum { N = LANES };
    static __device__ float fold(float v)
    {
        for (unsigned half = LANES / 2; half >= 1; half /= 2)
            v += __shfl_down_sync(~0u, v, half, LANES);
        return __shfl_sync(~0u, v, 0, LANES);
    }
};
struct block_lanes {
    static __device__ uint32_t lane()
    {
        return threadIdx.x;
    }
    static __device__ uint32_t row()
    {
        return blockIdx.x;
    }
    enum { N = BLOCK };
    static __device__ float fold(float v)
    {
        TR_SHARED(float, warp, BLOCK / 32);
        for (int half = 16; half >= 1; half /= 2)
            v += __shfl_xor_sync(~0u, v, half);
        if (threadIdx.x % 32 == 0)
            warp[threadIdx.x / 32] = v;
        __syncthreads();
        v = 0;
        for (unsigned i = 0; i < BLOCK / 32; i++)
            v += warp[i];
        __syncthreads(); /* before the next fold writes */
        return v;
    }
};

static __device__ float inverse_rms(float squares, uint32_t dim, float eps)
{
    return 1.0f / sqrtf(squares / (float)dim + eps);
}

/* All threads of a block come to every fold, also those without a row. */
template <class L> static __global__ void norm_rows(struct norm n)
{
    bool there = L::row() < n.n_rows;
    uint32_t dim = there ? n.dim : 0;
    size_t at = there ? (size_t)L::row() * n.dim : 0;
    float *x = n.x + at, *out = n.out + at;
    const float *y = n.y ? n.y + at : nullptr;
    float post = 0, squares = 0;
    if (n.wy) {
        for (uint32_t i = L::lane(); i < dim; i += L::N)
            squares = fmaf(y[i], y[i], squares);
        post = inverse_rms(L::fold(squares), n.dim, n.eps);
        squares = 0;
    }
    for (uint32_t i = L::lane(); i < dim; i += L::N) {
        float a = x[i];
        if (y) {
            a = a + (n.wy ? y[i] * post * n.wy[i] : y[i]);
            x[i] = a;
        }
        squares = fmaf(a, a, squares);
    }
    float inverse = inverse_rms(L::fold(squares), n.dim, n.eps);
    for (uint32_t i = L::lane(); i < dim; i += L::N)
        out[i] = x[i] * inverse * n.w[i];
}

static void launch(struct tr_dev *dev, const struct norm &n, bool exact)
{
    if (n.n_rows == 0)
        return;
    if (exact)
        TR_LAUNCH(norm_rows<exact_lanes>, dim3((n.n_rows + ROWS - 1) / ROWS), dim3(ROWS * LANES), 0,
                  dev->stream, n);
    else
        TR_LAUNCH(norm_rows<block_lanes>, dim3(n.n_rows), dim3(BLOCK), 0, dev->stream, n);
}

void tr_cuda_rms_norm(struct tr_dev *dev, const float *x, const float *w, float eps,
                      uint32_t n_rows, uint32_t dim, float *out)
{
    /* x is only read: nothing is added. */
    launch(dev, {(float *)x, nullptr, nullptr, w, out, eps, n_rows, dim}, dev->exact);
}

void tr_cuda_add_rms_norm(struct tr_dev *dev, float *x, const float *y, const float *w, float eps,
                          uint32_t n_rows, uint32_t dim, float *out)
{
    launch(dev, {x, y, nullptr, w, out, eps, n_rows, dim}, dev->exact);
}

void tr_cuda_norm_add_rms_norm(struct tr_dev *dev, float *x, const float *y, const float *w_post,
                               const float *w_next, float eps, uint32_t n_rows, uint32_t dim,
                               float *out)
{
    launch(dev, {x, y, w_post, w_next, out, eps, n_rows, dim}, dev->exact);
}

void tr_cuda_head_norm(struct tr_dev *dev, float *x, const float *w, float eps, uint32_t n_rows,
                       uint32_t n_head, uint32_t head_dim)
{
    launch(dev, {x, nullptr, nullptr, w, x, eps, n_rows * n_head, head_dim}, true);
}
