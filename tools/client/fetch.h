/* SPDX-License-Identifier: Apache-2.0 */
/* client/fetch.h - one small request, waiting for the answer: /v1/models, /metrics, /tokenize,
 * before and after the streams run. */
#ifndef TR_CLIENT_FETCH_H
#define TR_CLIENT_FETCH_H

#include "base/err.h"
#include "client/target.h"

#include <stddef.h>

/* The body of a 200 answer, with a NUL after its *len bytes; the caller frees.
 * NULL and *rc: -ECONNREFUSED when no connection came about, -EPROTO for any other fault (status,
 * framing, more than 16 MiB, ten seconds without an end); a sentence in `err`. */
char *tr_fetch(const struct tr_target *t, const char *path, size_t *len, int *rc,
               struct tr_errbuf *err);

/* The same for a POST of a JSON body. */
char *tr_fetch_post(const struct tr_target *t, const char *path, const char *body, size_t *len,
                    int *rc, struct tr_errbuf *err);

/* What a server says of itself; p is NULL when it does not, and the caller frees it. */
struct tr_page {
    char *p;
    size_t len;
};
struct tr_page tr_fetch_metrics(const struct tr_target *t);

/* The id of the first model of /v1/models; as tr_fetch. */
char *tr_fetch_model(const struct tr_target *t, int *rc, struct tr_errbuf *err);

#endif
