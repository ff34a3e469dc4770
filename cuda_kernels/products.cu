/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/products.cu - matmul, matmul_n (cpu_kernels/ops.h): which kernels make a product. */
#include "cuda_kernels/product.cuh"

extern "C" {
#include "base/assert.h"
}

/* Rows [row, row + n) of a. */
static struct tr_act rows_of(const struct tr_act *a, uint32_t row, uint32_t n)
{
    struct tr_act some = *a;
    size_t blocks = (size_t)row * (a->dim / 32);
    some.x += (size_t)row * a->dim;
    some.q += (size_t)row * a->dim;
    some.d += blocks;
    some.s += blocks;
    some.sum += blocks;
    some.low += blocks;
    some.n_rows = n;
    return some;
}

void tr_cuda_matmul_n(struct tr_dev *dev, uint32_t n, const struct tr_mat *const *w,
                      const struct tr_act *a, float *const *out)
{
    const uint32_t FEW = TR_CUDA_FEW;
    TR_ASSERT(n <= TR_OPS_PRODUCTS && a->n_rows);
    for (uint32_t row = 0; row < a->n_rows; row += TR_CUDA_FEW) {
        uint32_t left = a->n_rows - row;
        struct tr_act some = rows_of(a, row, left < FEW ? left : FEW);
        float *to[TR_OPS_PRODUCTS];
        for (uint32_t i = 0; i < n; i++)
            to[i] = out[i] + (size_t)row * w[i]->n_out;
        tr_cuda_matmul_few(dev, n, w, &some, to);
    }
}

void tr_cuda_matmul(struct tr_dev *dev, const struct tr_mat *w, const struct tr_act *a, float *out)
{
    tr_cuda_matmul_n(dev, 1, &w, a, &out);
}
