/* SPDX-License-Identifier: Apache-2.0 */
/* engine/settle.c - how a request ends, is accounted and gives its slot back. */
#include "engine/sched_priv.h"

#include "base/clock.h"
#include "base/fault.h"
#include "shm/close.h"

#include <string.h>

/* ---- the end of one choice ---- */

/* Tokens published after the frontend had seen the close. */
static uint64_t after(const struct tr_sched *sc, const struct tr_seq *q, uint64_t disconnect_ns)
{
    uint32_t n = 0;
    while (n < q->n_out && tr_sched_token_ns(sc, q, q->n_out - 1 - n) > disconnect_ns)
        n++;
    return n;
}

static void count_cancel(struct tr_sched *sc, const struct tr_seq *q, uint64_t disconnect_ns)
{
    tr_stat_add(sc->stat, TR_STAT_AVOIDED, q->max_tokens - q->n_out);
    /* A stream that was held went on because it should. */
    if (!disconnect_ns || (q->flags & TR_REQ_RESUMABLE))
        return;
    tr_stat_add(sc->stat, TR_STAT_AFTER_DISCONNECT, after(sc, q, disconnect_ns));
    tr_hist_add(sc->stat, TR_HIST_ABORT, sc->now > disconnect_ns ? sc->now - disconnect_ns : 0);
}

void tr_settle_end(struct tr_sched *sc, struct tr_seq *q, struct tr_end e)
{
    struct tr_ring *r = tr_sched_ring(sc, q);
    if (q->aside)
        tr_aside_take(sc, q);
    tr_sched_drop_kv(sc, q);
    if (q->key != TR_NO_KEY)
        tr_fair_give(sc->fair, q->key);
    q->key = TR_NO_KEY;
    tr_constrain_drop(sc->constrain, q->slot); /* nobody needs its mask */
    sc->now = q->finished_ns = tr_now_ns();
    q->closing = false;
    r->finish = e.finish;
    r->err = e.err;
    r->finish_index = e.finish_index < q->n_out ? e.finish_index : q->n_out;
    r->overrun = q->n_out - r->finish_index;
    r->finished_ns = sc->now;
    r->cancel_ack_ns = e.state == TR_CANCELLED ? sc->now : 0;
    r->disconnect_ns = e.disconnect_ns;
    atomic_store_explicit(&r->wants_cursor, 0, memory_order_relaxed);
    if (e.state == TR_CANCELLED)
        count_cancel(sc, q, e.disconnect_ns);
    TR_FAULT_FOR(ENGINE_END_FIELDS, r->params.seed);
    tr_seq_move(sc->s, q, e.state);
    TR_FAULT_FOR(ENGINE_END_STATE, r->params.seed);
    sc->ended[sc->n_ended++] = q->slot;
    sc->look_at_ended = true;
    struct tr_seq *lead = &sc->seq[q->lead];
    TR_ASSERT(lead->group_left > 0);
    if (--lead->group_left == 0)
        sc->unbilled[sc->n_unbilled++] = q->lead;
    tr_sched_tell(sc, q);
    sc->progress = true;
}

/* What is no way to end (a frontend may say anything) is a fault of the service. */
void tr_settle_cancel(struct tr_sched *sc, struct tr_seq *q, enum tr_err why)
{
    const struct tr_close_info *end = tr_close_info(tr_close_by(why));
    const struct tr_cursor *c = q->confirmed ? tr_cursor_at(sc->s, q->area, q->slot) : NULL;
    uint64_t gone = c && end->err != TR_ERR_CANCELLED && end->err != TR_ERR_DRAIN_LIMIT
                        ? atomic_load_explicit(&c->disconnect_ns, memory_order_relaxed)
                        : 0;
    if (gone > sc->now)
        gone = sc->now;
    tr_settle_end(
        sc, q,
        (struct tr_end){
            .state = end->state, .err = end->err, .finish_index = q->n_out, .disconnect_ns = gone});
}

/* ---- the record of one request ---- */

static void add_choice(const struct tr_sched *sc, const struct tr_seq *q, struct tr_bill *b,
                       uint64_t *last_ns)
{
    const struct tr_ring *r = tr_sched_ring(sc, q);
    uint64_t first = atomic_load_explicit(&r->first_token_ns, memory_order_relaxed);
    b->choices++;
    b->prompt_tokens += r->group_bill_prompt ? q->prompt_len : 0;
    b->cached_tokens += atomic_load_explicit(&r->cached_tokens, memory_order_relaxed);
    b->completion_tokens += r->finish_index;
    b->overrun_tokens += r->overrun;
    if (first && (!b->first_token_ns || first < b->first_token_ns))
        b->first_token_ns = first;
    tr_bill_started(b, r);
    if (r->finished_ns > b->finished_ns)
        b->finished_ns = r->finished_ns;
    if (q->n_out && r->finished_ns >= *last_ns) {
        *last_ns = r->finished_ns;
        b->last_token = tr_ring_ids(sc->s, q->slot)[q->prompt_len + q->n_out - 1];
    }
    if (r->disconnect_ns && (!b->disconnect_ns || r->disconnect_ns < b->disconnect_ns))
        b->disconnect_ns = r->disconnect_ns;
    if (r->cancel_ack_ns > b->cancel_ack_ns)
        b->cancel_ack_ns = r->cancel_ack_ns;
    /* The states stand in falling order of happiness. */
    if ((uint32_t)q->state > b->state) {
        b->state = q->state;
        b->finish = r->finish;
        b->err = r->err;
    }
}

