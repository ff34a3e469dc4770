/* SPDX-License-Identifier: Apache-2.0 */
/* engine/publish.c - what a step has made goes into the rings, and its consequences are drawn. */
#include "engine/sched_priv.h"

#include "base/clock.h"
#include "base/fault.h"

static bool is_in(uint32_t id, const uint32_t *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == id)
            return true;
    return false;
}

/* The end that the engine finds by itself.  If a stop string may still turn up in tokens that the
 * reader has not scanned, it waits for the scan as a parked sequence without blocks. */
static void close_seq(struct tr_sched *sc, struct tr_seq *q, enum tr_state st, enum tr_finish why)
{
    if ((q->flags & TR_REQ_STOP_STRINGS) && q->scanned < q->n_out) {
        tr_sched_drop_kv(sc, q);
        q->closing = true;
        q->close_state = st;
        q->close_finish = why;
        tr_step_park(sc, q);
        return;
    }
    tr_settle_end(sc, q, (struct tr_end){.state = st, .finish = why, .finish_index = q->n_out});
}

void tr_publish_end_if_over(struct tr_sched *sc, struct tr_seq *q, uint32_t id)
{
    const struct tr_ring *r = tr_sched_ring(sc, q);
    const struct tr_extra *e = &sc->extra[q->slot];
    if (!(q->flags & TR_REQ_IGNORE_EOS) && is_in(id, sc->cfg.eog, sc->cfg.n_eog))
        close_seq(sc, q, TR_COMPLETED, TR_FINISH_EOG);
    else if (r->extra_len && is_in(id, e->stop_ids, e->n_stop))
        close_seq(sc, q, TR_COMPLETED, TR_FINISH_STOP_ID);
    else if (tr_constrain_is_over(sc->constrain, q->slot))
        close_seq(sc, q, TR_COMPLETED, TR_FINISH_GRAMMAR);
    else if (q->n_out == q->max_tokens)
        close_seq(sc, q, TR_INCOMPLETE, TR_FINISH_LENGTH);
}

bool tr_publish_retrace(struct tr_sched *sc, const struct tr_seq *q)
{
    const uint32_t *ids = tr_ring_ids(sc->s, q->slot) + q->prompt_len;
    if (!tr_constrain_has(sc->constrain, q->slot))
        return true;
    for (uint32_t i = 0; i < q->n_out; i++)
        if (!tr_constrain_take(sc->constrain, q->slot, ids[i]))
            return false;
    return true;
}

/* Nothing that its grammar allows is left, or its grammar is more than a matcher holds. */
static void fail_grammar(struct tr_sched *sc, struct tr_seq *q)
{
    tr_settle_end(
        sc, q,
        (struct tr_end){.state = TR_ERROR, .err = TR_ERR_GRAMMAR_FAILED, .finish_index = q->n_out});
}

