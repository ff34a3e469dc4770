/* SPDX-License-Identifier: Apache-2.0 */
/* Requests made by the grammar of RFC 9112, several on one connection, with bodies of either framing.
 * As made, each is taken with exactly its body and not one byte more; with one thing twisted, what
 * is still taken is understood as http-parser understands it. */
#include "base/assert.h"
#include "base/emit.h"
#include "frontend/http.h"
#include "pick.h"
#include "testoracle/http_oracle.h"

#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_REQUESTS = 4, MAX_BODY = 600 };

struct made {
    struct pick k;
    struct tr_emit text, body; /* the bodies of all requests in one */
    unsigned requests;
};

static const char *const methods[] = {"POST",  "GET",     "HEAD",  "PUT",  "DELETE",
                                      "PATCH", "OPTIONS", "TRACE", "BREW", "M-SEARCH"};
static const char *const targets[] = {"/v1/chat/completions",
                                      "/",
                                      "//a///b/",
                                      "/a?b=c&d=%41",
                                      "/%41%2f%2F/x%20y?",
                                      "/a/../b/./c",
                                      "http://host/x",
                                      "/a?b?c/d",
                                      "https://[::1]:80/y?z",
                                      "http://h?q",
                                      "/a;b=c,d@e:f!$&'()*+",
                                      "HTTP://h:/",
                                      "/?",
                                      "http://1.2.3.4//",
                                      "/%c3%a9"};
static const char *const hosts[] = {"x", "localhost:8080", "[::1]", "[2001:db8::1.2.3.4]:443",
                                    "",  "a-b_c.d~e",      "h:",    "%41.example"};
static const char *const names[] = {"Accept",   "x",       "X-A_b.c~1", "Cookie",
                                    "Transfer", "Content", "TE",        "!#$%&'*+-.^_`|~"};
static const char *const values[] = {"",         "a",       "a b\tc", "\"q\\\"\"",
                                     "\xff\x80", "a,b , c", ":",      "chunked"};
static const char *const connections[] = {"keep-alive", "close",   "Keep-Alive, x",
                                          "x,CLOSE",    "upgrade", ", ,"};
static const char *const blanks[] = {" ", "", "\t", "  \t "};
static const char *const extensions[] = {"",    ";a", ";a=b",        ";a=\"b;c\"",
                                         " ;a", ";",  "\t; a = b ;c"};
static const char *const trailers[] = {"T: v\r\n", "", "X-Long-Name:\r\nY: \xff\r\n",
                                       "Content-Length: 3\r\n"};

static void add(struct made *m, const char *s)
{
    tr_emit_bytes(&m->text, s, strlen(s));
}

static void field(struct made *m, const char *name, const char *value)
{
    add(m, name);
    add(m, ":");
    add(m, PICK(&m->k, blanks));
    add(m, value);
    add(m, pick(&m->k, 4) == 3 ? PICK(&m->k, blanks) : "");
    add(m, "\r\n");
}

/* A tab beside one of these is refused. */
static void framing_field(struct made *m, const char *name, const char *value)
{
    add(m, name);
    add(m, ":");
    add(m, pick(&m->k, 4) == 3 ? "   " : " ");
    add(m, value);
    add(m, pick(&m->k, 4) == 3 ? "  \r\n" : "\r\n");
}

static void body_bytes(struct made *m, size_t n)
{
    size_t from = m->body.len;
    for (size_t i = 0; i < n; i++) {
        char c = (char)(pick(&m->k, 256) + 'a');
        tr_emit_bytes(&m->body, &c, 1);
    }
    if (n)
        tr_emit_bytes(&m->text, m->body.buf + from, n);
}

static void chunked_body(struct made *m)
{
    char size[64];
    for (unsigned i = pick(&m->k, 5); i; i--) {
        unsigned n = 1 + pick(&m->k, MAX_BODY / 4);
        snprintf(size, sizeof(size), pick(&m->k, 2) ? "%X" : "%x", n);
        add(m, pick(&m->k, 8) == 7 ? "0000" : "");
        add(m, size);
        add(m, PICK(&m->k, extensions));
        add(m, "\r\n");
        body_bytes(m, n);
        add(m, "\r\n");
    }
    add(m, pick(&m->k, 4) == 3 ? "000" : "0");
    add(m, PICK(&m->k, extensions));
    add(m, "\r\n");
    add(m, pick(&m->k, 3) == 2 ? PICK(&m->k, trailers) : "");
    add(m, "\r\n");
}

