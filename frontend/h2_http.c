/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/h2_http.c - one stream of HTTP/2 as an exchange: routes, handlers and limits of HTTP/1. */
#include "frontend/h2_priv.h"

#include "base/assert.h"
#include "base/clock.h"
#include "frontend/access.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GIVE_BYTES = 16 << 10,      /* an answer that is shorter is cheaper to copy */
    BODIES_PER_TURN = 16 << 10, /* bytes: what handlers make of more takes others' time */
    REQUESTS_PER_TURN = 16
};

struct h2_http {
    struct tr_exchange x;
    struct tr_h2_stream *s;
    struct tr_http_request rq;
    struct tr_body body;
    struct tr_head_extra extra;
    char request_id[TR_CARRIER_ID_BYTES + 1];
    bool answered; /* the answer has begun */
    bool done;     /* and ended, or it was cut */
    bool no_body;  /* HEAD */
};

static struct h2_http *http_of(struct tr_exchange *x)
{
    return (struct h2_http *)((char *)x - offsetof(struct h2_http, x));
}

static const struct h2_http *const_http_of(const struct tr_exchange *x)
{
    return (const struct h2_http *)((const char *)x - offsetof(struct h2_http, x));
}

/* ---- answers ---------------------------------------------------------------------------- */

static int add_header(struct tr_exchange *x, const char *name, const char *value)
{
    return tr_carrier_extra(&http_of(x)->extra, name, value);
}

/* The fields of every answer; the rest, and the end, are the caller's. */
static struct tr_emit *begin_head(struct h2_http *r, const char *type)
{
    struct tr_emit *t = &r->s->h->d->text;
    TR_ASSERT(!r->answered);
    r->answered = true;
    tr_emit_reset(t);
    tr_carrier_fields(t, r->s->h->d->lim, type, r->request_id, &r->extra);
    tr_carrier_extra_drop(&r->extra);
    return t;
}

static void end_head(struct h2_http *r, struct tr_emit *t, int status, bool end)
{
    if (t->failed)
        tr_h2_reset(r->s, TR_H2_INTERNAL_ERROR);
    else
        tr_h2_head_lines(r->s, status, t->buf, t->len, end);
}

static void done(struct h2_http *r)
{
    r->done = true;
    r->s->body_ns = 0;
    tr_exchange_unbind(&r->x);
}

/* True if a body follows. */
static bool reply_head(struct h2_http *r, int status, const char *type, size_t len)
{
    struct tr_emit *t = begin_head(r, type);
    bool end = r->no_body || status == 204 || len == 0;
    char number[32];
    if (status != 204 && status != 304) {
        snprintf(number, sizeof(number), "%zu", len);
        tr_carrier_field(t, "Content-Length", number);
    }
    end_head(r, t, status, end);
    return !end;
}

static void reply(struct tr_exchange *x, int status, const char *type, const char *body, size_t len)
{
    struct h2_http *r = http_of(x);
    if (reply_head(r, status, type, len)) {
        tr_h2_write(r->s, body, len);
        tr_h2_end(r->s, NULL, 0);
    }
    done(r);
}

static void reply_give(struct tr_exchange *x, int status, const char *type, char *body, size_t len)
{
    struct h2_http *r = http_of(x);
    if (len < GIVE_BYTES || r->no_body) {
        reply(x, status, type, body, len);
        free(body);
        return;
    }
    reply_head(r, status, type, len);
    tr_h2_give(r->s, body, len);
    tr_h2_end(r->s, NULL, 0);
    done(r);
}

static void stream_begin(struct tr_exchange *x, const char *type)
{
    struct h2_http *r = http_of(x);
    struct tr_emit *t = begin_head(r, type);
    tr_carrier_stream_fields(t);
    end_head(r, t, 200, r->no_body);
}

static void stream_write(struct tr_exchange *x, const char *data, size_t len)
{
    tr_h2_write(http_of(x)->s, data, len);
}

