/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/stream_end.c - how a stream ends: what became of its choices, the wait for its record, the
 * terminal event or the cut, the line in the log.  See stream.h. */
#include "frontend/stream_priv.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "frontend/access.h"
#include "frontend/enter.h"
#include "frontend/hold.h"
#include "frontend/plain.h"
#include "frontend/replay.h"
#include "frontend/resume.h"
#include "shm/bill.h"
#include "shm/close.h"

#include <stdio.h>

/* ---- what became of it ---- */

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

/* Bytes that connections took of it. */
static uint64_t bytes_of(const struct tr_stream *s)
{
    return s->bytes_told + (s->x ? tr_exchange_accepted(s->x) - s->bytes_before : 0);
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
    char first[48] = "no first byte";
    if (r->rec.first_byte_ns)
        snprintf(first, sizeof(first), "first byte after %.3f s",
                 seconds(a->arrival_ns, r->rec.first_byte_ns));
    tr_log(i->level,
           "stream %s ended: %s (%s)%s; request %s, tokens %llu + %llu, choices %u, bytes %llu, "
           "%s, end after %.3f s",
           s->stream_id, i->reason, i->words, how, a->request_id, (unsigned long long)u.prompt,
           (unsigned long long)u.completion, s->n, (unsigned long long)bytes_of(s), first,
           seconds(a->arrival_ns, tr_now_ns()));
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

/* ---- the reader is gone ---- */

static void release_slots(struct tr_stream *s)
{
    for (uint32_t k = 0; k < s->n; k++)
        tr_stream_say(s, &s->choice[k], TR_CMD_RELEASE, 0);
}

/* What a reader has received is noted, and his connection is not ours any more. */
static void part(struct tr_stream *s, uint64_t acked)
{
    tr_stream_note(s, NULL);
    tr_receipt_part(&s->receipt, acked);
    s->bytes_told = bytes_of(s);
    s->x = NULL;
}

bool tr_stream_hold(struct tr_stream *s, uint64_t acked)
{
    if (!tr_hold_take(s))
        return false;
    part(s, acked);
    return true;
}

bool tr_stream_set_aside(struct tr_stream *s, bool hard)
{
    struct tr_exchange *x = s->x;

    if (!tr_stream_hold(s, tr_exchange_acked(x)))
        return false;
    tr_exchange_stream_abort(x, hard);
    return true;
}

void tr_stream_part(struct tr_stream *s)
{
    struct tr_exchange *x = s->x;

    part(s, tr_exchange_acked(x));
    tr_exchange_stream_abort(x, false);
}

void tr_stream_forget(struct tr_stream *s)
{
    if (s->x)
        tr_stream_part(s);
    tr_log(TR_LOG_DEBUG, "stream %s has gone to another frontend", s->stream_id);
    tr_stream_free(s);
}

void tr_stream_drop(struct tr_stream *s, enum tr_err why, uint64_t acked)
{
    uint64_t seen = s->x ? tr_now_ns() : s->hold.gone_ns;

    tr_resume_refuse(s, why);
    if (s->hold.taking) { /* whoever has it then ends it */
        tr_stream_forget(s);
        return;
    }

    if (why == TR_ERR_CLIENT_GONE && !s->replay)
        for (uint32_t k = 0; k < s->n; k++)
            atomic_store_explicit(
                &tr_cursor_at(s->fe->shm, s->fe->shm->my_area, s->choice[k].slot)->disconnect_ns,
                seen, memory_order_relaxed); /* the dirty bit of the command publishes it */
    TR_FAULT_FOR(FRONTEND_GONE_SEEN, s->ask->params.seed);
    tr_stream_cancel(s, why);
    TR_FAULT_FOR(FRONTEND_GONE_POSTED, s->ask->params.seed);
    /* What had ended before keeps its reason, as it does in the ledger. */
    enum tr_close c = tr_stream_all_ended(s) ? close_of(s) : tr_close_by(why);
    if (!s->told)
        log_end(s, c, ", without its terminal event");
    tr_stream_note(s, tr_close_info(c));
    release_slots(s);
    tr_receipt_deliver_now(&s->receipt, s->fe, acked);
    tr_stream_free(s);
}

void tr_stream_cut(struct tr_stream *s, enum tr_err why)
{
    const struct tr_close_info *i = tr_close_info(tr_close_by(why));
    struct tr_exchange *x = s->x;
    uint64_t acked = tr_exchange_acked(x);

    if (tr_stream_set_aside(s, i->cut == TR_CUT_RESET))
        return;
    if (i->told == TR_TOLD_EVENT && !tr_exchange_blocked_ns(x))
        tr_stat_add(s->fe->stat, TR_STAT_NO_TERMINAL, 1);
    tr_stream_note(s, tr_stream_all_ended(s) ? tr_close_info(close_of(s)) : i);
    tr_exchange_stream_abort(x, i->cut == TR_CUT_RESET);
    tr_stream_drop(s, why, acked);
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
        TR_FAULT_FOR(FRONTEND_GATE_WAIT, s->ask->params.seed);
        if (!s->is_gated) {
            s->is_gated = true;
            TAILQ_INSERT_TAIL(&fe->gate, s, gate_link);
        }
        return false;
    }
    tr_stat_add(fe->stat, TR_STAT_LEDGER_UNCONFIRMED, !s->told);
    return true;
}

