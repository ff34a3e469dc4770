/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/ws_stream.c - see ws_stream.h. */
#include "frontend/ws_stream.h"

#include "base/clock.h"
#include "frontend/access.h"
#include "frontend/fe.h"
#include "frontend/protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_BYTES = 11 /* a dot and a number */ };

/* ---- messages ---- */

static void put_head(struct tr_emit *e, const char *label)
{
    tr_emit_init(e);
    tr_emit_obj(e);
    if (label[0])
        tr_emit_kstr(e, "stream", label);
}

/* For what the client sent, or in place of an answer. */
static void put_reply(struct tr_ws *w, struct tr_emit *e)
{
    tr_emit_obj_end(e);
    if (!e->failed)
        tr_ws_session_reply(&w->session, e->buf, e->len);
    tr_emit_fini(e);
}

static void put_error(struct tr_ws *w, const char *label, const char *id,
                      const struct tr_problem *p)
{
    const struct tr_err_info *info = tr_err_info(p->err);
    struct tr_emit e;

    put_head(&e, label);
    tr_emit_kstr(&e, "type", "error");
    if (id[0])
        tr_emit_kstr(&e, "stream_id", id);
    tr_emit_kstr(&e, "code", info->code);
    tr_emit_kstr(&e, "message", p->message);
    tr_emit_kstr(&e, "param", p->param);
    tr_emit_kbool(&e, "retryable", info->status == 503 || info->status == 429);
    tr_emit_ku64(&e, "status", (uint64_t)info->status);
    put_reply(w, &e);
}

void tr_ws_error(struct tr_ws *w, const char *label, enum tr_err err, const char *message,
                 const char *param)
{
    put_error(w, label, "",
              &(struct tr_problem){.err = err,
                                   .message = message ? message : tr_err_info(err)->sentence,
                                   .param = param,
                                   .request_id = ""});
}

/* A message of one word about a stream. */
static void put_word(struct tr_ws_stream *st, const char *type)
{
    struct tr_emit e;

    put_head(&e, st->label);
    tr_emit_kstr(&e, "type", type);
    put_reply(st->w, &e);
}

/* ---- the life of an exchange ---- */

static struct tr_ws_stream *of(const struct tr_exchange *x)
{
    return (struct tr_ws_stream *)x; /* made by us, so it is not const */
}

static void finish(struct tr_ws_stream *st)
{
    struct tr_ws *w = st->w;

    tr_exchange_unbind(&st->x);
    tr_ws_turn_leave(&w->turn, &st->member);
    TAILQ_REMOVE(&w->open, st, link);
    TAILQ_INSERT_TAIL(&w->over, st, link);
    tr_conn_raw_busy(w->session.c, --w->n_open);
    tr_ws_session_mark(&w->session);
}

static void free_stream(struct tr_ws_stream *st)
{
    free(st->body);
    free(st->delivery[0]);
    free(st->delivery[1]);
    free(st);
}

static void free_over(struct tr_ws *w)
{
    struct tr_ws_stream *st;

    while ((st = TAILQ_FIRST(&w->over))) {
        TAILQ_REMOVE(&w->over, st, link);
        free_stream(st);
    }
}

/* ---- answers ---- */

static int on_header(struct tr_exchange *x, const char *name, const char *value)
{
    (void)x, (void)name, (void)value;
    return 0;
}

/* Only what is not a stream: the end of one that somebody else reads, or nothing. */
static void on_reply(struct tr_exchange *x, int status, const char *type, const char *body,
                     size_t len)
{
    static const char done[] = "{\"type\":\"cancel.done\",";
    struct tr_ws_stream *st = of(x);
    struct tr_emit e;

    (void)type;
    if (st->label[0] || status == 204 || len < 2) {
        put_word(st, "stream.done");
    } else {
        tr_emit_init(&e);
        tr_emit_bytes(&e, done, sizeof(done) - 1);
        tr_emit_bytes(&e, body + 1, len - 1);
        if (!e.failed)
            tr_ws_session_reply(&st->w->session, e.buf, e.len);
        tr_emit_fini(&e);
    }
    finish(st);
}

static void on_reply_give(struct tr_exchange *x, int status, const char *type, char *body,
                          size_t len)
{
    on_reply(x, status, type, body, len);
    free(body);
}

static void on_error(struct tr_exchange *x, const struct tr_problem *p)
{
    struct tr_ws_stream *st = of(x);

    put_error(st->w, st->label, st->id, p);
    finish(st);
}

static void on_stream_begin(struct tr_exchange *x, const char *type)
{
    (void)x, (void)type;
}

