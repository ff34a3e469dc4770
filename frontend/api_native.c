/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_native.c - /v1/streams: the typed events as they are (tokenring.events.v1).
 *
 * SSE (id, event, data) or NDJSON by Accept.  Every event has `type`; numbered ones have `id`,
 * "<stream id>:<number>", from 0.  A coalesced delta has the number of its last member.  With several
 * choices each one's end is told by choice.finished.
 *
 * A call is tool_call.delta with its id and name, tool_call.delta with pieces of its arguments, and
 * tool_call.done when it is complete. */
#include "base/clock.h"
#include "frontend/api.h"
#include "frontend/call_id.h"
#include "frontend/hold.h"

#include <stdlib.h>
#include <string.h>

/* How long a DELETE waits for the engine's word, and when it looks: nobody rings us for the slots of
 * others.  Soon, since most ends come with the next step, then more and more seldom: what the ring
 * said of an end can be read for a while after the slot has been used again. */
#define CANCEL_WAIT_NS (5 * 1000000000ull)
#define CANCEL_LOOK_NS (1000000ull)
#define CANCEL_LOOK_MAX_NS (64 * CANCEL_LOOK_NS)

/* ---- events ---- */

/* Opens the event; `number` of it, -1 if it takes none. */
static int64_t begin(struct tr_stream *s, const struct tr_event *ev, const char *type)
{
    struct tr_emit *e = &s->fe->json;
    char id[TR_STREAM_ID_BYTES + 24];

    tr_emit_reset(e);
    tr_emit_obj(e);
    tr_emit_kstr(e, "type", type);
    if (!ev->members)
        return -1;
    snprintf(id, sizeof(id), "%s:%llu", s->stream_id, (unsigned long long)(s->number - 1));
    tr_emit_kstr(e, "id", id);
    return (int64_t)(s->number - 1);
}

static void end(struct tr_stream *s, const char *type, int64_t number)
{
    tr_emit_obj_end(&s->fe->json);
    tr_stream_frame(s, type, number);
}

static void started(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_emit *e = &s->fe->json;
    int64_t n = begin(s, ev, "response.started");

    tr_emit_kstr(e, "stream_id", s->stream_id);
    tr_emit_kstr(e, "schema", "tokenring.events.v1");
    tr_emit_kstr(e, "model", s->fe->cfg->served_name);
    tr_emit_ku64(e, "created", s->created);
    tr_emit_kstr(e, "request_id", s->ask->request_id);
    tr_emit_ku64(e, "choices", s->n);
    end(s, "response.started", n);
}

static void logprobs(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_emit *e = &s->fe->json;

    tr_emit_key(e, "logprobs");
    if (!ev->lp)
        tr_emit_null(e);
    else if (s->ask->chat)
        tr_lp_emit_chat(e, tr_stream_lp_style(s), ev->lp, ev->n_lp);
    else
        tr_lp_emit_completions(e, tr_stream_lp_style(s), ev->lp, ev->n_lp);
}

/* What all events that tokens make end with. */
static void end_delta(struct tr_stream *s, const struct tr_event *ev, const char *type, int64_t n)
{
    tr_emit_ku64(&s->fe->json, "tokens", ev->tokens);
    if (s->ask->logprobs)
        logprobs(s, ev);
    end(s, type, n);
}

static void delta(struct tr_stream *s, const struct tr_event *ev, const char *type)
{
    struct tr_emit *e = &s->fe->json;
    int64_t n = begin(s, ev, type);

    tr_emit_ku64(e, "index", ev->choice);
    tr_emit_kstrn(e, "text", ev->text, ev->text_len);
    end_delta(s, ev, type, n);
}

static void call(struct tr_stream *s, const struct tr_event *ev)
{
    const char *type = ev->type == TR_EV_CALL_DONE ? "tool_call.done" : "tool_call.delta";
    struct tr_emit *e = &s->fe->json;
    int64_t n = begin(s, ev, type);
    char id[TR_CALL_ID_BYTES];

    tr_emit_ku64(e, "index", ev->choice);
    tr_emit_ku64(e, "call", ev->call);
    if (ev->type == TR_EV_CALL) {
        tr_call_id(s->name, s->ask->tool_format, ev->choice, ev->call, "call_", id);
        tr_emit_kstr(e, "call_id", id);
        tr_emit_kstrn(e, "name", ev->text, ev->text_len);
        tr_emit_kstr(e, "arguments", "");
    } else if (ev->type == TR_EV_CALL_ARGS) {
        tr_emit_kstrn(e, "arguments", ev->text, ev->text_len);
    }
    end_delta(s, ev, type, n);
}

