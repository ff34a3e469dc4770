/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/grpc_infer.c - one request of a call, as an exchange.  See grpc.h.
 *
 * The requests of a call share its stream of HTTP/2: its room is theirs, its counts of bytes are theirs
 * (a mark of one lies behind bytes of others, so what is acknowledged up to it is).  A status would end
 * the call for all, so an error is a response in the stream, and a status only where there is nobody
 * else: in ModelInfer. */
#include "frontend/grpc_priv.h"

#include "base/clock.h"
#include "frontend/api.h"
#include "frontend/gate.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <uuid/uuid.h>

static struct tr_grpc_request *of(const struct tr_exchange *x)
{
    return (struct tr_grpc_request *)x;
}

const struct tr_grpc_answer *tr_grpc_answer_of(const struct tr_exchange *x)
{
    return &of(x)->answer;
}

size_t tr_grpc_request_bytes(void)
{
    return sizeof(struct tr_grpc_request);
}

/* ---- the end of a request ---- */

/* It leaves its call, and is freed when nobody is on the stack who may name it. */
static void leave(struct tr_grpc_request *r)
{
    struct tr_grpc_call *c = r->call;

    r->done = true;
    r->accepted = tr_h2_accepted(c->s);
    tr_exchange_unbind(&r->x);
    TAILQ_REMOVE(&c->requests, r, link);
    c->n_requests--;
    TAILQ_INSERT_TAIL(&c->g->dead, r, link);
    event_active(c->g->reap, EV_TIMEOUT, 0);
}

static void finish(struct tr_grpc_request *r)
{
    struct tr_grpc_call *c = r->call;

    leave(r);
    if (c->method->in_stream)
        tr_grpc_call_look(c);
    else
        tr_grpc_call_end(c, TR_GRPC_OK, NULL);
}

void tr_grpc_drop_requests(struct tr_grpc_call *c, enum tr_gone why)
{
    struct tr_grpc_request *r;

    while ((r = TAILQ_FIRST(&c->requests)) != NULL) {
        const struct tr_owner_ops *ops = r->x.owner_ops;
        void *owner = r->x.owner;
        if (ops) /* it may ask for the counts */
            ops->gone(owner, why);
        tr_access_gone(&r->x, why);
        leave(r);
    }
    TAILQ_FOREACH(r, &c->g->dead, link)
    if (r->call == c)
        r->call = NULL;
}

void tr_grpc_free_requests(struct tr_grpc_requests *list)
{
    struct tr_grpc_request *r;

    while ((r = TAILQ_FIRST(list)) != NULL) {
        TAILQ_REMOVE(list, r, link);
        free(r->body);
        free(r);
    }
}

/* ---- the exchange ---- */

static int x_header(struct tr_exchange *x, const char *name, const char *value)
{
    (void)x;
    (void)name;
    (void)value;
    return 0;
}

static void x_reply(struct tr_exchange *x, int status, const char *type, const char *body,
                    size_t len)
{
    struct tr_grpc_request *r = of(x);

    (void)status;
    (void)type;
    tr_grpc_call_write(r->call, body, len);
    finish(r);
}

static void x_reply_give(struct tr_exchange *x, int status, const char *type, char *body,
                         size_t len)
{
    x_reply(x, status, type, body, len);
    free(body);
}

/* In a stream: the last response of this request says why. */
static void write_problem(struct tr_grpc_request *r, const struct tr_problem *p)
{
    struct tr_emit out;

    tr_emit_init(&out);
    tr_oip_reply(&out, &(struct tr_oip_reply){.model = r->call->g->fe->cfg->served_name,
                                              .id = r->id,
                                              .in_stream = true,
                                              .last = true,
                                              .error = p->message,
                                              .code = tr_err_info(p->err)->code,
                                              .param = p->param});
    if (!out.failed)
        tr_grpc_call_write(r->call, out.buf, out.len);
    tr_emit_fini(&out);
}

static void x_error(struct tr_exchange *x, const struct tr_problem *p)
{
    struct tr_grpc_request *r = of(x);
    struct tr_grpc_call *c = r->call;

    if (c->method->in_stream)
        write_problem(r, p);
    else
        tr_grpc_call_end(c, tr_grpc_code_of(p->err), p->message);
    leave(r);
    tr_grpc_call_look(c);
}

static void x_stream_begin(struct tr_exchange *x, const char *type)
{
    (void)type;
    tr_grpc_call_write(of(x)->call, "", 0);
}

static void x_stream_write(struct tr_exchange *x, const char *data, size_t len)
{
    tr_grpc_call_write(of(x)->call, data, len);
}

static void x_stream_end(struct tr_exchange *x)
{
    finish(of(x));
}

/* `hard`: the reader was too slow; else nobody here has the stream any more. */
static void x_stream_abort(struct tr_exchange *x, bool hard)
{
    struct tr_grpc_request *r = of(x);
    struct tr_grpc_call *c = r->call;
    enum tr_err e = hard ? TR_ERR_SLOW_CLIENT : TR_ERR_FRONTEND_LOST;

    if (c->method->in_stream) {
        write_problem(r, &(struct tr_problem){.err = e, .message = tr_err_info(e)->sentence});
    } else if (!c->ended) {
        c->ended = true;
        tr_h2_reset(c->s, TR_H2_INTERNAL_ERROR);
    }
    leave(r);
    tr_grpc_call_look(c);
}

static void x_flush(struct tr_exchange *x)
{
    if (of(x)->call)
        tr_h2_flush(of(x)->call->s);
}

static bool x_probe(struct tr_exchange *x)
{
    tr_h2_ping(of(x)->call->s);
    return true;
}

static size_t x_unsent(const struct tr_exchange *x)
{
    return of(x)->call ? tr_h2_unsent(of(x)->call->s) : 0;
}