static void on_stream_write(struct tr_exchange *x, const char *data, size_t len)
{
    struct tr_ws_stream *st = of(x);
    struct tr_conn *c = st->w->session.c;
    uint64_t before = tr_conn_accepted(c);

    if (len < 2 ||
        !tr_ws_session_send(&st->w->session, TR_WS_TEXT, st->head, st->head_len, data + 1, len - 1))
        return;
    tr_marks_add(&st->marks, tr_conn_accepted(c) - before, tr_conn_accepted(c));
    tr_ws_turn_wrote(&st->w->turn, &st->member);
}

static void on_stream_end(struct tr_exchange *x)
{
    finish(of(x));
}

static void on_stream_abort(struct tr_exchange *x, bool hard)
{
    struct tr_ws_stream *st = of(x);

    (void)hard; /* the others go on in any case */
    put_word(st, "stream.reset");
    finish(st);
}

/* Whoever has room waits for the end of the turn: what all have brought leaves in one write. */
static void on_flush(struct tr_exchange *x)
{
    struct tr_conn *c = of(x)->w->session.c;

    if (tr_conn_raw_room(c) == 0)
        tr_conn_raw_flush(c);
}

static bool on_probe(struct tr_exchange *x)
{
    tr_ws_session_ping(&of(x)->w->session);
    return true;
}

/* ---- room and counts ---- */

static size_t on_unsent(const struct tr_exchange *x)
{
    const struct tr_ws_stream *st = of(x);
    const struct tr_conn *c = st->w->session.c;

    return (size_t)(st->marks.own -
                    tr_marks_upto(&st->marks, tr_conn_accepted(c) - tr_conn_unsent(c)));
}

static size_t on_room(const struct tr_exchange *x)
{
    struct tr_ws_stream *st = of(x);
    struct tr_ws *w = st->w;
    size_t room = tr_ws_turn_room(&w->turn, &st->member, tr_conn_raw_room(w->session.c));

    if (room == 0)
        tr_ws_session_mark(&w->session); /* its turn may come at the end of this one */
    return room;
}

static uint64_t on_accepted(const struct tr_exchange *x)
{
    return of(x)->marks.own;
}

static uint64_t on_acked(struct tr_exchange *x)
{
    struct tr_ws_stream *st = of(x);

    return tr_marks_acked(&st->marks, tr_conn_acked(st->w->session.c));
}

static uint64_t on_blocked_ns(const struct tr_exchange *x)
{
    return tr_conn_blocked_ns(of(x)->w->session.c);
}

static bool on_half_closed(const struct tr_exchange *x)
{
    (void)x; /* who closes his side is gone (ws_session.c) */
    return false;
}

static char *on_take_body(struct tr_exchange *x)
{
    struct tr_ws_stream *st = of(x);
    char *body = st->body;

    st->body = NULL;
    return body;
}

static void delivered(struct tr_delivered *d, uint64_t acked)
{
    struct tr_ws_delivery *wd = (struct tr_ws_delivery *)d;

    wd->of->done(wd->of, tr_marks_acked(&wd->marks, acked));
    free(wd);
}

static void on_deliver(struct tr_exchange *x, struct tr_delivered *d)
{
    struct tr_ws_stream *st = of(x);
    unsigned first = st->delivery[0] ? 0 : 1; /* it has one answer, so one of each kind */
    struct tr_ws_delivery *wd = st->delivery[first];

    st->delivery[first] = NULL;
    wd->d.upto = tr_conn_accepted(st->w->session.c);
    wd->d.done = delivered;
    wd->of = d;
    wd->marks = st->marks;
    tr_conn_deliver(st->w->session.c, &wd->d);
}

static const struct tr_exchange_ops ops = {.header = on_header,
                                           .reply = on_reply,
                                           .reply_give = on_reply_give,
                                           .error = on_error,
                                           .stream_begin = on_stream_begin,
                                           .stream_write = on_stream_write,
                                           .stream_end = on_stream_end,
                                           .stream_abort = on_stream_abort,
                                           .flush = on_flush,
                                           .probe = on_probe,
                                           .unsent = on_unsent,
                                           .room = on_room,
                                           .accepted = on_accepted,
                                           .acked = on_acked,
                                           .blocked_ns = on_blocked_ns,
                                           .half_closed = on_half_closed,
                                           .take_body = on_take_body,
                                           .deliver = on_deliver};

/* ---- beginning ---- */

struct tr_ws_stream *tr_ws_find(struct tr_ws *w, const char *label)
{
    struct tr_ws_stream *st;

    TAILQ_FOREACH(st, &w->open, link)
    {
        if (strcmp(st->label, label) == 0)
            return st;
    }
    return NULL;
}

