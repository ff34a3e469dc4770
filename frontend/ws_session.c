/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/ws_session.c - see ws_session.h. */
#include "frontend/ws_session.h"

#include "base/clock.h"
#include "frontend/access.h"
#include "frontend/protocol.h"
#include "frontend/timer.h"
#include "frontend/ws_accept.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SECOND 1000000000ull
#define CLOSE_NS (2 * SECOND) /* for the client's answer to our close */

enum { MESSAGE_PAUSES = 10 }; /* longest pauses that a message may take in all */

/* ---- out ---- */

static void put_frame(struct tr_ws_session *s, enum tr_ws_op op, const char *head, size_t head_len,
                      const char *text, size_t len)
{
    uint8_t first[TR_WS_HEAD_BYTES];
    size_t n = tr_ws_head(first, op, head_len + len);

    tr_conn_raw_write(s->c, (const char *)first, n);
    tr_conn_raw_write(s->c, head, head_len);
    tr_conn_raw_write(s->c, text, len);
    s->out_ns = tr_now_ns();
}

bool tr_ws_session_send(struct tr_ws_session *s, enum tr_ws_op op, const char *head,
                        size_t head_len, const char *data, size_t len)
{
    if (s->state != TR_WS_IS_OPEN)
        return false;
    put_frame(s, op, head, head_len, data, len);
    return true;
}

/* ---- the end ---- */

static void end(struct tr_ws_session *s, enum tr_gone why)
{
    bool told = s->state != TR_WS_IS_OPEN;

    s->state = TR_WS_IS_ENDED;
    event_del(&s->timer);
    if (!told)
        s->ops->closed(s->owner, why);
}

/* Nothing is looked at any more; the connection writes what there is and closes. */
static void leave(struct tr_ws_session *s, enum tr_gone why)
{
    tr_conn_raw_close(s->c);
    end(s, why);
}

static void put_close(struct tr_ws_session *s, uint16_t code, const char *why)
{
    uint8_t payload[TR_WS_CONTROL_BYTES];
    size_t n = tr_ws_close_payload(payload, code, why);

    put_frame(s, TR_WS_OP_CLOSE, NULL, 0, (const char *)payload, n);
}

/* The client did what may not be: told, and not waited for. */
static void fail(struct tr_ws_session *s, uint16_t code, const char *why)
{
    if (s->state == TR_WS_IS_OPEN)
        put_close(s, code, why);
    leave(s, TR_GONE_RESET);
}

static void arm(struct tr_ws_session *s);

void tr_ws_session_close(struct tr_ws_session *s, enum tr_ws_code code, const char *why)
{
    if (s->state != TR_WS_IS_OPEN)
        return;
    put_close(s, (uint16_t)code, why);
    s->state = TR_WS_IS_CLOSING;
    s->close_ns = tr_now_ns() + CLOSE_NS;
    arm(s);
    s->ops->closed(s->owner, TR_GONE_SHUT);
}

/* ---- time ---- */

/* When a message that has begun must have come further; 0: none has, or it may take for ever. */
static uint64_t message_due(const struct tr_ws_session *s)
{
    uint64_t pause = s->cfg.message_ns;

    if (!pause || !s->begun_ns)
        return 0;
    uint64_t idle = s->in_ns + pause, all = s->begun_ns + MESSAGE_PAUSES * pause;
    return idle < all ? idle : all;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return !a || (b && b < a) ? b : a;
}

static uint64_t due(const struct tr_ws_session *s)
{
    if (s->state == TR_WS_IS_CLOSING)
        return s->close_ns;
    uint64_t beat = s->cfg.heartbeat_ns ? s->out_ns + s->cfg.heartbeat_ns : 0;
    return earlier(beat, message_due(s));
}

