/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/conn.h - one client connection: bytes to requests, answers to bytes.
 *
 * Path: http [conn] > tokens > subq > engine > step > ring > detok > event > socket [conn]
 *
 * Frontend only, one thread, one event base.  A connection carries one request at a time: the next
 * one is parsed when the present answer has ended and its bytes are below the buffer bound;
 * meanwhile nothing is read, so a client that keeps sending fills its own kernel buffers.
 *
 * It is the carrier of one exchange (exchange.h) after the other; what its calls mean here:
 *
 *   stream_begin  HTTP/1.1: chunked; HTTP/1.0: ended by the close, and until stream_end any close is a
 *                 reset: the FIN of a dead process's kernel would look like the end of a whole answer
 *   stream_write  one chunk; all that was written in a turn of the loop leaves in one sendmsg at its end
 *   writable      unsent bytes had reached stream_buffer, or the kernel had refused some; now no more
 *                 than half of stream_buffer wait
 *   stream_end    last chunk, or FIN on HTTP/1.0
 *   stream_abort  no last chunk, and a reset if the client could mistake the end (HTTP/1.0), bytes are
 *                 unsent, or `hard`
 *
 * Memory per connection: head (max_header), at most 16 KiB of unparsed input, the body
 * (max_body; the large ones together max_bodies), unsent output (stream_buffer + what the owner writes beyond it: its one event).
 *
 * Client closes: the fd is watched edge-triggered for read, write and close together.  A watch for
 * EV_CLOSED alone misses a reset: libevent 2.1 reports EPOLLERR as EV_READ|EV_WRITE, which such a
 * watch does not ask for, and the level-triggered loop then spins.  A FIN while an answer is due is
 * `half_closed`; a reset, a write error or a deadline is `gone`.
 *
 * SIGPIPE is never raised (MSG_NOSIGNAL). */
#ifndef TR_FRONTEND_CONN_H
#define TR_FRONTEND_CONN_H

#include "base/err.h"
#include "frontend/exchange.h"

#include <event2/event.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct tr_access_log;
struct tr_conn;
struct tr_httpd;
struct sockaddr;

/* The far end of a connection. */
struct tr_peer {
    uint8_t family; /* AF_INET, AF_INET6; 0: not known */
    uint16_t port;
    uint8_t addr[16];
};

struct tr_http_limits {
    size_t max_body;            /* bytes of a request body; more: 413 */
    size_t max_bodies;          /* bytes of all bodies on their way beyond 64 KiB each; more: 503 */
    size_t max_header;          /* bytes of a request head; more: 431 */
    size_t stream_buffer;       /* unsent bytes at which an owner should stop; NOTSENT_LOWAT too */
    uint64_t header_timeout_ns; /* accept or first byte to the end of the head; 0 never */
    uint64_t body_timeout_ns;   /* without a byte of the body; in all 10 times this and 1 s for each
                                 * KiB received; 0 never */
    uint64_t keepalive_ns;      /* idle time between requests; 0 never */
    uint64_t write_deadline_ns; /* bytes wait and none could be written: cut; 0 never */
    uint64_t heartbeat_ns;      /* HTTP/2: a PING after so long without a byte; 0 never */
    uint32_t max_connections;   /* of this process; more: 503 and close */
    const char *cors;           /* allowed origin ("*" or one origin), or NULL: no CORS headers */
};

/* What the kernel may keep of one connection's answers: SO_SNDBUF as it counts, its own overhead
 * included; of these at most stream_buffer bytes not yet on their way. */
size_t tr_conn_kernel_bytes(const struct tr_http_limits *l);

/* Defaults of the command line, for tests and tools. */
extern const struct tr_http_limits tr_http_limits_default;

/* What a process does with requests.  `check` (may be NULL) sees each request that has a route
 * when its head is complete, before 100-continue and before the body: it sets rq->key, may add fields to
 * the answer, and returns TR_OK or the error to answer (a missing key, draining).  The row's own sentence is used, unless it sets
 * *why (static). */
