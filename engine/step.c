/* SPDX-License-Identifier: Apache-2.0 */
/* engine/step.c - one step: the plan is carried out, the model runs, tokens are published. */
#include "engine/sched_priv.h"

#include "base/clock.h"
#include "base/fault.h"

/* With nothing to do but to wait for masks, who comes meanwhile is heard after so long. */
#define WAIT_NS 1000000u

/* ---- what the plan is told ---- */

/* Rows it may have before its logprob ring is full: rows whose entries were pushed before a
 * preemption, or that have none, need no room. */
static uint32_t lp_rows(const struct tr_sched *sc, const struct tr_seq *q)
{
    if (!(q->flags & (TR_REQ_LOGPROBS | TR_REQ_ECHO_LOGPROBS)))
        return UINT32_MAX;
    uint32_t room = tr_lpring_room(sc->s, q->slot);
    if (tr_batch_echoes(sc, q)) {
        uint64_t tail = atomic_load_explicit(&tr_sched_ring(sc, q)->lp_tail, memory_order_relaxed);
        return room + (tail > q->in_kv + 1u ? (uint32_t)tail - 1 - q->in_kv : 0);
    }
    return !(q->flags & TR_REQ_LOGPROBS) || room ? UINT32_MAX : 0;
}

static uint64_t lag_of(const struct tr_seq *q)
{
    return q->n_out - (q->scanned < q->sent ? q->scanned : q->sent);
}

static bool lp_caught_up(const struct tr_sched *sc, const struct tr_seq *q)
{
    uint32_t window = sc->s->config.window;
    return !(q->flags & (TR_REQ_LOGPROBS | TR_REQ_ECHO_LOGPROBS)) ||
           (uint64_t)(window - tr_lpring_room(sc->s, q->slot)) * 2 < window;
}

bool tr_step_caught_up(const struct tr_sched *sc, const struct tr_seq *q)
{
    return lag_of(q) * 2 < sc->s->config.window && lp_caught_up(sc, q);
}

bool tr_step_is_behind(const struct tr_sched *sc, const struct tr_seq *q)
{
    return lag_of(q) >= sc->s->config.window || lp_rows(sc, q) == 0;
}

/* Drafts that could all become tokens: in its window, its logprob ring and its limit there must be room
 * for them and for the one behind them. */
static uint32_t draft_room(const struct tr_sched *sc, const struct tr_seq *q,
                           const struct tr_plan_seq *p)
{
    if (!sc->draft_rows || p->state != TR_RUNNING || p->hold || (q->flags & TR_REQ_ECHO_LOGPROBS) ||
        tr_constrain_has(sc->constrain, q->slot))
        return 0;
    uint64_t room = sc->s->config.window - lag_of(q);
    uint32_t lp = q->flags & TR_REQ_LOGPROBS ? tr_lpring_room(sc->s, q->slot) : UINT32_MAX;
    uint32_t left = q->max_tokens - q->n_out;
    left = left < lp ? left : lp;
    room = room < left ? room : left;
    return room > 1 ? (uint32_t)room - 1 : 0;
}

static struct tr_plan_seq describe(struct tr_sched *sc, const struct tr_seq *q)
{
    struct tr_plan_seq p = {.state = q->closing ? TR_FREE : q->state,
                            .priority = q->priority,
                            .key = q->key,
                            .total = tr_seq_total(q),
                            .in_kv = q->in_kv,
                            .limit = q->prompt_len + q->max_tokens,
                            .blocks = q->n_blocks,
                            .again = q->again};
    p.row_cap = lp_rows(sc, q);
    p.out_rows = tr_batch_echoes(sc, q);
    p.hold = lag_of(q) >= sc->s->config.window || p.row_cap == 0;
    p.ready = q->state == TR_PARKED && tr_step_caught_up(sc, q);
    p.drafts = draft_room(sc, q, &p);
    if ((q->state == TR_PREFILL || q->state == TR_RUNNING) &&
        tr_constrain_is_waited_for(sc->constrain, q->slot)) {
        p.part = TR_PLAN_SUSPECT; /* it sits out */
        sc->sits_out = true;
    }
    return p;
}

static uint32_t plan_for(struct tr_sched *sc, enum tr_plan_part part, struct tr_plan_step *step)
{
    struct tr_plan_in in = {.seqs = sc->plan_in,
                            .n = sc->n_active,
                            .served = tr_fair_served(sc->fair),
                            .aside = sc->aside_kv,
                            .n_aside = sc->n_aside_kv,
                            .own = tr_kv_own(sc->kv),
                            .evictable = tr_kv_n_loose(sc->kv),
                            .max_seqs = sc->s->config.max_seqs,
                            .max_rows = sc->max_rows,
                            .prefill_chunk = sc->cfg.prefill_chunk,
                            .out_chunk = TR_ECHO_ROWS,
                            .free_blocks = tr_kv_n_free(sc->kv) + tr_kv_n_cached(sc->kv),
                            .n_blocks = sc->info.n_kv_blocks,
                            .cost = &sc->cost,
                            .part = part};
    tr_plan_set_targets(&in, sc->cfg.itl_target_ns, sc->cfg.ttft_target_ns);
    return tr_plan_make(&in, sc->plan_do, step);
}

