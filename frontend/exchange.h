/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/exchange.h - one request and its answer, over whatever carries them.
 *
 * Path: http [exchange] > tokens > subq > engine > step > ring > detok > event > frame > socket
 *
 * Frontend only, event loop only.  A carrier makes it: a connection of HTTP/1 has one (conn.h), and uses
 * it for one request after the other; a carrier that multiplexes has one for each request under way.
 * Handlers, streams and everything else above a carrier know nothing else of it.
 *
 * Whoever answers a request later than inside the handler binds itself as the *owner*.
 *
 *   I1  callbacks of the owner are made from the event loop only, never from inside a tr_exchange_*
 *       call; a tr_exchange_* call never frees the exchange while anybody is on the stack
 *   I2  after `gone` has returned, or tr_exchange_stream_end/abort or a reply was called, the owner is
 *       unbound and must not use the exchange again (tr_exchange_deliver and the counts of that turn
 *       excepted)
 *   I3  one tr_exchange_stream_write is one frame of the carrier (a chunk, a message, DATA)
 *   I4  one exchange without room, or cut, changes nothing for another one of the same carrier
 *
 * Full: tr_exchange_room says 0; `writable` tells when to go on.
 * Peer died: `gone`, once. */
#ifndef TR_FRONTEND_EXCHANGE_H
#define TR_FRONTEND_EXCHANGE_H

#include "base/err.h"
#include "frontend/http.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct tr_access;
struct tr_emit;
struct tr_exchange;
struct tr_key;
struct tr_route;

/* A request in a handler (struct tr_request is that of shm/request.h).  Borrowed: valid until the
 * handler returns if the answer was given in it, else until the answer ends or `gone` returns. */
struct tr_http_request {
    const struct tr_http *http;
    struct tr_slice id_param; /* what {id} of the route matched; empty if the route has none */
    struct tr_slice body;     /* whole body, contiguous; not ended by NUL */
    const char *request_id;   /* the client's x-request-id if printable and <= 128, else made */
    const struct tr_route *route;
    const struct tr_key
        *key;            /* whose it is (key.h); NULL: no key was needed.  Good for the life of the
                               * process */
    uint64_t arrived_ns; /* first byte of the request */
    bool is_one_of_many; /* `http` is the head of a connection, or call, of several requests */
};

typedef void tr_handler(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx);

/* Why an owner loses its exchange. */
enum tr_gone {
    TR_GONE_RESET, /* reset by the peer, or a write failed */
    TR_GONE_SLOW,  /* nothing could be written for write_deadline_ns, or TCP_USER_TIMEOUT */
    TR_GONE_SHUT   /* the server closes (tr_httpd_free) */
};

struct tr_owner_ops {
    void (*writable)(void *owner);    /* there was no room, and is again */
    void (*half_closed)(void *owner); /* FIN seen, once; a stream probes, others cancel */
    void (*gone)(void *owner, enum tr_gone why); /* the last call; then the exchange is freed */
};

/* Calls `done` once, from the loop: when `upto` bytes (a count of tr_exchange_accepted) are
 * acknowledged, when the socket is gone, or after 2 s.  The struct is the caller's and must live
 * until then. */
struct tr_delivered {
    uint64_t upto;
    void (*done)(struct tr_delivered *d, uint64_t acked);
    /* private, the carrier's */
    STAILQ_ENTRY(tr_delivered) link;
    uint64_t until_ns;
};

/* One error as the body of an answer, in the words of a dialect. */
struct tr_problem {
    enum tr_err err;
    const char *message;    /* never NULL */
    const char *param;      /* or NULL */
    const char *request_id; /* "" if there is none yet */
};
typedef void tr_error_body(struct tr_emit *e, const struct tr_problem *p);

