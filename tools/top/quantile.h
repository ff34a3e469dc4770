/* SPDX-License-Identifier: Apache-2.0 */
/* tools/top/quantile.h - quantiles out of the buckets of shm/stat.h. */
#ifndef TR_TOP_QUANTILE_H
#define TR_TOP_QUANTILE_H

#include "shm/stat.h"

struct tr_top_hist {
    uint64_t bucket[TR_HIST_BUCKETS + 1]; /* not cumulative; the last is all above the last bound */
};

/* Values counted between two looks; what seems to have gone back counts nothing. */
struct tr_top_hist tr_top_hist_since(const struct tr_top_hist *now, const struct tr_top_hist *then);

uint64_t tr_top_hist_count(const struct tr_top_hist *h);

/* Seconds (tokens, if that is the scale of `id`) below which the part q (0..1) of the values lies, as if they lay evenly within a bucket.
 * In the last bucket, which has no end: its lower bound.  NAN without values. */
double tr_top_quantile(const struct tr_top_hist *h, enum tr_hist_id id, double q);

#endif
