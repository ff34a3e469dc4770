/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/http.h"
#include "frontend/route.h"
#include "testoracle/http_oracle.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 32 << 10 };

/* What came out of one request. */
struct result {
    enum tr_http_ev ev; /* the last event: END, MORE (incomplete) or BAD */
    enum tr_err err;    /* of BAD, else `refuse` */
    size_t used;
    bool head;
    char path[512], body[4096];
    size_t body_len;
};

static struct result run(const char *s, size_t len, size_t step, struct tr_http *h)
{
    struct result r = {.ev = TR_HTTP_MORE};
    tr_http_init(h, MAX_HEADER);
    while (r.used < len || r.ev == TR_HTTP_HEAD || r.ev == TR_HTTP_BODY) {
        size_t n = len - r.used < step ? len - r.used : step, used;
        struct tr_slice piece;
        char *exact = malloc(n ? n : 1);
        memcpy(exact, s + r.used, n);
        r.ev = tr_http_feed(h, exact, n, &used, &piece);
        if (r.ev == TR_HTTP_BODY && r.body_len + piece.len <= sizeof(r.body)) {
            memcpy(r.body + r.body_len, piece.p, piece.len);
            r.body_len += piece.len;
        }
        free(exact);
        r.used += used;
        if (r.ev == TR_HTTP_HEAD) {
            r.head = true;
            snprintf(r.path, sizeof(r.path), "%.*s", (int)h->path.len, h->path.p);
        }
        if (r.ev == TR_HTTP_END || r.ev == TR_HTTP_BAD)
            break;
    }
    r.err = r.ev == TR_HTTP_BAD ? h->err : h->refuse;
    return r;
}

/* The verdict, and that it does not depend on how the bytes arrive. */
static struct result verdict(const char *s, size_t len, struct tr_http *h)
{
    struct tr_http other;
    struct result a = run(s, len, 1, &other);
    tr_http_fini(&other);
    struct result b = run(s, len, len ? len : 1, h);
    cr_expect(a.ev == b.ev && a.err == b.err && a.used == b.used && a.body_len == b.body_len &&
                  memcmp(a.body, b.body, a.body_len) == 0,
              "%s: another verdict byte by byte", s);
    return b;
}

static void bad(const char *s, size_t len, enum tr_err err)
{
    struct tr_http h;
    struct result r = verdict(s, len, &h);
    cr_expect(r.ev == TR_HTTP_BAD && r.err == err, "%.60s: event %d error %d, not BAD %d", s,
              (int)r.ev, (int)r.err, (int)err);
    tr_http_fini(&h);
}

#define BAD(s, err) bad(s, sizeof(s) - 1, err)

static struct result good(const char *s, size_t len)
{
    struct tr_http h;
    struct result r = verdict(s, len, &h);
    cr_expect(r.ev == TR_HTTP_END, "%.60s: event %d error %d %s", s, (int)r.ev, (int)r.err,
              h.why ? h.why : "");
    tr_http_fini(&h);
    return r;
}

#define GOOD(s) good(s, sizeof(s) - 1)
#define POST "POST /v1/x HTTP/1.1\r\nHost: x\r\n"
#define GET "GET / HTTP/1.1\r\nHost: x\r\n"

Test(http, a_plain_request_is_taken_whole_and_no_byte_more)
{
    struct tr_http h;
    const char s[] =
        "POST /v1/chat?x=1&y=%41+b HTTP/1.1\r\nHost: [::1]:8080\r\nContent-Length: 3\r\n"
        "X-Odd:\t a b \t\r\n\r\nabcGET /";
    struct result r = verdict(s, sizeof(s) - 1, &h);
    cr_expect_eq(r.ev, TR_HTTP_END);
    cr_expect_eq(r.used, sizeof(s) - 1 - 5);
    cr_expect_str_eq(r.path, "/v1/chat");
    cr_expect(r.body_len == 3 && memcmp(r.body, "abc", 3) == 0);
    struct tr_slice v = tr_http_field(&h, "x-odd");
    cr_expect(v.len == 3 && memcmp(v.p, "a b", 3) == 0);
    char buf[8];
    cr_expect_eq(tr_http_query(&h, "y", buf, sizeof(buf)), 3);
    cr_expect_str_eq(buf, "A b");
    cr_expect_eq(tr_http_query(&h, "z", buf, sizeof(buf)), -ENOENT);
    cr_expect_eq(tr_http_query(&h, "y", buf, 3), -E2BIG);
    cr_expect(h.keep_alive && h.method == TR_HTTP_POST && h.minor == 1);
    tr_http_fini(&h);
}