struct tr_httpd_ops {
    enum tr_err (*check)(void *ctx, struct tr_exchange *x, struct tr_http_request *rq,
                         const char **why);
    const struct tr_route *routes;
    size_t n_routes;
    void *ctx; /* of check and of all handlers */
};

struct tr_httpd_stats {
    uint64_t accepted; /* taken from the queue, those closed at once included */
    uint64_t requests, bytes_in, bytes_out, writes;
    uint64_t open;         /* connections now */
    uint64_t overfull;     /* of them those that are one too many: told so, and soon gone */
    uint64_t busy;         /* with an answer due */
    uint64_t unsent_bytes; /* over all connections */
    uint64_t body_bytes;   /* held for bodies, over all connections */
    uint64_t kernel_bytes; /* written and not known to be acknowledged, over all connections */
    uint64_t turned_away;  /* requests answered 503: connections too many, or no room for a body */
    uint64_t unanswered;   /* connections closed at once: far too many, or no memory */
    uint64_t slow_clients, resets, half_closed, timeouts;
};

/* All are borrowed and must outlive it.  NULL when out of memory. */
struct tr_httpd *tr_httpd_new(struct event_base *base, const struct tr_http_limits *lim,
                              const struct tr_httpd_ops *ops);
/* Closes all connections (owners get `gone`). */
void tr_httpd_free(struct tr_httpd *d);
const struct tr_httpd_stats *tr_httpd_stats(const struct tr_httpd *d);
/* Before anything is accepted: `d` counts with `first`, which outlives it.  Limits that are of the whole
 * process (max_connections, max_bodies) then hold for both together. */
void tr_httpd_count_with(struct tr_httpd *d, struct tr_httpd *first);
/* From now on every answer says Connection: close and idle connections are closed, but for those
 * whose first request is still to come. */
void tr_httpd_drain(struct tr_httpd *d);
/* From now on every answer says Connection: close; a connection between requests has 2 s for its
 * next one, which is answered, then it is closed.  No request is lost but one that crosses with
 * that close.  Once; a drain may follow. */
void tr_httpd_retire(struct tr_httpd *d);
/* Several times a second.  Asks the kernel for the acknowledged bytes of some connections, in turn,
 * for the gauge above: its cost is bounded, and with many connections it is some seconds old.
 * Timers that could not be armed for want of memory are tried again. */
void tr_httpd_tick(struct tr_httpd *d);

/* From now on connections speak TLS.  Borrowed; it must outlive them. */
struct tr_tls;
void tr_httpd_use_tls(struct tr_httpd *d, struct tr_tls *t);

/* From now on its requests are noted (access.h).  Borrowed; it must outlive the connections. */
void tr_httpd_use_access(struct tr_httpd *d, struct tr_access_log *l);
struct tr_access_log *tr_httpd_access(const struct tr_httpd *d); /* or NULL */

/* Takes over fd (non-blocking; closed on failure too).  0 or -ENOMEM. */
int tr_conn_accept(struct tr_httpd *d, int fd);
/* The same, and who it is; NULL: not known. */
int tr_conn_accept_from(struct tr_httpd *d, int fd, const struct sockaddr *peer);
const struct tr_peer *tr_conn_peer(const struct tr_conn *c);

/* ---- the connection's own counts, for its exchange and for protocols ------------------- */

/* Bytes accepted and not yet taken by the kernel; room until stream_buffer.  No room (0: wait for
 * `writable`) as soon as the kernel has refused what is there. */
size_t tr_conn_unsent(const struct tr_conn *c);
size_t tr_conn_room(const struct tr_conn *c);

/* Counts since the connection began: bytes accepted for writing, and bytes the peer's kernel has
 * acknowledged (SIOCOUTQ). */
uint64_t tr_conn_accepted(const struct tr_conn *c);
uint64_t tr_conn_acked(struct tr_conn *c);

/* Since when bytes wait and the kernel has taken none; 0: not so. */
uint64_t tr_conn_blocked_ns(const struct tr_conn *c);

/* `upto` of d is a count of tr_conn_accepted. */
void tr_conn_deliver(struct tr_conn *c, struct tr_delivered *d);

#endif
