/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/access.h - what is noted of one request for its line in the access log, and its trace.
 *
 * Path: http [access] > tokens > subq > engine > step > ring > detok > event > frame > socket
 *
 * Frontend only, event loop only.  A carrier begins one with each request (tr_access_begin), the exchange
 * carries it, whoever works on the request notes what he knows, and when the answer has ended it waits
 * for the peer's kernel to have the last byte, or for the connection to go; then the line is written, by
 * base/log, which never waits.
 *
 *   A1  one line for each request, whatever becomes of it; a stream that is read by several (resumed) has
 *       one for each reader
 *   A2  no text, no prompt, no header but ids: what clients say stands in it only as printable ASCII,
 *       escaped as JSON
 *   A3  what did not happen, or happened before this request arrived, is null
 *
 * No memory: the request goes on without a line and outside any trace.
 * Memory: one struct tr_access for each request, from its head until its last byte is acknowledged, at
 * most 2 s after its end; TR_ACCESS_WAITING of a process are over and wait for that, and one more is told
 * at its end. */
#ifndef TR_FRONTEND_ACCESS_H
#define TR_FRONTEND_ACCESS_H

#include "base/emit.h"
#include "frontend/carrier.h"
#include "frontend/exchange.h"
#include "frontend/receipt.h"
#include "shm/layout.h"
#include "shm/stream_id.h"
#include "shm/trace.h"

/* Of one process; zeroed is off, tr_access_log_fini at the end. */
struct tr_access_log {
    bool lines;          /* --access-log is not off */
    bool addresses;      /* ... and does not leave out who it was */
    struct tr_emit json; /* scratch */
    uint32_t waiting;    /* for a last byte; at most TR_ACCESS_WAITING */
};

enum { TR_ACCESS_WAITING = 4096 };

/* When what happened; monotonic, 0: not. */
enum tr_access_stage {
#define X(id, name) TR_AT_##id,
#include "frontend/access.def"
#undef X
    TR_AT_COUNT
};

struct tr_access {
    struct tr_delivered wait; /* first: of the last byte */
    struct tr_access_log *log;
    struct tr_trace trace;
    const char *carrier;      /* "http/1.1", "h2", ... */
    const char *method;       /* of HTTP; NULL: none could be read */
    const char *route;        /* as the table has it; NULL: there is none */
    const char *dialect;      /* NULL: no request to generate */
    const char *end, *reason; /* words; NULL: not yet, or none */
    bool quiet;               /* a probe: told at debug only */
    bool streamed;            /* the answer comes in events */
    bool in_one_piece;        /* it is one body: all of its tokens lie before the last byte */
    struct tr_peer peer;
    char request_id[TR_CARRIER_ID_BYTES + 1];
    char key[TR_KEY_BYTES];
    char stream_id[TR_STREAM_ID_BYTES];
    int status;        /* of HTTP, of a gRPC call its own; -1: no answer */
    int retry;         /* x-stainless-retry-count; -1: not said */
    double patience_s; /* x-stainless-read-timeout; < 0: not said */
    uint64_t arrived_ns, at[TR_AT_COUNT];
    bool counted; /* the three below are known */
    uint64_t prompt, cached, completion;
    uint64_t before, bytes;    /* of the exchange: accepted at the beginning, and by this request */
    struct tr_receipt receipt; /* how many tokens lie before which byte */
};

/* Of a request whose head has come; `h` NULL: it could not be read.  NULL: no memory, or no log. */
struct tr_access *tr_access_new(struct tr_access_log *log, const struct tr_http *h,
                                const char *carrier, const struct tr_peer *peer,
                                uint64_t arrived_ns);

/* The same, which the exchange carries from here on. */
void tr_access_begin(struct tr_exchange *x, struct tr_access_log *log, const struct tr_http *h,
                     const char *carrier, const struct tr_peer *peer, uint64_t arrived_ns);

/* Whose request it is, once that is known.  A route of probes is told at debug only. */
void tr_access_route(struct tr_exchange *x, const struct tr_route *route);

/* The key that it brought; either may be NULL. */
void tr_access_key(struct tr_access *a, const struct tr_key *key);

/* Notes the first time of a stage. */
void tr_access_at(struct tr_exchange *x, enum tr_access_stage stage, uint64_t ns);

/* The exchange has lost its peer: the line is written now.  After its owner was told. */
void tr_access_gone(struct tr_exchange *x, enum tr_gone why);

/* A line of what never was an exchange (a call of gRPC without a request); frees it. */
void tr_access_write(struct tr_access *a, uint64_t acked);

void tr_access_log_fini(struct tr_access_log *l);

#endif
