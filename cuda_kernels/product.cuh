/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/product.cuh - the two ways in which products are made: of few rows and of many.
 *
 * out[i] = a * w[i]^T for i < n <= TR_OPS_PRODUCTS, as matmul_n of cpu_kernels/ops.h. */
#ifndef TR_CUDA_KERNELS_PRODUCT_CUH
#define TR_CUDA_KERNELS_PRODUCT_CUH

#include "cuda_kernels/dev.cuh"

enum { TR_CUDA_FEW = 16 }; /* rows */

/* product_few.cu: a->n_rows <= TR_CUDA_FEW; weights are read once. */
void tr_cuda_matmul_few(struct tr_dev *dev, uint32_t n, const struct tr_mat *const *w,
                        const struct tr_act *a, float *const *out);

/* product_many.cu: any number of rows, best from 17 on. */
void tr_cuda_matmul_many(struct tr_dev *dev, uint32_t n, const struct tr_mat *const *w,
                         const struct tr_act *a, float *const *out);

#endif