/* Messages that two readers understand differently: the corpus of request smuggling. */
Test(http, ambiguous_framing_is_refused)
{
    BAD(POST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", TR_ERR_BAD_HTTP);
    BAD(POST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", TR_ERR_BAD_HTTP);
    BAD(POST "Content-Length: 3, 3\r\n\r\nabc", TR_ERR_BAD_HTTP);
    BAD(POST "Content-Length: +3\r\n\r\nabc", TR_ERR_BAD_HTTP);
    BAD(POST "Content-Length: -1\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Content-Length: 0x3\r\n\r\nabc", TR_ERR_BAD_HTTP);
    BAD(POST "Content-Length: 3 4\r\n\r\nabc", TR_ERR_BAD_HTTP);
    BAD(POST "Content-Length:\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Content-Length : 3\r\n\r\nabc", TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding: chunked, gzip\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding: gzip, chunked\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding: identity\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding: \"chunked\"\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding: \x0b"
             "chunked\r\n\r\n",
        TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding: chunked\t\r\n\r\n0\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding:\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding: ,chunked\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding: chunked, chunked\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding: chunked;q=1\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding: identity, chunked\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Transfer-Encoding:\r\n chunked\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(POST "Content-Length:\t3\r\n\r\nabc", TR_ERR_BAD_HTTP);
    BAD(POST "Content-Length: 3\t\r\n\r\nabc", TR_ERR_BAD_HTTP);
    BAD(POST "Content-Length: 3;\r\n\r\nabc", TR_ERR_BAD_HTTP);
    BAD(POST "Content-Length: 3.0\r\n\r\nabc", TR_ERR_BAD_HTTP);
    BAD(POST "Content-Length: \"3\"\r\n\r\nabc", TR_ERR_BAD_HTTP);
    BAD(POST "Content-Length: 3\r\ncontent-length: 3\r\n\r\nabc", TR_ERR_BAD_HTTP);
    BAD("POST / HTTP/1.0\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", TR_ERR_BAD_HTTP);
    BAD("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", TR_ERR_BAD_HTTP);
    GOOD(POST "Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n");
    GOOD(POST "Transfer-Encoding:chunked   \r\n\r\n0\r\n\r\n");
    GOOD(POST "Content-Length:3  \r\n\r\nabc");
    GOOD(POST "Transfer-Encodings: chunked\r\n\r\n");
    GOOD(POST "Content-Length: 0003\r\n\r\nabc");
}

Test(http, lines_are_strict)
{
    BAD("GET / HTTP/1.1\nHost: x\n\n", TR_ERR_BAD_HTTP);
    BAD("GET / HTTP/1.1\r\nHost: x\n\r\n", TR_ERR_BAD_HTTP);
    BAD("GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(GET "A: b\r\n c\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD("GET / HTTP/1.1\r\n Host: x\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(GET "A: b\0c\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(GET "A: b\x7f\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(GET "A\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(GET ": b\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(GET "A b: c\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(GET "\xc3\xa9: c\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD("\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD("\rGET / HTTP/1.1\r\nHost: x\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD("\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD("\x16\x03\x01\x02\x00\x01", TR_ERR_BAD_HTTP);
    GOOD("\r\n" GET "\r\n");
    GOOD(GET "A:\r\nB: \xff\xfe\tx\r\n\r\n");
}

Test(http, the_request_line_is_strict)
{
    BAD("GET  / HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET / HTTP/1.1 \r\n", TR_ERR_BAD_HTTP);
    BAD(" GET / HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET /a b HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET\t/ HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET /\r\n", TR_ERR_BAD_HTTP);
    BAD("GET HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET / http/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET / HTTP/1.10\r\n", TR_ERR_BAD_HTTP);
    BAD("GET / HTTP/11\r\n", TR_ERR_BAD_HTTP);
    BAD("GET / HTTP/2.0\r\n", TR_ERR_HTTP_VERSION);
    BAD("GET / HTTP/1.2\r\n", TR_ERR_HTTP_VERSION);
    BAD("PRI * HTTP/2.0\r\n", TR_ERR_HTTP_VERSION);
    BAD("GET x HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET * HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET /# HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET /\xc3\xa9 HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET /%zz HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET /%4 HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET /%00 HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET /a%0d%0ab HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET http:// HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET http://u@h/ HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET ftp://h/ HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET h:80 HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("OPTIONS *x HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET http:/x HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET http:///x HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET //\x7f HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET /%7f HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET / HTTP/1.1 HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET / HTTP/1.1\r\r\n", TR_ERR_BAD_HTTP);
    BAD("GET /\vx HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("GET\xa0/ HTTP/1.1\r\n", TR_ERR_BAD_HTTP);
    BAD("CONNECT h:1 HTTP/1.1\r\n", TR_ERR_NOT_IMPLEMENTED);
    BAD("{\"x\":\"y\"}\r\n", TR_ERR_BAD_HTTP);
}

static void path_is(const char *target, const char *want)
{
    char s[256];
    int n = snprintf(s, sizeof(s), "OPTIONS %s HTTP/1.1\r\nHost: x\r\n\r\n", target);
    struct result r = good(s, (size_t)n);
    cr_expect_str_eq(r.path, want, "%s: %s", target, r.path);
}

Test(http, paths_are_normalised)
{
    path_is("/", "/");
    path_is("//", "/");
    path_is("//v1//x/", "/v1/x");
    path_is("/v1/x///", "/v1/x");
    path_is("/v1/x?a=//", "/v1/x");
    path_is("/a%3Ab%2fc", "/a:b/c");
    path_is("/%2e%2e/x", "/../x"); /* no route has such a segment */
    path_is("/./x/../y", "/./x/../y");
    path_is("/%2F%2f/x%2F", "/x");
    path_is("/%25zz", "/%zz"); /* decoded once */
    path_is("/%3Fa=b", "/?a=b");
    path_is("HTTP://h/x", "/x");
    path_is("http://h:80//x//", "/x");
    path_is("http://host:80/v1/x?y", "/v1/x");
    path_is("https://host", "/");
    path_is("http://host?q", "/");
    path_is("*", "*");
}

Test(http, host_stands_exactly_once)
{
    BAD("GET / HTTP/1.1\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(GET "Host: x\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD("GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", TR_ERR_BAD_HTTP);
    GOOD("GET / HTTP/1.1\r\nHost:\r\n\r\n");
    GOOD("GET / HTTP/1.0\r\n\r\n");
}

static void host_is(const char *host, bool good)
{
    char s[256];
    struct tr_http h;
    int n = snprintf(s, sizeof(s), "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host);
    struct result r = verdict(s, (size_t)n, &h);
    cr_expect_eq(r.ev, good ? TR_HTTP_END : TR_HTTP_BAD, "Host: %s", host);
    tr_http_fini(&h);
    /* the same where it stands in the target; there it must not be empty */
    n = snprintf(s, sizeof(s), "GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n", host);
    r = verdict(s, (size_t)n, &h);
    cr_expect_eq(r.ev, good && *host ? TR_HTTP_END : TR_HTTP_BAD, "http://%s/", host);
    tr_http_fini(&h);
}

Test(http, an_authority_is_a_host_and_perhaps_a_port)
{
    static const char *const good[] = {
        "",      "x",          "a-b_c.d~e:8080",          "h:",   "1.2.3.4:0",
        "[::1]", "[::1]:8080", "[2001:db8::1.2.3.4]:443", "%41b", "a;b=c!$&'()*+"};
    static const char *const bad[] = {
        ":80", "x:a",    "x:80:80", "x:-1",         "u@x",       "u:p@x", "[::1", "::1",
        "[]",  "[::1]x", "[x]",     "[::1%25eth0]", "[1.2.3.4]", "%4",    "%zz",  "a\\b",
        "a<b", "a\"b",   "a|b",     "a^b",          "\xc3\xa9",  "a,b"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        host_is(good[i], true);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        host_is(bad[i], false);
}

Test(http, chunks_are_strict_and_extensions_mean_nothing)
{
    struct result r =
        GOOD(POST "Transfer-Encoding: chunked\r\n\r\n"
                  "3\r\nabc\r\n0A;x=\"y\";z\r\n0123456789\r\n000\r\nT: v\r\nU:\r\n\r\n");
    cr_expect(r.body_len == 13 && memcmp(r.body, "abc0123456789", 13) == 0);
#define CH POST "Transfer-Encoding: chunked\r\n\r\n"
    BAD(CH "\r\n", TR_ERR_BAD_HTTP);
    BAD(CH "g\r\n", TR_ERR_BAD_HTTP);
    BAD(CH "-1\r\n", TR_ERR_BAD_HTTP);
    BAD(CH "+1\r\na", TR_ERR_BAD_HTTP);
    BAD(CH "0x1\r\na", TR_ERR_BAD_HTTP);
    BAD(CH " 1\r\na", TR_ERR_BAD_HTTP);
    GOOD(CH "1 ;x\r\na\r\n0\t ;y\r\n\r\n"); /* blanks before an extension only */
    BAD(CH "1 \r\na", TR_ERR_BAD_HTTP);
    BAD(CH "1 1\r\na", TR_ERR_BAD_HTTP);
    BAD(CH ";x\r\na", TR_ERR_BAD_HTTP);
    BAD(CH "1;x\ra", TR_ERR_BAD_HTTP);
    BAD(CH "1\n", TR_ERR_BAD_HTTP);
    BAD(CH "1\r\na\r\n0\n\n", TR_ERR_BAD_HTTP);
    BAD(CH "1\r\na\r\n0\r\n\n", TR_ERR_BAD_HTTP);
    BAD(CH "1_0\r\na", TR_ERR_BAD_HTTP);
    BAD(CH "1h\r\na", TR_ERR_BAD_HTTP);
    BAD(CH "1\na\r\n", TR_ERR_BAD_HTTP);
    BAD(CH "1\r\nab\r\n", TR_ERR_BAD_HTTP);
    BAD(CH "1\r\na\n0\r\n", TR_ERR_BAD_HTTP);
    BAD(CH "1;\n\r\na", TR_ERR_BAD_HTTP);
    BAD(CH "1;\x01\r\na", TR_ERR_BAD_HTTP);
    BAD(CH "1000000000000000\r\n", TR_ERR_BAD_HTTP);
    BAD(CH "0000000000000001\r\n", TR_ERR_BAD_HTTP);
    BAD(CH "0\r\nT : v\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(CH "0\r\n v\r\n\r\n", TR_ERR_BAD_HTTP);
    BAD(CH "0\r\nT: v\n\r\n", TR_ERR_BAD_HTTP);
    BAD(CH "0\r\n\rX", TR_ERR_BAD_HTTP);
}

/* A signature on every chunk, as some uploaders write it. */
Test(http, extensions_may_be_as_long_as_the_data)
{
    enum { CHUNKS = 1000 };
    char *s = malloc(CHUNKS * 200);
    struct tr_http h;
    cr_assert(s);
    size_t len = (size_t)sprintf(s, "%s", CH);
    for (int i = 0; i < CHUNKS; i++)
        len += (size_t)sprintf(s + len, "40;chunk-signature=%032x\r\n%064d\r\n", i, i);
    len += (size_t)sprintf(s + len, "0\r\n\r\n");
    struct result r = run(s, len, len, &h);
    cr_expect(r.ev == TR_HTTP_END && r.used == len);
    tr_http_fini(&h);
    free(s);
}

/* All of a piece, over head and body events. */
static enum tr_http_ev feed_all(struct tr_http *h, const char *s, size_t *fed)
{
    size_t at = 0, used, len = strlen(s);
    enum tr_http_ev ev;
    do {
        struct tr_slice body;
        ev = tr_http_feed(h, s + at, len - at, &used, &body);
        at += used;
    } while (ev == TR_HTTP_HEAD || ev == TR_HTTP_BODY);
    *fed += at;
    return ev;
}

static void flood(const char *first, const char *piece, size_t times, enum tr_err want)
{
    struct tr_http h;
    size_t fed = 0;
    tr_http_init(&h, MAX_HEADER);
    enum tr_http_ev ev = feed_all(&h, first, &fed);
    for (size_t i = 0; i < times && ev != TR_HTTP_BAD; i++)
        ev = feed_all(&h, piece, &fed);
    cr_expect(ev == TR_HTTP_BAD && h.err == want, "%.20s: %d %d", piece, (int)ev, (int)h.err);
    cr_expect_leq(h.head_cap, 2 * MAX_HEADER);
    cr_expect_lt(fed, 128u << 10);
    tr_http_fini(&h);
}

Test(http, floods_are_cut_before_they_take_memory)
{
    flood(GET "A: ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 100000, TR_ERR_HEADERS_TOO_LARGE);
    flood(GET, "A: b\r\n", 200000, TR_ERR_HEADERS_TOO_LARGE);
    flood(GET, "Cookie: a\r\n", 10000, TR_ERR_HEADERS_TOO_LARGE);
    flood("GET /", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 100000, TR_ERR_URI_TOO_LONG);
    flood("", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 100000, TR_ERR_URI_TOO_LONG);
    flood(CH "0\r\nT: ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 100000, TR_ERR_HEADERS_TOO_LARGE);
    flood(CH "0\r\n", "T: b\r\n", 100000, TR_ERR_HEADERS_TOO_LARGE);
    flood(CH "1 ", "        ", 100000, TR_ERR_BAD_HTTP);
    flood(CH "1;", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 100000, TR_ERR_BAD_HTTP);
    flood(CH, "1;aaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n", 100000, TR_ERR_BAD_HTTP);
}

Test(http, a_target_at_the_limit_is_taken_and_one_beyond_is_not)
{
    static char s[TR_HTTP_MAX_TARGET + 100], path[TR_HTTP_MAX_TARGET + 2];
    memset(path, 'a', TR_HTTP_MAX_TARGET);
    path[0] = '/';
    int n = snprintf(s, sizeof(s), "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    good(s, (size_t)n);
    path[TR_HTTP_MAX_TARGET] = 'a';
    n = snprintf(s, sizeof(s), "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    bad(s, (size_t)n, TR_ERR_URI_TOO_LONG);
}

static void flags(const char *s, bool keep, bool expect, enum tr_err refuse)
{
    struct tr_http h;
    struct result r = run(s, strlen(s), 1000, &h);
    cr_expect(r.head, "%s", s);
    cr_expect(h.keep_alive == keep && h.expect_continue == expect && h.refuse == refuse,
              "%s: keep %d expect %d refuse %d", s, h.keep_alive, h.expect_continue, (int)h.refuse);
    tr_http_fini(&h);
}

Test(http, connection_expectation_and_coding_are_understood)
{
    flags(GET "\r\n", true, false, TR_OK);
    flags(GET "Connection: foo, Close\r\n\r\n", false, false, TR_OK);
    flags(GET "Connection: foo\r\nConnection: close\r\n\r\n", false, false, TR_OK);
    flags("GET / HTTP/1.0\r\n\r\n", false, false, TR_OK);
    flags("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true, false, TR_OK);
    flags(POST "Content-Length: 1\r\nExpect: 100-Continue\r\n\r\n", true, true, TR_OK);
    flags(POST "Content-Length: 0\r\nExpect: 100-continue\r\n\r\n", true, false, TR_OK);
    flags("POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n", false, false,
          TR_OK);
    flags(POST "Content-Length: 1\r\nExpect: foo\r\n\r\n", true, false, TR_ERR_EXPECTATION);
    flags(POST "Content-Encoding: gzip\r\n\r\n", true, false, TR_ERR_MEDIA_TYPE);
    flags(POST "Content-Encoding: Identity\r\n\r\n", true, false, TR_OK);
}

Test(http, a_length_beyond_everything_is_only_large)
{
    struct tr_http h;
    const char s[] = POST "Content-Length: 99999999999999999999999999\r\n\r\n";
    struct result r = run(s, sizeof(s) - 1, 1000, &h);
    cr_expect(r.head && h.content_length == INT64_MAX);
    tr_http_fini(&h);
}

Test(http, requests_follow_each_other_on_one_parser)
{
    const char s[] = POST "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n" POST
                          "Content-Length: 2\r\n\r\nbc\r\n" GET "\r\n";
    struct tr_http h;
    size_t at = 0, used, ends = 0, bytes = 0;
    struct tr_slice body;
    tr_http_init(&h, MAX_HEADER);
    for (;;) {
        enum tr_http_ev ev = tr_http_feed(&h, s + at, sizeof(s) - 1 - at, &used, &body);
        at += used;
        cr_assert_neq(ev, TR_HTTP_BAD);
        bytes += ev == TR_HTTP_BODY ? body.len : 0;
        if (ev == TR_HTTP_END) {
            ends++;
            tr_http_next(&h);
        }
        if (ev == TR_HTTP_MORE)
            break;
    }
    cr_expect(ends == 3 && bytes == 3 && at == sizeof(s) - 1);
    cr_expect_not(tr_http_begun(&h));
    tr_http_fini(&h);
}

/* ---- against http-parser ------------------------------------------------------------------ */

static const char *const seeds[] = {
    POST "Content-Length: 5\r\nConnection: x, close\r\n\r\nhello",
    POST
    "Transfer-Encoding: chunked\r\nA: b\r\n\r\n3;x=y\r\nabc\r\n2 ;z\r\nde\r\n0\r\nT: v\r\n\r\n",
    "GET /a/b?c=d HTTP/1.0\r\nConnection: keep-alive\r\nX: \xc3\xa9\r\n\r\n",
    "DELETE http://h:1/x HTTP/1.1\r\nHost: [::1]\r\nExpect: 100-continue\r\nContent-Length: "
    "0\r\n\r\n",
    "\r\nOPTIONS * HTTP/1.1\r\nHost:\r\nContent-Length: 1\r\n\r\n." GET "\r\n",
};

/* What we take of it is what http-parser takes; and the verdict is the same however it arrives. */
static unsigned agree(const char *s, size_t len, size_t at)
{
    struct http_agreed got;
    const char *why = http_disagree(s, len, &got);
    cr_assert_null(why, "%.*s: differs in %s", (int)len, s, why);
    struct tr_http whole, split;
    struct result a = run(s, len, len, &whole), b = run(s, len, at % len + 1, &split);
    cr_assert(a.ev == b.ev && a.err == b.err && a.used == b.used && a.head == b.head &&
                  a.body_len == b.body_len && memcmp(a.body, b.body, a.body_len) == 0 &&
                  whole.method == split.method && whole.n_fields == split.n_fields,
              "%.*s: another verdict in pieces of %zu", (int)len, s, at % len + 1);
    tr_http_fini(&whole);
    tr_http_fini(&split);
    return got.requests;
}

Test(http, any_byte_at_any_place_is_taken_as_http_parser_takes_it_or_not_at_all)
{
    unsigned taken = 0, all = 0;
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        char s[512];
        size_t len = strlen(seeds[i]);
        cr_assert_gt(agree(seeds[i], len, 0), 0u, "%s", seeds[i]);
        for (size_t at = 0; at < len; at++) {
            for (int c = 0; c < 256; c++) { /* instead of, and before, the byte that was there */
                memcpy(s, seeds[i], len);
                s[at] = (char)c;
                taken += agree(s, len, at);
                memcpy(s + at + 1, seeds[i] + at, len - at);
                taken += agree(s, len + 1, at);
            }
            memcpy(s, seeds[i], at);
            for (size_t gone = 1; gone <= 4 && at + gone < len; gone++) {
                memcpy(s + at, seeds[i] + at + gone, len - at - gone);
                taken += agree(s, len - gone, at);
            }
        }
        all += (unsigned)len * 512;
    }
    cr_expect(taken > all / 10 && taken < all, "%u of %u were taken", taken, all);
}

Test(http, however_a_request_is_cut_it_is_the_same_request)
{
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++)
        for (size_t step = 0; step < strlen(seeds[i]); step++)
            agree(seeds[i], strlen(seeds[i]), step);
}

/* ---- routes ------------------------------------------------------------------------------ */

static void handler(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    (void)x, (void)rq, (void)ctx;
}

static const struct tr_route routes[] = {
    {.method = TR_HTTP_POST, .pattern = "/v1/chat/completions", .handler = handler},
    {.method = TR_HTTP_GET, .pattern = "/v1/streams/list", .handler = handler},
    {.method = TR_HTTP_GET, .pattern = "/v1/streams/{id}", .handler = handler},
    {.method = TR_HTTP_DELETE, .pattern = "/v1/streams/{id}", .handler = handler},
    {.method = TR_HTTP_POST, .pattern = "/v1/responses/{id}/cancel", .handler = handler},
    {.method = TR_HTTP_GET, .pattern = "/v1/models/{id*}", .handler = handler},
    {.pattern = "/v1/chat/{id*}", .errors = tr_error_body_openai},
};

static int find(enum tr_http_method m, const char *path, const char *id, unsigned *allow)
{
    struct tr_slice got;
    const struct tr_route *r = tr_route_find(routes, sizeof(routes) / sizeof(routes[0]), m,
                                             (struct tr_slice){path, strlen(path)}, &got, allow);
    if (r && id)
        cr_expect(got.len == strlen(id) && memcmp(got.p, id, got.len) == 0, "%s", path);
    return r ? (int)(r - routes) : -1;
}

Test(route, paths_find_their_handler_and_methods)
{
    unsigned allow;
    char buf[96];
    cr_expect_eq(find(TR_HTTP_POST, "/v1/chat/completions", NULL, &allow), 0);
    cr_expect_eq(find(TR_HTTP_GET, "/v1/chat/completions", NULL, &allow), -1);
    tr_route_allow(allow, buf);
    cr_expect_str_eq(buf, "POST, OPTIONS");
    cr_expect_eq(find(TR_HTTP_GET, "/v1/streams/list", NULL, &allow), 1);
    cr_expect_eq(find(TR_HTTP_HEAD_METHOD, "/v1/streams/a:b", "a:b", &allow), 2);
    tr_route_allow(allow, buf);
    cr_expect_str_eq(buf, "GET, HEAD, DELETE, OPTIONS");
    cr_expect_eq(find(TR_HTTP_DELETE, "/v1/streams/list", "list", &allow), 3);
    cr_expect_eq(find(TR_HTTP_POST, "/v1/responses/r1/cancel", "r1", &allow), 4);
    cr_expect_eq(find(TR_HTTP_POST, "/v1/responses//cancel", NULL, &allow), -1);
    cr_expect_eq(find(TR_HTTP_GET, "/v1/models/a/b/c", "a/b/c", &allow), 5);
    cr_expect_eq(find(TR_HTTP_GET, "/v1/streams/a/b", NULL, &allow), -1);
    cr_expect_eq(allow, 0);
    cr_expect_eq(find(TR_HTTP_GET, "/v1/models/", NULL, &allow), -1);
    cr_expect_eq(find(TR_HTTP_GET, "/v1/chat/other", NULL, &allow), -1);
    cr_expect_eq(allow, 0, "what only says how errors look is no path");
}

Test(route, errors_look_as_the_first_row_of_their_path_says)
{
    static const struct {
        const char *path;
        tr_error_body *want;
    } rows[] = {{"/v1/chat/completions", NULL},
                {"/v1/chat/other", tr_error_body_openai},
                {"/v1/other", NULL}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tr_exchange x = {.error_body = tr_error_body_openai};
        tr_route_prepare(&x, routes, sizeof(routes) / sizeof(routes[0]),
                         (struct tr_slice){rows[i].path, strlen(rows[i].path)});
        cr_expect_eq(x.error_body, rows[i].want, "%s", rows[i].path);
    }
}

static bool json_type(const char *s)
{
    return tr_route_json_type((struct tr_slice){s, strlen(s)});
}

Test(route, only_json_bodies_are_taken)
{
    cr_expect(json_type(""));
    cr_expect(json_type("application/json"));
    cr_expect(json_type("Application/JSON"));
    cr_expect(json_type("application/json; charset=utf-8"));
    cr_expect(json_type("application/json ;charset=utf-8"));
    cr_expect(json_type("application/problem+json; v=1"));
    cr_expect_not(json_type("text/plain"));
    cr_expect_not(json_type("foo"));
    cr_expect_not(json_type("foo+json"));
    cr_expect_not(json_type("+json"));
    cr_expect_not(json_type(";"));
    cr_expect_not(json_type("application/json5"));
    cr_expect_not(json_type("application/jso"));
    cr_expect_not(json_type("multipart/form-data; boundary=x"));
    cr_expect_not(json_type("Application/X-WWW-Form-Urlencoded"));
}
