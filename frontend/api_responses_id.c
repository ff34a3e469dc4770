/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_responses_id.c - what is asked about a background response by its id: GET (the object, or
 * its events), cancel, DELETE, input_items.
 *
 * Any frontend answers out of the ring, whoever has the stream: nobody's reader is disturbed.  The engine
 * is told that it was asked about, so that it is kept for another window.  A question waits in a list when
 * the ring does not have its answer yet: it is looked at in the turns of the loop, soon, then more and
 * more seldom.  The text is made in pieces, so many tokens in a turn for all questions together. */
#include "frontend/api_responses.h"

#include "base/clock.h"
#include "frontend/find.h"
#include "frontend/hold.h"
#include "frontend/retell.h"
#include "frontend/whole.h"
#include "shm/close.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS (1000000ull)
#define LOOK_MAX_NS (64 * LOOK_NS)
#define ADMIT_NS (1000000000ull)      /* a new one is waited for */
#define CANCEL_NS (5 * 1000000000ull) /* a cancel is */

enum { ARG_BYTES = 96 };

enum kind { ACCEPTED, GET, ITEMS, CANCEL, DELETE };

struct tr_poll {
    struct tr_fe *fe;
    struct tr_exchange *x;
    enum kind kind;
    struct tr_stream_id id;
    char key[TR_KEY_BYTES];
    uint64_t due_ns;            /* it is answered then, whatever there is */
    uint64_t look_ns, pause_ns; /* when next, and the pause after that */
    bool told;                  /* the engine has been told what is wanted */
    struct tr_ask *ask;         /* as the ring has it; NULL: not looked at yet */
    struct tr_response_page page;
    bool telling; /* the output is in the making */
    struct tr_response_writer items;
    struct tr_emit text; /* the items */
    TAILQ_ENTRY(tr_poll) link;
};

/* ---- life ---- */

static void drop(struct tr_poll *p)
{
    TAILQ_REMOVE(&p->fe->polls, p, link);
    tr_ask_close(p->ask);
    tr_emit_fini(&p->text);
    free(p);
}

static void nothing(void *owner)
{
    (void)owner;
}

static void gone(void *owner, enum tr_gone why)
{
    (void)why;
    drop(owner);
}

static const struct tr_owner_ops owner_ops = {
    .writable = nothing, .half_closed = nothing, .gone = gone};

/* The exchange, to be answered; p is gone. */
static struct tr_exchange *finish(struct tr_poll *p)
{
    struct tr_exchange *x = p->x;

    tr_exchange_unbind(x);
    drop(p);
    return x;
}

static void refuse(struct tr_exchange *x, enum tr_err e)
{
    bool unknown = e == TR_ERR_NOT_FOUND || e == TR_ERR_STREAM_OVER;

    tr_exchange_error(x, unknown ? TR_ERR_NOT_FOUND : e,
                      unknown ? "There is no background response with this id (any more)." : NULL,
                      NULL);
}

/* ---- what the ring says ---- */

static void format_id(struct tr_stream_id id, char out[TR_RESPONSE_ID_BYTES])
{
    char name[TR_STREAM_ID_BYTES];

    tr_stream_id_format(id, name);
    snprintf(out, TR_RESPONSE_ID_BYTES, "resp_%s", name + 3);
}

static int parse_id(struct tr_slice text, struct tr_stream_id *id)
{
    char name[TR_RESPONSE_ID_BYTES];

    if (text.len < 5 || text.len >= sizeof(name) || memcmp(text.p, "resp_", 5) != 0)
        return -EINVAL;
    int n = snprintf(name, sizeof(name), "tr-%.*s", (int)(text.len - 5), text.p + 5);
    return tr_stream_id_parse(name, (size_t)n, id);
}

static const struct tr_ring *ring(const struct tr_poll *p)
{
    return tr_ring_at(p->fe->shm, p->id.slot);
}

