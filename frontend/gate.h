/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/gate.h - whether a request may come in: whose it is.
 *
 * Path: http [gate] > tokens > subq > engine > step > ring > detok > event > socket
 *
 * Frontend only, event loop only.  Carriers ask before a body is read (HTTP/1 and HTTP/2 by the check hook
 * of conn.h, gRPC when a call begins); a WebSocket's messages are of the key that opened it. */
#ifndef TR_FRONTEND_GATE_H
#define TR_FRONTEND_GATE_H

#include "frontend/fe.h"
#include "frontend/key.h"

/* Who brings this head, for a route with these flags (TR_ROUTE_*).  TR_OK and *key (NULL: nobody that
 * is known, and none is needed); or UNAUTHORIZED, FORBIDDEN, *key is NULL and *why a sentence or NULL. */
enum tr_err tr_gate_identify(const struct tr_fe *fe, const struct tr_http *head, unsigned flags,
                             const struct tr_key **key, const char **why);

#endif