static struct tr_bill bill_of(const struct tr_sched *sc, const struct tr_seq *lead)
{
    const struct tr_ring *r = tr_sched_ring(sc, lead);
    struct tr_bill b = {
        .slot = lead->slot,
        .gen = lead->gen,
        .owner_area = tr_sched_owner_alive(sc, lead->area, lead->epoch) ? lead->area : TR_MAX_AREAS,
        .stream_rand = r->stream_rand,
        .arrival_ns = r->arrival_ns,
        .last_token = UINT32_MAX};
    memcpy(b.request_id, r->request_id, sizeof(b.request_id));
    memcpy(b.key, r->key, sizeof(b.key));
    tr_bill_trace(&b, r);
    uint64_t last_ns = 0;
    for (uint32_t slot = lead->slot; slot != TR_NO_SLOT; slot = sc->seq[slot].group_next)
        add_choice(sc, &sc->seq[slot], &b, &last_ns);
    return b;
}

/* Both targets met, by every choice: the first token, and the largest gap after it. */
static bool within_slo(const struct tr_sched *sc, const struct tr_seq *lead,
                       const struct tr_bill *b)
{
    if ((b->state != TR_COMPLETED && b->state != TR_INCOMPLETE) || lead->gen != b->gen)
        return false;
    for (uint32_t slot = lead->slot; slot != TR_NO_SLOT; slot = sc->seq[slot].group_next) {
        const struct tr_seq *q = &sc->seq[slot];
        if (sc->cfg.ttft_target_ns && q->n_out &&
            q->first_token_ns - b->arrival_ns > sc->cfg.ttft_target_ns)
            return false;
        if (sc->cfg.itl_target_ns && q->max_gap_ns > sc->cfg.itl_target_ns)
            return false;
    }
    return true;
}

/* With the record, never before, so that metrics and ledger tell the same sums. */
static void count_request(struct tr_sched *sc, const struct tr_seq *lead, const struct tr_bill *b)
{
    tr_stat_add(sc->stat, tr_close_info(tr_close_of(b->state, b->finish, b->err))->stat, 1);
    tr_stat_add(sc->stat, TR_STAT_TOK_PROMPT, b->prompt_tokens);
    tr_stat_add(sc->stat, TR_STAT_TOK_CACHED, b->cached_tokens);
    tr_stat_add(sc->stat, TR_STAT_TOK_COMPLETION, b->completion_tokens);
    tr_stat_add(sc->stat, TR_STAT_TOK_OVERRUN, b->overrun_tokens);
    tr_hist_add(sc->stat, TR_HIST_E2E,
                b->finished_ns > b->arrival_ns ? b->finished_ns - b->arrival_ns : 0);
    if (b->first_token_ns)
        tr_hist_add(sc->stat, TR_HIST_DECODE,
                    b->finished_ns > b->first_token_ns ? b->finished_ns - b->first_token_ns : 0);
    tr_hist_add(sc->stat, TR_HIST_PROMPT_TOKENS, b->prompt_tokens);
    tr_hist_add(sc->stat, TR_HIST_COMPLETION_TOKENS, b->completion_tokens);
    if (within_slo(sc, lead, b))
        tr_stat_add(sc->stat, TR_STAT_SLO, 1);
    /* Relaxed: for the next engine. */
    atomic_store_explicit(&sc->s->rings->bills_counted, tr_bill_next(sc->s) - 1,
                          memory_order_relaxed);
}

void tr_settle_count_last(struct tr_sched *sc)
{
    uint64_t tail = tr_bill_next(sc->s) - 1;
    if (tail == atomic_load_explicit(&sc->s->rings->bills_counted, memory_order_relaxed))
        return;
    const struct tr_bill *b = &sc->s->accounting->rec[(tail - 1) % TR_BILL_CAP];
    if (b->slot < sc->s->config.n_slots)
        count_request(sc, &sc->seq[b->slot], b);
}

static void number_group(struct tr_sched *sc, const struct tr_seq *lead, uint64_t seq)
{
    for (uint32_t slot = lead->slot; slot != TR_NO_SLOT; slot = sc->seq[slot].group_next) {
        struct tr_seq *q = &sc->seq[slot];
        q->bill_seq = seq;
        /* Release: pairs with the acquire in the frontends' terminal gate. */
        atomic_store_explicit(&tr_sched_ring(sc, q)->bill_seq, seq, memory_order_release);
    }
}