/* What is due moves with every byte; the timer does not: it fires early and looks again. */
static void arm(struct tr_ws_session *s)
{
    uint64_t at = s->state == TR_WS_IS_ENDED ? 0 : due(s);

    if (!at || (s->armed_ns && s->armed_ns <= at))
        return;
    s->armed_ns = tr_timer_at(&s->timer, at) == 0 ? at : 0;
}

void tr_ws_session_ping(struct tr_ws_session *s)
{
    uint64_t now = tr_now_ns();

    if (s->state == TR_WS_IS_OPEN && now - s->out_ns >= s->cfg.heartbeat_ns / 2 &&
        tr_conn_unsent(s->c) == 0)
        put_frame(s, TR_WS_OP_PING, NULL, 0, NULL, 0);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct tr_ws_session *s = arg;
    uint64_t now = tr_now_ns(), message = message_due(s);

    (void)fd, (void)what;
    s->armed_ns = 0;
    if (s->state == TR_WS_IS_CLOSING && now >= s->close_ns) {
        leave(s, TR_GONE_SHUT);
    } else if (s->state == TR_WS_IS_OPEN && message && now >= message) {
        fail(s, TR_WS_POLICY, "The message did not arrive in time.");
    } else if (s->state == TR_WS_IS_OPEN && s->cfg.heartbeat_ns &&
               now >= s->out_ns + s->cfg.heartbeat_ns) {
        tr_ws_session_ping(s);
        s->out_ns = now; /* bytes that wait have the write deadline instead */
    }
    arm(s);
}

/* ---- in ---- */

/* Whether what is owed may grow by so much. */
static bool may_reply(struct tr_ws_session *s, size_t len)
{
    if (tr_conn_unsent(s->c) == 0)
        s->replies = 0;
    s->replies += len + TR_WS_HEAD_BYTES;
    s->doomed |= s->replies > TR_WS_REPLIES;
    if (s->doomed)
        tr_conn_raw_mark(s->c);
    else if (s->replies > TR_WS_REPLIES / 4 && tr_conn_raw_room(s->c) == 0)
        tr_conn_raw_pause(s->c, true); /* until `writable` */
    return !s->doomed;
}

void tr_ws_session_reply(struct tr_ws_session *s, const char *text, size_t len)
{
    if (s->state == TR_WS_IS_OPEN && may_reply(s, len))
        put_frame(s, TR_WS_TEXT, NULL, 0, text, len);
}

static void take(struct tr_ws_session *s, enum tr_ws_ev ev)
{
    struct tr_ws_wire *w = &s->wire;

    switch (ev) {
    case TR_WS_MESSAGE:
        if (s->state == TR_WS_IS_OPEN)
            s->ops->message(s->owner, w->binary, w->message, w->len);
        return;
    case TR_WS_PING:
        if (s->state == TR_WS_IS_OPEN && may_reply(s, w->control_len))
            put_frame(s, TR_WS_OP_PONG, NULL, 0, (const char *)w->control, w->control_len);
        return;
    case TR_WS_CLOSE:
    case TR_WS_BAD:
        fail(s, w->code, w->why);
        return;
    case TR_WS_PONG:
    case TR_WS_MORE:
        return;
    }
}

static int on_input(void *state, const char *data, size_t len)
{
    struct tr_ws_session *s = state;
    enum tr_ws_ev ev = TR_WS_PONG;

    s->in_ns = tr_now_ns();
    for (size_t at = 0, used; ev != TR_WS_MORE && s->state != TR_WS_IS_ENDED && !s->doomed;
         at += used) {
        ev = tr_ws_feed(&s->wire, data + at, len - at, &used);
        take(s, ev);
    }
    if (!tr_ws_begun(&s->wire))
        s->begun_ns = 0;
    else if (!s->begun_ns)
        s->begun_ns = s->in_ns;
    arm(s);
    return 0;
}

/* ---- the connection's calls ---- */

static void on_writable(void *state)
{
    struct tr_ws_session *s = state;

    tr_conn_raw_pause(s->c, false);
    if (s->state == TR_WS_IS_OPEN)
        s->ops->room(s->owner);
}

