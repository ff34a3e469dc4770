/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/idempotency.h - the Idempotency-Key of a request, and the answer to one whose key is known.
 *
 * Path: http > [ask] > tokens > subq > engine > step > ring > detok > event > socket
 *
 * Frontend only, event loop only.  The key and what came with it become hashes, which travel with the
 * request; the engine compares them at admission (engine/twin.c) and turns away every request but the first.
 * The rings are the truth: what became of the first one is read there, by whatever frontend.
 *
 *   it runs                409, which clients must not try again by themselves
 *   it has ended           its answer again (replay.h), or, if it was a background request, its object
 *   it was another one     422
 *   it failed, or it was cancelled, or its answer has been let go: as if it had never been
 *
 * A hash is of one API key: another's is never found. */
#ifndef TR_FRONTEND_IDEMPOTENCY_H
#define TR_FRONTEND_IDEMPOTENCY_H

#include "frontend/ask.h"
#include "frontend/exchange.h"

enum { TR_IDEMPOTENCY_BYTES = 255 /* of the key, at most */ };

/* The header's value: a structured field's string (RFC 9651) without parameters, or the same without its
 * quotes.  How many characters the key has, or -EINVAL. */
int tr_idempotency_parse(struct tr_slice v, char out[TR_IDEMPOTENCY_BYTES]);

/* a->idem from the header, if there is one, --idempotency-s is not 0 and the carrier has a head for each
 * request; a->key and the body must be there.  0, or -EINVAL with *f. */
int tr_idempotency_read(const struct tr_http_request *rq, enum tr_api api, enum tr_frame frame,
                        struct tr_ask *a, struct tr_fault *f);

/* The fields have been read: an answer that could not be told again has no key.  0, or -EINVAL with *f. */
int tr_idempotency_check(struct tr_ask *a, struct tr_fault *f);

/* Answers a request whose key is known; false: it is not, nothing was done. */
bool tr_idempotency_answer(struct tr_fe *fe, struct tr_exchange *x, const struct tr_ask *a,
                           const struct tr_dialect *dialect, enum tr_frame frame);

#endif
