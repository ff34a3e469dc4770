/* SPDX-License-Identifier: Apache-2.0 */
#include "client/scrape.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char page[] = "# HELP x_seconds of {things}\n"
                           "# TYPE x_seconds histogram\n"
                           "x_seconds_bucket{frontend=\"0\",le=\"0.1\"} 1\n"
                           "x_seconds_bucket{frontend=\"0\",le=\"0.5\"} 3 1700000000000\n"
                           "x_seconds_bucket{frontend=\"0\",le=\"+Inf\"} 4 # {id=\"a\"} 0.7\n"
                           "x_seconds_sum{frontend=\"0\"} 2.5\n"
                           "x_seconds_count{frontend=\"0\"} 4\n"
                           "x_seconds_bucket{le=\"0.1\",odd=\"a\\\"},le=\\\"9\"} 10\n"
                           "x_seconds_bucket{le=\"0.5\",odd=\"\"} 20\n"
                           "x_seconds_bucket{le=\"+Inf\",odd=\"\"} 20\n"
                           "x_seconds_sum{odd=\"\"} 3.5\n"
                           "x_seconds_count{odd=\"\"} 20\r\n"
                           "x_seconds_total 99\n"
                           "xx_seconds_count 77\n";

static void near(double got, double want)
{
    cr_expect(fabs(got - want) < 1e-9, "got %.12g, want %.12g", got, want);
}

Test(scrape, label_sets_are_summed_bucket_by_bucket)
{
    struct tr_hist h;
    cr_assert_eq(tr_scrape_hist(page, strlen(page), "x_seconds", &h), 0);
    cr_assert_eq(h.len, 3);
    near(h.le[0], 0.1);
    near(h.cum[0], 11);
    near(h.cum[1], 23);
    cr_expect(isinf(h.le[2]));
    near(h.cum[2], 24);
    near(h.count, 24);
    near(h.sum, 6);
}

Test(scrape, a_name_that_is_not_there_is_not_found)
{
    struct tr_hist h = {.count = 5};
    cr_expect_eq(tr_scrape_hist(page, strlen(page), "x_second", &h), -ENOENT);
    cr_expect_eq(tr_scrape_hist(page, strlen(page), "y", &h), -ENOENT);
    cr_expect_eq(tr_scrape_hist("", 0, "x_seconds", &h), -ENOENT);
    near(h.count, 5);
}

Test(scrape, a_page_cut_anywhere_is_read_without_harm)
{
    struct tr_hist h;
    for (size_t len = 0; len < strlen(page); len++) {
        char *copy = malloc(len + 1);
        memcpy(copy, page, len);
        (void)tr_scrape_hist(copy, len, "x_seconds", &h);
        free(copy);
    }
}

Test(scrape, nonsense_lines_are_skipped)
{
    const char *bad = "x_bucket{le=\"1\"} many\nx_bucket{le=1} 3\nx_bucket{le=\"1\" 3\n"
                      "x_bucket{} 3\nx_bucket 3\nx_bucket{le=\"NaN\"} 3\nx_bucket{le=\"2\"} 5\n";
    struct tr_hist h;
    cr_assert_eq(tr_scrape_hist(bad, strlen(bad), "x", &h), 0);
    cr_expect_eq(h.len, 1);
    near(h.cum[0], 5);
}

Test(scrape, too_many_bounds_are_refused)
{
    char big[200 * 40];
    size_t n = 0;
    for (int i = 0; i < 200; i++)
        n += (size_t)snprintf(big + n, sizeof(big) - n, "x_bucket{le=\"%d\"} 1\n", i);
    struct tr_hist h;
    cr_expect_eq(tr_scrape_hist(big, n, "x", &h), -E2BIG);
}

Test(scrape, the_difference_is_what_happened_in_between)
{
    const struct tr_hist a = {3, {0.1, 0.5, INFINITY}, {1, 2, 2}, 2, 0.4};
    const struct tr_hist b = {3, {0.1, 0.5, INFINITY}, {1, 6, 8}, 8, 3.4};
    struct tr_hist d;
    cr_assert_eq(tr_hist_diff(&a, &b, &d), 0);
    near(d.cum[0], 0);
    near(d.cum[1], 4);
    near(d.count, 6);
    near(d.sum, 3);
    cr_assert_eq(tr_hist_diff(NULL, &b, &d), 0);
    near(d.count, 8);
    cr_expect_eq(tr_hist_diff(&b, &a, &d), -ERANGE);
}

Test(scrape, quantiles_are_linear_within_a_bucket)
{
    const struct tr_hist h = {3, {0.1, 0.5, INFINITY}, {10, 20, 25}, 25, 9};
    near(tr_hist_quantile(&h, 0.2), 0.05);
    near(tr_hist_quantile(&h, 0.4), 0.1);
    near(tr_hist_quantile(&h, 0.6), 0.3);
    near(tr_hist_quantile(&h, 0.99), 0.5); /* in +Inf: the highest finite bound */
    const struct tr_hist none = {0};
    near(tr_hist_quantile(&none, 0.5), 0);
}

Test(scrape, values_are_summed_over_series_with_a_label)
{
    static const char text[] = "# TYPE t counter\n"
                               "t{kind=\"a\",frontend=\"0\"} 3\n"
                               "t{kind=\"b\",frontend=\"0\"} 10\n"
                               "t{frontend=\"1\",kind=\"a\"} 4 1700000000000\n"
                               "t_more 99\n"
                               "t{kind=\"a\"} what\n"
                               "t{kind=\"a\n"
                               "bare 1.5";
    double v = -1;
    cr_expect_eq(tr_scrape_value(text, strlen(text), "t", "kind=\"a\"", &v), 0);
    near(v, 7);
    cr_expect_eq(tr_scrape_value(text, strlen(text), "t", NULL, &v), 0);
    near(v, 17);
    cr_expect_eq(tr_scrape_value(text, strlen(text), "bare", NULL, &v), 0);
    near(v, 1.5);
    cr_expect_eq(tr_scrape_value(text, strlen(text), "t", "kind=\"c\"", &v), -ENOENT);
    cr_expect_eq(tr_scrape_value(text, strlen(text), "none", NULL, &v), -ENOENT);
    near(v, 1.5);
    for (size_t len = 0; len < strlen(text); len++) {
        char *copy = malloc(len + 1);
        memcpy(copy, text, len);
        (void)tr_scrape_value(copy, len, "t", "kind=\"a\"", &v);
        free(copy);
    }
}