static void on_turn_end(void *state)
{
    struct tr_ws_session *s = state;

    if (s->doomed && s->state != TR_WS_IS_ENDED) {
        tr_conn_raw_abort(s->c);
        end(s, TR_GONE_SLOW);
    } else if (s->state == TR_WS_IS_OPEN) {
        s->ops->room(s->owner);
    }
}

void tr_ws_session_mark(struct tr_ws_session *s)
{
    tr_conn_raw_mark(s->c);
}

/* A client that has closed its side can neither answer a ping nor close as it should: it is gone. */
static void on_half_closed(void *state)
{
    struct tr_ws_session *s = state;

    if (s->state != TR_WS_IS_ENDED)
        leave(s, TR_GONE_RESET);
}

static void on_drain(void *state)
{
    struct tr_ws_session *s = state;

    if (s->state == TR_WS_IS_OPEN)
        s->ops->drain(s->owner);
}

static void on_gone(void *state, enum tr_gone why)
{
    struct tr_ws_session *s = state;

    end(s, why);
    tr_ws_wire_fini(&s->wire);
    s->ops->gone(s->owner);
}

static const struct tr_protocol protocol = {.input = on_input,
                                            .writable = on_writable,
                                            .half_closed = on_half_closed,
                                            .gone = on_gone,
                                            .drain = on_drain,
                                            .turn_end = on_turn_end};

/* ---- the beginning ---- */

static void refuse(struct tr_exchange *x, enum tr_err e, const char *why)
{
    if (e == TR_ERR_UPGRADE) {
        tr_exchange_header(x, "Upgrade", "websocket");
        tr_exchange_header(x, "Sec-WebSocket-Version", "13");
    }
    tr_exchange_error(x, e, why, NULL);
}

static void put_head(struct tr_ws_session *s, const struct tr_http_request *rq, const char *accept)
{
    char head[512];
    int n = snprintf(
        head, sizeof(head),
        "HTTP/1.1 101 Switching Protocols\r\n"
        "Upgrade: websocket\r\n"
        "Connection: Upgrade\r\n"
        "Sec-WebSocket-Accept: %s\r\n"
        "%s"
        "X-Request-Id: %s\r\n\r\n",
        accept,
        tr_ws_wants_protocol(rq->http) ? "Sec-WebSocket-Protocol: " TR_WS_PROTOCOL "\r\n" : "",
        rq->request_id);

    tr_conn_raw_write(s->c, head, (size_t)n);
}

int tr_ws_session_open(struct tr_ws_session *s, struct tr_exchange *x,
                       const struct tr_http_request *rq, const struct tr_ws_config *cfg,
                       const struct tr_ws_session_ops *ops, void *owner)
{
    struct tr_conn *c = tr_conn_of(x);
    char accept[TR_WS_ACCEPT_BYTES];
    const char *why = "A WebSocket is opened on HTTP/1.1.";
    enum tr_err e = TR_ERR_BAD_REQUEST; /* and no field of HTTP/1.1 with it */

    if (c)
        e = tr_ws_accept(rq->http, tr_httpd_limits(tr_conn_httpd(c))->cors, accept, &why);
    if (e) {
        refuse(x, e, why);
        return -EINVAL;
    }
    *s = (struct tr_ws_session){.c = c, .ops = ops, .owner = owner, .cfg = *cfg};
    if (tr_ws_wire_init(&s->wire, &cfg->wire)) {
        tr_exchange_error(x, TR_ERR_INTERNAL, "Out of memory.", NULL);
        return -EINVAL;
    }
    evtimer_assign(&s->timer, tr_httpd_base(tr_conn_httpd(c)), on_timer, s);
    s->in_ns = s->out_ns = tr_now_ns();
    if (x->access)
        x->access->status = 101;
    tr_conn_become(c, &protocol, s);
    put_head(s, rq, accept);
    arm(s);
    return 0;
}