static uint64_t span(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

void tr_publish_first_token(struct tr_sched *sc, struct tr_seq *q, uint64_t at_ns)
{
    struct tr_ring *r = tr_sched_ring(sc, q);
    q->first_token_ns = at_ns;
    atomic_store_explicit(&r->first_token_ns, at_ns, memory_order_relaxed);
    tr_hist_add(sc->stat, TR_HIST_TTFT, span(r->arrival_ns, at_ns));
    tr_hist_add(sc->stat, TR_HIST_PREFILL, span(q->started_ns, at_ns));
}

static void time_token(struct tr_sched *sc, struct tr_seq *q)
{
    if (q->n_out == 1) {
        tr_publish_first_token(sc, q, sc->now);
    } else if (q->last_token_ns) {
        uint64_t gap = sc->now - q->last_token_ns;
        tr_hist_add(sc->stat, TR_HIST_ITL, gap);
        q->max_gap_ns = gap > q->max_gap_ns ? gap : q->max_gap_ns;
    }
    q->last_token_ns = sc->now;
}

/* Whether a token went into its ring. */
static bool publish(struct tr_sched *sc, const struct tr_job *j, uint32_t step)
{
    struct tr_seq *q = &sc->seq[j->slot];
    if (q->in_kv <= j->pos)
        return false; /* an earlier entry had no room, a draft was wrong, or the answer has ended */
    if (j->late) {    /* the row is made again when its mask is there */
        q->in_kv = j->pos;
        return false;
    }
    if (j->id == TR_NO_TOKEN) {
        fail_grammar(sc, q);
        return false;
    }
    /* The entry first: who sees the token finds its entry.  No room although there was some when
     * the plan was made: the reader's count is nonsense.  The row is made again once it is not. */
    if (j->wants_lp && tr_lpring_push(sc->s, j->slot, j->lp)) {
        q->in_kv = j->pos;
        return false;
    }
    uint64_t seed = tr_sched_ring(sc, q)->params.seed;
    if (j->wants_lp)
        TR_FAULT_FOR(ENGINE_STEP_LOGPROB, seed);
    tr_sched_tell(sc, q);
    if (j->echo)
        return false;
    TR_FAULT_FOR(ENGINE_STEP_PUSH, seed);
    int full = tr_ring_push(sc->s, j->slot, j->id, step);
    TR_ASSERT(full == 0); /* prompt_len + max_tokens <= n_ctx */
    TR_FAULT_FOR(ENGINE_STEP_PUSHED, seed);
    q->n_out++;
    q->again = false;
    tr_fair_serve(sc->fair, q->key, TR_FAIR_ANSWER);
    tr_slot_stat_published(sc->s, q->slot, q->n_out);
    if (j->is_more && j->id == j->drafts[j->n_before]) {
        q->in_kv++; /* the row behind was about this token */
        tr_stat_add(sc->stat, TR_STAT_ACCEPTED, 1);
    }
    time_token(sc, q);
    if (q->state == TR_PREFILL) {
        atomic_store_explicit(&tr_sched_ring(sc, q)->prefill_done, q->prompt_len,
                              memory_order_relaxed);
        tr_slot_stat_prefilled(sc->s, q->slot, q->prompt_len);
        tr_seq_move(sc->s, q, TR_RUNNING);
    }
    if (j->mask && !tr_constrain_take(sc->constrain, j->slot, j->id))
        fail_grammar(sc, q);
    else
        tr_publish_end_if_over(sc, q, j->id);
    return true;
}

/* How far prompts are, and those that wanted nothing but their prompt. */
static void tell_progress(struct tr_sched *sc)
{
    for (uint32_t i = 0; i < sc->n_active; i++) {
        struct tr_seq *q = &sc->seq[sc->active[i]];
        if (!sc->plan_do[i].rows || q->state != TR_PREFILL)
            continue;
        uint32_t done = q->in_kv < q->prompt_len ? q->in_kv : q->prompt_len;
        atomic_store_explicit(&tr_sched_ring(sc, q)->prefill_done, done, memory_order_relaxed);
        tr_slot_stat_prefilled(sc->s, q->slot, done);
        tr_sched_tell(sc, q);
        if (q->in_kv == tr_seq_total(q))
            tr_settle_end(sc, q,
                          (struct tr_end){.state = TR_INCOMPLETE, .finish = TR_FINISH_LENGTH});
    }
}

void tr_publish_all(struct tr_sched *sc)
{
    struct tr_rings *rings = sc->s->rings;
    uint32_t step = atomic_load_explicit(&rings->step, memory_order_relaxed);
    sc->now = tr_now_ns();
    uint64_t ended = sc->now;
    /* Relaxed: tokens are published after it with a release. */
    atomic_store_explicit(&rings->step_ns[step % TR_STEP_TIMES], ended, memory_order_relaxed);
    uint64_t n = 0;
    for (uint32_t i = 0; i < sc->n_jobs; i++) {
        n += publish(sc, &sc->jobs[i], step);
        sc->now = ended; /* one time for all tokens of a step */
    }
    tr_stat_add(sc->stat, TR_STAT_PUBLISHED, n);
    TR_FAULT(ENGINE_STEP_PUBLISHED);
    tell_progress(sc);
    for (uint32_t i = 0; i < sc->n_active; i++)
        if (sc->plan_do[i].rows)
            tr_cached_keep(sc, &sc->seq[sc->active[i]]);
    /* Release: whoever sees the step counted finds its time. */
    atomic_store_explicit(&rings->step, step + 1, memory_order_release);
    TR_FAULT(ENGINE_STEP_COUNTED);
}
