/* SPDX-License-Identifier: Apache-2.0 */
/* The `cpu` backend: cpu_kernels/, a model and a forward pass behind engine/backend.h. */
#include "engine/backend.h"

#include "base/gguf.h"
#include "cpu_kernels/ops.h"
#include "engine/backend_plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

_Static_assert((int)TR_MATH_INT8 == (int)TR_OPS_INT8 && (int)TR_MATH_BLAS == (int)TR_OPS_BLAS &&
                   (int)TR_MATH_F32 == (int)TR_OPS_F32,
               "the two enumerations are the same");

struct tr_backend {
    struct tr_dev *dev;
    struct tr_model *model;
    struct tr_forward *forward;
};

static const char *const math_names[] = {"int8", "blas", "f32"};

static uint64_t memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

static bool cpu_deterministic(const struct tr_backend_config *c)
{
    return c->math != TR_MATH_BLAS;
}

static void describe(const struct tr_backend *b, const struct tr_backend_config *c,
                     const struct tr_forward_config *fc, struct tr_backend_info *info)
{
    char how[64];
    snprintf(how, sizeof(how), "cpu %s %s, %" PRIu32 " threads", math_names[c->math],
             tr_cpu_level_name(tr_cpu_level_find(TR_CPU_AVX512)), c->n_threads);
    tr_plan_describe(b->model, fc, tr_forward_scratch_bytes(b->forward), how, cpu_deterministic(c),
                     info);
}

static void cpu_close(struct tr_backend *b)
{
    if (!b)
        return;
    tr_forward_close(b->forward);
    tr_model_free(b->model);
    tr_ops_cpu.close(b->dev);
    free(b);
}

static struct tr_backend *cpu_open(const struct tr_backend_config *c, struct tr_backend_info *info,
                                   struct tr_errbuf *err)
{
    struct tr_gguf *g = NULL;
    struct tr_backend *b = NULL;
    if (tr_plan_check(c, "cpu", err) < 0 || !(g = tr_gguf_open(c->model_path, err)))
        return NULL;
    b = calloc(1, sizeof(*b));
    if (!b) {
        tr_errf(err, -ENOMEM, "no memory");
        goto failed;
    }
    struct tr_forward_config fc = {.kv_type = c->kv_type,
                                   .max_rows = c->max_rows,
                                   .max_out = c->max_out < c->max_rows ? c->max_out : c->max_rows};
    b->dev = tr_cpu_open(&(struct tr_cpu_config){.math = (enum tr_ops_math)c->math,
                                                 .level_max = TR_CPU_AVX512,
                                                 .n_threads = c->n_threads,
                                                 .pin_threads = c->pin_threads},
                         err);
    if (!b->dev)
        goto failed;
    b->model = tr_model_load(g, c->model_path, c->weights_fd, &tr_ops_cpu, b->dev, c->beat,
                             c->beat_arg, err);
    if (c->weights_fd > 0)
        close(c->weights_fd);
    if (!b->model || tr_plan_kv(b->model, c, memory_bytes() / 4, &fc, err) < 0)
        goto failed;
    b->forward = tr_forward_open(b->model, &tr_ops_cpu, b->dev, &fc, err);
    if (!b->forward)
        goto failed;
    describe(b, c, &fc, info);
    tr_gguf_close(g);
    return b;
failed:
    tr_gguf_close(g);
    cpu_close(b);
    return NULL;
}

static void cpu_forward(struct tr_backend *b, const struct tr_batch *batch, float *logits,
                        void (*beat)(void *), void *arg)
{
    tr_forward_run(b->forward, batch, logits, beat, arg);
}

static void cpu_parallel(struct tr_backend *b, uint32_t n, void (*fn)(void *, uint32_t), void *arg)
{
    tr_ops_cpu.parallel(b->dev, n, fn, arg);
}

static bool cpu_errand(struct tr_backend *b, void (*fn)(void *, uint64_t), void *arg, uint64_t what)
{
    return tr_ops_cpu.errand(b->dev, fn, arg, what);
}

const struct tr_backend_ops tr_backend_cpu = {
    .name = "cpu",
    .deterministic = cpu_deterministic,
    .open = cpu_open,
    .forward = cpu_forward,
    .parallel = cpu_parallel,
    .errand = cpu_errand,
    .close = cpu_close,
};
