/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/collector.h"

#include <criterion/criterion.h>
#include <string.h>

static int ask(const char *url, const char *headers)
{
    struct tr_errbuf err = {""};
    int ret = tr_collector_check(url, headers, &err);
    cr_expect(ret == 0 || (err.msg[0] && !strstr(err.msg, "secret")), "%s", err.msg);
    return ret;
}

Test(collector, addresses_that_can_be_meant)
{
    static const char *const good[] = {"http://a", "https://a:4318/", "HTTP://[::1]:4318/base",
                                       "http://a/v1/traces"};
    static const char *const bad[] = {
        "",          "a",          "ftp://a",           "http://",
        "http:///",  "http://a b", "http://u:secret@a", "http://a?secret",
        "http://a#", "http://a\n"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        cr_expect_eq(ask(good[i], ""), 0, "%s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_expect_neq(ask(bad[i], ""), 0, "%s", bad[i]);
}

Test(collector, fields_that_can_be_meant)
{
    static const char *const good[] = {"", "a=b", "a=b,", "a=b,C-d=e%2Cf%20", "a=%", "a=b=c"};
    static const char *const bad[] = {
        "secret",     "=secret",       "secret=", "a b=secret", "a:=secret", "a=secret%0d%0aX: y",
        "a=secret\n", "a=secret,,b=c", "a=\xff"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        cr_expect_eq(ask("http://a", good[i]), 0, "%s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_expect_neq(ask("http://a", bad[i]), 0, "%s", bad[i]);
}

static uint64_t rejected(const char *body)
{
    return tr_collector_rejected(body, strlen(body));
}

Test(collector, what_an_answer_says_was_rejected)
{
    cr_expect_eq(rejected("{\"partialSuccess\":{\"rejectedSpans\":\"3\"}}"), 3);
    cr_expect_eq(rejected("{\"partialSuccess\":{\"rejectedSpans\":3}}"), 3);
    static const char *const none[] = {"",
                                       "{",
                                       "{}",
                                       "[]",
                                       "3",
                                       "{\"partialSuccess\":3}",
                                       "{\"partialSuccess\":{}}",
                                       "{\"partialSuccess\":{\"rejectedSpans\":-3}}",
                                       "{\"partialSuccess\":{\"rejectedSpans\":\"x\"}}",
                                       "{\"partialSuccess\":{\"rejectedSpans\":1e99}}"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        cr_expect_eq(rejected(none[i]), 0, "%s", none[i]);
}