static void choice_finished(struct tr_stream *s, const struct tr_event *ev)
{
    int64_t n = begin(s, ev, "choice.finished");

    tr_emit_ku64(&s->fe->json, "index", ev->choice);
    tr_emit_kstr(&s->fe->json, "finish_reason", tr_event_finish(ev));
    end(s, "choice.finished", n);
}

static void usage(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_usage u = tr_stream_usage(s);
    int64_t n = begin(s, ev, "usage");

    tr_api_usage(&s->fe->json, &u);
    end(s, "usage", n);
}

static void finished(struct tr_stream *s, const struct tr_event *ev)
{
    const char *type = ev->length ? "response.incomplete" : "response.completed";
    int64_t n = begin(s, ev, type);

    if (ev->length)
        tr_emit_kstr(&s->fe->json, "reason", "length");
    tr_emit_kstr(&s->fe->json, "finish_reason", tr_event_finish(ev));
    end(s, type, n);
}

static void failed(struct tr_stream *s, const struct tr_event *ev)
{
    const struct tr_err_info *i = tr_err_info(ev->err);
    struct tr_emit *e = &s->fe->json;
    const char *type = ev->cancelled ? "response.cancelled" : "error";
    int64_t n = begin(s, ev, type);

    if (ev->cancelled) {
        tr_emit_kstr(e, "reason", i->code);
        if (ev->last_token >= 0)
            tr_emit_ki64(e, "last_token", ev->last_token);
        else
            tr_emit_knull(e, "last_token");
    } else {
        tr_emit_kstr(e, "code", i->code);
        tr_emit_kstr(e, "message", i->sentence);
        tr_emit_kbool(e, "retryable", i->status == 503);
    }
    end(s, type, n);
}

static void native_event(struct tr_stream *s, const struct tr_event *ev)
{
    struct tr_emit *e = &s->fe->json;

    if (ev->type == TR_EV_FINISH && s->n == 1)
        return;
    if (ev->members ? !tr_stream_count(s, ev->members) : tr_stream_is_past(s))
        return;
    switch (ev->type) {
    case TR_EV_STARTED:
        started(s, ev);
        return;
    case TR_EV_QUEUED:
        begin(s, ev, "response.queued");
        tr_emit_ku64(e, "position", ev->position);
        end(s, "response.queued", -1);
        return;
    case TR_EV_PREFILL:
        begin(s, ev, "response.prefill");
        tr_emit_ku64(e, "done", ev->done);
        tr_emit_ku64(e, "total", ev->total);
        end(s, "response.prefill", -1);
        return;
    case TR_EV_DELTA:
        delta(s, ev, "output_text.delta");
        return;
    case TR_EV_REASONING:
        delta(s, ev, "reasoning.delta");
        return;
    case TR_EV_CALL:
    case TR_EV_CALL_ARGS:
    case TR_EV_CALL_DONE:
        call(s, ev);
        return;
    case TR_EV_FINISH:
        choice_finished(s, ev);
        return;
    case TR_EV_USAGE:
        usage(s, ev);
        return;
    case TR_EV_END:
        finished(s, ev);
        return;
    case TR_EV_FAIL:
        failed(s, ev);
        return;
    }
}

static void native_body(struct tr_stream *s, struct tr_emit *e)
{
    (void)s;
    e->failed = true; /* native answers are always streamed */
}

/* ---- POST ---- */

enum tr_frame tr_api_native_frame(const struct tr_http_request *rq)
{
    struct tr_slice v = tr_http_field(rq->http, "accept");

    return v.p && memmem(v.p, v.len, "ndjson", 6) ? TR_NDJSON : TR_SSE_NATIVE;
}

static void post(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    tr_api_post(x, rq, ctx, &tr_dialect_native, tr_api_native_frame(rq));
}

/* ---- DELETE ---- */

/* A DELETE whose stream has not ended yet. */
struct tr_cancel_wait {
    struct tr_fe *fe;
    struct tr_exchange *x;
    struct tr_stream_id id;
    bool was_over; /* it had ended before, and is kept by somebody who is told to let it go */
    uint64_t due_ns;
    uint64_t look_ns, pause_ns; /* when next, if it is not our own; the pause after that */
    struct tr_cancel_wait *next, **pprev;
};

/* What the ring says about the stream, also when its slot is already somebody else's.  False if it is
 * too late even for that: it ended, and was told to. */
static bool read_end(struct tr_fe *fe, struct tr_stream_id id, struct tr_ring_past *end)
{
    const struct tr_ring *r = tr_ring_at(fe->shm, id.slot);

    if (tr_ring_read(fe->shm, id.slot, id.gen, &end->state) >= 0) {
        end->err = r->err;
        end->finish_index = r->finish_index;
        /* The slot may have been wiped while we looked. */
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&r->gen, memory_order_relaxed) == id.gen)
            return true;
    }
    if (tr_ring_past_of(fe->shm, id.slot, id.gen, end) == 0)
        return true;
    *end = (struct tr_ring_past){.state = TR_CANCELLED, .err = TR_ERR_CANCELLED};
    return false;
}

