/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/stream.c - see stream.h.  One choice is in choice.c, a turn in stream_turn.c, how it ends in
 * stream_end.c, what time does to it in stream_clock.c. */
#include "frontend/stream_priv.h"

#include "base/clock.h"
#include "base/fault.h"
#include "frontend/enter.h"
#include "frontend/gate.h"
#include "frontend/hold.h"
#include "frontend/replay.h"
#include "frontend/resume.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- life ---- */

static void link_stream(struct tr_fe *fe, struct tr_stream *s)
{
    for (uint32_t k = 0; k < s->n && !s->replay; k++) {
        struct tr_stream **at = &fe->by_slot[s->choice[k].slot];
        if (*at) /* it lost the slot and has not noticed yet */
            tr_stream_due(*at);
        *at = s;
    }
    s->next = fe->streams;
    s->pprev = &fe->streams;
    if (s->next)
        s->next->pprev = &s->next;
    fe->streams = s;
    fe->n_streams++;
}

/* What was handed over does not outlive its answer in this area.  One that the engine has not heard of
 * yet stays until the slot is used again. */
static void wipe_requests(struct tr_stream *s)
{
    struct tr_shm *shm = s->fe->shm;

    if (!s->submitted || !tr_subq_is_heard(shm, s->submitted))
        return;
    for (uint32_t k = 0; k < s->n; k++)
        tr_request_wipe(shm, s->choice[k].slot, s->choice[k].gen);
}

void tr_stream_runs(struct tr_stream *s)
{
    if (!s->running)
        tr_gate_begin(s->fe, s->ask->who, s->n);
    s->running = s->n;
}

void tr_stream_rests(struct tr_stream *s)
{
    if (s->running)
        tr_gate_end(s->fe, s->ask->who, s->n);
    s->running = 0;
}

void tr_stream_free(struct tr_stream *s)
{
    if (s->pprev) {
        *s->pprev = s->next;
        if (s->next)
            s->next->pprev = s->pprev;
        s->fe->n_streams--;
        for (uint32_t k = 0; k < s->n; k++) {
            struct tr_stream **at = &s->fe->by_slot[s->choice[k].slot];
            if (*at == s)
                *at = NULL;
            s->fe->behind -= s->choice[k].behind;
            s->fe->hold_missed |=
                s->choice[k].lost; /* news of its successor may have found it here */
        }
        tr_stream_clock_fini(s);
        wipe_requests(s);
    }
    tr_stream_not_due(s);
    if (s->is_gated)
        TAILQ_REMOVE(&s->fe->gate, s, gate_link);
    tr_hold_leave(s);
    tr_stream_rests(s);
    tr_receipt_leave(&s->receipt);
    for (uint32_t k = 0; k < s->n; k++)
        tr_choice_fini(&s->choice[k]);
    tr_whole_free(s->whole);
    free(s->closing);
    tr_ask_close(s->ask);
    free(s);
}

void tr_stream_say(struct tr_stream *s, const struct tr_choice *ch, uint32_t flags, uint32_t arg)
{
    if (!s->replay)
        tr_cmd_post(s->fe->shm, ch->slot, ch->gen, flags, arg);
}

void tr_stream_cancel(struct tr_stream *s, enum tr_err why)
{
    if (s->cancelled)
        return;
    if (s->hold.taking) { /* the slot's command word is not ours yet */
        s->hold.cancel = why;
        return;
    }
    s->cancelled = true;
    for (uint32_t k = 0; k < s->n; k++)
        tr_stream_say(s, &s->choice[k], TR_CMD_CANCEL, (uint32_t)why);
}

void tr_stream_cancel_for_good(struct tr_stream *s)
{
    s->hold.unwanted = true;
    if (s->hold.taking) {
        tr_stream_cancel(s, TR_ERR_CANCELLED);
        return;
    }
    /* Also if it has ended, or has been cancelled: should this process die before it has let it go,
     * whoever is given the stream knows. */
    s->cancelled = true;
    for (uint32_t k = 0; k < s->n; k++)
        tr_stream_say(s, &s->choice[k], TR_CMD_CANCEL | TR_CMD_UNWANTED, TR_ERR_CANCELLED);
    tr_stream_due(s);
}

