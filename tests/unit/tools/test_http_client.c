/* SPDX-License-Identifier: Apache-2.0 */
#include "client/http_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct body {
    char text[256];
    size_t len;
};

static int take(void *ctx, const char *bytes, size_t len)
{
    struct body *b = ctx;
    if (len > sizeof(b->text) - 1 - b->len)
        return -ENOMEM;
    memcpy(b->text + b->len, bytes, len);
    b->len += len;
    b->text[b->len] = 0;
    return 0;
}

static const struct tr_httpc_ops ops = {NULL, take};

/* Pushes whole and byte by byte, then the end of the connection if the answer is not complete. */
static void expect(const char *bytes, int want, const char *want_body)
{
    size_t len = strlen(bytes);
    for (int whole = 0; whole < 2; whole++) {
        struct body b = {0};
        struct tr_httpc *r = malloc(sizeof(*r));
        tr_httpc_init(r, 200, &ops, &b);
        int rc = 0;
        for (size_t i = 0; !rc && i < len; i += whole ? len : 1)
            rc = tr_httpc_push(r, bytes + i, whole ? len : 1);
        if (!rc)
            rc = tr_httpc_eof(r);
        cr_expect_eq(rc, want, "%s: got %d (%s)", bytes, rc, r->fault ? r->fault : "");
        cr_expect_str_eq(b.text, want_body);
        cr_expect_eq(rc < 0, r->fault != NULL);
        free(r);
    }
}

#define OK "HTTP/1.1 200 OK\r\n"
#define CHUNKED OK "Transfer-Encoding: chunked\r\n\r\n"

Test(http_client, reads_the_three_framings)
{
    expect(OK "Content-Length: 3\r\n\r\nabcXX", 1, "abc");
    expect(OK "Content-Length: 0\r\n\r\n", 1, "");
    expect(CHUNKED "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: v\r\n\r\n", 1, "abcde");
    expect(OK "\r\nabc", 1, "abc");
    expect("HTTP/1.0 200\n\nabc", 1, "abc");
    expect("HTTP/1.1 204 No Content\r\n\r\nabc", 1, "");
}

Test(http_client, skips_interim_responses)
{
    expect("HTTP/1.1 100 Continue\r\n\r\n" OK "Content-Length: 1\r\n\r\na", 1, "a");
    expect("HTTP/1.1 101 Switching\r\n\r\n", -EPROTO, "");
}

Test(http_client, a_cut_is_told_from_an_end)
{
    expect("", -EPIPE, "");
    expect("HTTP/1.1 200 OK\r\nA: b\r\n", -EPIPE, "");
    expect(OK "Content-Length: 9\r\n\r\nabc", -EPIPE, "abc");
    expect(CHUNKED "3\r\nabc\r\n", -EPIPE, "abc");
    expect(CHUNKED "3\r\nabc\r\n0\r\n", -EPIPE, "abc");
    expect(CHUNKED "9\r\nabc", -EPIPE, "abc");
}

Test(http_client, ambiguous_framing_is_a_fault)
{
    expect("ICY 200 OK\r\n\r\n", -EPROTO, "");
    expect("HTTP/1.1 2x0 OK\r\n\r\n", -EPROTO, "");
    expect("HTTP/1.1 2000 OK\r\n\r\n", -EPROTO, "");
    expect(OK "Content-Length: +3\r\n\r\nabc", -EPROTO, "");
    expect(OK "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", -EPROTO, "");
    expect(OK "Content-Length: 99999999999999999999\r\n\r\n", -EPROTO, "");
    expect(OK "Transfer-Encoding: xchunked\r\n\r\n", -EPROTO, "");
    expect(OK "Content-Encoding: gzip\r\n\r\n", -EPROTO, "");
    expect(OK " folded\r\n\r\n", -EPROTO, "");
    expect(OK "no colon\r\n\r\n", -EPROTO, "");
    expect(CHUNKED "zz\r\n", -EPROTO, "");
    expect(CHUNKED "-1\r\n", -EPROTO, "");
    expect(CHUNKED "0x3\r\nabc\r\n", -EPROTO, "");
    expect(CHUNKED "\r\n", -EPROTO, "");
    expect(CHUNKED "fffffffffffffffff\r\n", -EPROTO, "");
    expect(CHUNKED "2\r\nabc\r\n", -EPROTO, "ab");
}

/* Pushes `unit` until the reader objects; false when it never does. */
static bool objects_to(const char *start, const char *unit)
{
    struct body b = {0};
    struct tr_httpc *r = malloc(sizeof(*r));
    tr_httpc_init(r, 200, &ops, &b);
    int rc = tr_httpc_push(r, start, strlen(start));
    for (int i = 0; !rc && i < 200000; i++)
        rc = tr_httpc_push(r, unit, strlen(unit));
    free(r);
    return rc == -EPROTO;
}

Test(http_client, nothing_is_endless)
{
    cr_expect(objects_to("", "x"));
    cr_expect(objects_to(OK, "A: b\r\n"));
    cr_expect(objects_to(OK "A: ", "b"));
    cr_expect(objects_to(CHUNKED "0\r\n", "A: b\r\n"));
    cr_expect(objects_to(CHUNKED "3;", "x"));
    cr_expect(objects_to("", "HTTP/1.1 100 Continue\r\n\r\n"));
    cr_expect(objects_to(CHUNKED, "1\r\nx\r\n"));
    cr_expect(objects_to(OK "\r\n", "x"));
}

Test(http_client, retry_after_counts_on_the_final_response_alone)
{
    static const struct {
        const char *bytes;
        bool has;
    } cases[] = {
        {"HTTP/1.1 503 no\r\nretry-after: 2\r\nContent-Length: 0\r\n\r\n", true},
        {"HTTP/1.1 503 no\r\nRetry-After:\r\nContent-Length: 0\r\n\r\n", false},
        {"HTTP/1.1 103 x\r\nRetry-After: 2\r\n\r\nHTTP/1.1 503 no\r\nContent-Length: 0\r\n\r\n",
         false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tr_httpc r;
        struct body b = {0};
        tr_httpc_init(&r, 200, &ops, &b);
        cr_expect_eq(tr_httpc_push(&r, cases[i].bytes, strlen(cases[i].bytes)), 1);
        cr_expect_eq(r.has_retry_after, cases[i].has, "%s", cases[i].bytes);
    }
}
