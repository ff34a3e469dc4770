/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/blas.c - matrix products by OpenBLAS, loaded at run time. */
#include "cpu_kernels/blas.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

/* Values of the C interface's enumerations (Netlib cblas.h). */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

/* dlsym gives an object pointer; ISO C has no cast from it to a function pointer. */
static void symbol(void *lib, const char *name, void *fn)
{
    void *p = dlsym(lib, name);
    memcpy(fn, &p, sizeof p);
}

int tr_blas_load(struct tr_blas *b, uint32_t n_threads, struct tr_errbuf *err)
{
    void *lib = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return tr_errf(err, -ENOENT,
                       "math mode blas needs OpenBLAS (Debian: libopenblas0-pthread): %s",
                       dlerror());

    struct tr_blas loaded = {0};
    void (*set_threads)(int) = NULL;
    symbol(lib, "cblas_sgemm", (void *)&loaded.sgemm);
    symbol(lib, "openblas_set_num_threads", (void *)&set_threads);
    if (!loaded.sgemm || !set_threads)
        return tr_errf(err, -ENOSYS, "libopenblas.so.0 lacks cblas_sgemm: it is not OpenBLAS");

    set_threads((int)n_threads);
    *b = loaded;
    return 0;
}

void tr_blas_product(const struct tr_blas *b, const float *x, const float *w, uint32_t n_rows,
                     uint32_t n_in, uint32_t n_out, float *out)
{
    b->sgemm(ROW_MAJOR, NO_TRANS, TRANS, (int)n_rows, (int)n_out, (int)n_in, 1.0F, x, (int)n_in, w,
             (int)n_in, 0.0F, out, (int)n_out);
}
