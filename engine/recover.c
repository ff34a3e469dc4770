/* SPDX-License-Identifier: Apache-2.0 */
/* engine/recover.c - the first thing an engine does: what a former one left is put in order.
 *
 * The rings are the truth.  Every request in one that has not ended ends with engine_lost; requests
 * still in a submission queue are admitted into their rings and end the same way, so that each has
 * its state, its record and its slot back.  A first start is the case where nothing was left.
 *
 * What a crash can have torn, and how it is seen:
 *   admission    fields, state, claim, queue are written in this order: a ring that is FREE belongs
 *                to a message that still waits; one that is not is the truth, message or no message
 *   record       its number is written before it is counted: a number above the queue's tail is void
 *   release      generation, wiping, claim: a free ring whose claim is not open or claimed in this
 *                generation is reset once more; so is one whose fields are of another generation
 * Numbers in a ring are bounded before use: a crashed engine may have left anything. */
#include "engine/sched_priv.h"

#include "base/clock.h"

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
    *q = (struct tr_seq){.slot = slot, .lead = slot, .group_next = TR_NO_SLOT};
    q->gen = atomic_load_explicit(&r->gen, memory_order_relaxed);
    bool torn = r->of_gen != q->gen;
    if (state == TR_FREE)
        find_free(sc, slot, c);
    else if (torn)
        reset(sc, slot);
    else
        find_request(sc, slot, state);
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

/* ---- endings ---- */

static void end_lost(struct tr_sched *sc, struct tr_seq *q)
{
    tr_settle_end(
        sc, q,
        (struct tr_end){.state = TR_ERROR, .err = TR_ERR_ENGINE_LOST, .finish_index = q->n_out});
}

/* Counts who still has to end, so that the last one brings the group's record about. */
static void settle_group(struct tr_sched *sc, struct tr_seq *lead)
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
            end_lost(sc, q);
    }
}

static void read_release(struct tr_sched *sc, struct tr_seq *q)
{
    if (q->area >= sc->s->config.n_areas || !q->confirmed)
        return;
    uint64_t word = tr_cmd_word(sc->s, q->area, q->slot);
    q->released = tr_cmd_gen(word) == q->gen && (tr_cmd_flags(word) & TR_CMD_RELEASE);
}

void tr_recover(struct tr_sched *sc)
{
    uint32_t n = sc->s->config.n_slots;
    sc->now = tr_now_ns();
    /* From the last to the first, so that the stack of free slots gives the first ones out first. */
    for (uint32_t slot = n; slot-- > 0;)
        find_slot(sc, slot);
    for (uint32_t slot = n; slot-- > 0;)
        find_group(sc, slot);
    for (uint32_t a = 0; a < sc->s->config.n_areas; a++)
        tr_admit_lost(sc, a);
    for (uint32_t slot = 0; slot < n; slot++) {
        struct tr_seq *q = &sc->seq[slot];
        if (q->use != TR_SLOT_LIVE)
            continue;
        read_release(sc, q);
        if (q->lead == slot)
            settle_group(sc, q);
    }
    sc->look_at_ended = true;
    tr_settle_bills(sc);
    for (uint32_t a = 0; a < sc->s->config.n_areas; a++) {
        tr_news_post_all(sc->s, a);
        sc->bells |= 1ull << a;
    }
    tr_sched_ring_bells(sc);
}