static void reply_status(struct tr_fe *fe, struct tr_exchange *x, struct tr_stream_id id)
{
    struct tr_emit *e = &fe->json;
    char name[TR_STREAM_ID_BYTES];
    struct tr_ring_past r;
    bool known = read_end(fe, id, &r), end = tr_state_terminal(r.state);

    tr_stream_id_format(id, name);
    tr_emit_reset(e);
    tr_emit_obj(e);
    tr_emit_kstr(e, "id", name);
    tr_emit_kstr(e, "object", "stream");
    tr_emit_kstr(e, "status", end ? tr_state_name(r.state) : "cancelling");
    tr_emit_kstr(e, "reason", end && r.err ? tr_err_info((enum tr_err)r.err)->code : NULL);
    if (end && r.finish_index)
        tr_emit_ku64(e, "last_token", r.finish_index - 1);
    else
        tr_emit_knull(e, "last_token");
    if (end && known)
        tr_emit_ku64(e, "completion_tokens", r.finish_index);
    tr_emit_obj_end(e);
    tr_api_reply(fe, x);
}

static void unlink_wait(struct tr_cancel_wait *w)
{
    *w->pprev = w->next;
    if (w->next)
        w->next->pprev = w->pprev;
    free(w);
}

static void wait_nothing(void *owner)
{
    (void)owner;
}

static void wait_gone(void *owner, enum tr_gone why)
{
    (void)why;
    unlink_wait(owner);
}

static const struct tr_owner_ops wait_ops = {
    .writable = wait_nothing, .half_closed = wait_nothing, .gone = wait_gone};

/* Whether the engine has said it, or it is not waited for any longer.  Our own slots are looked at in
 * every turn, which the ring's news make. */
static bool is_told(struct tr_fe *fe, struct tr_cancel_wait *w, uint64_t now)
{
    uint32_t state = TR_FREE;
    bool own = tr_stream_find(fe, w->id);

    if (now >= w->due_ns)
        return true;
    if (!own && now < w->look_ns)
        return false;
    if (tr_ring_read(fe->shm, w->id.slot, w->id.gen, &state) < 0)
        return true;
    /* Relaxed: no more than that is to be known. */
    bool let_go =
        !w->was_over || own ||
        atomic_load_explicit(&tr_ring_at(fe->shm, w->id.slot)->unwanted, memory_order_relaxed);
    if (tr_state_terminal(state) && let_go)
        return true;
    if (own)
        return false;
    w->look_ns = now + w->pause_ns;
    w->pause_ns = w->pause_ns < CANCEL_LOOK_MAX_NS ? 2 * w->pause_ns : w->pause_ns;
    return false;
}

static void wake_for(struct tr_fe *fe, const struct tr_cancel_wait *w)
{
    bool soon = w->look_ns && w->look_ns < w->due_ns;
    uint64_t at = soon && !tr_stream_find(fe, w->id) ? w->look_ns : w->due_ns;

    if (!fe->wake_ns || at < fe->wake_ns)
        fe->wake_ns = at;
}

bool tr_api_native_pump(struct tr_fe *fe)
{
    struct tr_cancel_wait *next;
    uint64_t now = fe->cancel_wait ? tr_now_ns() : 0;
    bool moved = false;

    for (struct tr_cancel_wait *w = fe->cancel_wait; w; w = next) {
        next = w->next;
        if (!is_told(fe, w, now)) {
            wake_for(fe, w);
            continue;
        }
        struct tr_exchange *x = w->x;
        struct tr_stream_id id = w->id;
        tr_exchange_unbind(x);
        unlink_wait(w);
        reply_status(fe, x, id);
        moved = true;
    }
    return moved;
}

static void wait_for_end(struct tr_fe *fe, struct tr_exchange *x, struct tr_stream_id id,
                         bool was_over)
{
    struct tr_cancel_wait *w = calloc(1, sizeof(*w));

    if (!w) {
        reply_status(fe, x, id);
        return;
    }
    *w = (struct tr_cancel_wait){.fe = fe,
                                 .x = x,
                                 .id = id,
                                 .was_over = was_over,
                                 .due_ns = tr_now_ns() + CANCEL_WAIT_NS,
                                 .pause_ns = CANCEL_LOOK_NS,
                                 .next = fe->cancel_wait,
                                 .pprev = &fe->cancel_wait};
    if (w->next)
        w->next->pprev = &w->next;
    fe->cancel_wait = w;
    tr_exchange_bind(x, &wait_ops, w);
}

