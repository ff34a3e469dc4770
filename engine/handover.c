/* SPDX-License-Identifier: Apache-2.0 */
/* engine/handover.c - streams that change hands: those of a frontend that has died, and those that
 * another one asks for.
 *
 * What a frontend said before it died, or before it lost a stream, counts: its command and its cursors
 * are looked at once more, then never again.  A resumable stream of a dead one, or an answer that is kept
 * for its Idempotency-Key, is given to the frontend
 * with the fewest streams, which confirms it; one that nobody can have waits for the control page to
 * change.  All others end.
 *
 * Cursors start again with the new owner: what the former one had scanned and not yet said is found by
 * the next one in its own scan. */
#include "engine/sched_priv.h"

#include "base/fault.h"

static bool is_kept(const struct tr_seq *q)
{
    return tr_state_is_kept(q->flags, q->state);
}

/* The former owner's words about it.  The area is still his: it gets a new owner only after its death
 * has been acknowledged. */
static void last_words(struct tr_sched *sc, struct tr_seq *q)
{
    if (!q->confirmed || q->area >= sc->s->config.n_areas || q->epoch != sc->epoch[q->area])
        return;
    tr_hear_obey(sc, q, tr_cmd_word(sc->s, q->area, q->slot));
    if (!tr_state_terminal(q->state))
        tr_hear_reader(sc, q);
}

static void give(struct tr_sched *sc, struct tr_seq *q, struct tr_owner to)
{
    tr_sched_tell(sc, q);
    q->area = to.area;
    q->epoch = to.epoch;
    q->confirmed = to.confirmed;
    q->scanned = q->sent = 0;
    TR_FAULT_FOR(ENGINE_GIVE_BEFORE, tr_sched_ring(sc, q)->params.seed);
    tr_ring_set_owner(tr_sched_ring(sc, q), to);
    TR_FAULT_FOR(ENGINE_GIVE_OWNER, tr_sched_ring(sc, q)->params.seed);
    tr_slot_stat_owner(sc->s, q->slot, to.area);
    tr_sched_tell(sc, q);
    sc->progress = true;
}

/* ---- of the dead ---- */

/* Who lives, is not about to go, and has the fewest streams; what it says about that is its own affair.
 * Nobody: TR_MAX_AREAS. */
static uint32_t heir(const struct tr_sched *sc, const uint32_t *given)
{
    uint64_t least = UINT64_MAX;
    uint32_t found = TR_MAX_AREAS;
    for (uint32_t a = 0; a < sc->s->config.n_areas; a++) {
        if (!sc->alive[a] || sc->retires[a])
            continue;
        uint64_t n = atomic_load_explicit(&sc->s->area[a]->streams, memory_order_relaxed) +
                     (uint64_t)given[a];
        if (n < least) {
            least = n;
            found = a;
        }
    }
    return found;
}

static void bequeath(struct tr_sched *sc, struct tr_seq *q, uint32_t *given)
{
    uint32_t to = heir(sc, given);
    if (to < TR_MAX_AREAS)
        given[to]++;
    else if (q->area == TR_MAX_AREAS)
        return; /* an orphan already */
    give(sc, q, (struct tr_owner){.area = to, .epoch = to < TR_MAX_AREAS ? sc->epoch[to] : 0});
}

void tr_handover_dead(struct tr_sched *sc)
{
    uint32_t given[TR_MAX_AREAS] = {0};
    for (uint32_t slot = 0; slot < sc->s->config.n_slots; slot++) {
        struct tr_seq *q = &sc->seq[slot];
        if (q->use != TR_SLOT_LIVE || tr_sched_owner_alive(sc, q->area, q->epoch))
            continue;
        last_words(sc, q);
        bool goes_on = is_kept(q) && !q->released;
        if (!goes_on && !tr_state_terminal(q->state))
            tr_settle_cancel(sc, q, TR_ERR_FRONTEND_LOST); /* reads when its client had gone */
        q->confirmed = false;
        if (goes_on)
            bequeath(sc, q, given);
    }
}

/* ---- by message ---- */

/* The request that a message from another frontend than its owner names: it must know the random bits. */
static struct tr_seq *named(struct tr_sched *sc, const struct tr_msg *m)
{
    struct tr_seq *q = m->slot < sc->s->config.n_slots ? &sc->seq[m->slot] : NULL;
    bool fits = q && q->use == TR_SLOT_LIVE && q->gen == m->gen &&
                tr_sched_ring(sc, q)->stream_rand == m->stream_rand;
    return fits ? q : NULL;
}

bool tr_handover_adopt(struct tr_sched *sc, uint32_t area, const struct tr_msg *m)
{
    struct tr_seq *q = named(sc, m);
    if (!q || !is_kept(q))
        return false;
    if (!sc->alive[area]) /* it died before it was heard: nobody waits for it there */
        return true;
    bool is_his = q->area == area && q->epoch == sc->epoch[area];
    if (m->kind == TR_MSG_CONFIRM && !is_his)
        return true; /* a reader has found it elsewhere meanwhile */
    if (is_his && q->confirmed)
        return true;
    last_words(sc, q);
    if (q->released)
        return true; /* the former owner had no more use for it, and the slot may be free any moment */
    give(sc, q, (struct tr_owner){.area = area, .epoch = sc->epoch[area], .confirmed = true});
    /* Cursors that it has moved since: their dirty bits may have been taken when it was not the owner. */
    if (q->aside)
        tr_hear_parked(sc, q);
    return true;
}

bool tr_handover_cancel(struct tr_sched *sc, const struct tr_msg *m)
{
    struct tr_seq *q = named(sc, m);
    if (!q)
        return false;
    if (!tr_state_terminal(q->state)) {
        tr_settle_cancel(sc, q, TR_ERR_CANCELLED);
    } else {
        /* Relaxed: published by the news. */
        atomic_store_explicit(&tr_sched_ring(sc, q)->unwanted, 1, memory_order_relaxed);
        tr_sched_tell(sc, q);
    }
    if (!tr_sched_owner_alive(sc, q->area, q->epoch))
        tr_settle_release(sc, q); /* an orphan: there is nobody to let it go */
    return true;
}

bool tr_handover_wanted(struct tr_sched *sc, const struct tr_msg *m)
{
    struct tr_seq *q = named(sc, m);
    if (!q || !is_kept(q))
        return false;
    /* Relaxed: a moment's difference is one poll more or less. */
    atomic_store_explicit(&tr_sched_ring(sc, q)->asked_ns, sc->now, memory_order_relaxed);
    return true;
}
