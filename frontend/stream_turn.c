/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/stream_turn.c - a turn of the loop: the streams that have news are scanned, framed and, when
 * all is out, ended.  See stream.h. */
#include "frontend/stream_priv.h"

#include "base/clock.h"
#include "frontend/enter.h"
#include "frontend/hold.h"
#include "frontend/resume.h"

/* Queue and prefill of the first choice, for dialects that show them. */
static void lifecycle(struct tr_stream *s)
{
    struct tr_choice *ch = &s->choice[0];
    const struct tr_ring *r = tr_ring_at(s->fe->shm, ch->slot);

    if (!s->x || !s->ask->stream || !s->dialect->lifecycle || tr_exchange_room(s->x) == 0)
        return;
    if (ch->state == TR_WAITING) {
        uint32_t pos = atomic_load_explicit(&r->queue_pos, memory_order_relaxed);
        if (pos == s->queue_seen || pos == TR_QUEUE_UNTOLD)
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

/* What goes before the ring is read.  True: there is no more to do in this turn, or no stream. */
static bool is_settled(struct tr_stream *s)
{
    if (s->entering) {
        tr_enter_look(s);
        return true;
    }
    if (tr_hold_is_kept(s) && !tr_hold_look(s))
        return true;
    if (s->rang) {
        s->rang = false;
        if (!tr_stream_clock(s, tr_now_ns()))
            return true;
    }
    return s->hold.taking;
}

/* Without a reader: scanned, not framed. */
static bool pump_held(struct tr_stream *s)
{
    struct tr_choice *ch = &s->choice[0];
    bool moved = tr_choice_scan(s, ch);

    tr_choice_publish(s, ch);
    return !tr_hold_keep(s) || moved;
}

static bool pump_one(struct tr_stream *s)
{
    bool moved = false, ended = true, all_out = true, opening;

    if (is_settled(s))
        return true;
    if (!s->x && !tr_resume_waiter(s))
        return pump_held(s);
    opening = s->head_due && s->ask->stream;
    for (uint32_t k = 0; k < s->n; k++) {
        moved |= tr_choice_scan(s, &s->choice[k]);
        ended &= tr_state_terminal(s->choice[k].state);
    }
    spread_failure(s);
    lifecycle(s);
    /* Begin with another choice each time, so that a narrow connection is shared; the number rises with
     * each event from here on. */
    uint32_t first = s->n ? (uint32_t)(s->number % s->n) : 0;
    for (uint32_t k = 0; k < s->n; k++) {
        struct tr_choice *ch = &s->choice[(first + k) % s->n];
        moved |= tr_choice_frame(s, ch, ended);
        all_out &= tr_choice_out(s, ch);
        tr_choice_publish(s, ch);
    }
    if (s->torn) {
        tr_stream_cut(s, TR_ERR_INTERNAL);
        return true;
    }
    if (opening && !tr_resume_reached(s, ended && all_out))
        return true;
    if (moved && s->ask->stream)
        tr_stream_mark(s, false);
    if (ended && all_out && !is_rendered(s)) {
        tr_stream_due(s); /* the rest in the next turn */
        return true;
    }
    if (ended && all_out && tr_stream_try_end(s))
        return true;
    if (moved && s->ask->stream)
        tr_exchange_flush(s->x); /* all that was ready leaves in one write */
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
    s->fe->n_due++;
}

void tr_stream_not_due(struct tr_stream *s)
{
    if (!s->is_due)
        return;
    s->is_due = false;
    TAILQ_REMOVE(&s->fe->due, s, due_link);
    s->fe->n_due--;
}

static void on_news(void *arg, uint32_t slot)
{
    struct tr_fe *fe = arg;
    struct tr_stream *s = fe->by_slot[slot];

    if (!s) {
        tr_hold_news(fe, slot);
        return;
    }
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
    bool moved = false;

    fe->whole_left = TR_WHOLE_TURN;
    tr_news_take(fe->shm, on_news, fe);
    look_at_ledger(fe);
    /* What becomes due meanwhile waits for the next look.  Counted, for the look at one stream may end
     * another (hold.c makes a place). */
    for (uint32_t n = fe->n_due; n && !TAILQ_EMPTY(&fe->due); n--) {
        struct tr_stream *s = TAILQ_FIRST(&fe->due);
        tr_stream_not_due(s);
        moved |= pump_one(s);
    }
    return moved;
}