static void stream_end(struct tr_exchange *x)
{
    struct h2_http *r = http_of(x);
    tr_h2_end(r->s, NULL, 0);
    done(r);
}

static void stream_abort(struct tr_exchange *x, bool hard)
{
    struct h2_http *r = http_of(x);
    tr_h2_reset(r->s, hard ? TR_H2_CANCEL : TR_H2_INTERNAL_ERROR);
    done(r);
}

static void flush(struct tr_exchange *x)
{
    tr_h2_flush(http_of(x)->s);
}

/* ---- counts ------------------------------------------------------------------------------ */

static size_t unsent(const struct tr_exchange *x)
{
    return tr_h2_unsent(const_http_of(x)->s);
}

static size_t room(const struct tr_exchange *x)
{
    return tr_h2_room(const_http_of(x)->s);
}

static uint64_t accepted(const struct tr_exchange *x)
{
    return tr_h2_accepted(const_http_of(x)->s);
}

static uint64_t acked(struct tr_exchange *x)
{
    return tr_h2_acked(http_of(x)->s);
}

static uint64_t blocked_ns(const struct tr_exchange *x)
{
    return tr_h2_blocked_ns(const_http_of(x)->s);
}

static bool half_closed(const struct tr_exchange *x)
{
    return tr_h2_half_closed(const_http_of(x)->s);
}

static char *take_body(struct tr_exchange *x)
{
    struct h2_http *r = http_of(x);
    return tr_carrier_body_take(r->s->h->d, &r->body);
}

static void deliver(struct tr_exchange *x, struct tr_delivered *d)
{
    tr_h2_deliver(http_of(x)->s, d);
}

static const struct tr_exchange_ops ops = {.header = add_header,
                                           .reply = reply,
                                           .reply_give = reply_give,
                                           .stream_begin = stream_begin,
                                           .stream_write = stream_write,
                                           .stream_end = stream_end,
                                           .stream_abort = stream_abort,
                                           .flush = flush,
                                           .unsent = unsent,
                                           .room = room,
                                           .accepted = accepted,
                                           .acked = acked,
                                           .blocked_ns = blocked_ns,
                                           .half_closed = half_closed,
                                           .take_body = take_body,
                                           .deliver = deliver};

/* ---- requests ---------------------------------------------------------------------------- */

static void go_on(struct tr_h2_stream *s)
{
    static const nghttp2_nv nv = {
        .name = (uint8_t *)":status", .namelen = 7, .value = (uint8_t *)"100", .valuelen = 3};
    nghttp2_submit_headers(s->h->session, NGHTTP2_FLAG_NONE, s->id, NULL, &nv, 1, NULL);
}

static void *http_open(void *ctx, struct tr_h2_stream *s, const struct tr_http *head)
{
    struct h2_http *r = calloc(1, sizeof(*r));
    bool keep = true;
    (void)ctx;
    if (!r)
        return NULL;
    s->h->d->stats->requests++;
    r->s = s;
    r->x.ops = &ops;
    r->x.request_id = r->request_id;
    r->no_body = s->bad == TR_OK && head->method == TR_HTTP_HEAD_METHOD;
    tr_carrier_id(head, r->request_id);
    r->rq = (struct tr_http_request){
        .http = head, .request_id = r->request_id, .arrived_ns = s->since_ns};
    tr_access_begin(&r->x, s->h->d->access, s->bad == TR_OK ? head : NULL, "h2", &s->h->c->peer,
                    s->since_ns);
    s->body_ns = s->piece_ns = tr_now_ns();
    if (s->h->overfull) /* it is told so, and no more is taken */
        tr_h2_last_word(s->h);
    if (s->bad != TR_OK)
        tr_exchange_error(&r->x, s->bad, s->bad_why, NULL);
    else if (!tr_carrier_refuses(s->h->d, &r->x, &r->rq, s->h->overfull, &keep) &&
             head->expect_continue)
        go_on(s);
    return r;
}