/* Whether the ring belongs to this stream and this key. */
static bool ring_matches(const struct tr_fe *fe, struct tr_stream_id id, const char *key,
                         uint32_t *state, uint32_t *flags)
{
    const struct tr_ring *r = tr_ring_at(fe->shm, id.slot);

    if (tr_ring_read(fe->shm, id.slot, id.gen, state) < 0 || *state == TR_FREE)
        return false;
    bool match = r->stream_rand == id.rand && strncmp(r->key, key, sizeof(r->key)) == 0;
    *flags = r->params.flags;
    /* The slot may have been wiped while we looked. */
    atomic_thread_fence(memory_order_acquire);
    return match && atomic_load_explicit(&r->gen, memory_order_relaxed) == id.gen;
}

/* Submitted at another frontend, and the engine has not come to it, maybe because there is none now:
 * soon. */
static bool is_to_come(const struct tr_fe *fe, struct tr_stream_id id)
{
    struct tr_claim claim = tr_claim_get(fe->shm, id.slot);
    uint32_t gen = atomic_load_explicit(&tr_ring_at(fe->shm, id.slot)->gen, memory_order_relaxed);

    return gen == id.gen && claim.gen == gen && claim.state == TR_CLAIM_CLAIMED;
}

/* Of one that is not ours, or on its way to us and maybe to another: the engine knows whose it is.
 * TR_OK and whether it had ended and may be kept for a reader; or why not. */
static enum tr_err cancel_by_message(struct tr_fe *fe, struct tr_stream_id id, const char *key,
                                     bool *was_over)
{
    struct tr_msg m = {
        .kind = TR_MSG_CANCEL, .slot = id.slot, .gen = id.gen, .stream_rand = id.rand};
    uint32_t state = TR_FREE, flags = 0;

    if (!ring_matches(fe, id, key, &state, &flags))
        return is_to_come(fe, id) ? TR_ERR_ENGINE_DOWN : TR_ERR_NOT_FOUND;
    *was_over = tr_state_terminal(state) && (flags & TR_REQ_RESUMABLE);
    /* One that is kept: whoever has it lets it go. */
    bool tell = !tr_state_terminal(state) || *was_over;
    return tell && tr_subq_push(fe->shm, &m, 1) ? TR_ERR_OVERLOADED : TR_OK;
}

static void refuse(struct tr_exchange *x, enum tr_err e)
{
    tr_exchange_error(x, e,
                      e == TR_ERR_NOT_FOUND     ? "There is no stream with this id."
                      : e == TR_ERR_ENGINE_DOWN ? "The stream is not admitted yet."
                                                : NULL,
                      NULL);
}

void tr_api_native_cancel(struct tr_exchange *x, const struct tr_http_request *rq, struct tr_fe *fe,
                          struct tr_stream_id id)
{
    char key[TR_KEY_BYTES];
    bool was_over = false;
    enum tr_err e = TR_OK;

    tr_api_key(rq, key);
    if (id.slot >= fe->shm->config.n_slots) {
        refuse(x, TR_ERR_NOT_FOUND);
        return;
    }
    struct tr_stream *own = tr_hold_find(fe, id);
    if (own && strncmp(own->ask->key, key, sizeof(key)) != 0)
        e = TR_ERR_NOT_FOUND;
    else if (own && !own->hold.taking)
        tr_stream_cancel_for_good(own);
    else
        e = cancel_by_message(fe, id, key, &was_over);
    if (e) {
        refuse(x, e);
        return;
    }
    if (own)
        own->hold.unwanted = true;
    wait_for_end(fe, x, id, !own && was_over);
}

static void delete (struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    struct tr_stream_id id;

    if (tr_stream_id_parse(rq->id_param.p, rq->id_param.len, &id))
        refuse(x, TR_ERR_NOT_FOUND);
    else
        tr_api_native_cancel(x, rq, ctx, id);
}

static const struct tr_route routes[] = {
    {.method = TR_HTTP_POST, .pattern = "/v1/streams", .handler = post},
    {.method = TR_HTTP_GET, .pattern = "/v1/streams/{id}", .handler = tr_api_resume},
    {.method = TR_HTTP_DELETE, .pattern = "/v1/streams/{id}", .handler = delete},
    {.method = TR_HTTP_GET, .pattern = "/v1/ws", .handler = tr_api_ws}};

const struct tr_dialect tr_dialect_native = {.api = TR_API_NATIVE,
                                             .id_prefix = "",
                                             .frame = TR_SSE_NATIVE,
                                             .lifecycle = true,
                                             .splits = true,
                                             .event = native_event,
                                             .body = native_body,
                                             .routes = routes,
                                             .n_routes = sizeof(routes) / sizeof(routes[0])};
