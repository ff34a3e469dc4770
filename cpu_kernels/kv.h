/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/kv.h - where things lie in a KV block (the layout is described in ops.h). */
#ifndef TR_CPU_KERNELS_KV_H
#define TR_CPU_KERNELS_KV_H

#include "cpu_kernels/ops.h"

/* Bytes of one head's K, or V, in a block: values, then the scales of Q8_0. */
static inline size_t tr_kv_head_bytes(enum tr_ops_kv type, uint32_t head_dim)
{
    size_t values = (size_t)head_dim * TR_OPS_KV_BLOCK;
    if (type == TR_OPS_KV_Q8_0)
        return values + values / 32 * 2;
    return type == TR_OPS_KV_F16 ? values * 2 : values * 4;
}

static inline uint8_t *tr_kv_block(const struct tr_kv *kv, uint32_t layer, uint32_t block)
{
    return (uint8_t *)kv->mem + ((size_t)layer * kv->n_blocks + block) * kv->block_bytes;
}

static inline size_t tr_kv_k_offset(const struct tr_kv *kv, uint32_t head)
{
    return head * tr_kv_head_bytes(kv->type, kv->head_dim);
}

static inline size_t tr_kv_v_offset(const struct tr_kv *kv, uint32_t head)
{
    return ((size_t)kv->n_head_kv + head) * tr_kv_head_bytes(kv->type, kv->head_dim);
}

#endif
