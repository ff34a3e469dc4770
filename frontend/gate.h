/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/gate.h - whether a request may come in: whose it is, and what its key may use.
 *
 * Path: http [gate] > tokens > subq > engine > step > ring > detok > event > socket
 *
 * Frontend only, event loop only.  Carriers ask whose it is before a body is read (HTTP/1 and HTTP/2 by the
 * check hook of conn.h, gRPC when a call begins); a WebSocket's messages are of the key that opened it.
 *
 * Three limits, counted in shm/quota.h over all frontends:
 *   requests   in 60 s: each POST that may start work (a WebSocket's start, a request in a call of gRPC),
 *              whatever becomes of it, but for one that is refused by a limit
 *   tokens     in 60 s: a request begins if its prompt still fits; prompt and answer count as they come, and
 *              what runs is not cut; nothing counts of an answer that is told again (idempotency.h)
 *   streams    running at a time, each choice being one */
#ifndef TR_FRONTEND_GATE_H
#define TR_FRONTEND_GATE_H

#include "frontend/fe.h"
#include "frontend/key.h"

/* Who brings this head, for a route with these flags (TR_ROUTE_*).  TR_OK and *key (NULL: nobody that
 * is known, and none is needed); or FORBIDDEN, UNAUTHORIZED (*key is NULL), and *why a sentence or NULL. */
enum tr_err tr_gate_identify(const struct tr_fe *fe, const struct tr_http *head, unsigned flags,
                             const struct tr_key **key, const char **why);

/* One more request of this key, on a route with these flags.  TR_OK, counted; or RATE_LIMIT with *why, good
 * until the next call, and x->retry_s set.  Fields about its limits are added to the answer of x.  A key that
 * is NULL has no limits. */
enum tr_err tr_gate_request(struct tr_fe *fe, struct tr_exchange *x, const struct tr_key *key,
                            unsigned flags, const char **why);

/* The same of streams and tokens, before a request is admitted; nothing is counted yet. */
enum tr_err tr_gate_stream(struct tr_fe *fe, struct tr_exchange *x, const struct tr_key *key,
                           uint32_t streams, uint64_t prompt, const char **why);

/* Streams of this key begin, or are over. */
void tr_gate_begin(struct tr_fe *fe, const struct tr_key *key, uint32_t streams);
void tr_gate_end(struct tr_fe *fe, const struct tr_key *key, uint32_t streams);
/* It has used n more tokens; or it has not, after all, used n of those that were charged at then_ns. */
void tr_gate_tokens(struct tr_fe *fe, const struct tr_key *key, uint64_t now_ns, uint64_t n);
void tr_gate_take_back(struct tr_fe *fe, const struct tr_key *key, uint64_t then_ns, uint64_t n);

#endif
