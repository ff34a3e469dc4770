/* SPDX-License-Identifier: Apache-2.0 */
#include "client/samples.h"

#include <criterion/criterion.h>
#include <math.h>

static void near(double got, double want)
{
    cr_expect(fabs(got - want) < 1e-9, "got %.12g, want %.12g", got, want);
}

Test(samples, an_empty_bag_says_nothing)
{
    struct tr_samples s = {0};
    struct tr_summary r = tr_samples_summary(&s);
    cr_expect_eq(r.n, 0);
    near(r.p99, 0);
    near(r.max, 0);
}

Test(samples, one_value_is_every_percentile)
{
    struct tr_samples s = {0};
    tr_samples_add(&s, 7.5);
    struct tr_summary r = tr_samples_summary(&s);
    near(r.min, 7.5);
    near(r.p50, 7.5);
    near(r.p99, 7.5);
    near(r.max, 7.5);
    tr_samples_fini(&s);
}

Test(samples, percentiles_lie_between_the_two_nearest_ranks)
{
    struct tr_samples s = {0};
    for (int i = 100; i >= 1; i--)
        tr_samples_add(&s, i);
    struct tr_summary r = tr_samples_summary(&s);
    cr_expect_eq(r.n, 100);
    near(r.mean, 50.5);
    near(r.min, 1);
    near(r.p50, 50.5);
    near(r.p90, 90.1);
    near(r.p99, 99.01);
    near(r.max, 100);
    tr_samples_fini(&s);
}

Test(samples, a_full_bag_still_counts_and_tells_what_it_left_out)
{
    struct tr_samples s = {0};
    for (size_t i = 0; i < TR_SAMPLES_MAX; i++)
        tr_samples_add(&s, 1);
    tr_samples_add(&s, 0);
    tr_samples_add(&s, 9);
    struct tr_summary r = tr_samples_summary(&s);
    cr_expect_eq(r.n, TR_SAMPLES_MAX + 2);
    cr_expect_eq(r.left_out, 2);
    cr_expect_eq(s.zeros, 1);
    near(r.min, 0);
    near(r.max, 9);
    near(r.p99, 1);
    tr_samples_fini(&s);
}
