/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/note_ids.cu - note_ids: tokens at their places, the history that sampling reads.
 *
 * A thread has a row: a few hundred words in scattered places, a microsecond or two however they are dealt
 * out. */
#include "cuda_kernels/dev.cuh"

enum { THREADS = 128 };

static __global__ void note_ids(uint32_t *ids, const struct tr_place *places,
                                const uint32_t *tokens, uint32_t n_rows)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= n_rows)
        return;
    struct tr_place p = places[i];
    if (p.pos != TR_NO_POS)
        ids[(size_t)p.blocks[p.pos / TR_OPS_KV_BLOCK] * TR_OPS_KV_BLOCK + p.pos % TR_OPS_KV_BLOCK] =
            tokens[i];
}

void tr_cuda_note_ids(struct tr_dev *dev, const struct tr_kv *kv, const struct tr_place *places,
                      const uint32_t *tokens, uint32_t n_rows)
{
    if (n_rows)
        TR_LAUNCH(note_ids, dim3((n_rows + THREADS - 1) / THREADS), dim3(THREADS), 0, dev->stream,
                  kv->ids, places, tokens, n_rows);
}
