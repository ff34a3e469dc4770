/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/conn_priv.h - what conn.c, intake.c, answer.c, httpd.c and
 * delivery.c share about a connection.
 *
 * Nobody else includes it.
 *
 *   READING  --request complete--> BUSY --answer ended, keep--> READING
 *      |                            |
 *      | error, or answer ended,    |
 *      v not keep                   v
 *   CLOSING --all written--> LINGER --EOF, bytes or time--> DEAD (freed at the end of the turn)
 *
 * READING covers idle, head and body; with `answered` it throws away the body of a request that
 * was refused early.  RAW, from READING or BUSY, is another protocol's (protocol.h) until that closes.
 * A fault in any state leads to DEAD. */
#ifndef TR_FRONTEND_CONN_PRIV_H
#define TR_FRONTEND_CONN_PRIV_H

#include "frontend/carrier.h"
#include "frontend/conn.h"
#include "base/emit.h"
#include "frontend/h2.h"
#include "frontend/outbuf.h"
#include "frontend/route.h"
#include "frontend/tls.h"

#include <event2/event_struct.h>

#include <sys/queue.h>

enum tr_conn_state {
    TR_CONN_READING,
    TR_CONN_BUSY,
    TR_CONN_RAW,
    TR_CONN_CLOSING,
    TR_CONN_LINGER,
    TR_CONN_DEAD
};

enum {
    TR_CONN_READ_BYTES = 16 << 10 /* of one read outside a body: bounds the unparsed input */
};

/* A connection that is no longer HTTP/1. */
struct tr_conn_raw {
    const struct tr_protocol *protocol; /* NULL: `gone` has been called */
    void *state;
    unsigned busy; /* requests under way */
    bool marked;   /* turn_end is wanted */
    bool paused;   /* nothing is read */
    bool drained;  /* it has been told */
    bool over;     /* closes at the end of the turn ... */
    bool cut;      /* ... by a reset */
};

struct tr_conn {
    struct tr_exchange x; /* of the present request */
    struct tr_httpd *d;
    int fd;
    struct tr_tls_conn *tls; /* NULL: plain */
    struct tr_peer peer;
    bool shaken; /* its handshake is over, or there is none */
    enum tr_conn_state state;
    struct event ev;    /* edge-triggered: read, write, close */
    struct event timer; /* armed at or before the next deadline */
    uint64_t armed_ns;  /* when the timer will fire; 0: not armed */

    /* what the kernel said last (edges are remembered here) */
    bool may_read, may_write, rdhup;
    int broken;    /* errno of a failed write: gone at the end of the turn */
    bool cut;      /* the owner cut the answer: closed at the end of the turn ... */
    bool cut_hard; /* ... by a reset in any case */

    /* request */
    struct tr_http http;
    struct tr_http_request rq;
    char request_id[TR_CARRIER_ID_BYTES + 1];
    char *in; /* read but not yet parsed: in[in_at, in_len) */
    size_t in_at, in_len;
    struct tr_body body;
    uint64_t body_seen; /* body bytes of this request, kept or thrown away */
    size_t turn_body;   /* bytes of whole bodies handed on in this turn of the loop */
    uint64_t since_ns;  /* idle, or in this request, since */
    uint64_t body_ns;   /* body expected since */
    uint64_t piece_ns;  /* its last bytes came; body_ns before the first */
    bool served_one;    /* the idle time is that between requests */
    bool complete;      /* the whole request has arrived */
    bool answered;      /* refused early: the rest of its body is thrown away */
    bool overfull;      /* beyond max_connections: 503 */

    /* answer */
    struct tr_outbuf out;
    struct tr_head_extra extra;
    bool head_sent, chunked_out, no_body, answer_done, keep;
    bool want_writable, fin_told;
    uint64_t accepted, written, acked;
    uint64_t blocked_ns; /* bytes wait and the kernel takes none since; 0: not so */
    uint64_t linger_ns;  /* until */
    size_t linger_left;

    struct tr_conn_raw raw;

    /* deliveries that wait, oldest and lowest `upto` first; the connection is then in d->deliver */
    STAILQ_HEAD(, tr_delivered) deliveries;
    unsigned ask_level; /* which list: it is asked after so long a pause */
    uint64_t ask_ns;    /* when next */

    bool dirty, again;
    TAILQ_ENTRY(tr_conn) all_link, dirty_link, again_link, deliver_link;
};