/* The number goes into the rings before the record is counted: after a crash in between it is
 * larger than the queue's tail and so void.  The other way round the record would be made twice. */
static bool bill(struct tr_sched *sc, const struct tr_seq *lead)
{
    struct tr_bill b = bill_of(sc, lead);
    number_group(sc, lead, tr_bill_next(sc->s));
    TR_FAULT_FOR(ENGINE_BILL_NUMBER, tr_sched_ring(sc, lead)->params.seed);
    if (tr_bill_push(sc->s, &b, NULL)) {
        number_group(sc, lead, 0);
        return false;
    }
    TR_FAULT_FOR(ENGINE_BILL_RECORD, tr_sched_ring(sc, lead)->params.seed);
    count_request(sc, lead, &b);
    tr_sched_tell(sc, lead);
    sc->look_at_ended = true;
    sc->progress = true;
    return true;
}

void tr_settle_bills(struct tr_sched *sc)
{
    uint32_t done = 0;
    while (done < sc->n_unbilled && bill(sc, &sc->seq[sc->unbilled[done]]))
        done++;
    sc->n_unbilled -= done;
    memmove(sc->unbilled, sc->unbilled + done, sc->n_unbilled * sizeof(*sc->unbilled));
}

/* ---- release ---- */

/* An end waits for its record to be durable (`ended`), then for its release (`settled`, no list), and
 * is then `due`.  So a turn looks at what has changed, however many ends nobody has come to read. */

static bool is_durable(const struct tr_seq *q, uint64_t durable)
{
    return q->bill_seq && q->bill_seq <= durable;
}

static bool is_released(const struct tr_sched *sc, const struct tr_seq *q)
{
    return q->released ||
           (!tr_sched_owner_alive(sc, q->area, q->epoch) && !tr_state_is_kept(q->flags, q->state));
}

static void settle_or_due(struct tr_sched *sc, struct tr_seq *q)
{
    q->settled = !is_released(sc, q);
    if (q->settled) {
        sc->n_settled++;
        /* The ledger rings the owner that the record names; it may be another one by now. */
        if (tr_state_is_kept(q->flags, q->state))
            tr_sched_tell(sc, q);
    } else {
        sc->due[sc->n_due++] = q->slot;
    }
}

static void free_if_due(struct tr_sched *sc, struct tr_seq *q)
{
    if (!q->settled || !is_released(sc, q))
        return;
    sc->n_settled--;
    settle_or_due(sc, q);
}

void tr_settle_release(struct tr_sched *sc, struct tr_seq *q)
{
    q->released = true;
    free_if_due(sc, q);
}

void tr_settle_orphans(struct tr_sched *sc)
{
    for (uint32_t slot = 0; slot < sc->s->config.n_slots; slot++)
        free_if_due(sc, &sc->seq[slot]);
}

static void look_at_ended(struct tr_sched *sc, uint64_t durable)
{
    uint32_t kept = 0;
    sc->oldest_ns = UINT64_MAX;
    for (uint32_t i = 0; i < sc->n_ended; i++) {
        struct tr_seq *q = &sc->seq[sc->ended[i]];
        if (is_durable(q, durable)) {
            settle_or_due(sc, q);
            continue;
        }
        sc->ended[kept++] = q->slot;
        if (q->finished_ns < sc->oldest_ns)
            sc->oldest_ns = q->finished_ns;
    }
    sc->n_ended = kept;
    sc->durable = durable;
    sc->look_at_ended = false;
}

static void free_slot(struct tr_sched *sc, struct tr_seq *q)
{
    q->in_kv = q->n_blocks = 0;
    tr_constrain_drop(sc->constrain, q->slot); /* its program goes with the ring */
    TR_FAULT_FOR(ENGINE_RELEASE_DUE, tr_sched_ring(sc, q)->params.seed);
    tr_seq_move(sc->s, q, TR_FREE);
    tr_twin_note(sc, q->slot, false);
    TR_FAULT(ENGINE_RELEASE_RESET);
    *q =
        (struct tr_seq){.slot = q->slot, .gen = q->gen, .group_next = TR_NO_SLOT, .key = TR_NO_KEY};
    tr_offer_close(sc, q->slot);
    TR_FAULT(ENGINE_RELEASE_CLOSED);
    sc->progress = true;
}

/* The ledger's lag is told here: a ledger that stands still could not tell it. */
static void tell_lag(struct tr_sched *sc)
{
    uint64_t lag = sc->now > sc->oldest_ns ? sc->now - sc->oldest_ns : 0;
    tr_stat_set(sc->stat, TR_STAT_LEDGER_LAG_US, lag / 1000);
}

void tr_settle_reap(struct tr_sched *sc)
{
    uint64_t durable = tr_bill_n_durable(sc->s);
    if (sc->look_at_ended || durable != sc->durable)
        look_at_ended(sc, durable);
    while (sc->n_due)
        free_slot(sc, &sc->seq[sc->due[--sc->n_due]]);
    tell_lag(sc);
}