void tr_stream_mark(struct tr_stream *s, bool whole)
{
    uint64_t tokens = 0;

    for (uint32_t k = 0; k < s->n; k++)
        tokens += s->choice[k].sent;
    tr_receipt_mark(&s->receipt, s->x, whole ? tr_stream_usage(s).completion : tokens);
}

static void end_streamed(struct tr_stream *s, enum tr_err e)
{
    bool length = false;
    uint32_t calls = 0;

    for (uint32_t k = 0; k < s->n && !e; k++) {
        struct tr_choice *ch = &s->choice[k];
        bool by_length = *tr_choice_finish(s, ch) == 'l';
        length |= by_length;
        calls += ch->calls;
        if (ch->finished)
            continue;
        s->dialect->event(s, &(struct tr_event){.type = TR_EV_FINISH,
                                                .choice = k,
                                                .members = 1,
                                                .length = by_length,
                                                .calls = ch->calls});
        ch->finished = ch->begun = true;
    }
    s->dialect->event(s, &(struct tr_event){.type = TR_EV_USAGE, .members = 1, .err = e});
    uint64_t tokens = tr_stream_usage(s).completion;
    bool cancelled = e && tr_close_info(tr_close_by(e))->state == TR_CANCELLED;
    s->dialect->event(s, &(struct tr_event){.type = e ? TR_EV_FAIL : TR_EV_END,
                                            .members = 1,
                                            .length = length,
                                            .calls = calls,
                                            .err = e,
                                            .cancelled = cancelled,
                                            .last_token = (int64_t)tokens - 1});
    tr_stream_mark(s, !e);
}

static void hand_over(struct tr_stream *s)
{
    struct tr_exchange *x = s->x;

    tr_stream_note(s, tr_close_info(close_of(s)));
    tr_exchange_stream_end(x);
    tr_receipt_deliver_later(&s->receipt, s->fe, x);
}

/* Plain text whose end is no completed one. */
static void end_plain(struct tr_stream *s, enum tr_err e)
{
    struct tr_exchange *x = s->x;

    tr_stream_note(s, tr_close_info(close_of(s)));
    if (s->plain_due && e) {
        tr_exchange_error(x, e, NULL, NULL);
        tr_receipt_deliver_later(&s->receipt, s->fe, x);
        return;
    }
    tr_stream_head(s);
    tr_receipt_deliver_now(&s->receipt, s->fe, tr_exchange_acked(x));
    tr_exchange_stream_abort(x, false);
}

