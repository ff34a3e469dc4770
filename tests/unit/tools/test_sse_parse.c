/* SPDX-License-Identifier: Apache-2.0 */
#include "client/sse_parse.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Events as "name|data;" one after the other. */
struct seen {
    char text[512];
    int stop_after; /* events; 0: never */
};

static int note(void *ctx, const struct tr_sse_event *ev)
{
    struct seen *s = ctx;
    size_t len = strlen(s->text);
    snprintf(s->text + len, sizeof(s->text) - len, "%s|%.*s;", ev->name, (int)ev->data_len,
             ev->data);
    return s->stop_after && !--s->stop_after ? -ECANCELED : 0;
}

/* The same result for the bytes as one piece and one by one. */
static void expect(const char *bytes, bool ended, const char *want)
{
    size_t len = strlen(bytes);
    for (size_t step = 1; step <= len; step += len > 1 ? len - 1 : 1) {
        struct seen seen = {0};
        struct tr_sse_parser p;
        tr_sse_parser_init(&p, 1000, note, &seen);
        for (size_t i = 0; i < len; i += step)
            cr_assert_eq(tr_sse_parser_push(&p, bytes + i, step < len - i ? step : len - i), 0);
        if (ended)
            cr_assert_eq(tr_sse_parser_end(&p), 0);
        cr_assert_str_eq(seen.text, want, "steps of %zu: got %s", step, seen.text);
        tr_sse_parser_fini(&p);
    }
}

Test(sse_parse, all_three_line_ends_mean_the_same)
{
    expect("data: a\n\ndata: b\n\n", false, "|a;|b;");
    expect("data: a\r\n\r\ndata: b\r\n\r\n", false, "|a;|b;");
    expect("data: a\r\rdata: b\r\r", false, "|a;|b;");
    expect("data: a\r\n\rdata: b\n\r\n", false, "|a;|b;");
}

Test(sse_parse, one_byte_order_mark_is_skipped_and_only_at_the_start)
{
    expect("\xEF\xBB\xBF"
           "data: a\n\n",
           false, "|a;");
    expect("data: a\n\n\xEF\xBB\xBF"
           "data: b\n\n",
           false, "|a;");
}

Test(sse_parse, data_lines_are_joined_and_one_space_is_dropped)
{
    expect("data:{\ndata:  \"a\"\ndata: }\n\n", false, "|{\n \"a\"\n};");
    expect("data\n\n", false, "|;");
    expect("data:\n\n", false, "|;");
}

Test(sse_parse, comments_ids_and_retries_are_not_events)
{
    expect(": c\n\nid: 7\n\nretry: 3000\n\n", true, "");
    expect("id: 7\nretry: 10\nevent: x\ndata: a\n: c\n\n", false, "x|a;");
}

Test(sse_parse, a_name_without_data_is_not_dispatched_and_does_not_stick)
{
    expect("event: x\n\ndata: a\n\n", false, "|a;");
}

Test(sse_parse, last_event_without_blank_line_counts_only_at_a_clean_end)
{
    expect("data: a\n\ndata: b\n", false, "|a;");
    expect("data: a\n\ndata: b\n", true, "|a;|b;");
    expect("data: a\n\ndata: b", true, "|a;|b;");
}

Test(sse_parse, fields_are_remembered_and_counted)
{
    struct seen seen = {0};
    struct tr_sse_parser p;
    const char *s = "id: 41\nretry: 3000\ndata: a\n\n: c\n: d\nevent: n\n\nid: 42\n\nretry: x\n";
    tr_sse_parser_init(&p, 1000, note, &seen);
    cr_assert_eq(tr_sse_parser_push(&p, s, strlen(s)), 0);
    cr_expect_str_eq(p.last_id, "42");
    cr_expect_eq(p.retry_ms, 3000);
    cr_expect_eq(p.events, 1);
    cr_expect_eq(p.comments, 2);
    cr_expect_eq(p.dataless, 1);
    tr_sse_parser_fini(&p);
}

Test(sse_parse, an_event_over_the_limit_is_refused_in_one_line_or_in_many)
{
    struct seen seen = {0};
    struct tr_sse_parser p;
    char line[101];
    memset(line, 'x', 100);
    line[100] = 0;

    tr_sse_parser_init(&p, 1000, note, &seen);
    int rc = 0, n = 0;
    for (; !rc && n < 100; n++)
        rc = tr_sse_parser_push(&p, line, 100);
    cr_expect_eq(rc, -EMSGSIZE);
    cr_expect_eq(n, 11);
    tr_sse_parser_fini(&p);

    tr_sse_parser_init(&p, 1000, note, &seen);
    for (rc = 0, n = 0; !rc && n < 1000; n++)
        rc = tr_sse_parser_push(&p, "data: xxxx\n", 11);
    cr_expect_eq(rc, -EMSGSIZE);
    cr_expect_lt(n, 250);
    tr_sse_parser_fini(&p);
}

Test(sse_parse, what_the_callback_says_stops_the_push)
{
    struct seen seen = {.stop_after = 2};
    struct tr_sse_parser p;
    const char *s = "data: a\n\ndata: b\n\ndata: c\n\n";
    tr_sse_parser_init(&p, 1000, note, &seen);
    cr_expect_eq(tr_sse_parser_push(&p, s, strlen(s)), -ECANCELED);
    cr_expect_str_eq(seen.text, "|a;|b;");
    tr_sse_parser_fini(&p);
}