/* Whether it is still there, after it was read. */
static bool is_there(const struct tr_poll *p)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&ring(p)->gen, memory_order_relaxed) == p->id.gen;
}

/* Whether its end may be told: the ledger has it, or has been waited for. */
static bool is_settled(const struct tr_poll *p, uint64_t now)
{
    const struct tr_ring *r = ring(p);
    /* Acquire: pairs with the engine's release after it queued the record. */
    uint64_t seq = atomic_load_explicit(&r->bill_seq, memory_order_acquire);

    return (seq && tr_bill_is_durable(p->fe->shm, seq)) ||
           now > r->finished_ns + p->fe->cfg->ledger_wait_ns;
}

/* How it is, for the object.  `terminal`: its end may be told. */
static struct tr_response response_of(const struct tr_poll *p, const char *id, uint32_t state,
                                      bool terminal)
{
    const struct tr_ring *r = ring(p);
    struct tr_response o = {.fe = p->fe, .ask = p->ask, .id = id};

    if (!terminal) {
        bool begun = atomic_load_explicit(&r->started_ns, memory_order_relaxed);
        o.status = begun && p->kind != ACCEPTED ? TR_RESPONSE_IN_PROGRESS : TR_RESPONSE_QUEUED;
        return o;
    }
    o.err = tr_close_info(tr_close_of(state, r->finish, r->err))->err;
    o.status = tr_response_end(o.err, state == TR_INCOMPLETE);
    o.completed_ns = r->finished_ns;
    o.usage.completion = r->finish_index;
    o.usage.prompt = r->group_bill_prompt ? r->prompt_len : 0;
    o.usage.cached = atomic_load_explicit(&r->cached_tokens, memory_order_relaxed);
    return o;
}

/* Goes on with the output; true: it is there. */
static bool tell(struct tr_poll *p, bool length, uint64_t *budget)
{
    char id[TR_RESPONSE_ID_BYTES];
    const struct tr_ring *r = ring(p);
    uint32_t n_ctx = p->fe->shm->config.n_ctx;
    uint32_t prompt_len = r->prompt_len < n_ctx ? r->prompt_len : n_ctx;
    uint64_t n = r->finish_index < n_ctx - prompt_len ? r->finish_index : n_ctx - prompt_len;

    if (!p->telling) {
        struct tr_response_walk from = {0};
        if (n && (r->finish == TR_FINISH_EOG || r->finish == TR_FINISH_STOP_ID))
            n--;
        tr_retell_answer(&from.tell, p->fe, p->ask,
                         tr_ring_ids(p->fe->shm, p->id.slot) + prompt_len, n);
        tr_response_write_begin(&p->items, &from, TR_RESPONSE_ALL, 0, length);
        p->telling = true;
    }
    format_id(p->id, id);
    struct tr_response_who who = {.id = id, .name = p->id, .format = p->ask->tool_format};
    return tr_response_write(&p->items, &who, &p->text, SIZE_MAX, budget);
}

/* ---- answers ---- */

/* Whoever began a response is not told its name: nobody could ever ask for it. */
static void forsake(struct tr_fe *fe, struct tr_stream_id id)
{
    struct tr_stream *own = tr_stream_find(fe, id);

    if (own)
        tr_stream_cancel_for_good(own);
}

static void give(struct tr_poll *p, struct tr_emit *e)
{
    bool there = is_there(p);
    if (e->failed && p->kind == ACCEPTED)
        forsake(p->fe, p->id);
    struct tr_exchange *x = finish(p);

    if (!there)
        refuse(x, TR_ERR_STREAM_OVER);
    else if (e->failed)
        tr_exchange_error(x, TR_ERR_INTERNAL, NULL, NULL);
    else
        tr_exchange_reply(x, 200, "application/json", e->buf, e->len);
    tr_emit_reset(e); /* gives a large body's memory back */
}

