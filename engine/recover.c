/* SPDX-License-Identifier: Apache-2.0 */
/* engine/recover.c - the first thing an engine does: what a former one left goes on.
 *
 * The rings are the truth.  A request in one that has not ended waits again, as after a preemption: it
 * has its prompt and its tokens, its KV is made again as an ordinary prefill within the budget of the
 * steps.  First those the former engine had begun, the one first whose reader has waited longest for a
 * token, then those that had waited, by arrival.  What stands in the submission queues is admitted by the
 * first turn.  A first start is the case where nothing was left.
 *
 * What a crash can have torn, and how it is seen:
 *   admission    fields, state, claim, queue are written in this order, and all choices of a group are
 *                copied before the first is admitted: a ring that is FREE belongs to a message that still
 *                waits; one that is not is the truth, and its message, and its group, are done with
 *   token        its logprob entry is pushed before it: one entry too many is that of a token that was
 *                not published, and is now
 *   end          a last token that ends the answer, without the terminal state: the end is found again
 *   command      the dirty bit may be taken: all commands are read again
 *   grammar      is opened again, and the tokens are led through it, as when they were published
 *   record       its number is written before it is counted: a number above the queue's tail is void;
 *                it is counted before it is in the statistics
 *   release      generation, wiping, claim: a free ring whose claim is not open or claimed in this
 *                generation is reset once more; so is one whose fields are of another generation
 * Numbers in a ring are bounded before use: a crashed engine may have left anything.  A request that
 * admission would not have let pass ends with engine_lost. */
#include "engine/sched_priv.h"

#include "base/clock.h"
#include "base/fault.h"

#include <stdlib.h>

/* ---- rings ---- */

static void reset(struct tr_sched *sc, uint32_t slot)
{
    struct tr_seq *q = &sc->seq[slot];
    tr_ring_reset(sc->s, slot);
    q->gen = atomic_load_explicit(&tr_ring_at(sc->s, slot)->gen, memory_order_relaxed);
    tr_offer_close(sc, slot);
}

static void find_free(struct tr_sched *sc, uint32_t slot, struct tr_claim c)
{
    struct tr_seq *q = &sc->seq[slot];
    if (q->gen == 0 || c.gen != q->gen ||
        (c.state != TR_CLAIM_OPEN && c.state != TR_CLAIM_CLAIMED)) {
        reset(sc, slot);
        return;
    }
    q->use = TR_SLOT_OFFERED;
    sc->n_offered++;
}

static void find_request(struct tr_sched *sc, uint32_t slot, uint32_t state)
{
    struct tr_seq *q = &sc->seq[slot];
    struct tr_ring *r = tr_ring_at(sc->s, slot);
    uint32_t n_ctx = sc->s->config.n_ctx;
    uint64_t n_out = atomic_load_explicit(&r->published, memory_order_relaxed);
    if (r->prompt_len > n_ctx)
        r->prompt_len = 0;
    if (n_out > n_ctx - r->prompt_len)
        n_out = n_ctx - r->prompt_len;
    q->use = TR_SLOT_LIVE;
    q->state = state <= TR_ERROR ? (enum tr_state)state : TR_WAITING;
    if (tr_state_terminal(q->state) && r->finish_index > n_out) {
        r->finish_index = n_out; /* a record of it may still be due */
        r->overrun = 0;
    }
    struct tr_owner o = tr_ring_owner(r);
    q->area = o.area;
    q->epoch = o.epoch;
    q->confirmed = o.confirmed;
    q->prompt_len = r->prompt_len;
    q->n_out = (uint32_t)n_out;
    q->max_tokens = r->params.max_tokens > n_out ? r->params.max_tokens : (uint32_t)n_out;
    q->flags = r->params.flags;
    q->finished_ns = r->finished_ns;
    q->first_token_ns = atomic_load_explicit(&r->first_token_ns, memory_order_relaxed);
    q->started_ns = atomic_load_explicit(&r->started_ns, memory_order_relaxed);
    q->queue_pos = atomic_load_explicit(&r->queue_pos, memory_order_relaxed);
    tr_suspect_remember(sc, q);
    q->bill_seq = atomic_load_explicit(&r->bill_seq, memory_order_relaxed);
    if (!tr_bill_is_queued(sc->s, q->bill_seq))
        q->bill_seq = 0;
    tr_claim_set(sc->s, slot, (struct tr_claim){.state = TR_CLAIM_TAKEN, .gen = q->gen});
}

