/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/ws_stream.h - the streams of one WebSocket: a carrier of exchanges (exchange.h).
 *
 * Path: http [exchange] > tokens > subq > engine > step > ring > detok > event > frame [message] > socket
 *
 * Frontend only, event loop only.  Each stream that a client starts or resumes under a label of its own
 * is one exchange, and so is each cancel of a stream that somebody else reads.  Their events are text
 * messages whose first member is the label; what ends an exchange without an event of its own is told by
 * a message as well:
 *
 *   error         it was refused: an event `error` with `status` and `param`
 *   stream.reset  it was cut; nothing more comes under this label
 *   stream.done   it was resumed after its last event
 *   cancel.done   what became of a stream that somebody else reads (without a label)
 *
 *   W1  the socket is shared in turn (ws_turn.h), with one bound on what is unsent, --stream-buffer
 *   W2  who does not read it stops all streams of this connection, through their windows, and no others
 *   W3  when nothing can be sent any more each exchange loses its owner (`gone`) in the same turn
 *
 * Full: TR_WS_STREAMS of them; one more is refused. */
#ifndef TR_FRONTEND_WS_STREAM_H
#define TR_FRONTEND_WS_STREAM_H

#include "frontend/carrier.h"
#include "frontend/exchange.h"
#include "frontend/marks.h"
#include "frontend/ws_call.h"
#include "frontend/ws_session.h"
#include "frontend/ws_turn.h"

enum { TR_WS_STREAMS = 64 /* of one connection at a time */ };

struct tr_fe;

/* A delivery in the connection's count, of one in the exchange's, which it outlives. */
struct tr_ws_delivery {
    struct tr_delivered d;
    struct tr_delivered *of;
    struct tr_marks marks;
};

TAILQ_HEAD(tr_ws_streams, tr_ws_stream);

struct tr_ws {
    struct tr_fe *fe;
    struct tr_ws_session session;
    struct tr_ws_turn turn;
    struct tr_ws_streams open, over; /* over: freed at the end of the turn */
    unsigned n_open;
    unsigned begun; /* so far: makes request ids */
    bool drains;
    const struct tr_http *http; /* head of the request that became this */
    const struct tr_key *key;   /* of that request: whose all its streams are */
    char request_id[TR_CARRIER_ID_BYTES + 1];
};

struct tr_ws_stream {
    struct tr_exchange x; /* the first */
    struct tr_ws *w;
    TAILQ_ENTRY(tr_ws_stream) link;
    struct tr_ws_member member;
    struct tr_marks marks;
    /* Until they are needed: of the receipt, and of the line in the access log. */
    struct tr_ws_delivery *delivery[2];
    struct tr_http_request rq;
    char *body;
    char
        request_id[TR_CARRIER_ID_BYTES + 1]; /* the connection's, cut if it is long, and a number */
    char label[TR_WS_LABEL_BYTES + 1];       /* "": a cancel, and `id` is whose */
    char id[TR_STREAM_ID_BYTES];
    size_t head_len;
    char head[2 * TR_WS_LABEL_BYTES + 16]; /* {"stream":"<label>", */
};

/* What session.ops are for a struct tr_ws, but for `message`, which is the caller's. */
void tr_ws_room(struct tr_ws *w);
void tr_ws_closed(struct tr_ws *w, enum tr_gone why);
void tr_ws_drain(struct tr_ws *w);
void tr_ws_free(struct tr_ws *w);

/* The open stream under this label, or NULL. */
struct tr_ws_stream *tr_ws_find(struct tr_ws *w, const char *label);

/* A new exchange; `body` is from malloc, or NULL, and the exchange's from here on in every case.  NULL:
 * there are too many (TR_ERR_STREAMS), or no memory (TR_ERR_INTERNAL): *e. */
struct tr_ws_stream *tr_ws_begin(struct tr_ws *w, const char *label, char *body, size_t len,
                                 enum tr_err *e);

/* The client gives it credit, from a message of his.  The first time it becomes limited. */
void tr_ws_credit(struct tr_ws_stream *st, uint64_t tokens);

/* An error that belongs to no exchange; label may be "". */
void tr_ws_error(struct tr_ws *w, const char *label, enum tr_err e, const char *message,
                 const char *param);

#endif