void tr_streams_cancel_all(struct tr_fe *fe, enum tr_err why)
{
    for (struct tr_stream *s = fe->streams; s; s = s->next)
        tr_stream_cancel(s, why);
}

struct tr_stream *tr_stream_find(struct tr_fe *fe, struct tr_stream_id id)
{
    struct tr_stream *s = id.slot < fe->shm->config.n_slots ? fe->by_slot[id.slot] : NULL;

    return s && s->name.slot == id.slot && s->name.gen == id.gen && s->name.rand == id.rand ? s
                                                                                            : NULL;
}

/* ---- connection ---- */

static void on_writable(void *owner)
{
    tr_stream_due(owner);
}

void tr_stream_probe(struct tr_stream *s)
{
    if (s->in_event) /* what follows is as good */
        return;
    if ((s->x && tr_exchange_probe(s->x)) || s->frame == TR_TEXT) {
        s->last_byte_ns = tr_now_ns();
        return;
    }
    tr_emit_reset(&s->fe->frame);
    if (s->dialect->keepalive)
        s->dialect->keepalive(&s->fe->frame);
    else
        tr_frame_keepalive(&s->fe->frame, s->frame);
    tr_stream_write_frame(s);
}

static void on_half_closed(void *owner)
{
    struct tr_stream *s = owner;

    /* A client that is gone answers the probe with a reset; one that has only closed its sending
     * side keeps its stream. */
    if (s->ask->stream && s->frame != TR_TEXT)
        tr_stream_probe(s);
    else
        tr_stream_cut(s, TR_ERR_CLIENT_GONE);
}

static void on_gone(void *owner, enum tr_gone why)
{
    static const enum tr_err err[] = {[TR_GONE_RESET] = TR_ERR_CLIENT_GONE,
                                      [TR_GONE_SLOW] = TR_ERR_SLOW_CLIENT,
                                      [TR_GONE_SHUT] = TR_ERR_DRAIN_LIMIT};
    struct tr_stream *s = owner;
    uint64_t acked = tr_exchange_acked(s->x);

    if (why == TR_GONE_SHUT && !tr_exchange_blocked_ns(s->x)) /* it would have taken the event */
        tr_stat_add(s->fe->stat, TR_STAT_NO_TERMINAL, 1);
    if (why == TR_GONE_SHUT || !tr_stream_hold(s, acked))
        tr_stream_drop(s, err[why], acked);
}

static const struct tr_owner_ops owner_ops = {
    .writable = on_writable, .half_closed = on_half_closed, .gone = on_gone};

/* ---- start ---- */

void tr_stream_refuse(struct tr_fe *fe, struct tr_exchange *x, enum tr_err e)
{
    tr_stat_add(fe->stat,
                e == TR_ERR_OVERLOADED ? TR_STAT_REFUSED_OVERLOAD : TR_STAT_REFUSED_UNAVAILABLE, 1);
    tr_exchange_error(x, e, NULL, NULL);
}

/* An answer that is not streamed is rendered as it comes; what cannot fit is refused before it
 * costs anything. */
static bool answer_fits(const struct tr_fe *fe, const struct tr_ask *a)
{
    uint64_t entries = 0;

    if (a->stream || !a->logprobs)
        return true;
    for (uint32_t i = 0; i < a->n_prompts; i++) {
        uint64_t room = fe->shm->config.n_ctx - a->prompts[i].n;
        uint64_t out =
            a->max_tokens < 0 || (uint64_t)a->max_tokens > room ? room : (uint64_t)a->max_tokens;
        entries += a->n * (out + (a->echo ? a->prompts[i].n : 0));
    }
    return entries * tr_lp_estimate(a->chat, a->params.n_top) <= fe->cfg->max_body;
}

struct tr_stream *tr_stream_make(struct tr_fe *fe, struct tr_exchange *x, struct tr_ask *ask)
{
    uint32_t n = ask->n_prompts * ask->n;
    struct tr_stream *s = calloc(1, sizeof(*s) + n * sizeof(s->choice[0]));