static void find_slot(struct tr_sched *sc, uint32_t slot)
{
    struct tr_seq *q = &sc->seq[slot];
    const struct tr_ring *r = tr_ring_at(sc->s, slot);
    struct tr_claim c = tr_claim_get(sc->s, slot);
    uint32_t state = atomic_load_explicit(&r->state, memory_order_acquire);
    *q = (struct tr_seq){.slot = slot, .lead = slot, .group_next = TR_NO_SLOT, .key = TR_NO_KEY};
    q->gen = atomic_load_explicit(&r->gen, memory_order_relaxed);
    bool torn = r->of_gen != q->gen;
    if (state == TR_FREE)
        find_free(sc, slot, c);
    else if (torn)
        reset(sc, slot);
    else
        find_request(sc, slot, state);
    tr_twin_note(sc, slot, q->use == TR_SLOT_LIVE);
    tr_slot_stat_admit(sc->s, slot);
    tr_slot_stat_state(sc->s, slot, q->state);
}

/* ---- groups ---- */

/* Members whose lead is gone, or is another request's, stand for themselves. */
static void find_group(struct tr_sched *sc, uint32_t slot)
{
    struct tr_seq *q = &sc->seq[slot];
    const struct tr_ring *r = tr_ring_at(sc->s, slot);
    uint32_t lead = r->group_lead;
    if (q->use != TR_SLOT_LIVE || r->group_n <= 1 || lead == slot || lead >= sc->s->config.n_slots)
        return;
    struct tr_seq *l = &sc->seq[lead];
    const struct tr_ring *lr = tr_ring_at(sc->s, lead);
    /* The lead's slot may be free again, and have a new request, before a member's. */
    if (l->use != TR_SLOT_LIVE || lr->group_lead != lead || lr->group_n != r->group_n ||
        lr->stream_rand != r->stream_rand || l->area != q->area || l->epoch != q->epoch)
        return;
    q->lead = lead;
    q->group_next = l->group_next;
    l->group_next = slot;
}

/* A record that was counted belongs to all of the group, whether or not all learnt its number. */
static void share_record(struct tr_sched *sc, struct tr_seq *lead)
{
    uint64_t seq = 0;
    for (uint32_t at = lead->slot; at != TR_NO_SLOT; at = sc->seq[at].group_next)
        seq = sc->seq[at].bill_seq ? sc->seq[at].bill_seq : seq;
    for (uint32_t at = lead->slot; at != TR_NO_SLOT; at = sc->seq[at].group_next) {
        sc->seq[at].bill_seq = seq;
        atomic_store_explicit(&tr_ring_at(sc->s, at)->bill_seq, seq, memory_order_release);
    }
}

/* ---- going on ---- */

/* Entries of the logprob ring that its tokens have, and at most one more. */
static bool has_its_entries(const struct tr_sched *sc, const struct tr_seq *q)
{
    const struct tr_ring *r = tr_sched_ring(sc, q);
    uint64_t tail = atomic_load_explicit(&r->lp_tail, memory_order_relaxed);
    uint64_t prompt = q->flags & TR_REQ_ECHO_LOGPROBS ? q->prompt_len : 0;
    if (tail < prompt)
        return q->n_out == 0;
    if (!(q->flags & TR_REQ_LOGPROBS))
        return tail == prompt;
    return tail == prompt + q->n_out || (tail == prompt + q->n_out + 1 && q->n_out < q->max_tokens);
}

/* The token whose entry was pushed: its reader may know it already. */
static bool publish_half(struct tr_sched *sc, struct tr_seq *q)
{
    const struct tr_ring *r = tr_sched_ring(sc, q);
    uint64_t tail = atomic_load_explicit(&r->lp_tail, memory_order_relaxed);
    uint64_t prompt = q->flags & TR_REQ_ECHO_LOGPROBS ? q->prompt_len : 0;
    if (!(q->flags & TR_REQ_LOGPROBS) || tail <= prompt + q->n_out)
        return true;
    uint32_t id = tr_lpring_last(sc->s, q->slot);
    uint32_t step = atomic_load_explicit(&sc->s->rings->step, memory_order_relaxed);
    if (id >= sc->s->config.n_vocab || tr_ring_push(sc->s, q->slot, id, step))
        return false;
    q->n_out++;
    tr_stat_add(sc->stat, TR_STAT_PUBLISHED, 1);
    return true;
}

