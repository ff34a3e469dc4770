/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/protocol.h - what speaks on a connection that is no longer HTTP/1.
 *
 * Path: http [protocol] > tokens > subq > engine > step > ring > detok > event > frame > socket [protocol]
 *
 * Frontend only, event loop only.  A connection begins as HTTP/1 (conn.h) and may become something
 * else once, for good: in a handler (an upgrade), or by its first bytes (HTTP/2).  From then on the
 * protocol is given all bytes that come and says which ones go out; socket, kernel buffers, write
 * deadline, acknowledgements and the end stay the connection's.  Other clocks are the protocol's own
 * timers.
 *
 *   P1  callbacks are made from the event loop only, never from inside a tr_conn_raw_* call
 *   P2  `gone` is the last call, exactly once, in every case: also after tr_conn_raw_close and _abort,
 *       then at the end of the turn.  It frees the state; from then on the connection is not to be used
 *   P3  what is written in a turn of the loop leaves in one sendmsg at the end of the turn, after
 *       turn_end
 *   P4  the head of a request that became this (tr_conn_become in a handler) stays valid, as the
 *       handler saw it, until `gone` has returned
 *
 * Full: tr_conn_raw_room says 0, `writable` tells when to go on.  Bytes that must go out all the same
 * (tr_conn_raw_write always takes them) are the protocol's to bound.  A peer that sends more than it
 * may is stopped by tr_conn_raw_pause, or cut. */
#ifndef TR_FRONTEND_PROTOCOL_H
#define TR_FRONTEND_PROTOCOL_H

#include "frontend/conn.h"

struct tr_protocol {
    /* All of it is taken, `len` > 0, borrowed.  0; or < 0: the peer is broken, and the connection is
     * closed when what was written is out (as by tr_conn_raw_close). */
    int (*input)(void *state, const char *data, size_t len);
    /* There was no room, or the kernel had refused some, and now no more than half of stream_buffer
     * waits. */
    void (*writable)(void *state);
    /* The peer's FIN was seen, once.  It may still read.  Nobody closes unless the protocol does; a
     * reset that follows is `gone`. */
    void (*half_closed)(void *state);
    /* Once for each turn of the loop in which tr_conn_raw_mark was called: the time to write what
     * several exchanges have brought together. */
    void (*turn_end)(void *state);
    /* No new work: say so to the peer, and close when what is under way has ended.  Once. */
    void (*drain)(void *state);
    void (*gone)(void *state, enum tr_gone why);
};

/* The connection of an exchange that HTTP/1 carries; NULL: another carrier does. */
struct tr_conn *tr_conn_of(struct tr_exchange *x);

/* In a handler, in place of an answer (of which nothing may have been given), with no owner bound.
 * What the peer has already sent beyond the request comes as input in the next turn. */
void tr_conn_become(struct tr_conn *c, const struct tr_protocol *p, void *state);

/* ---- for the protocol, until it has closed ------------------------------------------------ */

/* Always takes it.  Without memory for it the connection breaks: `gone` comes. */
void tr_conn_raw_write(struct tr_conn *c, const char *data, size_t len);

/* As tr_conn_room; 0: `writable` comes. */
size_t tr_conn_raw_room(struct tr_conn *c);

/* Writes what there is now instead of at the end of the turn. */
void tr_conn_raw_flush(struct tr_conn *c);

/* turn_end is wanted in this turn. */
void tr_conn_raw_mark(struct tr_conn *c);

/* Nothing more is read, or it is again.  A FIN or a reset is seen all the same, also before what
 * stands unread in front of it. */
void tr_conn_raw_pause(struct tr_conn *c, bool on);

/* The end: FIN when all is written, then what the peer still sends is thrown away for a moment; or a
 * reset. */
void tr_conn_raw_close(struct tr_conn *c);
void tr_conn_raw_abort(struct tr_conn *c);

/* How many requests are under way here: a process that drains waits for them. */
void tr_conn_raw_busy(struct tr_conn *c, unsigned n);

/* Counts and deliveries are those of conn.h, for all that the connection carries: tr_conn_unsent,
 * _accepted, _acked, _blocked_ns, _deliver (calls must come with rising `upto`). */

struct tr_httpd *tr_conn_httpd(struct tr_conn *c);
struct event_base *tr_httpd_base(struct tr_httpd *d);
const struct tr_http_limits *tr_httpd_limits(const struct tr_httpd *d);

#endif
