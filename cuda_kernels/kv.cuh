/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/kv.cuh - where K and V lie in a layer of the KV cache, for kernels (cpu_kernels/ops.h says how,
 * cpu_kernels/kv.h is the host's half). */
#ifndef TR_CUDA_KERNELS_KV_CUH
#define TR_CUDA_KERNELS_KV_CUH

#include "cuda_kernels/dev.cuh"

extern "C" {
#include "cpu_kernels/kv.h"
}

/* One layer, as kernels are given it. */
struct tr_kv_layer {
    uint8_t *mem;
    size_t block_bytes;
    uint32_t head_bytes; /* of one head's K, or V, in a block */
    uint32_t n_head_kv;
    uint32_t dim;
};

static inline struct tr_kv_layer tr_kv_layer_of(const struct tr_kv *kv, uint32_t layer)
{
    struct tr_kv_layer l = {};
    l.mem = tr_kv_block(kv, layer, 0);
    l.block_bytes = kv->block_bytes;
    l.head_bytes = (uint32_t)tr_kv_head_bytes(kv->type, kv->head_dim);
    l.n_head_kv = kv->n_head_kv;
    l.dim = kv->head_dim;
    return l;
}

/* A head's K in a block; its V lies tr_kv_apart bytes behind. */
static __device__ __forceinline__ uint8_t *tr_kv_k(const struct tr_kv_layer &l, uint32_t block,
                                                   uint32_t head)
{
    return l.mem + block * l.block_bytes + (size_t)head * l.head_bytes;
}
static __device__ __forceinline__ size_t tr_kv_apart(const struct tr_kv_layer &l)
{
    return (size_t)l.n_head_kv * l.head_bytes;
}

/* Where the F16 scales of a head's K, or V, are in Q8_0: behind the values. */
static __device__ __forceinline__ const uint16_t *tr_kv_scales(const uint8_t *head, uint32_t dim)
{
    return (const uint16_t *)(head + (size_t)dim * TR_OPS_KV_BLOCK);
}

#endif