static bool is_sound(struct tr_sched *sc, struct tr_seq *q)
{
    uint32_t state = atomic_load_explicit(&tr_sched_ring(sc, q)->state, memory_order_relaxed);
    return state <= TR_ERROR && (!q->confirmed || q->area < sc->s->config.n_areas) &&
           tr_admit_is_sound(sc, q->slot) && has_its_entries(sc, q) && publish_half(sc, q) &&
           tr_admit_first_lp(sc, q);
}

/* What its reader and its last token say. */
static void look_for_end(struct tr_sched *sc, struct tr_seq *q)
{
    if (q->confirmed)
        tr_hear_obey(sc, q, tr_cmd_word(sc->s, q->area, q->slot));
    if (!tr_state_terminal(q->state))
        tr_hear_reader(sc, q);
    if (!tr_state_terminal(q->state) && q->n_out)
        tr_publish_end_if_over(sc, q, tr_ring_ids(sc->s, q->slot)[tr_seq_total(q) - 1]);
}

static void end_as(struct tr_sched *sc, struct tr_seq *q, enum tr_err err)
{
    tr_settle_end(sc, q, (struct tr_end){.state = TR_ERROR, .err = err, .finish_index = q->n_out});
}

/* Not ended, as far as its ring says. */
static void go_on(struct tr_sched *sc, struct tr_seq *q)
{
    struct tr_ring *r = tr_sched_ring(sc, q);
    bool was_parked = atomic_load_explicit(&r->state, memory_order_relaxed) == TR_PARKED;
    if (!r->prompt_len) { /* refused, and about to end */
        end_as(sc, q, TR_ERR_BAD_SUBMISSION);
        return;
    }
    if (!is_sound(sc, q)) {
        end_as(sc, q, TR_ERR_ENGINE_LOST);
        return;
    }
    q->state = TR_WAITING;
    q->again = q->started_ns != 0;
    tr_slot_stat_state(sc->s, q->slot, TR_WAITING);
    /* Release: as in tr_seq_move. */
    atomic_store_explicit(&r->state, TR_WAITING, memory_order_release);
    TR_FAULT_FOR(ENGINE_RECOVER_REQUEST, r->params.seed);
    atomic_store_explicit(&r->wants_cursor, 0, memory_order_relaxed);
    tr_slot_stat_published(sc->s, q->slot, q->n_out);
    if (q->n_out && !q->first_token_ns)
        tr_publish_first_token(sc, q, tr_sched_token_ns(sc, q, 0));
    q->last_token_ns = q->n_out && !was_parked ? tr_sched_token_ns(sc, q, q->n_out - 1) : 0;
    if (!tr_publish_retrace(sc, q)) {
        end_as(sc, q, TR_ERR_GRAMMAR_FAILED);
        return;
    }
    look_for_end(sc, q);
    if (!tr_state_terminal(q->state) && tr_suspect_is_guilty(q))
        end_as(sc, q, TR_ERR_ENGINE_CRASHED);
    if (tr_state_terminal(q->state))
        return;
    if (!q->closing && (was_parked || tr_step_is_behind(sc, q)))
        tr_step_park(sc, q);
    q->priority = r->params.priority;
    q->key = tr_fair_take(sc->fair, r->key, r->params.weight);
    sc->active[sc->n_active++] = q->slot;
    sc->n_found++;
    sc->found_tokens += tr_seq_total(q);
}

/* Counts who still has to end, so that the last one brings the group's record about. */
static void go_on_group(struct tr_sched *sc, struct tr_seq *lead)
{
    share_record(sc, lead);
    lead->group_left = 0;
    for (uint32_t at = lead->slot; at != TR_NO_SLOT; at = sc->seq[at].group_next)
        lead->group_left += !tr_state_terminal(sc->seq[at].state);
    if (lead->group_left == 0 && !lead->bill_seq)
        sc->unbilled[sc->n_unbilled++] = lead->slot;
    for (uint32_t at = lead->slot; at != TR_NO_SLOT; at = sc->seq[at].group_next) {
        struct tr_seq *q = &sc->seq[at];
        if (tr_state_terminal(q->state))
            sc->ended[sc->n_ended++] = at;
        else
            go_on(sc, q);
    }
}

