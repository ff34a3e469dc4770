/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/options.h"

#include <criterion/criterion.h>
#include <string.h>

static int parse(struct tr_options *o, int argc, const char **argv)
{
    struct tr_errbuf err;
    return tr_options_parse(o, argc, (char **)argv, &err);
}

#define PARSE(o, ...)                                                                              \
    parse(o, (int)(sizeof((const char *[]){"serve", __VA_ARGS__}) / sizeof(char *)),               \
          (const char *[]){"serve", __VA_ARGS__})

Test(options, a_switch_alone_is_on_and_takes_no_argument_of_others)
{
    struct tr_options o;
    cr_assert_eq(PARSE(&o, "--port", "1"), 0);
    cr_expect_eq(o.compat_metrics, 0u);
    cr_assert_eq(PARSE(&o, "--compat-metrics", "--port", "7"), 0);
    cr_expect_eq(o.compat_metrics, 1u);
    cr_expect_eq(o.port, 7u);
    cr_assert_eq(PARSE(&o, "--port", "7", "--compat-metrics"), 0);
    cr_expect_eq(o.compat_metrics, 1u);
}

Test(options, a_switch_is_what_is_said)
{
    struct tr_options o;
    cr_assert_eq(PARSE(&o, "--compat-metrics", "off", "--port", "7"), 0);
    cr_expect_eq(o.compat_metrics, 0u);
    cr_expect_eq(o.port, 7u);
    cr_assert_eq(PARSE(&o, "--compat-metrics", "on"), 0);
    cr_expect_eq(o.compat_metrics, 1u);
    cr_assert_eq(PARSE(&o, "--compat-metrics=off"), 0);
    cr_expect_eq(o.compat_metrics, 0u);
    cr_expect_neq(PARSE(&o, "--compat-metrics=perhaps"), 0);
    cr_expect_neq(PARSE(&o, "--compat-metrics", "perhaps"), 0, "no word stands alone");
}

Test(options, the_last_word_wins_and_a_value_may_follow_or_be_joined)
{
    struct tr_options o;
    cr_assert_eq(PARSE(&o, "--kv-type", "q8_0", "--kv-type=f32", "--max-body", "2K"), 0);
    cr_expect_eq(o.kv_type, 2u);
    cr_expect_eq(o.max_body, 2048u);
    cr_expect_neq(PARSE(&o, "--kv-type"), 0);
    cr_expect_neq(PARSE(&o, "--kv-type", "f1"), 0);
}