static void end_whole(struct tr_stream *s, enum tr_err e)
{
    struct tr_emit *json = &s->fe->json;
    struct tr_exchange *x = s->x;

    if (!e) {
        uint64_t all = UINT64_MAX; /* something is left only if this process is about to end */
        tr_whole_render(s, &all);
        tr_emit_reset(json);
        if (s->whole)
            s->dialect->body(s, json);
        if (!s->whole || json->failed || !tr_replay_is_whole(s))
            e = s->failure = TR_ERR_INTERNAL;
    }
    if (!tr_replay_is_whole(s)) /* it gave way while it was told again: nothing died */
        e = TR_ERR_OVERLOADED;
    tr_stream_note(s, tr_close_info(close_of(s)));
    if (e) {
        tr_exchange_error(x, e, !tr_replay_is_whole(s) ? TR_REPLAY_GONE : NULL, NULL);
    } else {
        s->receipt.rec.first_byte_ns = tr_now_ns();
        tr_access_at(x, TR_AT_FIRST_BYTE, s->receipt.rec.first_byte_ns);
        tr_hist_add(s->fe->stat, TR_HIST_FIRST_BYTE,
                    s->receipt.rec.first_byte_ns - s->ask->arrival_ns);
        tr_exchange_reply(x, 200, "application/json", json->buf, json->len);
        tr_receipt_mark(&s->receipt, x, tr_stream_usage(s).completion);
    }
    tr_emit_reset(json); /* gives a large body's memory back */
    tr_receipt_deliver_later(&s->receipt, s->fe, x);
}

/* The connection has all of it and is no longer ours.  The client may lose it with the last bytes on
 * their way: whoever may come back finds the stream. */
static bool keep_told(struct tr_stream *s)
{
    if (!tr_hold_take(s))
        return false;
    s->bytes_told = bytes_of(s);
    s->x = NULL;
    s->told = true;
    return true;
}

/* The terminal event, or the whole answer, is handed to the connection: the rings are not needed any
 * more, unless another reader may want them. */
static void end(struct tr_stream *s)
{
    enum tr_err e = tr_stream_outcome(s);

    TR_FAULT_FOR(FRONTEND_END_BEGIN, s->ask->params.seed);
    if (s->ask->stream) {
        end_streamed(s, e);
        if (s->torn) {
            tr_stream_cut(s, TR_ERR_INTERNAL);
            return;
        }
        if (s->head_due) {
            tr_resume_nothing(s);
            return;
        }
        if (tr_plain_cuts(s, e)) {
            end_plain(s, e);
        } else {
            tr_stream_head(s);
            hand_over(s);
        }
    } else {
        end_whole(s, e);
    }
    TR_FAULT_FOR(FRONTEND_END_TOLD, s->ask->params.seed);
    if (!s->told)
        log_end(s, close_of(s), "");
    if (keep_told(s))
        return;
    release_slots(s);
    TR_FAULT_FOR(FRONTEND_END_RELEASED, s->ask->params.seed);
    tr_receipt_deliver_now(&s->receipt, s->fe, 0);
    tr_stream_free(s);
}

/* What the dialect says before the end. */
static enum tr_closing closing(struct tr_stream *s)
{
    if (!s->ask->stream || !s->dialect->close)
        return TR_CLOSING_DONE;
    if (tr_stream_outcome(s)) /* an event cannot say so in the middle of another one */
        return s->in_event ? TR_CLOSING_LOST : TR_CLOSING_DONE;
    return s->dialect->close(s);
}

bool tr_stream_try_end(struct tr_stream *s)
{
    if (!s->closing && !gate_open(s)) /* once open it stays so */
        return false;
    enum tr_closing c = closing(s);
    enum tr_err e = tr_stream_outcome(s);
    if (c == TR_CLOSING_LATER)
        return false;
    if (c == TR_CLOSING_LOST)
        tr_stream_cut(s, e ? e : TR_ERR_ENGINE_LOST);
    else if (tr_plain_cuts(s, e) && !tr_plain_is_out(s))
        return false;
    else
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
        fe->whole_left = UINT64_MAX; /* no turn comes after this */
        if (s->entering)
            tr_enter_refuse(s, why);
        else if (!s->x)
            tr_stream_drop(s, why, 0);
        else if ((s->ask->stream && tr_exchange_room(s->x) == 0) || closing(s) != TR_CLOSING_DONE)
            tr_stream_cut(s, why);
        else
            end(s);
    }
}
