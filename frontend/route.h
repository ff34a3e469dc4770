/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/route.h - which handler a method and a path mean.
 *
 * Frontend only, pure.  A pattern is a path in which one whole segment may be "{id}", or which ends
 * in "/{id*}" for the rest of the path with its slashes (names of models hold them).  The paths
 * are those of http.h: decoded, without double and final slashes.  A literal segment wins over {id}
 * by standing earlier in the table. */
#ifndef TR_FRONTEND_ROUTE_H
#define TR_FRONTEND_ROUTE_H

#include "frontend/exchange.h"

/* In the order a table reads best, not the tightest. */
struct tr_route {               // NOLINT(clang-analyzer-optin.performance.Padding)
    enum tr_http_method method; /* a GET route answers HEAD too */
    const char *pattern;
    tr_handler *handler;   /* NULL: nothing is here, but `errors` says so */
    tr_error_body *errors; /* how errors on this path look; NULL: OpenAI's */
    unsigned flags;        /* TR_ROUTE_* and, above bit 8, the caller's own */
};

enum {
    TR_ROUTE_OPEN = 1, /* the check hook is not asked (probes) */
    TR_ROUTE_ANTHROPIC =
        2,              /* answers have the fields that its clients read: Request-Id, and limits */
    TR_ROUTE_ADMIN = 4, /* introspection: for keys that may (gate.h) */
    TR_ROUTE_FREE = 8   /* a POST that starts no work: no key's limits are asked */
};

/* The route, or NULL; *id is what {id} matched, *allow has bit 1 << method for each method the path
 * takes (0: no such path). */
const struct tr_route *tr_route_find(const struct tr_route *routes, size_t n,
                                     enum tr_http_method method, struct tr_slice path,
                                     struct tr_slice *id, unsigned *allow);

/* What holds for every answer on this path, whatever the method: how errors look, and Request-Id.  For
 * carriers, once the head is known. */
void tr_route_prepare(struct tr_exchange *x, const struct tr_route *routes, size_t n,
                      struct tr_slice path);

/* "GET, HEAD, OPTIONS" for the methods of `allow`; OPTIONS is always in it. */
void tr_route_allow(unsigned allow, char buf[96]);

/* Whether a body of this Content-Type is JSON: application/json, a type with the suffix +json
 * (RFC 6839), or none, which many clients do not set. */
bool tr_route_json_type(struct tr_slice content_type);

#endif
