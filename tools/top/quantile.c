/* SPDX-License-Identifier: Apache-2.0 */
#include "top/quantile.h"

#include <math.h>

struct tr_top_hist tr_top_hist_since(const struct tr_top_hist *now, const struct tr_top_hist *then)
{
    struct tr_top_hist d;
    for (unsigned b = 0; b <= TR_HIST_BUCKETS; b++)
        d.bucket[b] = now->bucket[b] > then->bucket[b] ? now->bucket[b] - then->bucket[b] : 0;
    return d;
}

/* Adds without going round: the counts are foreign. */
static uint64_t plus(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}

uint64_t tr_top_hist_count(const struct tr_top_hist *h)
{
    uint64_t n = 0;
    for (unsigned b = 0; b <= TR_HIST_BUCKETS; b++)
        n = plus(n, h->bucket[b]);
    return n;
}

double tr_top_quantile(const struct tr_top_hist *h, enum tr_hist_id id, double q)
{
    const double *bounds = tr_hist_bounds[tr_hist_rows[id].scale];
    double n = (double)tr_top_hist_count(h), rank = q * n, below = 0;
    if (n == 0)
        return NAN;
    for (unsigned b = 0; b < TR_HIST_BUCKETS; b++) {
        double in = (double)h->bucket[b], low = b ? bounds[b - 1] : 0;
        if (in > 0 && below + in >= rank)
            return low + (bounds[b] - low) * fmax(rank - below, 0) / in;
        below += in;
    }
    return bounds[TR_HIST_BUCKETS - 1];
}
