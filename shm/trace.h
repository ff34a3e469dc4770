/* SPDX-License-Identifier: Apache-2.0 */
/* shm/trace.h - where a request stands in a trace, and when its frontend did what.
 *
 * Path: http [trace] > tokens > subq > engine > step > ring > detok > event > socket
 *
 * Made by the frontend that read the request (frontend/traceparent.h), copied with it into the ring and
 * from there into its record; the ledger process makes a span of it (ledger/span.h).  Nothing is decided
 * by it: garbage here makes a garbled span.
 *
 * Ids and flags are those of W3C Trace Context. */
#ifndef TR_SHM_TRACE_H
#define TR_SHM_TRACE_H

#include <stddef.h>
#include <stdint.h>

enum {
    TR_TRACE_ID = 16,
    TR_SPAN_ID = 8,
    TR_TRACE_STATE_BYTES = 513, /* of tracestate, which is passed on up to 512 bytes, and its NUL */
    TR_TRACE_SAMPLED = 1,       /* of flags */
    TR_TRACE_RANDOM = 2
};

enum tr_operation { TR_OPERATION_NONE, TR_OPERATION_CHAT, TR_OPERATION_TEXT };

struct tr_trace {
    uint8_t trace_id[TR_TRACE_ID];
    uint8_t span_id[TR_SPAN_ID];   /* of this request's span */
    uint8_t parent_id[TR_SPAN_ID]; /* all 0: it is the first of its trace */
    uint8_t flags;
    uint8_t operation; /* enum tr_operation */
    uint8_t pad[5];
    char state[TR_TRACE_STATE_BYTES]; /* the client's tracestate; printable ASCII, NUL-ended */
};

/* What the frontend did before the engine heard of it; monotonic, 0: not known. */
struct tr_stages {
    uint64_t parsed_ns;   /* JSON read, fields checked */
    uint64_t rendered_ns; /* by the chat template; 0 for plain prompts */
    uint64_t encoded_ns;  /* tokens */
    uint64_t submitted_ns;
};

#endif
