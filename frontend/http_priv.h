/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/http_priv.h - what http.c, http_target.c and http_field.c share. */
#ifndef TR_FRONTEND_HTTP_PRIV_H
#define TR_FRONTEND_HTTP_PRIV_H

#include "base/hex.h"
#include "frontend/http.h"

#include <string.h>
#include <strings.h>

static inline bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static inline bool is_alnum(unsigned char c)
{
    return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

/* tchar of RFC 9110 5.6.2 */
static inline bool is_token(unsigned char c)
{
    return is_alnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static inline bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

static inline struct tr_slice trim(struct tr_slice s)
{
    while (s.len && is_space(s.p[0]))
        s.p++, s.len--;
    while (s.len && is_space(s.p[s.len - 1]))
        s.len--;
    return s;
}

static inline bool same(struct tr_slice s, const char *word)
{
    return s.len == strlen(word) && strncasecmp(s.p, word, s.len) == 0;
}

static inline struct tr_slice slice_of(const struct tr_http *h, uint32_t off, uint32_t len)
{
    return (struct tr_slice){h->head + off, len};
}

/* http.c: the end of the parser; TR_HTTP_BAD. */
enum tr_http_ev tr_http_bad(struct tr_http *h, enum tr_err err, const char *why);

/* http_target.c: the target at [off, off+len) of the head, into h->target.  MORE or BAD. */
enum tr_http_ev tr_http_set_target(struct tr_http *h, size_t off, size_t len);

/* http_target.c: host [":" port], not empty, without user information. */
bool tr_http_authority(struct tr_slice a);

#endif
