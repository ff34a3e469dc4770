/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/compute.h"

#include <errno.h>
#include <string.h>

static const char *const math_names[] = {"int8", "blas", "f32"};

static int check_cpu(const struct tr_options *o, struct tr_errbuf *err)
{
    if (o->deterministic && o->cpu_math == TR_MATH_BLAS)
        return tr_errf(err, -EINVAL,
                       "--deterministic: the products of --cpu-math blas change with what else is "
                       "in their batch; int8 and f32 do not");
    return 0;
}

static int check_cuda(const struct tr_options *o, struct tr_errbuf *err)
{
    if (o->cpu_math != TR_MATH_INT8)
        return tr_errf(err, -EINVAL,
                       "--cpu-math %s is for the cpu backend: how --backend cuda computes is said "
                       "by --deterministic alone",
                       math_names[o->cpu_math]);
    if (o->pin_threads)
        return tr_errf(err, -EINVAL,
                       "--pin-threads is for the cpu backend: with --backend cuda the threads of "
                       "the engine compute nothing once the model is loaded");
    if (tr_backend_cuda.forward)
        return 0;
    tr_backend_cuda.open(NULL, NULL, err); /* says why not */
    return -EINVAL;
}

int tr_compute_choose(const struct tr_options *o, const struct tr_backend_ops **ops,
                      struct tr_errbuf *err)
{
    bool no_file = strcmp(o->model, "sim") == 0;
    if (no_file && (o->backend == TR_COMPUTE_CPU || o->backend == TR_COMPUTE_CUDA))
        return tr_errf(err, -EINVAL, "--model sim has no weights: --backend %s cannot run it",
                       o->backend == TR_COMPUTE_CPU ? "cpu" : "cuda");
    *ops = &tr_backend_cpu;
    if (no_file || o->backend == TR_COMPUTE_SIM)
        *ops = &tr_backend_sim;
    else if (o->backend == TR_COMPUTE_CUDA)
        *ops = &tr_backend_cuda;
    if (*ops == &tr_backend_sim)
        return 0;
    return *ops == &tr_backend_cuda ? check_cuda(o, err) : check_cpu(o, err);
}
