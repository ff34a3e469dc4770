/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/tiles.cuh - products of many rows as tiles of outputs and rows, those of several weight matrices
 * in one launch.
 *
 * Blocks of threads are started in ascending order, so tiles that are neighbours in it are at work at the same
 * time and find each other's weights and rows in the second cache.  BAND tiles of rows go through all outputs
 * together: a device that has 16 * 16 blocks at work reads 16 tiles' weights and 16 tiles' rows for them. */
#ifndef TR_CUDA_KERNELS_TILES_CUH
#define TR_CUDA_KERNELS_TILES_CUH

#include "cuda_kernels/product.cuh"
#include "cuda_kernels/strip.h"

extern "C" {
#include "base/assert.h"
}

struct tr_tiles {
    struct {
        const uint8_t *packed;
        float *out;
        uint32_t n_out;
        uint32_t first; /* of its tiles, in the count over all matrices */
    } of[TR_OPS_PRODUCTS];
    uint32_t n;
    uint32_t n_tiles; /* over the outputs of all matrices */
    uint32_t n_row_tiles;
    uint32_t n_rows;
};

/* Matrix w joins; all have one type and read the same rows. */
static inline void tr_tiles_add(struct tr_tiles *t, const struct tr_mat *w, float *out)
{
    t->of[t->n].packed = (const uint8_t *)w->packed;
    t->of[t->n].out = out;
    t->of[t->n++].n_out = w->n_out;
}

/* Strips of all matrices. */
static inline uint32_t tr_tiles_strips(const struct tr_tiles *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n; i++)
        n += tr_cuda_strip_count(t->of[i].n_out);
    return n;
}

/* Tiles of `strips` strips and `rows` rows: how many blocks of threads. */
static inline uint32_t tr_tiles_make(struct tr_tiles *t, uint32_t strips, uint32_t rows)
{
    t->n_tiles = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        t->of[i].first = t->n_tiles;
        t->n_tiles += (tr_cuda_strip_count(t->of[i].n_out) + strips - 1) / strips;
    }
    t->n_row_tiles = (t->n_rows + rows - 1) / rows;
    TR_ASSERT((uint64_t)t->n_tiles * t->n_row_tiles <= INT32_MAX);
    return t->n_tiles * t->n_row_tiles;
}

/* Of one block of threads. */
struct tr_tile {
    const uint8_t *packed;
    float *out;
    uint32_t n_out;
    uint32_t strip; /* its first, of n_strips */
    uint32_t n_strips;
    uint32_t row; /* its first */
};

static inline __device__ struct tr_tile tr_tile_of(const struct tr_tiles &t, uint32_t block,
                                                   uint32_t strips, uint32_t rows)
{
    const uint32_t BAND = 16;
    const uint32_t band = block / (BAND * t.n_tiles), in = block % (BAND * t.n_tiles);
    const uint32_t left = t.n_row_tiles - band * BAND, high = left < BAND ? left : BAND;
    const uint32_t tile = in / high;
    uint32_t i = 0;
    while (i + 1 < t.n && tile >= t.of[i + 1].first)
        i++;
    return {t.of[i].packed,
            t.of[i].out,
            t.of[i].n_out,
            (tile - t.of[i].first) * strips,
            tr_cuda_strip_count(t.of[i].n_out),
            (band * BAND + in % high) * rows};
}

/* ---- products of float weights ---- */

/* product_float.cu: the sums of ops.h, in their order. */
void tr_cuda_product_float(struct tr_dev *dev, enum tr_tensor_type type, struct tr_tiles *tiles,
                           const struct tr_act *a);

/* product_float_fast.cu: F16 and BF16, activations rounded to the weights' type. */
void tr_cuda_product_float_fast(struct tr_dev *dev, enum tr_tensor_type type,
                                struct tr_tiles *tiles, const struct tr_act *a);

#endif