/* What a carrier does; the functions below say what each one means. */
struct tr_exchange_ops {
    int (*header)(struct tr_exchange *x, const char *name, const char *value);
    void (*reply)(struct tr_exchange *x, int status, const char *type, const char *body,
                  size_t len);
    void (*reply_give)(struct tr_exchange *x, int status, const char *type, char *body, size_t len);
    /* NULL: the answer that tr_exchange_error makes of header and reply. */
    void (*error)(struct tr_exchange *x, const struct tr_problem *p);
    void (*stream_begin)(struct tr_exchange *x, const char *type);
    void (*stream_write)(struct tr_exchange *x, const char *data, size_t len);
    void (*stream_end)(struct tr_exchange *x);
    void (*stream_abort)(struct tr_exchange *x, bool hard);
    void (*flush)(struct tr_exchange *x);
    bool (*probe)(struct tr_exchange *x); /* NULL: it has none */
    size_t (*unsent)(const struct tr_exchange *x);
    size_t (*room)(const struct tr_exchange *x);
    uint64_t (*accepted)(const struct tr_exchange *x);
    uint64_t (*acked)(struct tr_exchange *x);
    uint64_t (*blocked_ns)(const struct tr_exchange *x);
    bool (*half_closed)(const struct tr_exchange *x);
    char *(*take_body)(struct tr_exchange *x);
    void (*deliver)(struct tr_exchange *x, struct tr_delivered *d);
    void (*bound)(struct tr_exchange *x); /* an owner has come; NULL: nothing to do */
};

struct tr_exchange {
    const struct tr_exchange_ops *ops; /* the carrier's */
    const struct tr_owner_ops *owner_ops;
    void *owner;               /* NULL: nobody */
    tr_error_body *error_body; /* the route's, from when it is known; NULL: OpenAI's */
    const char *request_id;    /* the carrier's memory; NULL: not known yet */
    struct tr_access *access;  /* what is noted of the request (access.h), or NULL */
    unsigned retry_s; /* what the next error says to a client that is to wait; 0: a second */
    bool limited;     /* by the client, who says how many ... */
    uint64_t credit;  /* ... tokens of text may still be written */
};

/* ---- inside (access.c): the answer's status, its error; it is complete, or was cut ---- */

void tr_access_answer(struct tr_exchange *x, int status);
void tr_access_streams(struct tr_exchange *x);
void tr_access_error(struct tr_exchange *x, enum tr_err e);
void tr_access_over(struct tr_exchange *x, bool whole);

/* ---- answering -------------------------------------------------------------------------- */

/* Adds a field to the next answer's head.  Name and value are checked: CR, LF, NUL or a full
 * table (2 KiB) are -EINVAL / -E2BIG and nothing is added.  A carrier without heads: 0. */
static inline int tr_exchange_header(struct tr_exchange *x, const char *name, const char *value)
{
    return x->ops->header(x, name, value);
}

/* The whole answer.  `type` NULL: no Content-Type.  The body is copied.  With HEAD it is left out.
 * Unbinds the owner. */
static inline void tr_exchange_reply(struct tr_exchange *x, int status, const char *type,
                                     const char *body, size_t len)
{
    if (x->access)
        tr_access_answer(x, status);
    x->ops->reply(x, status, type, body, len);
    if (x->access)
        tr_access_over(x, true);
}

/* The same with a body from malloc, which is the exchange's from here on in every case. */
static inline void tr_exchange_reply_give(struct tr_exchange *x, int status, const char *type,
                                          char *body, size_t len)
{
    if (x->access)
        tr_access_answer(x, status);
    x->ops->reply_give(x, status, type, body, len);
    if (x->access)
        tr_access_over(x, true);
}

/* The error object of the route's dialect; `message` NULL: the table's sentence; `param` may be NULL.
 * Retry-After: 1 on 429 and 503.  Unbinds the owner. */
void tr_exchange_error(struct tr_exchange *x, enum tr_err e, const char *message,
                       const char *param);