    if (!s)
        return NULL;
    s->fe = fe;
    s->x = x;
    s->ask = ask;
    s->n = n;
    s->created = ask->created;
    s->queue_seen = UINT32_MAX;
    if (ask->timeout_ns)
        s->deadline_ns = ask->arrival_ns + ask->timeout_ns;
    if (fe->cfg->max_stream_ns)
        s->max_ns = ask->arrival_ns + fe->cfg->max_stream_ns;
    return s;
}

void tr_stream_bind(struct tr_stream *s)
{
    tr_exchange_header(s->x, "X-Tokenring-Stream", s->stream_id);
    tr_exchange_bind(s->x, &owner_ops, s);
    s->bytes_before = tr_exchange_accepted(s->x);
    s->last_byte_ns = tr_now_ns();
    s->plain_due = s->frame == TR_TEXT;
    s->head_due = s->ask->stream && !s->plain_due;
}

void tr_stream_head(struct tr_stream *s)
{
    if (!s->head_due && !s->plain_due)
        return;
    s->head_due = s->plain_due = false;
    if (s->resumed)
        tr_resume_begins(s);
    tr_exchange_stream_begin(s->x, tr_frame_content_type(s->frame));
}

void tr_stream_opened(struct tr_stream *s)
{
    if (tr_exchange_half_closed(s->x))
        on_half_closed(s);
}

void tr_stream_open(struct tr_stream *s)
{
    tr_stream_bind(s);
    if (!s->plain_due)
        tr_stream_head(s);
    if (s->ask->stream) {
        s->dialect->event(s, &(struct tr_event){.type = TR_EV_STARTED, .members = 1});
        TR_FAULT_FOR(FRONTEND_HEADERS, s->ask->params.seed);
    }
    tr_stream_opened(s);
}

void tr_stream_rewind(struct tr_stream *s)
{
    tr_choice_rewind(s, &s->choice[0]);
    free(s->closing);
    s->closing = NULL;
    tr_whole_free(s->whole);
    s->whole = NULL;
    s->in_event = false;
}

void tr_stream_dress(struct tr_stream *s, const struct tr_dialect *dialect, enum tr_frame frame)
{
    s->dialect = dialect;
    s->frame = frame;
    tr_stream_id_format(s->name, s->stream_id);
    snprintf(s->id, sizeof(s->id), "%s%s", dialect->id_prefix, s->stream_id + 3);
}

void tr_stream_enter(struct tr_stream *s, const struct tr_admitted *ad)
{
    s->name = (struct tr_stream_id){.slot = ad->slot[0], .gen = ad->gen[0], .rand = ad->rand};
    s->submitted = ad->submitted;
    tr_receipt_init(&s->receipt, s->ask->request_id, s->name);
    for (uint32_t k = 0; k < s->n; k++) {
        s->choice[k].index = k;
        tr_choice_init(s, &s->choice[k], ad->slot[k], ad->gen[k]);
    }
    link_stream(s->fe, s);
    tr_stream_clock_init(s);
    s->rang = true; /* the first look arms its timer */
    tr_stream_due(s);
}

/* One that nobody reads has to be held from the beginning. */
static bool may_be_detached(struct tr_fe *fe, struct tr_exchange *x)
{
    if (!fe->cfg->resume_window_ns) {
        tr_stat_add(fe->stat, TR_STAT_REFUSED_INVALID, 1);
        tr_exchange_error(x, TR_ERR_UNSUPPORTED_PARAM,
                          "This server keeps nothing that nobody reads (--resume-window-s 0): "
                          "stream the answer.",
                          "background");
        return false;
    }
    if (tr_hold_has_place(fe))
        return true;
    tr_stream_refuse(fe, x, TR_ERR_OVERLOADED);
    return false;
}

static void detach(struct tr_stream *s, struct tr_exchange *x)
{
    s->receipt.no_reader = true; /* who asks for it may do so at any frontend */
    if (tr_hold_take(s)) {
        tr_stream_note_detached(s, x);
        s->dialect->accepted(s, x);
        return;
    }
    tr_stream_refuse(s->fe, x, TR_ERR_OVERLOADED);
    tr_stream_drop(s, TR_ERR_CANCELLED, 0);
}

void tr_stream_admitted(struct tr_stream *s, struct tr_exchange *x)
{
    if (s->ask->detached)
        detach(s, x);
    else
        tr_stream_open(s);
}