static void give_object(struct tr_poll *p, uint32_t state, bool terminal)
{
    char id[TR_RESPONSE_ID_BYTES];
    struct tr_emit *e = &p->fe->json;

    format_id(p->id, id);
    struct tr_response r = response_of(p, id, state, terminal);
    tr_emit_reset(e);
    tr_response_open(e, &r);
    if (p->telling) {
        tr_emit_raw(e, p->text.buf, p->text.len);
        e->failed |= p->text.failed;
    }
    tr_response_close(e, &r);
    give(p, e);
}

static void give_deleted(struct tr_poll *p)
{
    struct tr_fe *fe = p->fe;
    struct tr_emit *e = &fe->json;
    char id[TR_RESPONSE_ID_BYTES];

    format_id(p->id, id);
    tr_emit_reset(e);
    tr_emit_obj(e);
    tr_emit_kstr(e, "id", id);
    tr_emit_kstr(e, "object", "response");
    tr_emit_kbool(e, "deleted", true);
    tr_emit_obj_end(e);
    tr_api_reply(fe, finish(p));
}

static void give_items(struct tr_poll *p)
{
    struct tr_emit *e = &p->fe->json;
    struct tr_json_fault ignored;
    struct tr_json_doc *doc =
        p->ask->kept_len ? tr_json_parse(p->ask->kept, p->ask->kept_len, &ignored) : NULL;

    tr_emit_reset(e);
    tr_emit_obj(e);
    tr_emit_kstr(e, "object", "list");
    tr_emit_key(e, "data");
    tr_emit_arr(e);
    tr_response_page_put(e, &p->page, p->id, doc);
    tr_emit_obj_end(e);
    tr_json_free(doc);
    give(p, e);
}

/* ---- looks ---- */

/* What has to be told to the engine, or to the stream if it is ours: once. */
static enum tr_err say(struct tr_poll *p, bool terminal)
{
    struct tr_msg m = {
        .kind = TR_MSG_CANCEL, .slot = p->id.slot, .gen = p->id.gen, .stream_rand = p->id.rand};
    struct tr_msg two[2] = {m, m}; /* the second one lets go what the first one has ended */
    struct tr_stream *own = tr_stream_find(p->fe, p->id);
    bool mine = own && !own->hold.taking;

    p->told = true;
    if (p->kind == DELETE) {
        if (mine) {
            tr_stream_cancel_for_good(own);
            return TR_OK;
        }
        return tr_subq_push(p->fe->shm, two, terminal ? 1 : 2) ? TR_ERR_OVERLOADED : TR_OK;
    }
    if (p->kind == CANCEL && !terminal) {
        if (mine)
            tr_stream_cancel(own, TR_ERR_CANCELLED);
        return !mine && tr_subq_push(p->fe->shm, &m, 1) ? TR_ERR_OVERLOADED : TR_OK;
    }
    m.kind = TR_MSG_WANTED;
    if (mine)
        tr_hold_asked(own);
    else
        (void)tr_subq_push(p->fe->shm, &m, 1); /* a full queue: the next question says it */
    return TR_OK;
}

/* Not admitted yet, or gone.  True: it has been answered. */
static bool look_at_none(struct tr_poll *p, enum tr_err e, uint64_t now)
{
    const struct tr_stream *own = tr_stream_find(p->fe, p->id);

    if (e == TR_ERR_ENGINE_DOWN && now < p->due_ns)
        return false;
    if (p->told && p->kind == DELETE) {
        give_deleted(p);
        return true;
    }
    if (e != TR_ERR_ENGINE_DOWN || !own || p->kind != ACCEPTED) {
        refuse(finish(p), e);
        return true;
    }
    /* No engine has come to it: what is known of it is known here. */
    char id[TR_RESPONSE_ID_BYTES];
    struct tr_fe *fe = p->fe;
    struct tr_emit *json = &fe->json;
    struct tr_response r = {.fe = fe, .ask = own->ask, .id = id};
    format_id(p->id, id);
    tr_emit_reset(json);
    tr_response_open(json, &r);
    tr_response_close(json, &r);
    tr_api_reply(fe, finish(p));
    return true;
}