/* The same with a formatted message (cut at 511 bytes). */
void tr_exchange_errorf(struct tr_exchange *x, enum tr_err e, const char *param, const char *fmt,
                        ...) __attribute__((format(printf, 4, 5)));

/* {"error":{message,type,param,code}} */
tr_error_body tr_error_body_openai;

/* Head of a stream: status 200, no-cache, no-transform, X-Accel-Buffering: no, Incremental: ?1. */
static inline void tr_exchange_stream_begin(struct tr_exchange *x, const char *type)
{
    if (x->access)
        tr_access_streams(x);
    x->ops->stream_begin(x, type);
}

/* One frame.  Always takes it (ask tr_exchange_room first).  An empty one is nothing. */
static inline void tr_exchange_stream_write(struct tr_exchange *x, const char *data, size_t len)
{
    x->ops->stream_write(x, data, len);
}

/* Ends the answer properly.  Unbinds the owner.  What is still unsent is written by the carrier. */
static inline void tr_exchange_stream_end(struct tr_exchange *x)
{
    x->ops->stream_end(x);
    if (x->access)
        tr_access_over(x, true);
}

/* Ends it so that the cut shows; `hard`: in any case, also if bytes that are on their way are lost.
 * Unbinds the owner. */
static inline void tr_exchange_stream_abort(struct tr_exchange *x, bool hard)
{
    x->ops->stream_abort(x, hard);
    if (x->access)
        tr_access_over(x, false);
}

/* Writes what there is now instead of at the end of the turn.  Errors are reported later, from
 * the loop. */
static inline void tr_exchange_flush(struct tr_exchange *x)
{
    x->ops->flush(x);
}

/* A sign of life that is the carrier's own (a ping frame).  False: it has none, or it does not do
 * instead of one in the answer. */
static inline bool tr_exchange_probe(struct tr_exchange *x)
{
    return x->ops->probe && x->ops->probe(x);
}

/* ---- room and counts --------------------------------------------------------------------- */

/* Bytes accepted and not yet taken by the kernel; room until stream_buffer.  No room (0: wait for
 * `writable`) as soon as the kernel, or the peer's flow control, has refused what is there. */
static inline size_t tr_exchange_unsent(const struct tr_exchange *x)
{
    return x->ops->unsent(x);
}

static inline size_t tr_exchange_room(const struct tr_exchange *x)
{
    return x->ops->room(x);
}

/* Counts that only grow: bytes accepted by the calls above, and how many of them the peer's kernel has
 * acknowledged (never more than that, maybe less).  They may have begun before this request; its share
 * is the difference to the count at its beginning. */
static inline uint64_t tr_exchange_accepted(const struct tr_exchange *x)
{
    return x->ops->accepted(x);
}

static inline uint64_t tr_exchange_acked(struct tr_exchange *x)
{
    return x->ops->acked(x);
}

/* Since when bytes wait and none of them could be written; 0: not so. */
static inline uint64_t tr_exchange_blocked_ns(const struct tr_exchange *x)
{
    return x->ops->blocked_ns(x);
}

/* ---- owner ------------------------------------------------------------------------------- */

void tr_exchange_bind(struct tr_exchange *x, const struct tr_owner_ops *ops, void *owner);
void tr_exchange_unbind(struct tr_exchange *x);

/* The request's body, which is the caller's from here on (free); it keeps its place, so rq->body is
 * good for as long.  NULL if it is empty or was taken. */
static inline char *tr_exchange_take_body(struct tr_exchange *x)
{
    return x->ops->take_body(x);
}

/* Whether the client's FIN was seen (it may have come before tr_exchange_bind: ask after binding). */
static inline bool tr_exchange_half_closed(const struct tr_exchange *x)
{
    return x->ops->half_closed(x);
}

/* Allowed for the owner just after it has ended the answer. */
static inline void tr_exchange_deliver(struct tr_exchange *x, struct tr_delivered *d)
{
    x->ops->deliver(x, d);
}

#endif
