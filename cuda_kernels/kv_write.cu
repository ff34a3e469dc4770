/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/kv_write.cu - storing K and V at their places (cpu_kernels/ops.h, kv_write).
 *
 * A warp has 32 neighbouring elements of a row's K, or V: a block of Q8_0, whose largest element it finds by
 * shuffles.  V lies as it comes.  K lies transposed, so that its stores are of one element each, 32 positions
 * apart: a row of 8 heads of 128 touches 1,024 sectors of 32 bytes.  In prefill the next rows fill the same
 * sectors and the L2 joins them; 4,096 rows are expected to take 4 M stores, some 30 us, beside a layer's
 * milliseconds.  Turning them through shared memory would need to know which rows share a block, which is
 * only known on the device. */
#include "cuda_kernels/kv.cuh"

enum { WARPS = 8 };

static __device__ void store_q8_0(const struct tr_kv_layer &kv, uint8_t *head, uint32_t d,
                                  uint32_t off, float x, bool is_v)
{
    uint32_t top = tr_bits_of(x) & 0x7FFFFFFFu;
    for (int by = 16; by >= 1; by /= 2) {
        uint32_t other = __shfl_xor_sync(~0u, top, by);
        top = other > top ? other : top;
    }
    float amax = tr_float_of(top);
    bool zero = top >= 0x7F800000u || amax < 0x1p-50f;
    /* Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits. */
    uint8_t q = zero ? 0 : (uint8_t)tr_bits_of(x * (127.0f / amax) + 0x1.8p23f);
    uint16_t scale = top >= 0x7F800000u ? 0x7E00 : zero ? 0 : tr_to_half(amax / 127.0f);
    uint16_t *scales = (uint16_t *)(head + (size_t)kv.dim * TR_OPS_KV_BLOCK);
    head[is_v ? off * kv.dim + d : d * TR_OPS_KV_BLOCK + off] = q;
    if (d % 32 == 0)
        scales[is_v ? off * (kv.dim / 32) + d / 32 : d / 32 * TR_OPS_KV_BLOCK + off] = scale;
}

/* Grid: (rows, 32 elements of a row / WARPS, K and V): of rows there may be more than the 65,535 that y takes. */
template <enum tr_ops_kv TYPE>
static __global__ void store(struct tr_kv_layer kv, const struct tr_place *places, const float *k,
                             const float *v)
{
    uint32_t width = kv.n_head_kv * kv.dim, row = blockIdx.x;
    uint32_t e = (blockIdx.y * WARPS + threadIdx.x / 32) * 32 + threadIdx.x % 32;
    uint32_t pos = places[row].pos;
    if (e >= width || pos == TR_NO_POS)
        return; /* whole warps in Q8_0 */
    bool is_v = blockIdx.z == 1;
    float x = (is_v ? v : k)[(size_t)row * width + e];
    uint32_t d = e % kv.dim, off = pos % TR_OPS_KV_BLOCK;
    uint8_t *head = tr_kv_k(kv, places[row].blocks[pos / TR_OPS_KV_BLOCK], e / kv.dim) +
                    (is_v ? tr_kv_apart(kv) : 0);
    size_t at = is_v ? (size_t)off * kv.dim + d : (size_t)d * TR_OPS_KV_BLOCK + off;
    if (TYPE == TR_OPS_KV_F16)
        ((uint16_t *)head)[at] = tr_to_half(x);
    else if (TYPE == TR_OPS_KV_F32)
        ((float *)head)[at] = x;
    else
        store_q8_0(kv, head, d, off, x, is_v);
}

void tr_cuda_kv_write(struct tr_dev *dev, const struct tr_kv *kv, uint32_t layer,
                      const struct tr_place *places, uint32_t n_rows, const float *k,
                      const float *v)
{
    struct tr_kv_layer l = tr_kv_layer_of(kv, layer);
    uint32_t per_block = WARPS * 32;
    dim3 grid(n_rows, (l.n_head_kv * l.dim + per_block - 1) / per_block, 2), block(per_block);
    if (!n_rows)
        return;
    if (kv->type == TR_OPS_KV_F16)
        TR_LAUNCH(store<TR_OPS_KV_F16>, grid, block, 0, dev->stream, l, places, k, v);
    else if (kv->type == TR_OPS_KV_Q8_0)
        TR_LAUNCH(store<TR_OPS_KV_Q8_0>, grid, block, 0, dev->stream, l, places, k, v);
    else
        TR_LAUNCH(store<TR_OPS_KV_F32>, grid, block, 0, dev->stream, l, places, k, v);
}
