/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/attention_piece.cuh - attention of prompts: which queries of a tile a block has, and where they lie. */
#ifndef TR_CUDA_KERNELS_ATTENTION_PIECE_CUH
#define TR_CUDA_KERNELS_ATTENTION_PIECE_CUH

#include "cuda_kernels/attention.cuh"

/* Queries [first, first + n) of the tile, in order of rows, then of heads. */
struct tr_piece {
    const uint32_t *blocks;
    uint32_t row; /* the tile's first one */
    uint32_t pos; /* and where it stands */
    uint32_t head_kv;
    uint32_t first;
    uint32_t n;
    uint32_t from; /* positions [from, end) are seen by some */
    uint32_t end;
};

/* Piece `i`, of QUERIES, of the tile that begins at `row`. */
template <uint32_t QUERIES>
static __device__ __forceinline__ struct tr_piece tr_piece_of(const struct tr_attend_args &a,
                                                              uint32_t row, uint32_t i)
{
    struct tr_piece w = {};
    uint32_t left = a.tile * a.group - i * QUERIES;
    w.row = row;
    w.first = i * QUERIES;
    w.n = left < QUERIES ? left : QUERIES;
    w.blocks = a.places[row].blocks;
    w.pos = a.places[row].pos;
    w.head_kv = blockIdx.y;
    w.from = tr_seen_at(w.pos + w.first / a.group, a.window).from;
    w.end = w.pos + (w.first + w.n - 1) / a.group + 1;
    return w;
}

/* Where its query `i` and the result lie. */
static __device__ __forceinline__ size_t tr_piece_place(const struct tr_attend_args &a,
                                                        const struct tr_piece &w, uint32_t i)
{
    uint32_t row = w.row + (w.first + i) / a.group;
    uint32_t head = w.head_kv * a.group + (w.first + i) % a.group;
    return ((size_t)row * a.n_head + head) * a.kv.dim;
}

#endif