static void http_data(void *state, const char *data, size_t len)
{
    struct h2_http *r = state;
    const char *why;
    tr_h2_consume(r->s, len);
    if (r->done)
        return;
    enum tr_err e =
        tr_carrier_body(r->s->h->d, &r->body, r->rq.http, (struct tr_slice){data, len}, &why);
    if (e != TR_OK)
        tr_exchange_error(&r->x, e, why, NULL);
}

/* It is handled when the turn ends: not from within the library. */
static void http_end(void *state)
{
    struct h2_http *r = state;
    r->s->body_ns = 0;
    if (r->done)
        return;
    r->s->is_ready = true;
    TAILQ_INSERT_TAIL(&r->s->h->ready, r->s, ready_link);
}

static void handle(struct h2_http *r)
{
    struct tr_httpd *d = r->s->h->d;
    r->rq.body = (struct tr_slice){r->body.p, r->body.len};
    tr_access_at(&r->x, TR_AT_BODY, tr_now_ns());
    r->rq.route->handler(&r->x, &r->rq, d->ops.ctx);
    if (r->done || r->x.owner_ops)
        return;
    if (r->answered)
        tr_exchange_stream_abort(&r->x, false);
    else
        tr_exchange_error(&r->x, TR_ERR_INTERNAL, NULL, NULL);
}

/* An owner that has come since is told that the FIN had come before. */
static void tell_fin(struct h2_http *r)
{
    if (r->s->h->fin && r->x.owner_ops)
        r->x.owner_ops->half_closed(r->x.owner);
}

void tr_h2_http_run(struct tr_h2 *h)
{
    size_t bytes = 0;
    struct tr_h2_stream *s;
    for (int i = 0; i < REQUESTS_PER_TURN && bytes < BODIES_PER_TURN; i++) {
        if (!(s = TAILQ_FIRST(&h->ready)))
            return;
        TAILQ_REMOVE(&h->ready, s, ready_link);
        s->is_ready = false;
        if (s->service != &tr_h2_http)
            continue;
        struct h2_http *r = s->state;
        bytes += r->body.len;
        handle(r);
        tell_fin(r);
    }
}

void tr_h2_http_timeout(struct tr_h2_stream *s)
{
    struct h2_http *r = s->state;
    s->body_ns = 0;
    if (s->service != &tr_h2_http)
        return;
    if (r->done) { /* the rest of a body that nobody needs */
        tr_h2_reset(s, TR_H2_NO_ERROR);
        return;
    }
    s->h->d->stats->timeouts++;
    tr_exchange_error(&r->x, TR_ERR_REQUEST_TIMEOUT, NULL, NULL);
}

static void http_writable(void *state)
{
    struct h2_http *r = state;
    if (r->x.owner_ops)
        r->x.owner_ops->writable(r->x.owner);
}

static void http_half_closed(void *state)
{
    struct h2_http *r = state;
    if (r->x.owner_ops)
        r->x.owner_ops->half_closed(r->x.owner);
}

static void http_gone(void *state, enum tr_gone why)
{
    struct h2_http *r = state;
    struct tr_httpd *d = r->s->h->d;
    const struct tr_owner_ops *owner_ops = r->x.owner_ops;
    void *owner = r->x.owner;
    tr_exchange_unbind(&r->x);
    if (owner_ops) {
        d->stats->resets += why == TR_GONE_RESET;
        owner_ops->gone(owner, why);
    }
    tr_access_gone(&r->x, why);
    r->s->body_ns = 0;
    free(tr_carrier_body_take(d, &r->body));
    tr_carrier_extra_drop(&r->extra);
    free(r);
}

size_t tr_h2_http_bytes(void)
{
    return sizeof(struct h2_http) + TR_CARRIER_EXTRA_BYTES;
}

static bool takes_all(void *ctx, const struct tr_http *head)
{
    (void)ctx, (void)head;
    return true;
}

const struct tr_h2_service tr_h2_http = {.takes = takes_all,
                                         .open = http_open,
                                         .data = http_data,
                                         .end = http_end,
                                         .writable = http_writable,
                                         .half_closed = http_half_closed,
                                         .gone = http_gone};
