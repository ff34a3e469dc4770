/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/grpc_call.c - one call: its head, its messages, its deadline, its status.  See grpc.h. */
#include "frontend/grpc_priv.h"

#include "base/clock.h"
#include "frontend/timer.h"
#include "frontend/carrier.h"
#include "frontend/gate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 32 /* times --max-body: all that are being received */ };

/* ---- messages that do not come ---- */

static void expect(struct tr_grpc_call *c, bool on)
{
    if (on == (c->message_ns != 0))
        return;
    c->message_ns = on ? tr_now_ns() : 0;
    if (on)
        TAILQ_INSERT_TAIL(&c->g->receiving, c, receiving_link);
    else
        TAILQ_REMOVE(&c->g->receiving, c, receiving_link);
}

/* ---- answering ---- */

static const struct tr_h2_field content_type = {"content-type", "application/grpc"};
static const struct tr_h2_field encodings = {"grpc-accept-encoding", "identity"};

static void send_head(struct tr_grpc_call *c)
{
    if (!c->head_sent)
        tr_h2_head(c->s, 200, &content_type, 1, false);
    c->head_sent = true;
}

void tr_grpc_call_write(struct tr_grpc_call *c, const char *data, size_t len)
{
    send_head(c);
    if (len)
        tr_h2_write(c->s, data, len);
}

/* Of a call without a request of its own (grpc_infer.c).  What is asked without an error is a probe. */
static void note_end(struct tr_grpc_call *c, int status, const char *fault)
{
    struct tr_access *a = c->access;

    if (!a)
        return;
    a->status = status;
    a->end = fault ? "refused" : "answered";
    a->reason = fault;
    a->quiet = !fault;
    a->at[TR_AT_TERMINAL] = tr_now_ns();
}

void tr_grpc_call_end(struct tr_grpc_call *c, enum tr_grpc_code code, const char *message)
{
    char number[12], text[3 * TR_GRPC_MESSAGE_MAX + 1];
    struct tr_h2_field f[4];
    size_t n = 0;

    if (c->ended)
        return;
    c->ended = true;
    note_end(c, 200, tr_grpc_code_word(code));
    expect(c, false);
    evtimer_del(&c->timer);
    if (!c->head_sent)
        f[n++] = content_type;
    snprintf(number, sizeof(number), "%d", (int)code);
    f[n++] = (struct tr_h2_field){"grpc-status", number};
    if (message && *message) {
        tr_grpc_message(message, text);
        f[n++] = (struct tr_h2_field){"grpc-message", text};
    }
    if (code == TR_GRPC_UNIMPLEMENTED)
        f[n++] = encodings;
    if (c->head_sent)
        tr_h2_end(c->s, f, n);
    else
        tr_h2_head(c->s, 200, f, n, true);
}

void tr_grpc_call_look(struct tr_grpc_call *c)
{
    if (c->ended || c->n_requests)
        return;
    if (c->expired)
        tr_grpc_call_end(c, TR_GRPC_DEADLINE_EXCEEDED, "The deadline of the call passed.");
    else if (c->input_ended && c->method->in_stream)
        tr_grpc_call_end(c, TR_GRPC_OK, NULL);
    else if (c->leaving)
        tr_grpc_call_end(c, TR_GRPC_UNAVAILABLE, "The server is shutting down.");
}

/* ---- deadline ---- */

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    struct tr_grpc_call *c = arg;

    (void)fd;
    (void)what;
    c->expired = true;
    tr_grpc_call_look(c);
}

static void arm(struct tr_grpc_call *c, uint64_t timeout_ns)
{
    uint64_t now = tr_now_ns(), began = tr_h2_arrived_ns(c->s);
    uint64_t most = UINT64_MAX / 2;

    c->deadline_ns = began + (timeout_ns < most ? timeout_ns : most);
    uint64_t left = c->deadline_ns > now ? c->deadline_ns - now : 0;
    if (left / 1000000000 > 365 * 86400ull) /* no call is as old as that */
        return;
    tr_timer_at(&c->timer, c->deadline_ns);
}

/* ---- the head ---- */

