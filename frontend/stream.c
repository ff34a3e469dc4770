/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/stream.c - see stream.h.  One choice is in choice.c, what time does to a stream in
 * stream_clock.c. */
#include "frontend/stream.h"

#include "base/clock.h"
#include "base/log.h"
#include "shm/bill.h"
#include "shm/close.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

static void link_stream(struct tr_fe *fe, struct tr_stream *s)
{
    for (uint32_t k = 0; k < s->n; k++) {
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

static void free_stream(struct tr_stream *s)
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
        }
        tr_stream_clock_fini(s);
    }
    if (s->is_due)
        TAILQ_REMOVE(&s->fe->due, s, due_link);
    if (s->is_gated)
        TAILQ_REMOVE(&s->fe->gate, s, gate_link);
    for (uint32_t k = 0; k < s->n; k++)
        tr_choice_fini(&s->choice[k]);
    tr_whole_free(s->whole);
    tr_ask_close(s->ask);
    free(s);
}

static void release_slots(struct tr_stream *s)
{
    for (uint32_t k = 0; k < s->n; k++)
        tr_cmd_post(s->fe->shm, s->choice[k].slot, s->choice[k].gen, TR_CMD_RELEASE, 0);
}

void tr_stream_cancel(struct tr_stream *s, enum tr_err why)
{
    if (s->cancelled)
        return;
    s->cancelled = true;
    for (uint32_t k = 0; k < s->n; k++)
        tr_cmd_post(s->fe->shm, s->choice[k].slot, s->choice[k].gen, TR_CMD_CANCEL, (uint32_t)why);
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

/* ---- how it ended ---- */

/* What the rings say, or this process found: the worst of the choices. */
static enum tr_close close_of(const struct tr_stream *s)
{
    const struct tr_ring *worst = NULL;
    uint32_t state = TR_FREE;

    if (s->failure)
        return tr_close_by(s->failure);
    for (uint32_t k = 0; k < s->n; k++) {
        const struct tr_choice *ch = &s->choice[k];
        /* The states stand in falling order of happiness. */
        if (tr_state_terminal(ch->state) && ch->state > state) {
            state = ch->state;
            worst = tr_ring_at(s->fe->shm, ch->slot);
        }
    }
    return worst ? tr_close_of(state, worst->finish, worst->err) : TR_CLOSE_INTERNAL;
}

enum tr_err tr_stream_outcome(const struct tr_stream *s)
{
    if (s->failure)
        return tr_close_info(tr_close_by(s->failure))->err;
    for (uint32_t k = 0; k < s->n; k++)
        if (s->choice[k].state == TR_ERROR || s->choice[k].state == TR_CANCELLED)
            return tr_close_info(close_of(s))->err;
    return TR_OK;
}

bool tr_stream_all_ended(const struct tr_stream *s)
{
    for (uint32_t k = 0; k < s->n; k++)
        if (!tr_state_terminal(s->choice[k].state))
            return false;
    return true;
}

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

/* One line for each request; those with a natural end only if somebody wants them. */
static void log_end(const struct tr_stream *s, enum tr_close c, const char *how)
{
    const struct tr_close_info *i = tr_close_info(c);
    const struct tr_receipt *r = &s->receipt;
    const struct tr_ask *a = s->ask;

    if (!tr_log_on(i->level))
        return;
    struct tr_usage u = tr_stream_usage(s);
    tr_log(
        i->level,
        "stream %s ended: %s (%s)%s; request %s, tokens %llu + %llu, choices %u, bytes %llu, first "
        "byte after %.3f s, end after %.3f s",
        s->stream_id, i->reason, i->words, how, a->request_id, (unsigned long long)u.prompt,
        (unsigned long long)u.completion, s->n,
        (unsigned long long)(tr_conn_accepted(s->conn) - s->bytes_before),
        seconds(a->arrival_ns, r->rec.first_byte_ns), seconds(a->arrival_ns, tr_now_ns()));
}

/* The reader is gone: everything of this stream ends in this turn. */
static void drop(struct tr_stream *s, enum tr_err why, uint64_t acked)
{
    uint64_t now = tr_now_ns();

    if (why == TR_ERR_CLIENT_GONE)
        for (uint32_t k = 0; k < s->n; k++)
            atomic_store_explicit(
                &tr_cursor_at(s->fe->shm, s->fe->shm->my_area, s->choice[k].slot)->disconnect_ns,
                now, memory_order_relaxed); /* the dirty bit of the command publishes it */
    tr_stream_cancel(s, why);
    /* What had ended before keeps its reason, as it does in the ledger. */
    log_end(s, tr_stream_all_ended(s) ? close_of(s) : tr_close_by(why),
            ", without its terminal event");
    release_slots(s);
    tr_receipt_deliver_now(&s->receipt, s->fe, acked);
    free_stream(s);
}

void tr_stream_cut(struct tr_stream *s, enum tr_err why)
{
    const struct tr_close_info *i = tr_close_info(tr_close_by(why));
    struct tr_conn *c = s->conn;
    uint64_t acked = tr_conn_acked(c);

    if (i->told == TR_TOLD_EVENT && !tr_conn_blocked_ns(c))
        tr_stat_add(s->fe->stat, TR_STAT_NO_TERMINAL, 1);
    tr_conn_stream_abort(c, i->cut == TR_CUT_RESET);
    drop(s, why, acked);
}

/* ---- connection ---- */

static void on_writable(void *owner)
{
    tr_stream_due(owner);
}

void tr_stream_probe(struct tr_stream *s)
{
    tr_emit_reset(&s->fe->frame);
    tr_frame_keepalive(&s->fe->frame, s->frame);
    tr_stream_write_frame(s);
}

static void on_half_closed(void *owner)
{
    struct tr_stream *s = owner;

    /* A client that is gone answers the probe with a reset; one that has only closed its sending
     * side keeps its stream. */
    if (s->ask->stream)
        tr_stream_probe(s);
    else
        tr_stream_cut(s, TR_ERR_CLIENT_GONE);
}

static void on_gone(void *owner, enum tr_conn_why why)
{
    static const enum tr_err err[] = {[TR_CONN_RESET] = TR_ERR_CLIENT_GONE,
                                      [TR_CONN_SLOW] = TR_ERR_SLOW_CLIENT,
                                      [TR_CONN_SHUT] = TR_ERR_DRAIN_LIMIT};
    struct tr_stream *s = owner;

    if (why == TR_CONN_SHUT && !tr_conn_blocked_ns(s->conn)) /* it would have taken the event */
        tr_stat_add(s->fe->stat, TR_STAT_NO_TERMINAL, 1);
    drop(s, err[why], tr_conn_acked(s->conn));
}

static const struct tr_conn_owner_ops owner_ops = {
    .writable = on_writable, .half_closed = on_half_closed, .gone = on_gone};

/* ---- start ---- */

void tr_stream_refuse(struct tr_fe *fe, struct tr_conn *c, enum tr_err e)
{
    tr_stat_add(fe->stat,
                e == TR_ERR_OVERLOADED ? TR_STAT_REFUSED_OVERLOAD : TR_STAT_REFUSED_UNAVAILABLE, 1);
    tr_conn_error(c, e, NULL, NULL);
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

static struct tr_stream *make(struct tr_fe *fe, struct tr_conn *c, struct tr_ask *ask)
{
    uint32_t n = ask->n_prompts * ask->n;
    struct tr_stream *s = calloc(1, sizeof(*s) + n * sizeof(s->choice[0]));

    if (!s)
        return NULL;
    s->fe = fe;
    s->conn = c;
    s->ask = ask;
    s->n = n;
    s->created = (uint64_t)tr_wall_of_ns(ask->arrival_ns);
    s->queue_seen = UINT32_MAX;
    if (ask->timeout_ns)
        s->deadline_ns = ask->arrival_ns + ask->timeout_ns;
    if (fe->cfg->max_stream_ns)
        s->max_ns = ask->arrival_ns + fe->cfg->max_stream_ns;
    return s;
}

static void begin(struct tr_stream *s)
{
    tr_conn_header(s->conn, "X-Tokenring-Stream", s->stream_id);
    tr_conn_bind(s->conn, &owner_ops, s);
    s->bytes_before = tr_conn_accepted(s->conn);
    s->last_byte_ns = tr_now_ns();
    if (s->ask->stream) {
        tr_conn_stream_begin(s->conn, tr_frame_content_type(s->frame));
        s->dialect->event(s, &(struct tr_event){.type = TR_EV_STARTED, .members = 1});
    }
    if (tr_conn_half_closed(s->conn))
        on_half_closed(s);
}

void tr_stream_start(struct tr_fe *fe, struct tr_conn *c, struct tr_ask *ask,
                     const struct tr_dialect *dialect, enum tr_frame frame)
{
    struct tr_admitted ad;
    struct tr_stream *s;

    if (!answer_fits(fe, ask)) {
        tr_stat_add(fe->stat, TR_STAT_REFUSED_INVALID, 1);
        tr_conn_errorf(c, TR_ERR_BAD_PARAM, "logprobs",
                       "The logprobs of this answer would not fit into one body of %zu bytes: "
                       "stream it, or set a smaller max_tokens.",
                       fe->cfg->max_body);
        tr_ask_close(ask);
        return;
    }
    s = make(fe, c, ask);
    enum tr_err e = s ? tr_admit(fe, ask, &ad) : TR_ERR_INTERNAL;
    if (e) {
        tr_stream_refuse(fe, c, e);
        if (s)
            free_stream(s);
        else
            tr_ask_close(ask);
        return;
    }
    tr_ask_admitted(ask);
    s->dialect = dialect;
    s->frame = frame;
    s->name = (struct tr_stream_id){.slot = ad.slot[0], .gen = ad.gen[0], .rand = ad.rand};
    tr_receipt_init(&s->receipt, ask->request_id, ad.rand);
    tr_stream_id_format(s->name, s->stream_id);
    snprintf(s->id, sizeof(s->id), "%s%s", dialect->id_prefix, s->stream_id + 3);
    for (uint32_t k = 0; k < s->n; k++) {
        s->choice[k].index = k;
        tr_choice_init(s, &s->choice[k], ad.slot[k], ad.gen[k]);
    }
    link_stream(fe, s);
    tr_stream_clock_init(s);
    s->rang = true; /* the first look arms its timer */
    tr_stream_due(s);
    begin(s);
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
    if (f->len == 0)
        return;
    tr_conn_stream_write(s->conn, f->buf, f->len);
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

struct tr_usage tr_stream_usage(const struct tr_stream *s)
{
    struct tr_usage u = {0};

    for (uint32_t k = 0; k < s->n; k++) {
        const struct tr_choice *ch = &s->choice[k];
        const struct tr_ring *r = tr_ring_at(s->fe->shm, ch->slot);
        if (ch->lost) { /* the ring is about somebody else */
            u.completion += ch->scanned;
            u.prompt += ch->billed_prompt;
            continue;
        }
        u.completion += tr_state_terminal(ch->state) ? r->finish_index : ch->scanned;
        if (!ch->billed_prompt)
            continue;
        u.prompt += ch->billed_prompt;
        u.cached += atomic_load_explicit(&r->cached_tokens, memory_order_relaxed);
    }
    return u;
}

/* ---- the end ---- */

/* Whether the terminal event may go: the record is durable, or has been waited for long enough. */
static bool gate_open(struct tr_stream *s)
{
    struct tr_fe *fe = s->fe;
    const struct tr_ring *lead = tr_ring_at(fe->shm, s->name.slot);
    uint64_t now = tr_now_ns();

    if (!s->gate_ns)
        s->gate_ns = now;
    if (s->choice[0].lost) /* no record that could be found */
        return true;
    /* Acquire: pairs with the engine's release after it queued the record. */
    uint64_t seq = atomic_load_explicit(&lead->bill_seq, memory_order_acquire);
    if (seq && tr_bill_is_durable(fe->shm, seq))
        return true;
    uint64_t due = s->gate_ns + fe->cfg->ledger_wait_ns;
    if (now < due) {
        tr_stream_remind(s, due);
        if (!s->is_gated) {
            s->is_gated = true;
            TAILQ_INSERT_TAIL(&fe->gate, s, gate_link);
        }
        return false;
    }
    tr_stat_add(fe->stat, TR_STAT_LEDGER_UNCONFIRMED, 1);
    return true;
}

/* Notes that everything written so far carries the tokens framed so far; with the end of an answer,
 * a token without text that ended it is among them. */
static void mark(struct tr_stream *s, bool whole)
{
    uint64_t tokens = 0;

    for (uint32_t k = 0; k < s->n; k++)
        tokens += s->choice[k].sent;
    tr_receipt_mark(&s->receipt, s->conn, whole ? tr_stream_usage(s).completion : tokens);
}

static void end_streamed(struct tr_stream *s, enum tr_err e)
{
    bool length = false;

    for (uint32_t k = 0; k < s->n && !e; k++) {
        struct tr_choice *ch = &s->choice[k];
        bool by_length = *tr_choice_finish(s, ch) == 'l';
        length |= by_length;
        if (ch->finished)
            continue;
        s->dialect->event(
            s, &(struct tr_event){
                   .type = TR_EV_FINISH, .choice = k, .members = 1, .length = by_length});
        ch->finished = ch->begun = true;
    }
    s->dialect->event(s, &(struct tr_event){.type = TR_EV_USAGE, .members = 1, .err = e});
    uint64_t tokens = tr_stream_usage(s).completion;
    bool cancelled = e && tr_close_info(tr_close_by(e))->state == TR_CANCELLED;
    s->dialect->event(s, &(struct tr_event){.type = e ? TR_EV_FAIL : TR_EV_END,
                                            .members = 1,
                                            .length = length,
                                            .err = e,
                                            .cancelled = cancelled,
                                            .last_token = (int64_t)tokens - 1});
    mark(s, !e);
    struct tr_conn *c = s->conn;
    tr_conn_stream_end(c);
    tr_receipt_deliver_later(&s->receipt, s->fe, c);
}

static void end_whole(struct tr_stream *s, enum tr_err e)
{
    struct tr_emit *json = &s->fe->json;
    struct tr_conn *c = s->conn;

    if (!e) {
        uint64_t all = UINT64_MAX; /* something is left only if this process is about to end */
        tr_whole_render(s, &all);
        tr_emit_reset(json);
        if (s->whole)
            s->dialect->body(s, json);
        if (!s->whole || json->failed)
            e = s->failure = TR_ERR_INTERNAL;
    }
    if (e) {
        tr_conn_error(c, e, NULL, NULL);
    } else {
        s->receipt.rec.first_byte_ns = tr_now_ns();
        tr_hist_add(s->fe->stat, TR_HIST_FIRST_BYTE,
                    s->receipt.rec.first_byte_ns - s->ask->arrival_ns);
        tr_conn_reply(c, 200, "application/json", json->buf, json->len);
        tr_receipt_mark(&s->receipt, c, tr_stream_usage(s).completion);
    }
    tr_emit_reset(json); /* gives a large body's memory back */
    tr_receipt_deliver_later(&s->receipt, s->fe, c);
}

/* The terminal event, or the whole answer, is handed to the connection: the rings are not needed any
 * more. */
static void end(struct tr_stream *s)
{
    enum tr_err e = tr_stream_outcome(s);

    if (s->ask->stream)
        end_streamed(s, e);
    else
        end_whole(s, e);
    log_end(s, close_of(s), "");
    release_slots(s);
    free_stream(s);
}

static bool try_end(struct tr_stream *s)
{
    if (!gate_open(s))
        return false;
    end(s);
    return true;
}

void tr_streams_end_all(struct tr_fe *fe, enum tr_err why)
{
    struct tr_stream *next;

    for (struct tr_stream *s = fe->streams; s; s = next) {
        next = s->next;
        if (!s->failure && !tr_stream_all_ended(s))
            s->failure = why;
        if (s->ask->stream && tr_conn_room(s->conn) == 0)
            tr_stream_cut(s, why);
        else
            end(s);
    }
}

/* ---- turns ---- */

/* Queue and prefill of the first choice, for dialects that show them. */
static void lifecycle(struct tr_stream *s)
{
    struct tr_choice *ch = &s->choice[0];
    const struct tr_ring *r = tr_ring_at(s->fe->shm, ch->slot);

    if (!s->ask->stream || s->dialect != &tr_dialect_native || tr_conn_room(s->conn) == 0)
        return;
    if (ch->state == TR_WAITING) {
        uint32_t pos = atomic_load_explicit(&r->queue_pos, memory_order_relaxed);
        if (pos == s->queue_seen)
            return;
        s->queue_seen = pos;
        s->dialect->event(s, &(struct tr_event){.type = TR_EV_QUEUED, .position = pos});
    } else if (ch->state == TR_PREFILL) {
        uint32_t done = atomic_load_explicit(&r->prefill_done, memory_order_relaxed);
        if (done == s->prefill_seen || done > ch->prompt_len)
            return;
        s->prefill_seen = done;
        s->dialect->event(
            s, &(struct tr_event){.type = TR_EV_PREFILL, .done = done, .total = ch->prompt_len});
    }
}

/* One choice has failed: the answer as a whole has, so the others need not go on. */
static void spread_failure(struct tr_stream *s)
{
    enum tr_err e = s->cancelled || s->n == 1 ? TR_OK : tr_stream_outcome(s);

    if (e)
        tr_stream_cancel(s, e);
}

/* Whether the texts of an answer that is not streamed are there. */
static bool is_rendered(struct tr_stream *s)
{
    return s->ask->stream || tr_stream_outcome(s) || tr_whole_render(s, &s->fe->whole_left);
}

static bool pump_one(struct tr_stream *s)
{
    bool moved = false, ended = true, all_out = true;

    if (s->rang) {
        s->rang = false;
        if (!tr_stream_clock(s, tr_now_ns()))
            return true;
    }
    for (uint32_t k = 0; k < s->n; k++) {
        moved |= tr_choice_scan(s, &s->choice[k]);
        ended &= tr_state_terminal(s->choice[k].state);
    }
    spread_failure(s);
    lifecycle(s);
    for (uint32_t k = 0; k < s->n; k++) {
        /* Begin with another choice each time, so that a narrow connection is shared. */
        struct tr_choice *ch = &s->choice[(k + s->number) % s->n];
        moved |= tr_choice_frame(s, ch, ended);
        all_out &= tr_choice_out(s, ch);
        tr_choice_publish(s, ch);
    }
    if (moved && s->ask->stream)
        mark(s, false);
    if (ended && all_out && !is_rendered(s)) {
        tr_stream_due(s); /* the rest in the next turn */
        return true;
    }
    if (ended && all_out && try_end(s))
        return true;
    if (moved && s->ask->stream)
        tr_conn_flush(s->conn); /* all that was ready leaves in one write */
    if (ended && all_out)
        return moved;
    if (ended && !s->gate_ns && tr_stream_outcome(s)) {
        s->gate_ns = tr_now_ns(); /* the clock cuts it if it stays stuck */
        tr_stream_remind(s, s->gate_ns);
    }
    return moved;
}

void tr_stream_due(struct tr_stream *s)
{
    if (s->is_due)
        return;
    s->is_due = true;
    TAILQ_INSERT_TAIL(&s->fe->due, s, due_link);
}

static void on_news(void *arg, uint32_t slot)
{
    struct tr_fe *fe = arg;
    struct tr_stream *s = fe->by_slot[slot];

    if (!s)
        return;
    /* Another process wrote it and no cache of ours holds it; it is read when all are known. */
    __builtin_prefetch(tr_ring_at(fe->shm, slot));
    tr_stream_due(s);
}

/* The ledger says how far it is with one count for all. */
static void look_at_ledger(struct tr_fe *fe)
{
    struct tr_stream *s;

    if (TAILQ_EMPTY(&fe->gate))
        return;
    /* Relaxed: gate_open looks again with the order it needs. */
    uint64_t durable = atomic_load_explicit(&fe->shm->ledger->durable, memory_order_relaxed);
    if (durable == fe->durable_seen)
        return;
    fe->durable_seen = durable;
    TAILQ_FOREACH(s, &fe->gate, gate_link)
    tr_stream_due(s);
}

bool tr_streams_pump(struct tr_fe *fe)
{
    struct tr_stream *s, *last;
    bool moved = false;

    fe->whole_left = TR_WHOLE_TURN;
    tr_news_take(fe->shm, on_news, fe);
    look_at_ledger(fe);
    /* What becomes due meanwhile waits for the next look. */
    last = TAILQ_LAST(&fe->due, tr_stream_due);
    for (bool over = !last; !over;) {
        s = TAILQ_FIRST(&fe->due);
        over = s == last;
        TAILQ_REMOVE(&fe->due, s, due_link);
        s->is_due = false;
        moved |= pump_one(s);
    }
    return moved;
}