static void request(struct made *m)
{
    char number[32];
    bool old = pick(&m->k, 6) == 5;
    unsigned framing = pick(&m->k, 3), length = framing == 1 ? pick(&m->k, MAX_BODY) : 0;
    add(m, pick(&m->k, 8) == 7 ? "\r\n" : "");
    add(m, PICK(&m->k, methods));
    add(m, " ");
    add(m, PICK(&m->k, targets));
    add(m, old ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n");
    field(m, "Host", PICK(&m->k, hosts));
    for (unsigned i = pick(&m->k, 4); i; i--)
        field(m, PICK(&m->k, names), PICK(&m->k, values));
    if (pick(&m->k, 3) == 2)
        field(m, "CONNECTION", PICK(&m->k, connections));
    if (framing == 1) {
        snprintf(number, sizeof(number), pick(&m->k, 8) == 7 ? "%06u" : "%u", length);
        framing_field(m, "Content-Length", number);
    } else if (framing == 2 && !old) {
        framing_field(m, "Transfer-Encoding", pick(&m->k, 2) ? "CHUNKED" : "chunked");
    }
    add(m, "\r\n");
    if (framing == 1)
        body_bytes(m, length);
    else if (framing == 2 && !old)
        chunked_body(m);
    m->requests++;
}

/* Our parser alone takes all of it. */
static void taken_as_made(const struct made *m, size_t step)
{
    struct tr_http h;
    size_t at = 0, body_at = 0;
    unsigned n = 0;
    tr_http_init(&h, HTTP_ORACLE_HEADER);
    for (;;) {
        size_t used, left = m->text.len - at;
        struct tr_slice piece;
        enum tr_http_ev ev =
            tr_http_feed(&h, m->text.buf + at, left < step ? left : step, &used, &piece);
        TR_ASSERT(ev != TR_HTTP_BAD);
        at += used;
        if (ev == TR_HTTP_BODY) {
            TR_ASSERT(piece.len <= m->body.len - body_at);
            TR_ASSERT(memcmp(piece.p, m->body.buf + body_at, piece.len) == 0);
            body_at += piece.len;
        }
        if (ev == TR_HTTP_END) {
            n++;
            tr_http_next(&h);
        }
        if (ev == TR_HTTP_MORE && at == m->text.len)
            break;
    }
    TR_ASSERT(n == m->requests && body_at == m->body.len && !tr_http_begun(&h));
    tr_http_fini(&h);
}

/* One thing is no longer as the grammar has it. */
static void twist(struct made *m)
{
    static const char *const inserts[] = {"\n",
                                          "\r",
                                          "\r\n",
                                          " ",
                                          "\t",
                                          ":",
                                          ";",
                                          "0",
                                          "\x80",
                                          "\x01",
                                          "\r\n ",
                                          "\r\n\r\n",
                                          ",",
                                          "\r\nContent-Length: 3",
                                          "\r\nTransfer-Encoding: chunked",
                                          "\r\nTransfer-Encoding : chunked",
                                          "\r\nTransfer-Encoding:\vchunked",
                                          "\r\nContent-Length: +1",
                                          "\r\nHost: y",
                                          "%00",
                                          "#"};
    static const char letters[] = "\r\n\0\t :;,-+0aAgx/?#%\x7f\x80\xff";
    struct tr_emit out;
    size_t at = pick(&m->k, 65536) % m->text.len;
    unsigned how = pick(&m->k, 3);
    const char *in = how == 0 ? PICK(&m->k, inserts) : "";
    tr_emit_init(&out);
    tr_emit_bytes(&out, m->text.buf, at);
    tr_emit_bytes(&out, in, strlen(in));
    if (how == 1)
        tr_emit_bytes(&out, letters + pick(&m->k, sizeof(letters) - 1), 1);
    size_t rest = at + (how != 0);
    tr_emit_bytes(&out, m->text.buf + rest, m->text.len - rest);
    tr_emit_fini(&m->text);
    m->text = out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct made m = {.k = {data, size}};
    struct http_agreed got;
    unsigned twists = pick(&m.k, 4);
    tr_emit_init(&m.text);
    tr_emit_init(&m.body);
    do
        request(&m);
    while (m.k.n && m.requests < MAX_REQUESTS);
    TR_ASSERT(!m.text.failed && !m.body.failed);
    taken_as_made(&m, m.text.len);
    taken_as_made(&m, 1 + pick(&m.k, 64));
    for (; twists; twists--)
        twist(&m);
    const char *why = http_disagree(m.text.buf, m.text.len, &got);
    if (why)
        fprintf(stderr, "they differ in: %s\n%.*s\n", why, (int)m.text.len, m.text.buf);
    TR_ASSERT(!why);
    tr_emit_fini(&m.text);
    tr_emit_fini(&m.body);
    return 0;
}
