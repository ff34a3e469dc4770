/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/h2_head.c - heads: fields of HTTP/2 to a request as HTTP/1.1 says it, which the one strict
 * parser reads (http.h), and the lines of an answer's head to fields.
 *
 * So whatever serves a request sees the same struct tr_http, and what is refused on one is on the
 * other.  The library has checked what RFC 9113 8 asks (names in lower case, pseudo headers first and
 * once, no field that belongs to a connection); a request that breaks that never comes here. */
#include "frontend/h2_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    FIELD_BYTES = 32,   /* that a field counts beyond its letters (RFC 9113 6.5.2) */
    OWN_BYTES = 128,    /* what the translation adds to a head */
    ANSWER_FIELDS = 48, /* of an answer's head or trailers */
};

static bool is(struct tr_slice a, const char *word)
{
    return a.len == strlen(word) && memcmp(a.p, word, a.len) == 0;
}

static void refuse(struct tr_h2_stream *s, enum tr_err e, const char *why)
{
    if (s->bad != TR_OK)
        return;
    s->bad = e;
    s->bad_why = why;
}

/* Once: a second one is a fault that the library does not know of. */
static void keep(struct tr_h2_stream *s, char **place, struct tr_slice v)
{
    if (*place)
        refuse(s, TR_ERR_BAD_HTTP, "A field that may stand once stands twice.");
    else if (!(*place = strndup(v.p, v.len)))
        refuse(s, TR_ERR_INTERNAL, NULL);
}

static void line(struct tr_emit *e, const char *name, size_t name_len, const char *value,
                 size_t value_len)
{
    tr_emit_bytes(e, name, name_len);
    tr_emit_bytes(e, ": ", 2);
    tr_emit_bytes(e, value, value_len);
    tr_emit_bytes(e, "\r\n", 2);
}

static bool breaks_a_line(struct tr_slice v)
{
    for (size_t i = 0; i < v.len; i++)
        if (v.p[i] == '\r' || v.p[i] == '\n' || v.p[i] == '\0')
            return true;
    return false;
}

void tr_h2_head_field(struct tr_h2_stream *s, struct tr_slice name, struct tr_slice value)
{
    s->head_bytes += name.len + value.len + FIELD_BYTES;
    if (s->head_bytes > s->h->d->lim->max_header)
        refuse(s, TR_ERR_HEADERS_TOO_LARGE, NULL);
    if (breaks_a_line(name) || breaks_a_line(value))
        refuse(s, TR_ERR_BAD_HTTP, "A control character stands in the request head.");
    if (s->bad != TR_OK)
        return;
    if (is(name, ":method")) {
        keep(s, &s->method, value);
    } else if (is(name, ":path")) {
        keep(s, &s->path, value);
    } else if (is(name, ":authority")) {
        keep(s, &s->authority, value);
    } else if (is(name, "host")) {
        keep(s, &s->host, value);
    } else if (is(name, "cookie")) { /* RFC 9113 8.2.3 */
        if (s->cookie.len)
            tr_emit_bytes(&s->cookie, "; ", 2);
        tr_emit_bytes(&s->cookie, value.p, value.len);
    } else if (name.len && name.p[0] != ':') {
        s->has_length |= is(name, "content-length");
        line(&s->text, name.p, name.len, value.p, value.len);
    }
}

/* The head in the words of HTTP/1.1, after the request line and Host. */
static void compose(struct tr_h2_stream *s, struct tr_emit *e, bool end)
{
    const char *host = s->authority ? s->authority : s->host;
    tr_emit_bytes(e, s->method, strlen(s->method));
    tr_emit_bytes(e, " ", 1);
    tr_emit_bytes(e, s->path, strlen(s->path));
    tr_emit_bytes(e, " HTTP/1.1\r\n", 11);
    if (host)
        line(e, "host", 4, host, strlen(host));
    tr_emit_bytes(e, s->text.buf, s->text.len);
    if (s->cookie.len)
        line(e, "cookie", 6, s->cookie.buf, s->cookie.len);
    if (!end && !s->has_length) /* its length shows at its end */
        line(e, "transfer-encoding", 17, "chunked", 7);
    tr_emit_bytes(e, "\r\n", 2);
    if (s->text.failed || s->cookie.failed || e->failed)
        refuse(s, TR_ERR_INTERNAL, NULL);
}