TAILQ_HEAD(tr_conn_list, tr_conn);

enum { TR_DELIVER_LEVELS = 5 }; /* pauses of 10 ms, and twice as long each */

struct tr_httpd {
    struct event_base *base;
    const struct tr_http_limits *lim;
    struct tr_httpd_ops ops;
    struct tr_httpd_stats own, *stats; /* stats: own, or those of another one of this process */
    struct event *turn_ev, *again_ev, *deliver_ev;
    bool turn_due, again_due;
    struct tr_tls *tls;           /* of all connections; NULL: plain */
    struct tr_access_log *access; /* NULL: nothing is noted */
    unsigned
        handshakes; /* steps of them in this turn: they are the dearest thing a client can ask */
    bool draining;  /* idle connections are closed */
    uint64_t retire_ns; /* each answer is its connection's last, since; 0: not so */
    struct tr_conn_list all, dirty, again, dead;
    struct tr_conn *asked; /* the last one that the gauge of kernel bytes looked at, or NULL */
    /* Connections with deliveries, by pause: within a list they are due in this order. */
    struct tr_conn_list deliver[TR_DELIVER_LEVELS];
    unsigned n_deliver;     /* in all of them */
    bool deliver_armed;     /* deliver_ev is pending */
    bool clock_missed;      /* a connection's timer could not be armed */
    struct tr_outpool pool; /* of output */
    struct {
        const struct tr_h2_service *service;
        void *ctx;
    } service[TR_H2_SERVICES]; /* of streams of HTTP/2 that are no ordinary requests */
    unsigned n_services;
    struct tr_emit text; /* scratch of one answer */
    char scratch[64 << 10];
};

/* Whether the answer that begins now is the connection's last. */
static inline bool tr_httpd_is_ending(const struct tr_httpd *d)
{
    return d->draining || d->retire_ns;
}

/* conn.c */
void tr_conn_arm(struct tr_conn *c);  /* its timer, for the next thing that time can do to it */
void tr_conn_work(struct tr_conn *c); /* everything that can be done now; from the loop only */
void tr_conn_turn_end(struct tr_conn *c);
void tr_conn_close_idle(struct tr_conn *c); /* if it has had its answers and sends nothing */
void tr_conn_kill(struct tr_conn *c, enum tr_gone why); /* from the loop only */
void tr_conn_reap(struct tr_conn *c);
void tr_conn_close_hard(const struct tr_conn *c, bool on);
void tr_conn_write_out(struct tr_conn *c);        /* what the kernel takes; faults in `broken` */
bool tr_conn_takes_more(const struct tr_conn *c); /* who waits for room is to be told of it */
bool tr_conn_peer_lives(struct tr_conn *c);       /* else it was killed; sees a FIN too */

/* intake.c */
void tr_conn_note(struct tr_conn *c,
                  const struct tr_http *h); /* once for each request (access.h) */
char *tr_conn_take_body(struct tr_conn *c);
void tr_conn_read(struct tr_conn *c);        /* READING: what has come, as far as it may be taken */
size_t tr_conn_read_some(struct tr_conn *c); /* into the scratch: bytes, 0 if there are none now */
void tr_conn_drop(struct tr_conn *c);        /* LINGER: what has come, thrown away */
void tr_conn_advance(struct tr_conn *c);     /* on from an answer that has ended, if one has */

/* answer.c */
void tr_conn_put(struct tr_conn *c, const char *p, size_t n);
extern const struct tr_exchange_ops tr_conn_exchange_ops;

/* protocol.c: everything that can be done now; the end of a turn; the last call */
void tr_conn_raw_work(struct tr_conn *c);
void tr_conn_raw_turn_end(struct tr_conn *c);
void tr_conn_raw_gone(struct tr_conn *c, enum tr_gone why);

/* httpd.c */
void tr_conn_mark(struct tr_conn *c); /* has work at the end of this turn */
void tr_conn_unmark(struct tr_conn *c);
void tr_conn_later(struct tr_conn *c); /* has work in the next turn */

/* delivery.c */
void tr_conn_delivery_gone(struct tr_conn *c);
void tr_httpd_deliver_arm(struct tr_httpd *d); /* if somebody waits; again if it failed */
void tr_httpd_ask_kernel(struct tr_httpd *d);
void tr_httpd_deliver(evutil_socket_t fd, short what, void *arg);

#endif