static uint64_t prompt_tokens(const struct tr_ask *a)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < a->n_prompts; i++)
        n += a->prompts[i].n;
    return n;
}

/* By its limits; else it has been answered. */
static bool key_allows(struct tr_fe *fe, struct tr_exchange *x, const struct tr_ask *a)
{
    const char *why = NULL;
    enum tr_err e = tr_gate_stream(fe, x, a->who, a->n_prompts * a->n, prompt_tokens(a), &why);

    if (e)
        tr_exchange_error(x, e, why, NULL);
    return e == TR_OK;
}

void tr_stream_start(struct tr_fe *fe, struct tr_exchange *x, struct tr_ask *ask,
                     const struct tr_dialect *dialect, enum tr_frame frame)
{
    struct tr_admitted ad;
    struct tr_stream *s;

    if (ask->detached && !may_be_detached(fe, x)) {
        tr_ask_close(ask);
        return;
    }
    if (!key_allows(fe, x, ask)) {
        tr_ask_close(ask);
        return;
    }
    if (!answer_fits(fe, ask)) {
        tr_stat_add(fe->stat, TR_STAT_REFUSED_INVALID, 1);
        tr_exchange_errorf(x, TR_ERR_BAD_PARAM, "logprobs",
                           "The logprobs of this answer would not fit into one body of %zu bytes: "
                           "stream it, or set a smaller max_tokens.",
                           fe->cfg->max_body);
        tr_ask_close(ask);
        return;
    }
    ask->stage.submitted_ns = tr_now_ns();
    s = tr_stream_make(fe, ask->detached ? NULL : x, ask);
    enum tr_err e = s ? tr_admit(fe, ask, &ad) : TR_ERR_INTERNAL;
    if (e) {
        tr_stream_refuse(fe, x, e);
        if (s)
            tr_stream_free(s);
        else
            tr_ask_close(ask);
        return;
    }
    s->prompt_charged = prompt_tokens(ask);
    tr_gate_tokens(fe, ask->who, ask->stage.submitted_ns, s->prompt_charged);
    tr_ask_admitted(ask);
    tr_stream_enter(s, &ad);
    tr_stream_runs(s);
    tr_stream_dress(s, dialect, frame);
    if (ask->idem.key[0])
        tr_enter_wait(s, x);
    else
        tr_stream_admitted(s, x);
}

/* ---- credit ---- */

uint64_t tr_stream_credit(const struct tr_stream *s)
{
    bool limited = s->x && s->x->limited && !s->cancelled && !tr_stream_outcome(s);

    return limited ? s->x->credit : UINT64_MAX;
}

/* An event is not cut: one character of several tokens may take more than there was. */
void tr_stream_spend(struct tr_stream *s, uint32_t tokens)
{
    if (s->x && s->x->limited)
        s->x->credit -= tokens < s->x->credit ? tokens : s->x->credit;
}

/* ---- writing ---- */

void tr_stream_write_frame(struct tr_stream *s)
{
    struct tr_emit *f = &s->fe->frame;

    if (f->failed) {
        s->failure = TR_ERR_INTERNAL;
        tr_stream_cancel(s, TR_ERR_INTERNAL);
        return;
    }
    /* Without a reader events are only counted, and so are those that he has. */
    if (f->len == 0 || !s->x || tr_stream_is_past(s))
        return;
    if (!tr_replay_is_whole(s)) { /* the turn cuts it */
        s->torn = true;
        return;
    }
    tr_stream_head(s);
    tr_exchange_stream_write(s->x, f->buf, f->len);
    s->last_byte_ns = tr_now_ns();
}

void tr_stream_frame(struct tr_stream *s, const char *type, int64_t number)
{
    struct tr_fe *fe = s->fe;
    bool has_id = number >= 0 && s->frame == TR_SSE_NATIVE;
    char id[TR_STREAM_ID_BYTES + 24];

    if (has_id)
        snprintf(id, sizeof(id), "%s:%lld", s->stream_id, (long long)number);
    tr_emit_reset(&fe->frame);
    if (fe->json.failed ||
        tr_frame_event(&fe->frame, s->frame, has_id ? id : NULL, type, fe->json.buf, fe->json.len))
        fe->frame.failed = true;
    tr_stream_write_frame(s);
}
