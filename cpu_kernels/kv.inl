/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/kv.inl - storing K and V in a block, and loading them from it.
 *
 * Included by each instruction level after its lanes and rows.inl.  The layout is described in
 * ops.h.  Stored values are dequantised exactly: int8 times f16 fits in a float. */

static void kv_write_head_q8_0(uint32_t dim, uint8_t *k_head, uint8_t *v_head, uint32_t off,
                               const float *k, const float *v)
{
    size_t values = (size_t)dim * TR_OPS_KV_BLOCK;
    uint16_t *k_scale = (uint16_t *)(void *)(k_head + values);
    uint16_t *v_scale = (uint16_t *)(void *)(v_head + values);
    int8_t q[32];
    int32_t sum;

    for (uint32_t b = 0; b < dim / 32; b++) {
        k_scale[b * TR_OPS_KV_BLOCK + off] = tr_f32_to_f16(quantise_block(k + b * 32, q, &sum));
        for (uint32_t i = 0; i < 32; i++)
            k_head[(b * 32 + i) * TR_OPS_KV_BLOCK + off] = (uint8_t)q[i];
        v_scale[off * (dim / 32) + b] = tr_f32_to_f16(quantise_block(v + b * 32, q, &sum));
        memcpy(v_head + (size_t)off * dim + b * 32, q, 32);
    }
}

static void kv_write_head_f16(uint32_t dim, uint16_t *k_head, uint16_t *v_head, uint32_t off,
                              const float *k, const float *v)
{
    for (uint32_t d = 0; d < dim; d += 16) {
        uint16_t h[16];
        v16_store_f16(h, v16_load(k + d));
        for (uint32_t i = 0; i < 16; i++)
            k_head[(d + i) * TR_OPS_KV_BLOCK + off] = h[i];
        v16_store_f16(v_head + (size_t)off * dim + d, v16_load(v + d));
    }
}

static void kv_write_head_f32(uint32_t dim, float *k_head, float *v_head, uint32_t off,
                              const float *k, const float *v)
{
    for (uint32_t d = 0; d < dim; d++)
        k_head[d * TR_OPS_KV_BLOCK + off] = k[d];
    memcpy(v_head + (size_t)off * dim, v, dim * sizeof *v);
}

static void kv_write(const struct tr_kv *kv, uint8_t *block, uint32_t off, const float *k,
                     const float *v)
{
    uint32_t dim = kv->head_dim;
    for (uint32_t h = 0; h < kv->n_head_kv; h++, k += dim, v += dim) {
        uint8_t *kh = block + tr_kv_k_offset(kv, h);
        uint8_t *vh = block + tr_kv_v_offset(kv, h);
        if (kv->type == TR_OPS_KV_Q8_0)
            kv_write_head_q8_0(dim, kh, vh, off, k, v);
        else if (kv->type == TR_OPS_KV_F16)
            kv_write_head_f16(dim, (void *)kh, (void *)vh, off, k, v);
        else
            kv_write_head_f32(dim, (void *)kh, (void *)vh, off, k, v);
    }
}

/* The scales of sixteen positions of K, from `first` on in the block, for dimensions d..d+31. */
TR_INLINE v16 load_k_scale(const enum tr_ops_kv type, const uint8_t *head, uint32_t dim, uint32_t d,
                           uint32_t first)
{
    if (type != TR_OPS_KV_Q8_0)
        return v16_set1(1.0F); /* not used */
    const uint16_t *scales =
        (const uint16_t *)(const void *)(head + (size_t)dim * TR_OPS_KV_BLOCK);
    return v16_load_f16(scales + (size_t)(d / 32) * TR_OPS_KV_BLOCK + first);
}

/* Sixteen positions of dimension d of K. */
TR_INLINE v16 load_k(const enum tr_ops_kv type, const uint8_t *head, v16 scale, uint32_t d,
                     uint32_t first)
{
    size_t at = (size_t)d * TR_OPS_KV_BLOCK + first;
    if (type == TR_OPS_KV_F16)
        return v16_load_f16((const uint16_t *)(const void *)head + at);
    if (type == TR_OPS_KV_F32)
        return v16_load((const float *)(const void *)head + at);
    return v16_mul(v16_load_i8((const int8_t *)head + at), scale);
}

/* The scales of V in a block as floats, [32 positions, dim / 32]: dim of them. */
TR_INLINE void load_v_scales(const uint8_t *head, uint32_t dim, float *scales)
{
    const uint16_t *h = (const uint16_t *)(const void *)(head + (size_t)dim * TR_OPS_KV_BLOCK);
    for (uint32_t i = 0; i < dim; i += 16)
        v16_store(scales + i, v16_load_f16(h + i));
}

/* Sixteen dimensions from d on of V at position j of the block; scales: see load_v_scales. */
TR_INLINE v16 load_v(const enum tr_ops_kv type, const uint8_t *head, const float *scales,
                     uint32_t dim, uint32_t d, uint32_t j)
{
    size_t at = (size_t)j * dim + d;
    if (type == TR_OPS_KV_F16)
        return v16_load_f16((const uint16_t *)(const void *)head + at);
    if (type == TR_OPS_KV_F32)
        return v16_load((const float *)(const void *)head + at);
    return v16_mul(v16_load_i8((const int8_t *)head + at),
                   v16_set1(scales[(size_t)j * (dim / 32) + d / 32]));
}

/* Asks for the `n` values from `at` on of a head's K or V. */
TR_INLINE void prefetch_kv(const enum tr_ops_kv type, const uint8_t *head, size_t at, uint32_t n)
{
    size_t bytes = type == TR_OPS_KV_F16 ? 2 : type == TR_OPS_KV_F32 ? 4 : 1;
    for (size_t i = 0; i < n * bytes; i += 64)
        __builtin_prefetch(head + at * bytes + i);
}
