/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/blas.h - matrix products by OpenBLAS, loaded at run time.
 *
 * Debian's OpenBLAS starts its threads when it is loaded, and threads do not survive fork: so it
 * is not linked but opened by the process that computes, after it was forked.  It is never
 * unloaded (its threads could still be running code of it). */
#ifndef TR_CPU_KERNELS_BLAS_H
#define TR_CPU_KERNELS_BLAS_H

#include "base/err.h"

#include <stdint.h>

struct tr_blas {
    /* The C interface of BLAS: order, transpositions, m, n, k, alpha, a, lda, b, ldb, beta, c,
     * ldc.  OpenBLAS as Debian builds it has 32-bit integers. */
    void (*sgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int,
                  float, float *, int);
};

/* Loads libopenblas.so.0 and sets its threads.  0, or -ENOENT / -ENOSYS and a sentence. */
int tr_blas_load(struct tr_blas *b, uint32_t n_threads, struct tr_errbuf *err);

/* out[n_rows, n_out] = x[n_rows, n_in] * w[n_out, n_in]^T. */
void tr_blas_product(const struct tr_blas *b, const float *x, const float *w, uint32_t n_rows,
                     uint32_t n_in, uint32_t n_out, float *out);

#endif
