/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/traceparent.h"

#include "base/hex.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define SPAN "b7ad6b7169203331"

static struct tr_slice slice(const char *s)
{
    return (struct tr_slice){s, strlen(s)};
}

static struct tr_http head;

/* A head with these lines behind the request line. */
static const struct tr_http *with(const char *lines)
{
    static char text[16384];
    struct tr_slice body;
    size_t used;
    int n = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n", lines);

    tr_http_init(&head, sizeof(text));
    cr_assert_eq(tr_http_feed(&head, text, (size_t)n, &used, &body), TR_HTTP_HEAD);
    return &head;
}

static void expect_hex(const uint8_t *id, size_t n, const char *hex)
{
    char text[33];

    tr_hex_format(id, n, text);
    cr_expect_str_eq(text, hex);
}

static bool is_none(const uint8_t *id, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (id[i])
            return false;
    return true;
}

Test(traceparent, a_good_one_is_continued)
{
    struct tr_trace t;

    tr_trace_begin(with("TraceParent: 00-" TRACE "-" SPAN "-01\r\nTracestate: a=1 , b@c=2\r\n"),
                   &t);
    expect_hex(t.trace_id, 16, TRACE);
    expect_hex(t.parent_id, 8, SPAN);
    cr_expect(!is_none(t.span_id, 8) && memcmp(t.span_id, t.parent_id, 8) != 0);
    cr_expect_eq(t.flags, TR_TRACE_SAMPLED);
    cr_expect_str_eq(t.state, "a=1,b@c=2");
}

Test(traceparent, what_is_not_sampled_stays_so_and_unknown_flags_are_dropped)
{
    struct tr_trace t;

    tr_trace_begin(with("traceparent: 00-" TRACE "-" SPAN "-fe\r\n"), &t);
    expect_hex(t.trace_id, 16, TRACE);
    cr_expect_eq(t.flags, TR_TRACE_RANDOM);
}

Test(traceparent, a_later_version_is_read_as_far_as_it_is_known)
{
    struct tr_trace t = {.flags = 0};

    cr_expect_eq(tr_traceparent_read(slice("cc-" TRACE "-" SPAN "-01-what.comes"), &t), 0);
    cr_expect_eq(tr_traceparent_read(slice("cc-" TRACE "-" SPAN "-01"), &t), 0);
    cr_expect_neq(tr_traceparent_read(slice("cc-" TRACE "-" SPAN "-01.what"), &t), 0);
}

Test(traceparent, a_malformed_one_begins_a_new_trace_that_is_sampled)
{
    static const char *const bad[] = {
        "",
        "00",
        "ff-" TRACE "-" SPAN "-01",
        "00-" TRACE "-" SPAN "-01-more",
        "00-" TRACE "-" SPAN "-0",
        "00-" TRACE "-" SPAN "-0G",
        "00-" TRACE "_" SPAN "-01",
        "0x-" TRACE "-" SPAN "-01",
        "00-0AF7651916CD43DD8448EB211C80319C-" SPAN "-01",
        "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-" TRACE "-" SPAN "-01, 00-" TRACE "-" SPAN "-01",
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char line[512];
        struct tr_trace t, u;
        snprintf(line, sizeof(line), "traceparent: %s\r\ntracestate: a=1\r\n", bad[i]);
        tr_trace_begin(with(line), &t);
        tr_trace_begin(&head, &u);
        cr_expect(!is_none(t.trace_id, 16) && is_none(t.parent_id, 8), "%s", bad[i]);
        cr_expect_neq(memcmp(t.trace_id, u.trace_id, 16), 0, "%s: each is another", bad[i]);
        cr_expect(t.flags & TR_TRACE_SAMPLED, "%s", bad[i]);
        cr_expect_str_eq(t.state, "", "%s: its state is about nothing", bad[i]);
    }
}

Test(traceparent, two_of_them_are_none)
{
    struct tr_trace t;

    tr_trace_begin(with("traceparent: 00-" TRACE "-" SPAN "-01\r\n"
                        "traceparent: 00-" TRACE "-" SPAN "-01\r\n"),
                   &t);
    cr_expect(is_none(t.parent_id, 8));
}

Test(traceparent, without_a_head_there_is_a_trace_all_the_same)
{
    struct tr_trace t;

    tr_trace_begin(NULL, &t);
    cr_expect(!is_none(t.trace_id, 16) && !is_none(t.span_id, 8));
}

Test(tracestate, fields_are_joined_in_their_order)
{
    char out[TR_TRACE_STATE_BYTES];

    cr_expect_eq(tr_tracestate_read(with("tracestate: a=1,,\r\nx: y\r\ntracestate:\r\n"
                                         "tracestate: b=2\r\n"),
                                    out),
                 0);
    cr_expect_str_eq(out, "a=1,b=2");
}

Test(tracestate, a_malformed_one_is_dropped_whole)
{
    static const char *const bad[] = {"a",     "a=",    "=1",   "A=1",
                                      "a=1,b", "a=b=c", "@a=1", "a=\xc3\xa4"};
    char out[TR_TRACE_STATE_BYTES];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char line[64];
        snprintf(line, sizeof(line), "tracestate: %s\r\n", bad[i]);
        cr_expect_neq(tr_tracestate_read(with(line), out), 0, "%s", bad[i]);
        cr_expect_str_eq(out, "");
    }
}

/* "k<i>=vvv", of `len` bytes in all. */
static size_t member(char *to, unsigned i, size_t len)
{
    size_t n = (size_t)sprintf(to, "k%u=", i);

    memset(to + n, 'v', len - n);
    to[len] = '\0';
    return len;
}

Test(tracestate, a_long_one_loses_whole_members_long_ones_first)
{
    char line[2048] = "tracestate: ", out[TR_TRACE_STATE_BYTES];
    size_t at = strlen(line);
    static const size_t len[] = {100, 200, 100, 100, 100, 100, 100};

    for (unsigned i = 0; i < 7; i++) {
        if (i)
            line[at++] = ',';
        at += member(line + at, i, len[i]);
    }
    memcpy(line + at, "\r\n", 3);
    cr_expect_eq(tr_tracestate_read(with(line), out), 0);
    cr_expect(strlen(out) <= 512, "%zu", strlen(out));
    cr_expect_eq(strncmp(out, "k0=", 3), 0);
    cr_expect_null(strstr(out, "k1="), "the long one goes first");
    cr_expect_not_null(strstr(out, ",k5="), "five of 100 bytes fit");
    cr_expect_null(strstr(out, "k6="), "then the last");
}

Test(tracestate, more_than_32_members_are_none)
{
    char line[512] = "tracestate: ", out[TR_TRACE_STATE_BYTES];

    for (unsigned i = 0; i < 32; i++)
        sprintf(line + strlen(line), "%sa%u=1", i ? "," : "", i);
    strcat(line, "\r\n");
    cr_expect_eq(tr_tracestate_read(with(line), out), 0);
    strcpy(line + strlen(line) - 2, ",z=1\r\n");
    cr_expect_neq(tr_tracestate_read(with(line), out), 0);
}
