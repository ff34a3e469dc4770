/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/exposition.h"

#include <criterion/criterion.h>
#include <string.h>

static struct tr_emit e;

static struct tr_expo expo(bool open, const char *common)
{
    tr_emit_init(&e);
    return (struct tr_expo){&e, open, "t_", common};
}

static void is(const char *want)
{
    cr_expect_eq(e.len, strlen(want));
    cr_expect(e.len == strlen(want) && memcmp(e.buf, want, e.len) == 0, "%.*s", (int)e.len, e.buf);
    tr_emit_fini(&e);
}

Test(exposition, a_counter_in_the_text_format)
{
    struct tr_expo x = expo(false, "");
    tr_expo_family(&x, "n_total", TR_EXPO_COUNTER, "a \"b\\\nc");
    tr_expo_count(&x, "n_total", "k=\"v\"", 7);
    tr_expo_end(&x);
    is("# HELP t_n_total a \"b\\\\\\nc\n# TYPE t_n_total counter\nt_n_total{k=\"v\"} 7\n");
}

Test(exposition, its_family_has_no_suffix_in_openmetrics)
{
    struct tr_expo x = expo(true, "m=\"x\"");
    tr_expo_family(&x, "n_total", TR_EXPO_COUNTER, "a \"b\\\nc");
    tr_expo_count(&x, "n_total", "k=\"v\"", 7);
    tr_expo_end(&x);
    is("# HELP t_n a \\\"b\\\\\\nc\n# TYPE t_n counter\nt_n_total{m=\"x\",k=\"v\"} 7\n# EOF\n");
}

Test(exposition, an_info_named_like_the_prefix)
{
    struct tr_expo x = expo(true, "");
    tr_expo_family(&x, "info", TR_EXPO_INFO, "h");
    tr_expo_count(&x, "info", "", 1);
    tr_expo_family(&x, "cache_info", TR_EXPO_INFO, "h");
    is("# HELP t h\n# TYPE t info\nt_info 1\n# HELP t_cache h\n# TYPE t_cache info\n");
    x = expo(false, "");
    tr_expo_family(&x, "info", TR_EXPO_INFO, "h");
    is("# HELP t_info h\n# TYPE t_info gauge\n");
}

Test(exposition, units_are_told_where_the_name_ends_with_one)
{
    struct tr_expo x = expo(true, "");
    tr_expo_family(&x, "lag_seconds", TR_EXPO_GAUGE, "h");
    tr_expo_real(&x, "lag_seconds", "", 0.25);
    is("# HELP t_lag_seconds h\n# TYPE t_lag_seconds gauge\n# UNIT t_lag_seconds "
       "seconds\nt_lag_seconds 0.25\n");
}

Test(exposition, a_histogram_is_cumulative_and_fits_itself)
{
    struct tr_expo_hist h = {.bucket = {1, 2}, .sum = 1500000000};
    h.bucket[TR_HIST_BUCKETS] = 4;
    struct tr_expo x = expo(false, "m=\"x\"");
    tr_expo_hist(&x, "w_seconds", TR_SCALE_LONG, &h);
    tr_emit_bytes(&e, "", 1);
    cr_assert(strstr(e.buf, "t_w_seconds_bucket{m=\"x\",le=\"0.001\"} 1\n"));
    cr_assert(strstr(e.buf, "t_w_seconds_bucket{m=\"x\",le=\"0.005\"} 3\n"));
    cr_assert(strstr(e.buf, "t_w_seconds_bucket{m=\"x\",le=\"600.0\"} 3\n"));
    cr_assert(strstr(e.buf, "t_w_seconds_bucket{m=\"x\",le=\"+Inf\"} 7\n"));
    cr_assert(
        strstr(e.buf, "t_w_seconds_sum{m=\"x\"} 1.500000000\nt_w_seconds_count{m=\"x\"} 7\n"));
    tr_emit_fini(&e);
}

Test(exposition, tokens_add_up_to_tokens)
{
    struct tr_expo_hist h = {.bucket = {1}, .sum = 1500000000};
    struct tr_expo x = expo(false, "");
    tr_expo_hist(&x, "n", TR_SCALE_TOKENS, &h);
    tr_emit_bytes(&e, "", 1);
    cr_assert(strstr(e.buf, "t_n_bucket{le=\"1.0\"} 1\n") &&
              strstr(e.buf, "t_n_bucket{le=\"262144.0\"} 1\n"));
    cr_assert(strstr(e.buf, "t_n_sum 1500000000\n"));
    tr_emit_fini(&e);
}

static void label_is(size_t cap, const char *value, const char *want)
{
    char buf[64];
    memset(buf, '!', sizeof(buf));
    size_t n = tr_expo_label(buf, cap, "m", value);
    cr_expect_eq(n, strlen(want), "%s", value);
    cr_expect_str_eq(buf, want);
    cr_expect(n < cap && buf[cap] == '!');
}

Test(exposition, labels_are_escaped_and_utf8)
{
    label_is(60, "", "m=\"\"");
    label_is(60, "a\"b\\c\nd", "m=\"a\\\"b\\\\c\\nd\"");
    label_is(60, "\xc3\xa9", "m=\"\xc3\xa9\"");
    label_is(60,
             "\xff"
             "a\xc3",
             "m=\"\xef\xbf\xbd"
             "a\xef\xbf\xbd\"");
}

Test(exposition, a_label_is_cut_between_characters)
{
    label_is(7, "abc", "m=\"ab\"");
    label_is(7, "a\"c", "m=\"a\"");
    label_is(7, "a\xc3\xa9", "m=\"a\"");
}
