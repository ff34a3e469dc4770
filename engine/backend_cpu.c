/* SPDX-License-Identifier: Apache-2.0 */
/* The `cpu` backend: cpu_kernels/, a model and a forward pass behind engine/backend.h. */
#include "engine/backend.h"

#include "base/gguf.h"
#include "cpu_kernels/ops.h"
#include "engine/forward.h"
#include "engine/model.h"

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
static const char *const kv_names[] = {"f16", "q8_0", "f32"};

static uint64_t memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

/* Context and KV blocks.  The pool always holds one sequence of the whole context, so whatever
 * fits the context can run, if alone. */
static int plan_kv(const struct tr_model *m, const struct tr_backend_config *c,
                   struct tr_forward_config *fc, struct tr_errbuf *err)
{
    uint64_t block = tr_forward_kv_block_bytes(m, c->kv_type);
    if (block == 0)
        return tr_errf(err, -EINVAL, "KV type %s cannot hold heads of %" PRIu32 " elements",
                       kv_names[c->kv_type], m->hp.head_dim);
    if (c->n_ctx > m->hp.n_ctx)
        return tr_errf(err, -EINVAL, "a context of %" PRIu32 " tokens: the model has %" PRIu32,
                       c->n_ctx, m->hp.n_ctx);
    fc->n_ctx = c->n_ctx ? c->n_ctx : m->hp.n_ctx;
    uint64_t per_seq = (fc->n_ctx + TR_KV_BLOCK - 1) / TR_KV_BLOCK;
    uint64_t want = per_seq * (c->max_seqs ? c->max_seqs : 1);
    uint64_t have = (c->kv_bytes ? c->kv_bytes : memory_bytes() / 4) / block;
    if (c->kv_bytes || have < want)
        want = have;
    if (want > UINT32_MAX)
        want = UINT32_MAX;
    if (want >= per_seq) {
        fc->n_kv_blocks = (uint32_t)want;
        return 0;
    }
    /* A context that nobody asked for shrinks to the memory; one that was asked for does not. */
    if (c->n_ctx || want == 0)
        return tr_errf(err, -EINVAL,
                       "KV memory for %" PRIu64 " tokens is less than one context of %" PRIu32
                       ": give it %" PRIu64 " bytes or lower the context",
                       want * TR_KV_BLOCK, fc->n_ctx, per_seq * block);
    fc->n_kv_blocks = (uint32_t)want;
    fc->n_ctx = fc->n_kv_blocks * TR_KV_BLOCK;
    return 0;
}

/* What of a model's attention a reader of the log would ask about; empty for plain attention. */
static const char *describe_attention(const struct tr_hparams *hp, char out[64])
{
    static const char *const scalings[] = {"", ", RoPE linear", ", RoPE yarn", ", RoPE longrope"};
    uint32_t n_local = 0;
    for (uint32_t i = 0; i < hp->n_layer; i++)
        n_local += hp->local[i];
    bool scaled = hp->rope.factor != 1 || hp->rope.scaling == TR_ROPE_LONG;
    int n = snprintf(out, 64, "%s", scaled ? scalings[hp->rope.scaling] : "");
    if (hp->window)
        snprintf(out + n, 64 - (size_t)n,
                 ", window %" PRIu32 " in %" PRIu32 " of %" PRIu32 " layers", hp->window, n_local,
                 hp->n_layer);
    return out;
}

static void describe(const struct tr_backend *b, const struct tr_backend_config *c,
                     const struct tr_forward_config *fc, struct tr_backend_info *info)
{
    const struct tr_model *m = b->model;
    char attention[64];
    *info = (struct tr_backend_info){
        .n_vocab = m->hp.n_vocab,
        .n_ctx = fc->n_ctx,
        .n_layer = m->hp.n_layer,
        .n_kv_blocks = fc->n_kv_blocks,
        .kv_block_bytes = tr_forward_kv_block_bytes(m, c->kv_type),
        .weight_bytes = m->step_bytes,
        .deterministic = c->math != TR_MATH_BLAS,
    };
    snprintf(info->description, sizeof(info->description),
             "%s %.32s, cpu %s %s, %" PRIu32 " threads, weights %.1f MB, ctx %" PRIu32
             ", KV %s %" PRIu32 " x %" PRIu64 " kB, scratch %.1f MB%s%s",
             m->arch, m->name, math_names[c->math],
             tr_cpu_level_name(tr_cpu_level_find(TR_CPU_AVX512)), c->n_threads,
             (double)m->weights_len / 1e6, fc->n_ctx, kv_names[c->kv_type], fc->n_kv_blocks,
             info->kv_block_bytes / 1000, (double)tr_forward_scratch_bytes(b->forward) / 1e6,
             describe_attention(&m->hp, attention),
             info->deterministic ? "" : ", not deterministic");
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

static int check_config(const struct tr_backend_config *c, struct tr_errbuf *err)
{
    if (!c->model_path)
        return tr_errf(err, -EINVAL, "the cpu backend needs a model file");
    if ((unsigned)c->math > TR_MATH_F32 || (unsigned)c->kv_type > TR_KV_F32)
        return tr_errf(err, -EINVAL, "unknown math mode or KV type");
    if (!c->n_threads || !c->max_rows || !c->max_out)
        return tr_errf(err, -EINVAL, "threads, rows and rows of logits must be at least 1");
    if (c->deterministic && c->math == TR_MATH_BLAS)
        return tr_errf(err, -EINVAL, "the products of blas are not deterministic");
    return 0;
}

static struct tr_backend *cpu_open(const struct tr_backend_config *c, struct tr_backend_info *info,
                                   struct tr_errbuf *err)
{
    struct tr_gguf *g = NULL;
    struct tr_backend *b = NULL;
    if (check_config(c, err) < 0 || !(g = tr_gguf_open(c->model_path, err)))
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
    if (!b->model || plan_kv(b->model, c, &fc, err) < 0)
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
    .open = cpu_open,
    .forward = cpu_forward,
    .parallel = cpu_parallel,
    .errand = cpu_errand,
    .close = cpu_close,
};
