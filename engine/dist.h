/* SPDX-License-Identifier: Apache-2.0 */
/* engine/dist.h - the logits of one row as a distribution: maxima, sums, selection, sorting.
 *
 * The vocabulary is looked at in blocks of TR_DIST_BLOCK.  One pass finds the maximum of every
 * block; after that a search for large logits skips every block whose maximum is too small, so
 * nothing ever sorts the whole vocabulary unless the distribution is flat.
 *
 * Everything is a function of the logits alone, in a fixed order: single sums in float over the
 * lanes of a block, blocks in double by rising id.  NaN counts as minus infinity; minus infinity
 * is never selected and weighs exactly 0.
 *
 * The exponential is this file's own: 2^n * polynomial, relative error below 3e-7, 0 below -87. */
#ifndef TR_ENGINE_DIST_H
#define TR_ENGINE_DIST_H

#include <stdint.h>

enum { TR_DIST_BLOCK = 64 };

struct tr_cand {
    double v; /* logit, or probability where a function says so */
    uint32_t id;
};

struct tr_dist {
    const float *x; /* [n], borrowed; may change between calls if tr_dist_scan runs again */
    uint32_t n;
    uint32_t n_blocks;
    float *bmax;  /* [n_blocks], the caller's */
    double *bsum; /* [n_blocks], the caller's: of the last tr_dist_sum */
    float max;
};

static inline uint32_t tr_dist_blocks(uint32_t n)
{
    return (n + TR_DIST_BLOCK - 1) / TR_DIST_BLOCK;
}

/* Block maxima and the maximum. */
void tr_dist_scan(struct tr_dist *d, const float *x, uint32_t n, float *bmax, double *bsum);

/* Lowest id whose logit is the maximum; 0 if nothing is above minus infinity. */
uint32_t tr_dist_argmax(const struct tr_dist *d);

/* Sum over all ids of exp((x - top) * scale), per block into bsum. */
double tr_dist_sum(struct tr_dist *d, float top, float scale);

/* After tr_dist_sum with the same numbers: the id at which the running sum passes `target` (>= 0);
 * the last id with weight if it never does. */
uint32_t tr_dist_at(const struct tr_dist *d, float top, float scale, double target);

/* Weights of the block as tr_dist_sum counts them; returns how many ids it has. */
uint32_t tr_dist_weights(const struct tr_dist *d, uint32_t block, float top, float scale,
                         float w[TR_DIST_BLOCK]);

/* A number that at least k logits reach; minus infinity if no better one is known cheaply.
 * `scratch` [n_blocks]. */
double tr_dist_floor(const struct tr_dist *d, uint32_t k, float *scratch);

/* Appends every id with logit >= floor (and above minus infinity) to out[from...], by rising id;
 * returns the new count.  `out` has room for n entries beyond `from`. */
uint32_t tr_dist_gather(const struct tr_dist *d, double floor, struct tr_cand *out, uint32_t from);

/* Sorts by falling v, ties by rising id.  In place, no memory. */
void tr_cand_sort(struct tr_cand *c, uint32_t n);

/* The same for weights (v >= 0) of which only the largest are wanted: sorts at least so many that
 * their sum passes `enough` whatever the order of adding, all if it never does; returns how many
 * are sorted.  The entries behind them are lost. */
uint32_t tr_cand_sort_top(struct tr_cand *c, uint32_t n, double enough);

#endif
