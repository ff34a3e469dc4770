/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/fe.h - what one frontend process has: made by frontend.c before it serves, handed to
 * everything else in frontend/ as `struct tr_fe *`.
 *
 * One thread, the event loop's.  Worker threads may read `vocab` and `chat` (immutable) and nothing
 * else. */
#ifndef TR_FRONTEND_FE_H
#define TR_FRONTEND_FE_H

#include "frontend/access.h"
#include "frontend/balance.h"
#include "frontend/conn.h"
#include "base/emit.h"
#include "frontend/frontend.h"
#include "shm/stat.h"
#include "text/chat.h"
#include "text/chat_traits.h"
#include "text/split.h"
#include "text/vocab.h"

#include <event2/event.h>

#include <sys/queue.h>

struct tr_httpd;
struct tr_http_limits;
struct tr_grpc;
struct tr_workers;
struct tr_stream;
struct tr_cancel_wait;
struct tr_poll;
TAILQ_HEAD(tr_stream_due, tr_stream);
TAILQ_HEAD(tr_stream_gate, tr_stream);
TAILQ_HEAD(tr_stream_held, tr_stream);
TAILQ_HEAD(tr_polls, tr_poll);

struct tr_fe {
    struct tr_shm *shm;
    const struct tr_frontend_config *cfg;
    struct event_base *base;
    struct tr_httpd *httpd;
    struct tr_httpd *grpcd;      /* of the port for gRPC, counts with httpd; NULL: there is none */
    struct tr_grpc *grpc;        /* its services */
    struct tr_tls *tls;          /* of its connections; NULL: plain */
    struct tr_access_log access; /* of the requests on all of them */
    struct tr_balance balance;   /* of connections, with the other frontends */
    struct tr_http_limits *limits;
    struct tr_workers *workers; /* NULL: everything inline (tests) */

    struct tr_vocab *vocab;
    struct tr_chat *chat; /* NULL: no template, chat is refused */
    struct tr_chat_traits traits;
    enum tr_tool_format tool_format; /* how this model writes calls; NONE: tools are refused */
    enum tr_reasoning_format reasoning_format;

    /* What the control page said last (frontend.c). */
    uint32_t control_seen;
    uint32_t drain;   /* enum tr_drain */
    bool retires;     /* another has taken our place: no new connection, then the end */
    bool was_ready;   /* the engine has been ready once */
    bool engine_gone; /* and none will come any more */
    uint64_t beat_ns; /* last sign of life of an engine that served; 0 none yet */

    struct tr_stat *stat;       /* ours */
    struct tr_stream *streams;  /* all open, doubly linked (stream.c) */
    struct tr_stream **by_slot; /* [n_slots] whose ring it is; NULL: nobody's here */
    struct tr_stream_due due;   /* to be looked at in this turn (stream_turn.c) */
    uint32_t n_due;             /* so many */
    struct tr_stream_gate gate; /* wait for their record (stream.c) */
    struct tr_stream_held held; /* have no reader, oldest first (hold.c) */
    uint32_t n_held;            /* so many */
    uint32_t n_answers;         /* of those, kept for their keys alone */
    bool hold_missed;           /* one that was given to us found no memory (hold.c) */
    uint64_t durable_seen;      /* the ledger's count when those were last looked at */
    bool clock_missed;          /* a stream's timer could not be armed (stream_clock.c) */
    uint64_t whole_left;        /* tokens that this turn may still make into text (whole.h) */
    uint64_t behind;            /* tokens scanned and not yet sent, over all streams */
    uint32_t n_streams;         /* requests admitted and not yet ended */
    uint32_t n_asks;            /* requests being tokenised */
    uint32_t n_deliveries;      /* delivery records waiting for an acknowledgement */
    size_t ws_held;             /* bytes of large messages on their way (ws_wire.h) */
    struct tr_cancel_wait *cancel_wait; /* DELETEs waiting for the end (api_native.c) */
    struct tr_polls polls; /* questions about responses, oldest first (api_responses_id.c) */

    struct event *bell_ev, *tick_ev, *wake_ev;
    uint64_t writes_seen;      /* the same of writes */
    uint64_t requests_seen;    /* HTTP requests already added to the statistics */
    uint64_t turned_away_seen; /* the same of requests there was no room for */
    uint64_t dropped_seen;     /* the same of lines of the log that found no room */
    uint64_t unanswered_seen;  /* the same of connections closed at once */

    struct tr_emit json, frame; /* scratch of one event; reset before use */
    char *text;                 /* scratch of one event's text, TR_EVENT_TEXT_CAP (stream.h) */
    struct tr_parts *parts;     /* scratch: what one token adds to an answer that is taken apart */
    uint64_t wake_ns; /* when the loop must look at DELETEs again although nobody rings; 0 never */
};

/* Opens vocabulary and template, makes the event base and the connections: all that needs files or
 * executable memory.  Nothing is accepted yet (frontend.c does).  The role must be FRONTEND.  *fe is
 * filled; 0, or -EINVAL with a sentence, and *fe is then closed again. */
int tr_fe_open(struct tr_fe *fe, struct tr_shm *s, const struct tr_frontend_config *c,
               struct tr_errbuf *err);
/* Once, after the sandbox was entered: the threads are born in it.  Without it all work is done by
 * the event loop.  0, or -EINVAL with a sentence. */
int tr_fe_start_workers(struct tr_fe *fe, unsigned n, struct tr_errbuf *err);
void tr_fe_close(struct tr_fe *fe);

/* One turn: rings with news, streams whose time has come or whose socket takes bytes again, then
 * sockets.  It costs what changed, however many streams are open.  Sleeps until something happens, at most to the next tick, if
 * `may_sleep`. */
void tr_fe_turn(struct tr_fe *fe, bool may_sleep);

/* TR_OK, or why no request is taken now.  While an engine is replaced they are: they wait in the queue
 * for the next one, as far as there are places. */
enum tr_err tr_fe_state(const struct tr_fe *fe);

/* Whether an engine serves in this moment. */
bool tr_fe_served(const struct tr_fe *fe);

/* Ready for new work: TR_OK, or the error that /health answers.  An engine that is replaced within five
 * seconds is not told. */
enum tr_err tr_fe_ready(const struct tr_fe *fe);

/* 64 random bits; the kernel's, drawn after the fork. */
uint64_t tr_fe_random(void);

#endif
