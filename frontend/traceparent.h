/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/traceparent.h - the trace that a request belongs to, by W3C Trace Context.
 *
 * Path: http [trace] > tokens > subq > engine > step > ring > detok > event > socket
 *
 * Frontend only, pure but for the random bits.  A good `traceparent` is continued: its trace, its flags,
 * its span as the parent of ours.  Anything else, also two of them, begins a new trace, which is
 * sampled.  `tracestate` belongs to a good traceparent only; it is passed on as it came, up to 512
 * bytes: of a longer one whole members are left out, those above 128 bytes first, then the last ones.
 * One that is malformed is dropped and the trace goes on without it. */
#ifndef TR_FRONTEND_TRACEPARENT_H
#define TR_FRONTEND_TRACEPARENT_H

#include "frontend/http.h"
#include "shm/trace.h"

/* `h` NULL: no request that could be read.  The span id is new in each call. */
void tr_trace_begin(const struct tr_http *h, struct tr_trace *t);

/* One traceparent: trace id, parent id and flags of *t.  0, or -EINVAL and *t is as it was. */
int tr_traceparent_read(struct tr_slice v, struct tr_trace *t);

/* All tracestate fields of a head, joined.  0, or -EINVAL and out is "". */
int tr_tracestate_read(const struct tr_http *h, char out[TR_TRACE_STATE_BYTES]);

#endif
