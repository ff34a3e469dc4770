/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/backend_plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static const char *const kv_names[] = {"f16", "q8_0", "f32"};

int tr_plan_check(const struct tr_backend_config *c, const char *name, struct tr_errbuf *err)
{
    if (!c->model_path)
        return tr_errf(err, -EINVAL, "the %s backend needs a model file", name);
    if ((unsigned)c->math > TR_MATH_F32 || (unsigned)c->kv_type > TR_KV_F32)
        return tr_errf(err, -EINVAL, "unknown math mode or KV type");
    if (!c->n_threads || !c->max_rows || !c->max_out)
        return tr_errf(err, -EINVAL, "threads, rows and rows of logits must be at least 1");
    if (c->deterministic && c->math == TR_MATH_BLAS)
        return tr_errf(err, -EINVAL, "the products of blas are not deterministic");
    return 0;
}

uint64_t tr_plan_block_bytes(const struct tr_model *m, const struct tr_forward_config *fc)
{
    uint64_t block = tr_forward_kv_block_bytes(m, fc->kv_type);
    return block && fc->ids ? block + TR_FORWARD_IDS_BYTES : block;
}

int tr_plan_kv(const struct tr_model *m, const struct tr_backend_config *c, uint64_t limit,
               struct tr_forward_config *fc, struct tr_errbuf *err)
{
    uint64_t block = tr_plan_block_bytes(m, fc);
    if (block == 0)
        return tr_errf(err, -EINVAL, "KV type %s cannot hold heads of %" PRIu32 " elements",
                       kv_names[c->kv_type], m->hp.head_dim);
    if (c->n_ctx > m->hp.n_ctx)
        return tr_errf(err, -EINVAL, "a context of %" PRIu32 " tokens: the model has %" PRIu32,
                       c->n_ctx, m->hp.n_ctx);
    fc->n_ctx = c->n_ctx ? c->n_ctx : m->hp.n_ctx;
    uint64_t per_seq = (fc->n_ctx + TR_KV_BLOCK - 1) / TR_KV_BLOCK;
    uint64_t want = per_seq * (c->max_seqs ? c->max_seqs : 1);
    uint64_t have = (c->kv_bytes ? c->kv_bytes : limit) / block;
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

void tr_plan_describe(const struct tr_model *m, const struct tr_forward_config *fc,
                      uint64_t scratch, const char *how, bool deterministic,
                      struct tr_backend_info *info)
{
    char attention[64];
    *info = (struct tr_backend_info){
        .n_vocab = m->hp.n_vocab,
        .n_ctx = fc->n_ctx,
        .n_layer = m->hp.n_layer,
        .n_kv_blocks = fc->n_kv_blocks,
        .kv_block_bytes = tr_forward_kv_block_bytes(m, fc->kv_type),
        .weight_bytes = m->step_bytes,
        .deterministic = deterministic,
    };
    snprintf(info->description, sizeof(info->description),
             "%s %.32s, %s, weights %.1f MB, ctx %" PRIu32 ", KV %s %" PRIu32 " x %" PRIu64
             " kB, scratch %.1f MB%s%s",
             m->arch, m->name, how, (double)m->weights_len / 1e6, fc->n_ctx, kv_names[fc->kv_type],
             fc->n_kv_blocks, info->kv_block_bytes / 1000, (double)scratch / 1e6,
             describe_attention(&m->hp, attention), deterministic ? "" : ", not deterministic");
}