static size_t x_room(const struct tr_exchange *x)
{
    return of(x)->call ? tr_h2_room(of(x)->call->s) : 0;
}

static uint64_t x_accepted(const struct tr_exchange *x)
{
    const struct tr_grpc_request *r = of(x);

    return r->done ? r->accepted : tr_h2_accepted(r->call->s);
}

static uint64_t x_acked(struct tr_exchange *x)
{
    return of(x)->call ? tr_h2_acked(of(x)->call->s) : 0;
}

static uint64_t x_blocked_ns(const struct tr_exchange *x)
{
    return of(x)->call ? tr_h2_blocked_ns(of(x)->call->s) : 0;
}

static bool x_half_closed(const struct tr_exchange *x)
{
    return of(x)->call && tr_h2_half_closed(of(x)->call->s);
}

static char *x_take_body(struct tr_exchange *x)
{
    char *body = of(x)->body;

    of(x)->body = NULL;
    return body;
}

static void x_deliver(struct tr_exchange *x, struct tr_delivered *d)
{
    tr_h2_deliver(of(x)->call->s, d);
}

static const struct tr_exchange_ops exchange_ops = {
    .header = x_header,
    .reply = x_reply,
    .reply_give = x_reply_give,
    .error = x_error,
    .stream_begin = x_stream_begin,
    .stream_write = x_stream_write,
    .stream_end = x_stream_end,
    .stream_abort = x_stream_abort,
    .flush = x_flush,
    .probe = x_probe,
    .unsent = x_unsent,
    .room = x_room,
    .accepted = x_accepted,
    .acked = x_acked,
    .blocked_ns = x_blocked_ns,
    .half_closed = x_half_closed,
    .take_body = x_take_body,
    .deliver = x_deliver,
};

/* ---- the beginning ---- */

static bool is_printable(const char *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (p[i] <= 0x20 || p[i] >= 0x7f)
            return false;
    return len > 0 && len < TR_ID_BYTES - 3;
}

/* The request's own id if it can be one in the ledger; of a call with one request also its x-request-id;
 * else one of ours. */
static void name_request(struct tr_grpc_request *r)
{
    struct tr_slice v = {r->id, strlen(r->id)};
    uuid_t u;

    if (!v.len && !r->answer.in_stream)
        v = tr_http_field(r->call->head, "x-request-id");
    if (is_printable(v.p, v.len)) {
        memcpy(r->request_id, v.p, v.len);
        r->request_id[v.len] = '\0';
        return;
    }
    uuid_generate_random(u);
    uuid_unparse_lower(u, r->request_id);
}

/* It has a line of its own, and the call none. */
static void note(struct tr_grpc_request *r)
{
    struct tr_grpc_call *c = r->call;
    uint64_t now = tr_now_ns();

    free(c->access);
    c->access = NULL;
    tr_access_begin(&r->x, tr_httpd_access(tr_h2_httpd(c->s)), c->head, "grpc", tr_h2_peer(c->s),
                    c->method->in_stream ? now : tr_h2_arrived_ns(c->s));
    if (r->x.access)
        r->x.access->route = c->method->path;
    tr_access_key(r->x.access, c->key);
    tr_access_at(&r->x, TR_AT_BODY, now);
}

static struct tr_grpc_request *new_request(struct tr_grpc_call *c)
{
    struct tr_grpc_request *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->x.ops = &exchange_ops;
    r->x.request_id = r->request_id;
    r->call = c;
    r->answer.id = r->id;
    r->answer.in_stream = c->method->in_stream;
    TAILQ_INSERT_TAIL(&c->requests, r, link);
    c->n_requests++;
    note(r);
    return r;
}

enum tr_err tr_grpc_turned_away(const struct tr_grpc_call *c)
{
    if (c->g->fe->drain >= TR_DRAIN_CLOSED || c->leaving)
        return TR_ERR_DRAINING;
    if (c->n_requests > TR_GRPC_REQUESTS)
        return TR_ERR_OVERLOADED;
    return TR_OK;
}

void tr_grpc_start(struct tr_grpc_request *r, struct tr_grpc_message *m)
{
    struct tr_fe *fe = r->call->g->fe;

    memcpy(r->id, m->id, sizeof(r->id));
    r->answer.wants = m->wants;
    r->answer.empty_final = m->empty_final;
    name_request(r);
    enum tr_err e = m->refusal ? m->refusal : tr_grpc_turned_away(r->call);
    if (e) {
        tr_stream_refuse(fe, &r->x, e);
        return;
    }
    if (m->rc) {
        tr_api_refuse(fe, &r->x, &m->fault);
        return;
    }
    const char *why = NULL;
    e = tr_gate_request(fe, &r->x, r->call->key, 0, &why);
    if (e) {
        tr_exchange_error(&r->x, e, why, NULL);
        return;
    }
    r->body = m->body.buf;
    struct tr_slice body = {m->body.buf, m->body.len};
    tr_emit_init(&m->body); /* given */
    tr_api_post(&r->x,
                &(struct tr_http_request){.http = r->call->head,
                                          .key = r->call->key,
                                          .body = body,
                                          .request_id = r->request_id,
                                          .arrived_ns = m->arrived_ns,
                                          .is_one_of_many = r->answer.in_stream},
                fe, &tr_dialect_oip, TR_PROTO);
}

void tr_grpc_infer(struct tr_grpc_call *c, char *msg, uint32_t len)
{
    struct tr_grpc_request *r = c->expired ? NULL : new_request(c);

    if (r && tr_grpc_read_message(r, msg, len) == 0)
        return;
    free(msg);
    if (r)
        leave(r);
    if (!c->expired)
        tr_grpc_call_end(c, TR_GRPC_RESOURCE_EXHAUSTED, "Out of memory.");
}
