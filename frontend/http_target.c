/* SPDX-License-Identifier: Apache-2.0 */
/* Where a request goes: its target, and the authority in it or in Host (RFC 9112 3.2, RFC 3986). */
#include "frontend/http_priv.h"

#include <arpa/inet.h>

/* Decodes and normalises p[0, len) in place: escapes resolved, "//" and a final "/" removed.  Its
 * new length, 0 if it is not a path.  Dot segments are left: no route has one. */
static size_t normalise(char *p, size_t len)
{
    size_t out = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c == '%') {
            int hi = len - i > 2 ? tr_hex_digit((unsigned char)p[i + 1]) : -1;
            int lo = len - i > 2 ? tr_hex_digit((unsigned char)p[i + 2]) : -1;
            if (hi < 0 || lo < 0)
                return 0;
            c = (unsigned char)(hi << 4 | lo);
            i += 2;
            if (c < 0x20 || c == 0x7f)
                return 0;
        }
        if (c == '/' && out > 0 && p[out - 1] == '/')
            continue;
        p[out++] = (char)c;
    }
    if (out > 1 && p[out - 1] == '/')
        out--;
    return out;
}

/* The length of "[address]" at the begin of an authority, 0 if it is none. */
static size_t ip_literal(struct tr_slice a)
{
    const char *end = memchr(a.p, ']', a.len);
    size_t n = end ? (size_t)(end - a.p) - 1 : 0;
    char text[INET6_ADDRSTRLEN];
    struct in6_addr ip;
    if (n == 0 || n >= sizeof(text))
        return 0;
    memcpy(text, a.p + 1, n);
    text[n] = '\0';
    return inet_pton(AF_INET6, text, &ip) == 1 ? n + 2 : 0;
}

/* The length of a name or IPv4 address at the begin of an authority, 0 if it is none.  A comma
 * could stand in one, and is what two Host fields become when somebody joins them. */
static size_t reg_name(struct tr_slice a)
{
    size_t at = 0;
    for (; at < a.len && a.p[at] != ':'; at++) {
        unsigned char c = (unsigned char)a.p[at];
        if (c == '%') {
            if (a.len - at < 3 || tr_hex_digit((unsigned char)a.p[at + 1]) < 0 ||
                tr_hex_digit((unsigned char)a.p[at + 2]) < 0)
                return 0;
            at += 2;
        } else if (!is_alnum(c) && !(c && strchr("-._~!$&'()*+;=", c))) {
            return 0;
        }
    }
    return at;
}

bool tr_http_authority(struct tr_slice a)
{
    size_t at = a.len && a.p[0] == '[' ? ip_literal(a) : reg_name(a);
    if (at == 0 || (at < a.len && a.p[at++] != ':'))
        return false;
    while (at < a.len && is_digit((unsigned char)a.p[at]))
        at++;
    return at == a.len;
}

/* Where the path begins in an absolute-form target, which names scheme and host first
 * (RFC 9112 3.2.2); 0 for other targets, SIZE_MAX for a broken one. */
static size_t skip_authority(const char *t, size_t len)
{
    size_t begin = len > 7 && strncasecmp(t, "http://", 7) == 0    ? 7
                   : len > 8 && strncasecmp(t, "https://", 8) == 0 ? 8
                                                                   : 0;
    size_t at = begin;
    if (begin == 0)
        return 0;
    while (at < len && t[at] != '/' && t[at] != '?')
        at++;
    return tr_http_authority((struct tr_slice){t + begin, at - begin}) ? at : SIZE_MAX;
}

enum tr_http_ev tr_http_set_target(struct tr_http *h, size_t off, size_t len)
{
    char *t = h->head + off;
    if (len > TR_HTTP_MAX_TARGET)
        return tr_http_bad(h, TR_ERR_URI_TOO_LONG, NULL);
    for (size_t i = 0; i < len; i++)
        if (t[i] <= 0x20 || t[i] == 0x7f || t[i] == '#')
            return tr_http_bad(h, TR_ERR_BAD_HTTP,
                               "The request target holds a character it must not.");
    if (len == 1 && t[0] == '*' && h->method == TR_HTTP_OPTIONS) {
        h->target[0] = (struct tr_http_place){(uint32_t)off, 1};
        return TR_HTTP_MORE;
    }
    size_t skip = skip_authority(t, len);
    if (skip == SIZE_MAX)
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "The request target names no valid host.");
    const char *q = memchr(t, '?', len);
    size_t path_end = q ? (size_t)(q - t) : len;
    if (q)
        h->target[1] =
            (struct tr_http_place){(uint32_t)(off + path_end + 1), (uint32_t)(len - path_end - 1)};
    if (skip && skip == path_end) { /* http://host?query: the path is "/" */
        t[--skip] = '/';
    } else if (len == skip || t[skip] != '/') {
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "The request target must begin with a slash.");
    }
    size_t n = normalise(t + skip, path_end - skip);
    if (n == 0)
        return tr_http_bad(h, TR_ERR_BAD_HTTP, "The path holds a bad escape.");
    h->target[0] = (struct tr_http_place){(uint32_t)(off + skip), (uint32_t)n};
    return TR_HTTP_MORE;
}
