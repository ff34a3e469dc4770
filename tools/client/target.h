/* SPDX-License-Identifier: Apache-2.0 */
/* client/target.h - where requests go, and what every one of them carries. */
#ifndef TR_CLIENT_TARGET_H
#define TR_CLIENT_TARGET_H

#include "client/url.h"

#include <stddef.h>

#define TR_TARGET_HEADERS_MAX 16

/* Strings are borrowed. */
struct tr_target {
    const char *url_text;
    struct tr_url url;
    const char *agent;   /* User-Agent */
    const char *api_key; /* NULL: none */
    const char *headers[TR_TARGET_HEADERS_MAX];
    size_t n_headers;
};

/* "Name: value" of one more header; 0, or -EINVAL when it is not one or there are too many. */
int tr_target_take_header(struct tr_target *t, const char *v);

/* A key that can stand in a header; 0 or -EINVAL. */
int tr_target_take_key(struct tr_target *t, const char *v);

/* The bytes of a request to a path below the base, head and body in one piece; `more` is whole
 * header lines, "" for none.  The caller frees; NULL without memory. */
char *tr_target_post(const struct tr_target *t, const char *path, const char *more,
                     const char *body, size_t *len);
char *tr_target_get(const struct tr_target *t, const char *path, size_t *len);

#endif
