/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/products.cu - matmul, matmul_n (cpu_kernels/ops.h): which kernels make a product. */
#include "cuda_kernels/product.cuh"

extern "C" {
#include "base/assert.h"
}

void tr_cuda_matmul_n(struct tr_dev *dev, uint32_t n, const struct tr_mat *const *w,
                      const struct tr_act *a, float *const *out)
{
    TR_ASSERT(n <= TR_OPS_PRODUCTS && a->n_rows);
    if (a->n_rows <= TR_CUDA_FEW)
        tr_cuda_matmul_few(dev, n, w, a, out);
    else
        tr_cuda_matmul_many(dev, n, w, a, out);
}

void tr_cuda_matmul(struct tr_dev *dev, const struct tr_mat *w, const struct tr_act *a, float *out)
{
    tr_cuda_matmul_n(dev, 1, &w, a, &out);
}
