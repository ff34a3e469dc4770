/* SPDX-License-Identifier: Apache-2.0 */
#include "top/quantile.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-12 + fabs(b) * 1e-9;
}

/* The bucket whose upper bound is this. */
static unsigned bucket(double bound)
{
    for (unsigned b = 0; b < TR_HIST_BUCKETS; b++)
        if (tr_hist_bounds[TR_SCALE_GAP][b] == bound)
            return b;
    cr_assert_fail("no bucket up to %g", bound);
    return 0;
}

Test(top_quantile, of_nothing_is_no_number)
{
    struct tr_top_hist h = {{0}};
    cr_assert(isnan(tr_top_quantile(&h, TR_HIST_ITL, 0.5)));
    cr_assert_eq(tr_top_hist_count(&h), 0);
}

Test(top_quantile, values_lie_evenly_in_their_bucket)
{
    struct tr_top_hist h = {{0}};
    h.bucket[bucket(0.02)] = 100; /* 15 to 20 ms */
    cr_assert(near(tr_top_quantile(&h, TR_HIST_ITL, 0.5), 0.0175));
    cr_assert(near(tr_top_quantile(&h, TR_HIST_ITL, 0.9), 0.0195));
    cr_assert(near(tr_top_quantile(&h, TR_HIST_ITL, 0.99), 0.01995));
    cr_assert(near(tr_top_quantile(&h, TR_HIST_ITL, 1), 0.02));
    cr_assert(near(tr_top_quantile(&h, TR_HIST_ITL, 0), 0.015), "the least is the bucket's begin");
    struct tr_top_hist first = {{4}};
    cr_assert(near(tr_top_quantile(&first, TR_HIST_ITL, 0.25), tr_hist_bounds[TR_SCALE_GAP][0] / 4),
              "from nothing");
}

Test(top_quantile, the_rank_goes_through_the_buckets)
{
    struct tr_top_hist h = {{0}};
    h.bucket[bucket(0.001)] = 90; /* 0.5 to 1 ms */
    h.bucket[bucket(0.5)] = 9;    /* 300 to 500 ms */
    h.bucket[bucket(60)] = 1;     /* 15 to 60 s */
    cr_assert(near(tr_top_quantile(&h, TR_HIST_ITL, 0.45), 0.00075));
    cr_assert(near(tr_top_quantile(&h, TR_HIST_ITL, 0.9), 0.001), "the last of the first ninety");
    cr_assert(near(tr_top_quantile(&h, TR_HIST_ITL, 0.99), 0.5));
    cr_assert(near(tr_top_quantile(&h, TR_HIST_ITL, 0.995), 37.5));
}

Test(top_quantile, the_bucket_without_end_tells_its_begin)
{
    struct tr_top_hist h = {{0}};
    h.bucket[TR_HIST_BUCKETS] = 3;
    cr_assert(near(tr_top_quantile(&h, TR_HIST_ITL, 0.5), 240));
}

Test(top_quantile, the_scale_is_the_histograms_own)
{
    struct tr_top_hist h = {{0}};
    h.bucket[TR_HIST_BUCKETS] = 3;
    cr_assert(near(tr_top_quantile(&h, TR_HIST_TTFT, 0.5), 600));
    cr_assert(near(tr_top_quantile(&h, TR_HIST_FRAME, 0.5), 1));
}

Test(top_quantile, between_two_looks_only_what_came_counts)
{
    struct tr_top_hist then = {{5, 7, 9}}, now = {{5, 17, 2}};
    struct tr_top_hist d = tr_top_hist_since(&now, &then);
    cr_assert_eq(d.bucket[0], 0);
    cr_assert_eq(d.bucket[1], 10);
    cr_assert_eq(d.bucket[2], 0, "a count that went back is nonsense and counts nothing");
    cr_assert_eq(tr_top_hist_count(&d), 10);
}

Test(top_quantile, nonsense_counts_stay_within_the_bounds_and_rise)
{
    srand(3);
    for (int round = 0; round < 2000; round++) {
        struct tr_top_hist h;
        for (unsigned b = 0; b <= TR_HIST_BUCKETS; b++)
            h.bucket[b] = rand() % 3 ? 0 : rand() % 2 ? UINT64_MAX - (uint64_t)rand() : 1;
        double before = 0;
        for (double q = 0; tr_top_hist_count(&h) && q <= 1; q += 0.125) {
            double v = tr_top_quantile(&h, TR_HIST_ITL, q);
            cr_assert(v >= before && v <= 240, "%g after %g", v, before);
            before = v;
        }
    }
}
