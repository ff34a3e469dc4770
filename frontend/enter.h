/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/enter.h - a request with an Idempotency-Key between its submission and the engine's word.
 *
 * Path: http > tokens > [subq] > engine > step > ring > detok > event > socket
 *
 * Whether it is the first one is known when the engine has come to it: until then its client gets no
 * byte, not even a head.  Frontend only, event loop only.
 *
 *   it was admitted        it is a stream like any other
 *   it was turned away     the answer of the first one, or why not (idempotency.h); nothing is left of it
 *   no engine comes        it waits, as submissions do; its deadline is posted as ever
 *   its client goes        cancelled
 *
 * Frontend died: it is admitted towards its client, who is gone, and cancelled. */
#ifndef TR_FRONTEND_ENTER_H
#define TR_FRONTEND_ENTER_H

#include "frontend/stream.h"

/* Just submitted; `x` is bound until then. */
void tr_enter_wait(struct tr_stream *s, struct tr_exchange *x);

/* Each look at it; s may be gone afterwards. */
void tr_enter_look(struct tr_stream *s);

/* It ends here: cancelled, and answered with the error. */
void tr_enter_refuse(struct tr_stream *s, enum tr_err why);

#endif