/* With suspects, every other step is for those on trial, if there is something to do for both. */
static uint32_t make_plan(struct tr_sched *sc, struct tr_plan_step *step)
{
    sc->sits_out = false;
    for (uint32_t i = 0; i < sc->n_active; i++)
        sc->plan_in[i] = describe(sc, &sc->seq[sc->active[i]]);
    if (sc->draft_rows)
        tr_speculate_offer(sc);
    tr_cached_describe(sc);
    if (!tr_suspect_trial(sc))
        return plan_for(sc, TR_PLAN_OTHERS, step);
    bool trial = sc->trial_next;
    uint32_t rows = plan_for(sc, trial ? TR_PLAN_TRIAL : TR_PLAN_OTHERS, step);
    if (!rows) {
        trial = !trial;
        rows = plan_for(sc, trial ? TR_PLAN_TRIAL : TR_PLAN_OTHERS, step);
    }
    sc->trial_next = !trial;
    return rows;
}

/* ---- moves ---- */

static void preempt(struct tr_sched *sc, struct tr_seq *q)
{
    struct tr_ring *r = tr_sched_ring(sc, q);
    uint32_t times = 1 + atomic_load_explicit(&r->preemptions, memory_order_relaxed);
    tr_seq_move(sc->s, q, TR_WAITING);
    q->again = true;
    atomic_store_explicit(&r->preemptions, times, memory_order_relaxed);
    tr_slot_stat_preempted(sc->s, q->slot, times);
    tr_stat_add(sc->stat, TR_STAT_PREEMPTIONS, 1);
}

void tr_step_park(struct tr_sched *sc, struct tr_seq *q)
{
    tr_seq_move(sc->s, q, TR_PARKED);
    q->last_token_ns = 0; /* the gap that follows is the reader's */
    /* The next turn looks at the cursors again, and none sleeps before that. */
    tr_cursor_want(sc->s, q->slot);
}

static void resume(struct tr_sched *sc, struct tr_seq *q)
{
    atomic_store_explicit(&tr_sched_ring(sc, q)->wants_cursor, 0, memory_order_relaxed);
    tr_seq_move(sc->s, q, q->n_out && q->in_kv + 1 == tr_seq_total(q) ? TR_RUNNING : TR_PREFILL);
}

static void start(struct tr_sched *sc, struct tr_seq *q)
{
    tr_seq_move(sc->s, q, TR_PREFILL);
    if (q->started_ns)
        return;
    tr_cached_start(sc, q, tr_batch_echoes(sc, q));
    struct tr_ring *r = tr_sched_ring(sc, q);
    q->started_ns = sc->now;
    atomic_store_explicit(&r->started_ns, sc->now, memory_order_relaxed);
    tr_hist_add(sc->stat, TR_HIST_QUEUE, sc->now > r->arrival_ns ? sc->now - r->arrival_ns : 0);
}

static void move(struct tr_sched *sc, struct tr_seq *q, const struct tr_plan_do *d, uint32_t cached)
{
    if (d->what == TR_PLAN_STAY)
        return;
    if (cached && (d->what == TR_PLAN_UNPARK || d->what == TR_PLAN_ADMIT))
        tr_cached_take(sc, q, cached);
    if (d->what == TR_PLAN_PREEMPT)
        preempt(sc, q);
    else if (d->what == TR_PLAN_PARK)
        tr_step_park(sc, q);
    else if (d->what == TR_PLAN_UNPARK)
        resume(sc, q);
    else
        start(sc, q);
    tr_sched_tell(sc, q);
    sc->progress = true;
}

/* First all that is given back, then all that is taken. */
static void carry_out(struct tr_sched *sc, uint32_t evict)
{
    tr_aside_evict(sc, evict);
    for (uint32_t i = 0; i < sc->n_active; i++)
        if (sc->plan_do[i].drop)
            tr_sched_drop_kv(sc, &sc->seq[sc->active[i]]);
    for (uint32_t i = 0; i < sc->n_active; i++)
        move(sc, &sc->seq[sc->active[i]], &sc->plan_do[i], sc->plan_in[i].cached);
    for (uint32_t i = 0; i < sc->n_active; i++) {
        struct tr_seq *q = &sc->seq[sc->active[i]];
        if (!sc->plan_do[i].rows)
            continue;
        uint32_t total = tr_seq_total(q), until = q->in_kv + sc->plan_do[i].rows;
        int full = tr_kv_reserve(sc->kv, q->slot, until > total ? until : total);
        TR_ASSERT(full == 0);
        q->n_blocks = tr_kv_table_of(sc->kv, q->slot).n_blocks;
    }
}