/* What each of its messages begins with. */
static int make_head(struct tr_ws_stream *st)
{
    struct tr_emit e;
    int rc = -1;

    put_head(&e, st->label);
    if (!e.failed && e.len + 1 < sizeof(st->head)) {
        memcpy(st->head, e.buf, e.len);
        st->head[e.len] = ',';
        st->head_len = e.len + 1;
        rc = 0;
    }
    tr_emit_fini(&e);
    return rc;
}

static struct tr_ws_stream *new_stream(struct tr_ws *w, const char *label)
{
    struct tr_ws_stream *st = calloc(1, sizeof(*st));

    if (!st)
        return NULL;
    for (unsigned i = 0; i < 2; i++)
        st->delivery[i] = calloc(1, sizeof(*st->delivery[i]));
    snprintf(st->label, sizeof(st->label), "%s", label);
    snprintf(st->request_id, sizeof(st->request_id), "%.*s.%u", TR_CARRIER_ID_BYTES - NUMBER_BYTES,
             w->request_id, ++w->begun);
    if (!st->delivery[0] || !st->delivery[1] || (label[0] && make_head(st))) {
        free_stream(st);
        return NULL;
    }
    return st;
}

/* Its trace is that of the request which opened the WebSocket. */
static void note(struct tr_ws_stream *st)
{
    struct tr_ws *w = st->w;

    tr_access_begin(&st->x, tr_httpd_access(w->fe->httpd), w->http, "ws",
                    tr_conn_peer(w->session.c), st->rq.arrived_ns);
    if (st->x.access)
        st->x.access->route = "/v1/ws";
    tr_access_key(st->x.access, w->key);
    tr_access_at(&st->x, TR_AT_BODY, tr_now_ns());
}

struct tr_ws_stream *tr_ws_begin(struct tr_ws *w, const char *label, char *body, size_t len,
                                 enum tr_err *e)
{
    struct tr_ws_stream *st = w->n_open < TR_WS_STREAMS ? new_stream(w, label) : NULL;

    if (!st) {
        *e = w->n_open < TR_WS_STREAMS ? TR_ERR_INTERNAL : TR_ERR_STREAMS;
        free(body);
        return NULL;
    }
    st->w = w;
    st->body = body;
    st->x = (struct tr_exchange){.ops = &ops, .request_id = st->request_id};
    st->rq = (struct tr_http_request){.http = w->http,
                                      .key = w->key,
                                      .body = {body, len},
                                      .request_id = st->request_id,
                                      .arrived_ns = w->session.in_ns,
                                      .is_one_of_many = true};
    note(st);
    TAILQ_INSERT_TAIL(&w->open, st, link);
    tr_conn_raw_busy(w->session.c, ++w->n_open);
    return st;
}

void tr_ws_credit(struct tr_ws_stream *st, uint64_t tokens)
{
    struct tr_exchange *x = &st->x;
    uint64_t before = x->limited ? x->credit : 0;

    x->limited = true;
    x->credit = tokens > UINT64_MAX - before ? UINT64_MAX : before + tokens;
    if (x->owner_ops && before == 0)
        x->owner_ops->writable(x->owner);
}

/* ---- the session's calls ---- */

void tr_ws_room(struct tr_ws *w)
{
    free_over(w);
    if (tr_ws_turn_waits(&w->turn) && tr_conn_raw_room(w->session.c) > 0)
        for (size_t n = tr_ws_turn_round(&w->turn); n; n--) {
            struct tr_ws_member *m = tr_ws_turn_next(&w->turn);
            struct tr_ws_stream *st =
                (struct tr_ws_stream *)((char *)m - offsetof(struct tr_ws_stream, member));
            if (st->x.owner_ops)
                st->x.owner_ops->writable(st->x.owner);
        }
    if (w->drains && w->n_open == 0)
        tr_ws_session_close(&w->session, w->fe->engine_gone ? TR_WS_INTERNAL : TR_WS_GOING_AWAY,
                            w->fe->engine_gone ? "No engine can be brought back."
                                               : "The server is shutting down.");
}

void tr_ws_closed(struct tr_ws *w, enum tr_gone why)
{
    struct tr_ws_stream *st;

    while ((st = TAILQ_FIRST(&w->open))) {
        const struct tr_owner_ops *o = st->x.owner_ops;
        if (o)
            o->gone(st->x.owner, why);
        tr_access_gone(&st->x, why);
        finish(st);
    }
}

void tr_ws_drain(struct tr_ws *w)
{
    w->drains = true;
    tr_ws_session_mark(&w->session);
}

void tr_ws_free(struct tr_ws *w)
{
    free_over(w);
    free(w);
}