static void parse(struct tr_h2_stream *s, const struct tr_emit *e)
{
    struct tr_slice body;
    size_t used;
    tr_http_fini(&s->http);
    tr_http_init(&s->http, s->h->d->lim->max_header + OWN_BYTES);
    enum tr_http_ev ev = tr_http_feed(&s->http, e->buf, e->len, &used, &body);
    if (ev == TR_HTTP_BAD)
        refuse(s, s->http.err, s->http.why);
    else if (ev != TR_HTTP_HEAD || used != e->len)
        refuse(s, TR_ERR_BAD_HTTP, "The request head is not one.");
}

void tr_h2_head_done(struct tr_h2_stream *s, bool end)
{
    struct tr_emit e;
    tr_emit_init(&e);
    if (s->bad == TR_OK && (!s->method || !s->path)) /* CONNECT, or no request at all */
        refuse(s, TR_ERR_NOT_IMPLEMENTED, NULL);
    if (s->bad == TR_OK && s->authority && s->host && strcasecmp(s->authority, s->host) != 0)
        refuse(s, TR_ERR_BAD_HTTP, "Host and :authority differ.");
    if (s->bad == TR_OK)
        compose(s, &e, end);
    if (s->bad == TR_OK)
        parse(s, &e);
    tr_emit_fini(&e);
    tr_h2_head_fini(s);
}

void tr_h2_head_fini(struct tr_h2_stream *s)
{
    tr_emit_fini(&s->text);
    tr_emit_fini(&s->cookie);
    free(s->method);
    free(s->path);
    free(s->authority);
    free(s->host);
    s->method = s->path = s->authority = s->host = NULL;
}

/* ---- answers ---------------------------------------------------------------------------------------- */

/* "Name: value" CR LF, at *at: the next one as a field, its name in lower case. */
static bool next_field(char *lines, size_t len, size_t *at, nghttp2_nv *nv)
{
    char *l = lines + *at, *end = memchr(l, '\r', len - *at), *colon;
    if (!end || !(colon = memchr(l, ':', (size_t)(end - l))))
        return false;
    for (char *p = l; p < colon; p++)
        *p = (char)(*p >= 'A' && *p <= 'Z' ? *p | 0x20 : *p);
    char *value = colon + 1 + (colon[1] == ' ');
    *nv = (nghttp2_nv){.name = (uint8_t *)l,
                       .namelen = (size_t)(colon - l),
                       .value = (uint8_t *)value,
                       .valuelen = (size_t)(end - value)};
    *at = (size_t)(end - lines) + 2;
    return true;
}

static size_t fields_of(char *lines, size_t len, nghttp2_nv *nv, size_t n)
{
    size_t at = 0;
    while (at < len && n < ANSWER_FIELDS && next_field(lines, len, &at, &nv[n]))
        n++;
    return n;
}

int tr_h2_head_send(struct tr_h2_stream *s, int status, char *lines, size_t len,
                    const nghttp2_data_provider *body)
{
    nghttp2_nv nv[ANSWER_FIELDS];
    char number[16];
    int n = snprintf(number, sizeof(number), "%d", status);
    nv[0] = (nghttp2_nv){.name = (uint8_t *)":status",
                         .namelen = 7,
                         .value = (uint8_t *)number,
                         .valuelen = (size_t)n};
    return nghttp2_submit_response(s->h->session, s->id, nv, fields_of(lines, len, nv, 1), body);
}

int tr_h2_trailers_send(struct tr_h2_stream *s)
{
    nghttp2_nv nv[ANSWER_FIELDS];
    return nghttp2_submit_trailer(s->h->session, s->id, nv,
                                  fields_of(s->trailers, s->trailers_len, nv, 0));
}