/* ---- the step ---- */

/* Rows whose masks are not made in the time that a step has for them; how many. */
static uint32_t find_late(struct tr_sched *sc)
{
    uint32_t n = 0;
    for (uint32_t i = 0; sc->constrain && i < sc->n_jobs; i++) {
        struct tr_job *j = &sc->jobs[i];
        j->late = j->mask && !tr_constrain_is_made(sc->constrain, j->slot);
        n += j->late;
    }
    return n;
}

/* Masks have the whole of the pass: where it may still be under way, it is waited for before one is called
 * late. */
static void join_masks(struct tr_sched *sc)
{
    tr_constrain_join(sc->constrain, TR_CONSTRAIN_STEP_WORK, tr_sched_beat, sc);
    uint32_t late = find_late(sc);
    if (late && sc->ops->pick) {
        sc->ops->collect(sc->backend, NULL, 0, tr_sched_beat, sc);
        late = find_late(sc);
    }
    tr_stat_add(sc->stat, TR_STAT_MASKS_LATE, late);
}

/* Inside the pass, as far as tests can get: a point for each sequence that is in it. */
static void reach_sequences(const struct tr_sched *sc)
{
    for (uint32_t i = 0; i < sc->n_active; i++)
        if (sc->plan_do[i].rows)
            TR_FAULT_FOR(ENGINE_PASS_SEQUENCE,
                         tr_sched_ring(sc, &sc->seq[sc->active[i]])->params.seed);
}

/* The last thing of a step, and what the next ones are planned by. */
static void count_step(struct tr_sched *sc, const struct tr_cost_work *w, uint64_t took)
{
    uint64_t target = sc->cfg.itl_target_ns;
    tr_hist_add(sc->stat, TR_HIST_STEP, took);
    tr_hist_add(sc->stat, TR_HIST_STEP_PREDICTED, tr_cost_predict(&sc->cost, w));
    tr_stat_add(sc->stat, TR_STAT_ROWS_PROMPT, w->n[TR_COST_PREFILL]);
    if (w->n[TR_COST_PREFILL])
        tr_hist_add(sc->stat, TR_HIST_STEP_PROMPT, took);
    if (w->n[TR_COST_DECODE] && target && took > target)
        tr_stat_add(sc->stat, TR_STAT_STEPS_LATE, 1);
    tr_cost_learn(&sc->cost, w, took);
}

/* A device has the pass, if there is one: what no token waits for is done meanwhile.  A death in it is no
 * evidence against those in the pass. */
static void use_the_time(struct tr_sched *sc)
{
    if (!sc->ops->pick)
        return;
    tr_suspect_pass_ends(sc);
    tr_sched_tend(sc);
    tr_suspect_pass_goes_on(sc);
}

/* From the batch to what its jobs have come to.  With a device the pass and the picks are one time. */
static void run_pass(struct tr_sched *sc, const struct tr_batch *batch)
{
    uint64_t began = tr_now_ns();
    tr_constrain_begin(sc->constrain);
    sc->ops->forward(sc->backend, batch, sc->logits, tr_sched_beat, sc);
    use_the_time(sc);
    TR_FAULT(ENGINE_PASS_END);
    uint64_t sample = tr_now_ns();
    join_masks(sc);
    tr_pick_all(sc);
    uint64_t ended = tr_now_ns();
    if (sc->ops->pick)
        sample = ended;
    else
        tr_hist_add(sc->stat, TR_HIST_STEP_SAMPLE, ended - sample);
    tr_hist_add(sc->stat, TR_HIST_STEP_FORWARD, sample - began);
}

bool tr_step(struct tr_sched *sc)
{
    uint64_t began = sc->now;
    if (sc->n_active == 0)
        return false;
    struct tr_plan_step step;
    uint32_t rows = make_plan(sc, &step);
    TR_FAULT(ENGINE_PLAN_MADE);
    carry_out(sc, step.evict);
    TR_FAULT(ENGINE_PLAN_MOVED);
    if (!rows) {
        if (sc->sits_out) {
            tr_constrain_wait(sc->constrain, WAIT_NS);
            sc->progress = true; /* another turn, also if its mask was made since */
        }
        return false;
    }
    struct tr_batch batch = tr_batch_make(sc);
    TR_FAULT(ENGINE_PASS_BEGIN);
    tr_suspect_pass_begins(sc);
    reach_sequences(sc);
    run_pass(sc, &batch);
    tr_suspect_pass_ends(sc);
    TR_FAULT(ENGINE_STEP_SAMPLED);
    tr_publish_all(sc);
    tr_stat_add(sc->stat, TR_STAT_ROWS, rows);
    count_step(sc, &step.work, tr_now_ns() - began);
    sc->progress = true;
    return true;
}