/* The ring is there.  True: it has been answered. */
static bool look_at_it(struct tr_poll *p, const struct tr_find *f, uint64_t now, uint64_t *budget)
{
    bool terminal = tr_state_terminal(f->state) && is_settled(p, now), late = now >= p->due_ns;
    bool waits = p->kind == CANCEL && !terminal;

    if (!p->told) {
        enum tr_err e = say(p, tr_state_terminal(f->state));
        if (e) {
            refuse(finish(p), e);
            return true;
        }
    }
    if (p->kind == ITEMS) {
        give_items(p);
        return true;
    }
    if ((p->kind == DELETE || waits) && !late)
        return false;
    if (p->kind == DELETE) {
        give_deleted(p);
        return true;
    }
    bool text =
        terminal && p->kind != ACCEPTED && (f->state == TR_COMPLETED || f->state == TR_INCOMPLETE);
    if (text && !tell(p, f->state == TR_INCOMPLETE, budget)) {
        p->look_ns = now;
        return false;
    }
    give_object(p, f->state, terminal && p->kind != ACCEPTED);
    return true;
}

static bool look(struct tr_poll *p, uint64_t now, uint64_t *budget)
{
    struct tr_find f;
    enum tr_err e = tr_find_ring(p->fe, p->id, p->key, &f);

    if (e == TR_OK && (f.unwanted || f.let_go))
        e = TR_ERR_STREAM_OVER;
    if (e)
        return look_at_none(p, e, now);
    if (!p->ask)
        p->ask = tr_ask_from_ring(p->fe, p->id.slot, p->id.gen);
    if (!p->ask || p->ask->api != TR_API_RESPONSES) {
        e = p->ask ? TR_ERR_NOT_FOUND : TR_ERR_INTERNAL;
        if (p->kind == ACCEPTED)
            forsake(p->fe, p->id);
        refuse(finish(p), e);
        return true;
    }
    return look_at_it(p, &f, now, budget);
}

bool tr_responses_turn(struct tr_fe *fe)
{
    struct tr_poll *p, *next;
    uint64_t now = TAILQ_EMPTY(&fe->polls) ? 0 : tr_now_ns(), budget = TR_WHOLE_TURN;
    bool moved = false;

    /* The oldest first: its text is made to the end before that of the next one begins, however many
     * come meanwhile. */
    for (p = TAILQ_FIRST(&fe->polls); p; p = next) {
        next = TAILQ_NEXT(p, link);
        bool due = now >= p->look_ns || now >= p->due_ns;
        if (due) {
            p->look_ns = now + p->pause_ns;
            p->pause_ns = p->pause_ns < LOOK_MAX_NS ? 2 * p->pause_ns : p->pause_ns;
        }
        if (due && look(p, now, &budget)) {
            moved = true;
            continue;
        }
        if (!fe->wake_ns || p->look_ns < fe->wake_ns)
            fe->wake_ns = p->look_ns;
    }
    return moved;
}

/* ---- requests ---- */

/* A question that is answered in the next turn or later. */
static struct tr_poll *ask(struct tr_fe *fe, struct tr_exchange *x, struct tr_stream_id id,
                           const char key[TR_KEY_BYTES], enum kind kind)
{
    uint64_t now = tr_now_ns(), wait = kind == CANCEL || kind == DELETE ? CANCEL_NS : ADMIT_NS;
    struct tr_poll *p = calloc(1, sizeof(*p));

    if (!p) {
        tr_exchange_error(x, TR_ERR_INTERNAL, NULL, NULL);
        return NULL;
    }
    *p = (struct tr_poll){.fe = fe,
                          .x = x,
                          .kind = kind,
                          .id = id,
                          .due_ns = now + wait,
                          .look_ns = now,
                          .pause_ns = LOOK_NS,
                          .page = {.limit = TR_RESPONSE_ITEMS, .after = -1}};
    memcpy(p->key, key, sizeof(p->key));
    TAILQ_INSERT_TAIL(&fe->polls, p, link);
    fe->wake_ns = now;
    tr_exchange_bind(x, &owner_ops, p);
    return p;
}