/* What an owner said of one that has ended.  A dead owner's word counts as long as nobody else has its
 * area. */
static void read_word(struct tr_sched *sc, struct tr_seq *q)
{
    if (q->area >= sc->s->config.n_areas || !q->confirmed || q->epoch != sc->epoch[q->area])
        return;
    uint64_t word = tr_cmd_word(sc->s, q->area, q->slot);
    if (tr_cmd_gen(word) != q->gen)
        return;
    q->released = tr_cmd_flags(word) & TR_CMD_RELEASE;
    if (tr_cmd_flags(word) & TR_CMD_UNWANTED) /* relaxed: as in hear.c */
        atomic_store_explicit(&tr_sched_ring(sc, q)->unwanted, 1, memory_order_relaxed);
}

/* ---- the order ---- */

/* Since when its reader waits for a token; those that were never begun come last. */
static uint64_t waits_since(const struct tr_sched *sc, const struct tr_seq *q)
{
    uint64_t since =
        q->n_out ? tr_sched_token_ns(sc, q, q->n_out - 1) : tr_sched_ring(sc, q)->arrival_ns;
    return since >> 1 | (q->started_ns ? 0 : 1ull << 63);
}

static int by_order(const void *a, const void *b, void *arg)
{
    const struct tr_sched *sc = arg;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    uint64_t p = sc->seq[x].order, q = sc->seq[y].order;
    if (sc->seq[x].priority != sc->seq[y].priority)
        return sc->seq[x].priority < sc->seq[y].priority ? -1 : 1;
    if (p != q)
        return p < q ? -1 : 1;
    return x < y ? -1 : x > y;
}

static void put_in_order(struct tr_sched *sc)
{
    for (uint32_t i = 0; i < sc->n_active; i++)
        sc->seq[sc->active[i]].order = waits_since(sc, &sc->seq[sc->active[i]]);
    qsort_r(sc->active, sc->n_active, sizeof(*sc->active), by_order, sc);
    for (uint32_t i = 0; i < sc->n_active; i++)
        sc->seq[sc->active[i]].order = tr_seq_order(sc->seq[sc->active[i]].priority, i + 1);
    sc->next_order = sc->n_active;
}

/* ---- all of it ---- */

static void find_all(struct tr_sched *sc)
{
    uint32_t n = sc->s->config.n_slots;
    /* From the last to the first, so that the stack of free slots gives the first ones out first. */
    for (uint32_t slot = n; slot-- > 0;)
        find_slot(sc, slot);
    for (uint32_t slot = n; slot-- > 0;)
        find_group(sc, slot);
    tr_suspect_blame(sc);
    for (uint32_t a = 0; a < sc->s->config.n_areas; a++)
        tr_admit_torn(sc, a);
    tr_settle_count_last(sc);
}

void tr_recover(struct tr_sched *sc)
{
    struct tr_rings *rings = sc->s->rings;
    sc->now = tr_now_ns();
    TR_FAULT(ENGINE_RECOVER_BEGIN);
    find_all(sc);
    TR_FAULT(ENGINE_RECOVER_FOUND);
    for (uint32_t slot = 0; slot < sc->s->config.n_slots; slot++) {
        struct tr_seq *q = &sc->seq[slot];
        if (q->use != TR_SLOT_LIVE)
            continue;
        read_word(sc, q);
        if (q->lead == slot)
            go_on_group(sc, q);
        tr_sched_beat(sc); /* each may have thousands of tokens to lead through its grammar */
    }
    put_in_order(sc);
    /* A step that was cut short keeps its number, and the time of its tokens.  Release: as in step.c. */
    atomic_store_explicit(&rings->step,
                          1 + atomic_load_explicit(&rings->step, memory_order_relaxed),
                          memory_order_release);
    sc->look_at_ended = true;
    for (uint32_t a = 0; a < sc->s->config.n_areas; a++) {
        tr_news_post_all(sc->s, a);
        sc->bells |= 1ull << a;
    }
    TR_FAULT(ENGINE_RECOVER_DONE);
}