/* application/grpc, with +proto and parameters or without. */
static bool is_grpc(struct tr_slice type)
{
    static const char name[] = "application/grpc", proto[] = "+proto";
    size_t n = sizeof(name) - 1, more = sizeof(proto) - 1;

    if (type.len < n || strncasecmp(type.p, name, n) != 0)
        return false;
    if (type.len >= n + more && strncasecmp(type.p + n, proto, more) == 0)
        n += more;
    return type.len == n || type.p[n] == ';' || type.p[n] == ' ';
}

/* What is no call at all gets a status of HTTP. */
static void refuse_http(struct tr_grpc_call *c, int status)
{
    c->ended = true;
    note_end(c, status,
             status == 405 ? tr_err_info(TR_ERR_METHOD)->code
                           : tr_err_info(TR_ERR_MEDIA_TYPE)->code);
    tr_h2_head(c->s, status, NULL, 0, true);
}

/* Whether nobody knows who calls; it is then told so. */
static bool is_stranger(struct tr_grpc_call *c)
{
    const char *why = NULL;
    enum tr_err e = tr_gate_identify(c->g->fe, c->head, 0, &c->key, &why);

    if (e)
        tr_grpc_call_end(c, tr_grpc_code_of(e), why ? why : tr_err_info(e)->sentence);
    return e != TR_OK;
}

static void begin(struct tr_grpc_call *c)
{
    struct tr_slice v = tr_http_field(c->head, "grpc-timeout");
    uint64_t timeout_ns;

    if (c->head->method != TR_HTTP_POST) {
        refuse_http(c, 405);
        return;
    }
    if (!is_grpc(tr_http_field(c->head, "content-type"))) {
        refuse_http(c, 415);
        return;
    }
    if (tr_h2_is_overfull(c->s)) {
        tr_grpc_call_end(c, tr_grpc_code_of(TR_ERR_CONNECTIONS),
                         tr_err_info(TR_ERR_CONNECTIONS)->sentence);
        return;
    }
    c->method = tr_grpc_find_method(c->head->path);
    if (!c->method) {
        tr_grpc_call_end(c, TR_GRPC_UNIMPLEMENTED, "This method is not known here.");
        return;
    }
    if (c->access)
        c->access->route = c->method->path;
    if (c->method->keyed && is_stranger(c))
        return;
    tr_access_key(c->access, c->key);
    if (v.p && tr_grpc_timeout(v.p, v.len, &timeout_ns)) {
        tr_grpc_call_end(c, TR_GRPC_INVALID_ARGUMENT, "grpc-timeout is not valid.");
        return;
    }
    if (v.p)
        arm(c, timeout_ns);
    c->piece_ns = tr_now_ns();
    expect(c, !c->method->in_stream);
}

/* ---- the service of HTTP/2 ---- */

/* A port of its own: everything is a call, or wrong. */
static bool takes(void *ctx, const struct tr_http *head)
{
    (void)ctx;
    (void)head;
    return true;
}

static void *open_call(void *ctx, struct tr_h2_stream *s, const struct tr_http *head)
{
    struct tr_grpc *g = ctx;
    struct tr_grpc_call *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->g = g;
    c->s = s;
    c->head = head;
    c->leaving = g->leaving;
    TAILQ_INIT(&c->requests);
    TAILQ_INSERT_TAIL(&g->calls, c, link);
    c->access = tr_access_new(tr_httpd_access(tr_h2_httpd(s)), head, "grpc", tr_h2_peer(s),
                              tr_h2_arrived_ns(s));
    tr_grpc_reader_init(&c->in, (uint32_t)g->fe->cfg->max_body);
    evtimer_assign(&c->timer, g->fe->base, on_deadline, c);
    begin(c);
    return c;
}

/* The reader's memory counts for all calls together. */
static void count(struct tr_grpc_call *c)
{
    c->g->in_bytes += c->in.cap - c->counted;
    c->counted = c->in.cap;
}

/* A status ends all that is under way in the call. */
static void fail(struct tr_grpc_call *c, enum tr_grpc_code code, const char *why)
{
    tr_grpc_drop_requests(c, TR_GONE_RESET);
    tr_grpc_call_end(c, code, why);
    tr_grpc_reader_fini(&c->in);
    count(c);
}