static struct tr_poll *ask_by_id(struct tr_exchange *x, const struct tr_http_request *rq,
                                 struct tr_fe *fe, enum kind kind)
{
    struct tr_stream_id id;
    char key[TR_KEY_BYTES];

    if (parse_id(rq->id_param, &id) || id.slot >= fe->shm->config.n_slots) {
        refuse(x, TR_ERR_NOT_FOUND);
        return NULL;
    }
    tr_api_key(rq, key);
    return ask(fe, x, id, key, kind);
}

void tr_responses_accepted(struct tr_stream *s, struct tr_exchange *x)
{
    tr_exchange_header(x, "X-Tokenring-Stream", s->stream_id);
    if (!ask(s->fe, x, s->name, s->ask->key, ACCEPTED))
        forsake(s->fe, s->name);
}

void tr_responses_again(struct tr_fe *fe, struct tr_exchange *x, struct tr_stream_id id,
                        const char *key)
{
    ask(fe, x, id, key, GET);
}

static int query(const struct tr_http_request *rq, const char *name, char buf[ARG_BYTES])
{
    return tr_http_query(rq->http, name, buf, ARG_BYTES);
}

/* starting_after: -1 if it is absent. */
static int read_after(const struct tr_http_request *rq, int64_t *after, struct tr_fault *f)
{
    char buf[ARG_BYTES];
    int len = query(rq, "starting_after", buf);

    *after = -1;
    if (len == -ENOENT || (len >= 0 && tr_api_read_number(buf, (size_t)len, after) == 0))
        return 0;
    return tr_fault_set(f, TR_ERR_BAD_PARAM, "starting_after",
                        "starting_after must be the sequence_number of an event.");
}

static int read_stream(const struct tr_http_request *rq, bool *stream, struct tr_fault *f)
{
    char buf[ARG_BYTES];
    int len = query(rq, "stream", buf);

    *stream = len > 0 && strcmp(buf, "true") == 0;
    if (len == -ENOENT || *stream || (len > 0 && strcmp(buf, "false") == 0))
        return 0;
    return tr_fault_set(f, TR_ERR_BAD_PARAM, "stream", "stream must be true or false.");
}

void tr_responses_get(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    struct tr_reader r = {.x = x, .dialect = &tr_dialect_responses, .frame = TR_SSE_TYPED};
    struct tr_fe *fe = ctx;
    struct tr_stream_id id;
    struct tr_fault f;
    bool stream;

    if (read_stream(rq, &stream, &f) || read_after(rq, &r.after, &f))
        tr_api_refuse(fe, x, &f);
    else if (!stream)
        ask_by_id(x, rq, fe, GET);
    else if (parse_id(rq->id_param, &id) || id.slot >= fe->shm->config.n_slots)
        refuse(x, TR_ERR_NOT_FOUND);
    else
        tr_api_resume_as(fe, rq, id, &r);
}

void tr_responses_cancel(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    ask_by_id(x, rq, ctx, CANCEL);
}

void tr_responses_delete(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    ask_by_id(x, rq, ctx, DELETE);
}

void tr_responses_items(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    struct tr_fe *fe = ctx;
    struct tr_fault f;
    struct tr_response_page page;

    if (tr_response_page_read(rq, &page, &f)) {
        tr_api_refuse(fe, x, &f);
        return;
    }
    struct tr_poll *p = ask_by_id(x, rq, fe, ITEMS);
    if (p)
        p->page = page;
}
