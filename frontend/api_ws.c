/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_ws.c - GET /v1/ws: what a client says on a WebSocket, and which handler it means.
 *
 * A start is POST /v1/streams, a resume GET, a cancel DELETE, each with an exchange of its own
 * (ws_stream.h). */
#include "frontend/api.h"

#include "frontend/conn.h"
#include "frontend/gate.h"
#include "frontend/protocol.h"
#include "frontend/stream.h"
#include "frontend/ws_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- calls ---- */

static void refuse(struct tr_ws *w, const char *label, const struct tr_fault *f)
{
    tr_stat_add(w->fe->stat, TR_STAT_REFUSED_INVALID, 1);
    tr_ws_error(w, label, f->err, f->message[0] ? f->message : NULL, f->param[0] ? f->param : NULL);
}

/* A new exchange for a label that has none yet; NULL: refused. */
static struct tr_ws_stream *begin(struct tr_ws *w, const struct tr_ws_call *call, char *body,
                                  size_t len)
{
    struct tr_fault f;
    enum tr_err e = TR_ERR_DRAINING;

    if (call->label[0] && tr_ws_find(w, call->label)) {
        free(body);
        tr_fault_set(&f, TR_ERR_BAD_PARAM, "stream", "This label has a stream that has not ended.");
        refuse(w, call->label, &f);
        return NULL;
    }
    struct tr_ws_stream *st = NULL;
    if (w->drains && call->type == TR_WS_START)
        free(body);
    else
        st = tr_ws_begin(w, call->label, body, len, &e);
    if (!st)
        tr_ws_error(w, call->label, e, NULL, NULL);
    else if (call->credit != UINT64_MAX && call->type != TR_WS_CANCEL)
        tr_ws_credit(st, call->credit);
    return st;
}

/* The message becomes the request that it holds. */
static void start(struct tr_ws *w, const struct tr_ws_call *call)
{
    size_t at = (size_t)(call->request.p - w->session.wire.message), len = call->request.len;
    char *body = tr_ws_take(&w->session.wire);

    memmove(body, body + at, len);
    struct tr_ws_stream *st = begin(w, call, body, len);
    const char *why = NULL;
    enum tr_err e = st ? tr_gate_request(w->fe, &st->x, w->key, 0, &why) : TR_OK;
    if (e)
        tr_exchange_error(&st->x, e, why, NULL);
    else if (st)
        tr_api_post(&st->x, &st->rq, w->fe, &tr_dialect_native, TR_JSON);
}

static void resume(struct tr_ws *w, const struct tr_ws_call *call)
{
    struct tr_ws_stream *st = begin(w, call, NULL, 0);

    if (!st)
        return;
    struct tr_reader r = {
        .x = &st->x, .dialect = &tr_dialect_native, .frame = TR_JSON, .after = call->after};
    if (call->id.slot < w->fe->shm->config.n_slots)
        tr_api_resume_as(w->fe, &st->rq, call->id, &r);
    else
        tr_exchange_error(&st->x, TR_ERR_NOT_FOUND, "There is no stream with this id.", NULL);
}

/* Whether this connection reads the stream: its end is the acknowledgement. */
static bool is_read_here(struct tr_ws *w, const struct tr_stream *s)
{
    struct tr_ws_stream *st;

    TAILQ_FOREACH(st, &w->open, link)
    {
        if (s->x == &st->x)
            return true;
    }
    return false;
}

static void cancel(struct tr_ws *w, const struct tr_ws_call *call)
{
    struct tr_stream *s = tr_stream_find(w->fe, call->id);

    if (s && is_read_here(w, s)) {
        tr_stream_cancel_for_good(s);
        return;
    }
    struct tr_ws_stream *st = begin(w, call, NULL, 0);
    if (!st)
        return;
    tr_stream_id_format(call->id, st->id);
    tr_api_native_cancel(&st->x, &st->rq, w->fe, call->id);
}

static void credit(struct tr_ws *w, const struct tr_ws_call *call)
{
    struct tr_ws_stream *st = tr_ws_find(w, call->label);

    if (st)
        tr_ws_credit(st, call->credit);
    else
        tr_ws_error(w, call->label, TR_ERR_NOT_FOUND, "No stream is open under this label.",
                    "stream");
}

/* ---- the session's calls ---- */

static void on_message(void *owner, bool binary, const char *data, size_t len)
{
    struct tr_ws *w = owner;
    struct tr_ws_call call;
    struct tr_fault f;

    if (binary) {
        tr_ws_session_close(&w->session, TR_WS_UNSUPPORTED, "Messages are texts of JSON.");
        return;
    }
    if (tr_ws_call_read(data, len, &call, &f)) {
        refuse(w, call.label, &f);
        return;
    }
    switch (call.type) {
    case TR_WS_START:
        start(w, &call);
        return;
    case TR_WS_RESUME:
        resume(w, &call);
        return;
    case TR_WS_CANCEL:
        cancel(w, &call);
        return;
    case TR_WS_CREDIT:
        credit(w, &call);
        return;
    }
}

static void on_room(void *owner)
{
    tr_ws_room(owner);
}

static void on_closed(void *owner, enum tr_gone why)
{
    tr_ws_closed(owner, why);
}

static void on_drain(void *owner)
{
    tr_ws_drain(owner);
}

static void on_gone(void *owner)
{
    tr_ws_free(owner);
}

void tr_api_ws(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    static const struct tr_ws_session_ops ops = {.message = on_message,
                                                 .room = on_room,
                                                 .closed = on_closed,
                                                 .drain = on_drain,
                                                 .gone = on_gone};
    struct tr_fe *fe = ctx;
    struct tr_ws *w = calloc(1, sizeof(*w));
    struct tr_ws_config cfg = {
        .wire = {.max_message = fe->cfg->max_body,
                 .held = &fe->ws_held,
                 .max_held = fe->limits->max_bodies},
        .heartbeat_ns = fe->cfg->heartbeat_ns,
        .message_ns = fe->cfg->body_timeout_ns,
    };

    if (!w) {
        tr_exchange_error(x, TR_ERR_INTERNAL, "Out of memory.", NULL);
        return;
    }
    w->fe = fe;
    w->http = rq->http;
    w->key = rq->key;
    snprintf(w->request_id, sizeof(w->request_id), "%s", rq->request_id);
    tr_ws_turn_init(&w->turn);
    TAILQ_INIT(&w->open);
    TAILQ_INIT(&w->over);
    if (tr_ws_session_open(&w->session, x, rq, &cfg, &ops, w))
        free(w);
}
