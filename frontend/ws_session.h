/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/ws_session.h - one WebSocket on a connection: messages both ways, pings, the close.
 *
 * Path: http [messages] > tokens > subq > engine > step > ring > detok > event > [message] > socket
 *
 * Frontend only, event loop only.  It knows nothing of what the messages say.
 *
 *   open --our close--> closing --theirs, or 2 s--> ended
 *   open --their close (answered), a violation (told by its code), a FIN, a fault--> ended
 *
 *   I1  `closed` is told once, when nothing can be sent any more; `gone` once, last: the owner, and the
 *       session in it, may be freed then
 *   I2  what is owed for what the client sends (pongs, answers to bad messages) is bounded: one who
 *       sends and does not read is not read any more, and cut if that was not enough
 *
 * After --heartbeat-s without a byte to the client a ping is sent; whether its pong comes nobody waits
 * for, since a peer whose kernel acknowledges nothing is given up by TCP (conn.h). */
#ifndef TR_FRONTEND_WS_SESSION_H
#define TR_FRONTEND_WS_SESSION_H

#include "frontend/conn.h"
#include "frontend/ws_wire.h"

#include <event2/event_struct.h>

enum {
    TR_WS_REPLIES =
        64 << 10 /* bytes owed for what the client sent, besides the events of streams */
};

struct tr_ws_session_ops {
    /* A whole message, borrowed; tr_ws_take(&s->wire) makes it the caller's. */
    void (*message)(void *owner, bool binary, const char *data, size_t len);
    /* The socket takes bytes again, or tr_ws_session_mark was called in this turn. */
    void (*room)(void *owner);
    void (*closed)(void *owner, enum tr_gone why);
    void (*drain)(void *owner);
    void (*gone)(void *owner);
};

struct tr_ws_config {
    struct tr_ws_limits wire;
    uint64_t heartbeat_ns; /* 0 never */
    uint64_t
        message_ns; /* a message that has begun, without a byte; ten times that in all; 0 never */
};

enum tr_ws_state { TR_WS_IS_OPEN, TR_WS_IS_CLOSING, TR_WS_IS_ENDED };

struct tr_ws_session {
    struct tr_conn *c;
    const struct tr_ws_session_ops *ops;
    void *owner;
    struct tr_ws_config cfg;
    enum tr_ws_state state;
    struct tr_ws_wire wire;
    struct event timer;
    uint64_t armed_ns; /* when the timer fires; 0: not armed */
    uint64_t in_ns;    /* the last byte came */
    uint64_t begun_ns; /* the present message began; 0: none has */
    uint64_t out_ns;   /* the last byte was handed over */
    uint64_t close_ns; /* closing: until then */
    size_t replies;    /* bytes owed since the socket was last empty */
    bool doomed;       /* more of them than may be: cut at the end of the turn */
};

/* Answers the handshake `rq` and takes its connection over, or answers why not.  0, or -EINVAL: answered,
 * nothing is to be freed, and `gone` does not come. */
int tr_ws_session_open(struct tr_ws_session *s, struct tr_exchange *x,
                       const struct tr_http_request *rq, const struct tr_ws_config *cfg,
                       const struct tr_ws_session_ops *ops, void *owner);

/* A message of two parts.  False, and nothing is sent, if it is not open. */
bool tr_ws_session_send(struct tr_ws_session *s, enum tr_ws_op op, const char *head,
                        size_t head_len, const char *data, size_t len);
/* The same for what is owed for a message of the client (I2). */
void tr_ws_session_reply(struct tr_ws_session *s, const char *text, size_t len);

/* A ping, unless something was sent within half a heartbeat. */
void tr_ws_session_ping(struct tr_ws_session *s);

/* `room` is wanted at the end of this turn. */
void tr_ws_session_mark(struct tr_ws_session *s);

/* Our close, from the loop: `closed` is told before it returns. */
void tr_ws_session_close(struct tr_ws_session *s, enum tr_ws_code code, const char *why);

#endif
