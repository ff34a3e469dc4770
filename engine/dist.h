/* SPDX-License-Identifier: Apache-2.0 */
/* engine/dist.h - the logits of one row as a distribution: maxima, sums, selection, sorting.
 *
 * The vocabulary is looked at in blocks of TR_DIST_BLOCK.  One pass finds the maximum of every
 * block; after that a search for large logits skips every block whose maximum is too small, so
 * nothing ever sorts the whole vocabulary unless the distribution is flat.
 *
 * Everything is a function of the logits alone, in a fixed order: single sums in float over the
 * lanes of a block; the blocks of a group of TR_DIST_GROUP in double by rising id, then the groups.
 * So no chain of additions is longer than a device can afford, which computes the same bits
 * (cuda_kernels/sample.h).  NaN counts as minus infinity; minus infinity is never selected and weighs
 * exactly 0.
 *
 * The exponential is this file's own: 2^n * polynomial, relative error below 3e-7, 0 below -87. */
#ifndef TR_ENGINE_DIST_H
#define TR_ENGINE_DIST_H

#include <stdint.h>

enum {
    TR_DIST_BLOCK = 64, /* ids */
    TR_DIST_GROUP = 64, /* blocks; also terms of a struct tr_run */
    TR_DIST_CLASSES = 4096
};

struct tr_cand {
    double v; /* logit, or weight or probability where a function says so */
    uint32_t id;
};

/* A running sum: groups of TR_DIST_GROUP terms are added up by themselves, then to what was before them. */
struct tr_run {
    double before, group;
    uint32_t n;
};

static inline void tr_run_add(struct tr_run *r, double w)
{
    if (r->n && r->n % TR_DIST_GROUP == 0) {
        r->before += r->group;
        r->group = 0;
    }
    r->group += w;
    r->n++;
}

static inline double tr_run_sum(const struct tr_run *r)
{
    return r->before + r->group;
}

/* What a logit weighs: exp((v - ref) * scale), by base/exp.h. */
struct tr_curve {
    double ref, scale;
};

double tr_curve_at(const struct tr_curve *c, double v);

/* Candidates by how far they are below `top`, 64 classes to a factor of two in weight: the sum of their
 * weights and how many they are. */
struct tr_classes {
    struct tr_curve curve;
    double top, total;
    double sum[TR_DIST_CLASSES];
    uint32_t n[TR_DIST_CLASSES];
};

struct tr_dist {
    const float *x; /* [n], borrowed; may change between calls if tr_dist_scan runs again */
    uint32_t n;
    uint32_t n_blocks;
    float *bmax;  /* [n_blocks], the caller's */
    double *bsum; /* [tr_dist_sums], the caller's: of the last tr_dist_sum, blocks then groups */
    float max;
};

static inline uint32_t tr_dist_blocks(uint32_t n)
{
    return (n + TR_DIST_BLOCK - 1) / TR_DIST_BLOCK;
}

static inline uint32_t tr_dist_groups(uint32_t n)
{
    return (tr_dist_blocks(n) + TR_DIST_GROUP - 1) / TR_DIST_GROUP;
}

static inline uint32_t tr_dist_sums(uint32_t n)
{
    return tr_dist_blocks(n) + tr_dist_groups(n);
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

/* Forgets all classes. */
void tr_classes_init(struct tr_classes *k, struct tr_curve curve, double top);

/* Counts those of the candidates whose logit is below `below`. */
void tr_classes_count(struct tr_classes *k, const struct tr_cand *c, uint32_t n, double below);

/* The same as tr_cand_sort where only the largest are wanted: sorts at least so many of the candidates,
 * which have all been counted, that their weights' sum passes `enough` whatever the order of adding, all
 * if it never does; returns how many are sorted.  The entries behind them are lost. */
uint32_t tr_cand_sort_top(struct tr_cand *c, uint32_t n, const struct tr_classes *k, double enough);

#endif
