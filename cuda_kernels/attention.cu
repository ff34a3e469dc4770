/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/attention.cu - the operation: which kernels do which rows (attention.cuh says how they agree). */
#include "cuda_kernels/attention.cuh"

/* Below this all rows are the decode kernel's, which splits them over the context: a prefill tile goes through
 * its context alone, and few tiles would leave most of the device without work.  So are those of a pass that is
 * recorded, which is decode: there the prefill kernel would find nothing to do, two microseconds a layer. */
enum { PREFILL_ROWS = 64 };

/* Rows whose queries fill a prefill tile of so many. */
static uint32_t tile_rows(uint32_t queries, uint32_t group)
{
    uint32_t rows = queries;
    while (rows > 4 && rows * group > queries)
        rows /= 2;
    return rows;
}

void tr_cuda_attention(struct tr_dev *dev, const struct tr_kv *kv, uint32_t layer,
                       const struct tr_place *places, uint32_t n_rows, const float *q,
                       uint32_t n_head, const struct tr_attend_params *p, float *out)
{
    struct tr_attend_args a = {};
    bool fast = !dev->exact && kv->type == TR_OPS_KV_F16;
    a.kv = tr_kv_layer_of(kv, layer);
    a.type = kv->type;
    a.places = places;
    a.q = q;
    a.out = out;
    a.n_rows = n_rows;
    a.n_head = n_head;
    a.group = n_head / kv->n_head_kv;
    bool tiles = n_rows >= PREFILL_ROWS && !dev->recording &&
                 (fast || tr_attend_prefill_fits(dev, kv->type, kv->head_dim));
    a.tile = tiles ? tile_rows(fast ? 64 : 32, a.group) : 0;
    a.scale = p->scale;
    a.cap = p->soft_cap;
    a.uncap = p->soft_cap > 0 ? 1.0f / p->soft_cap : 0;
    a.window = p->window;

    struct tr_attend_args part = a;
    for (uint32_t r = 0; r < n_rows; r += TR_DECODE_ROWS) {
        size_t at = (size_t)r * n_head * kv->head_dim;
        part.places = places + r;
        part.q = q + at;
        part.out = out + at;
        part.n_rows = n_rows - r < TR_DECODE_ROWS ? n_rows - r : (uint32_t)TR_DECODE_ROWS;
        tr_attend_decode(dev, &part);
    }
    if (a.tile && fast)
        tr_attend_prefill_fast(dev, &a);
    else if (a.tile)
        tr_attend_prefill(dev, &a);
}