void tr_grpc_calls_look(struct tr_grpc *g)
{
    struct tr_grpc_call *c, *next;
    uint64_t now = tr_now_ns();

    for (c = TAILQ_FIRST(&g->receiving); c; c = next) {
        next = TAILQ_NEXT(c, receiving_link);
        uint64_t until =
            tr_carrier_body_deadline(g->fe->limits, c->message_ns, c->piece_ns, c->in.got);
        if (!until || now < until)
            continue;
        expect(c, false);
        fail(c, TR_GRPC_ABORTED, "The message did not come in time.");
    }
}

static void take_message(struct tr_grpc_call *c)
{
    uint32_t len;
    char *msg = tr_grpc_take(&c->in, &len);

    count(c);
    if (c->got_message && !c->method->in_stream) {
        free(msg);
        fail(c, TR_GRPC_INTERNAL, "This method takes one message.");
        return;
    }
    c->got_message = true;
    c->method->message(c, msg, len);
}

static void on_data(void *state, const char *data, size_t len)
{
    struct tr_grpc_call *c = state;

    tr_h2_consume(c->s, len);
    c->piece_ns = tr_now_ns();
    for (size_t at = 0, used; at < len && !c->ended; at += used) {
        enum tr_grpc_got got = tr_grpc_read(&c->in, data + at, len - at, &used);
        count(c);
        if (got == TR_GRPC_BAD)
            fail(c, c->in.code, c->in.why);
        else if (got == TR_GRPC_MESSAGE)
            take_message(c);
        else if (c->g->in_bytes > MESSAGES * c->g->fe->cfg->max_body)
            fail(c, TR_GRPC_RESOURCE_EXHAUSTED, "Too many messages are on their way.");
    }
    expect(c, !c->ended && !tr_grpc_between(&c->in));
}

static void on_end(void *state)
{
    struct tr_grpc_call *c = state;

    c->input_ended = true;
    expect(c, false);
    if (c->ended)
        return;
    if (!tr_grpc_between(&c->in))
        fail(c, TR_GRPC_INTERNAL, "The last message is cut.");
    else if (!c->got_message && !c->method->in_stream)
        fail(c, TR_GRPC_INTERNAL, "This method needs a message.");
    else
        tr_grpc_call_look(c);
}

static void on_writable(void *state)
{
    struct tr_grpc_call *c = state;
    struct tr_grpc_request *r;

    TAILQ_FOREACH(r, &c->requests, link)
    if (r->x.owner_ops)
        r->x.owner_ops->writable(r->x.owner);
    /* Another one is first the next time. */
    if ((r = TAILQ_FIRST(&c->requests)) != NULL) {
        TAILQ_REMOVE(&c->requests, r, link);
        TAILQ_INSERT_TAIL(&c->requests, r, link);
    }
}

static void on_half_closed(void *state)
{
    struct tr_grpc_call *c = state;
    struct tr_grpc_request *r, *next;

    for (r = TAILQ_FIRST(&c->requests); r; r = next) {
        next = TAILQ_NEXT(r, link);
        if (r->x.owner_ops)
            r->x.owner_ops->half_closed(r->x.owner);
    }
}

/* If no request has come in it. */
static void write_line(struct tr_grpc_call *c)
{
    struct tr_access *a = c->access;

    c->access = NULL;
    if (!a)
        return;
    if (!a->end) {
        a->end = "aborted";
        a->reason = tr_err_info(TR_ERR_CLIENT_GONE)->code;
        a->quiet = c->told != 0; /* who watched our health has gone */
    }
    tr_carrier_id(c->head, a->request_id);
    a->bytes = tr_h2_accepted(c->s);
    tr_access_write(a, a->bytes);
}

static void on_gone(void *state, enum tr_gone why)
{
    struct tr_grpc_call *c = state;

    write_line(c);
    tr_grpc_drop_requests(c, why);
    expect(c, false);
    evtimer_del(&c->timer);
    tr_grpc_reader_fini(&c->in);
    count(c);
    TAILQ_REMOVE(&c->g->calls, c, link);
    free(c);
}

const struct tr_h2_service tr_grpc_service = {
    .takes = takes,
    .open = open_call,
    .data = on_data,
    .end = on_end,
    .writable = on_writable,
    .half_closed = on_half_closed,
    .gone = on_gone,
};

size_t tr_grpc_call_bytes(void)
{
    return sizeof(struct tr_grpc_call);
}
