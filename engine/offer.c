/* SPDX-License-Identifier: Apache-2.0 */
/* engine/offer.c - which free slots are open to be claimed (shm/claim.h).
 *
 * The scheduler knows what every slot is (enum tr_slot_use); the claim words are only an offer to
 * the frontends.  A word that says something else is put right in the next sweep: until then it
 * costs a free slot and nothing more. */
#include "engine/sched_priv.h"

#include "base/fault.h"

/* A claim that was never submitted: a frontend that means it takes milliseconds. */
#define CLAIM_MAX_NS 60000000000ULL
#define SWEEP_NS 100000000ULL

static bool is_claim_of(const struct tr_seq *q, struct tr_claim c)
{
    return c.state == TR_CLAIM_CLAIMED && c.gen == q->gen;
}

bool tr_offer_claimed_by(const struct tr_sched *sc, uint32_t slot, uint32_t gen, uint32_t area,
                         uint32_t epoch)
{
    if (slot >= sc->s->config.n_slots)
        return false;
    const struct tr_seq *q = &sc->seq[slot];
    struct tr_claim c = tr_claim_get(sc->s, slot);
    return q->use == TR_SLOT_OFFERED && q->gen == gen && is_claim_of(q, c) && c.area == area &&
           c.epoch == (uint16_t)epoch;
}

void tr_offer_take(struct tr_sched *sc, uint32_t slot)
{
    struct tr_seq *q = &sc->seq[slot];
    TR_ASSERT(q->use == TR_SLOT_OFFERED);
    tr_claim_set(sc->s, slot, (struct tr_claim){.state = TR_CLAIM_TAKEN, .gen = q->gen});
    q->use = TR_SLOT_LIVE;
    q->claimed_ns = 0;
    sc->n_offered--;
}

void tr_offer_turn_away(struct tr_sched *sc, uint32_t slot, enum tr_err why)
{
    struct tr_seq *q = &sc->seq[slot];
    struct tr_ring *r = tr_sched_ring(sc, q);
    /* TAKEN until the generation is over: the word says that the claim is not lost (tr_claim_is_lost). */
    tr_claim_set(sc->s, slot, (struct tr_claim){.state = TR_CLAIM_TAKEN, .gen = q->gen});
    r->err = why;
    tr_ring_reset(sc->s, slot);
    q->gen = atomic_load_explicit(&r->gen, memory_order_relaxed);
    sc->n_offered--;
    tr_offer_close(sc, slot);
}

void tr_offer_close(struct tr_sched *sc, uint32_t slot)
{
    struct tr_seq *q = &sc->seq[slot];
    tr_claim_set(sc->s, slot, (struct tr_claim){.state = TR_CLAIM_CLOSED, .gen = q->gen});
    q->use = TR_SLOT_CLOSED;
    q->claimed_ns = 0;
    sc->closed[sc->n_closed++] = slot;
}

static void open_slot(struct tr_sched *sc, uint32_t slot)
{
    struct tr_seq *q = &sc->seq[slot];
    q->use = TR_SLOT_OFFERED;
    q->claimed_ns = 0;
    sc->n_offered++;
    tr_claim_set(sc->s, slot, (struct tr_claim){.state = TR_CLAIM_OPEN, .gen = q->gen});
    TR_FAULT(ENGINE_OFFER_OPEN);
}

/* Takes back up to n open slots; one that is claimed in that moment stays with its frontend.  Many
 * turns want some when none is left: readers of parked requests have come back. */
static void take_back(struct tr_sched *sc, uint32_t n)
{
    for (uint32_t slot = 0; n && sc->n_offered && slot < sc->s->config.n_slots; slot++) {
        struct tr_seq *q = &sc->seq[slot];
        struct tr_claim open = {.state = TR_CLAIM_OPEN, .gen = q->gen};
        struct tr_claim shut = {.state = TR_CLAIM_CLOSED, .gen = q->gen};
        if (q->use != TR_SLOT_OFFERED || !tr_claim_swap(sc->s, slot, open, shut))
            continue;
        q->use = TR_SLOT_CLOSED;
        sc->closed[sc->n_closed++] = slot;
        sc->n_offered--;
        n--;
    }
}

/* Those that count against --max-seqs + --max-queue. */
static uint32_t counted(const struct tr_sched *sc)
{
    uint32_t n = sc->n_offered;
    for (uint32_t i = 0; i < sc->n_active; i++) {
        enum tr_state st = sc->seq[sc->active[i]].state;
        n += st == TR_WAITING || st == TR_PREFILL || st == TR_RUNNING;
    }
    return n;
}

void tr_offer_keep(struct tr_sched *sc)
{
    if (sc->now >= sc->next_sweep_ns)
        tr_offer_sweep(sc);
    uint32_t have = counted(sc), want = sc->cut ? 0 : sc->s->config.n_admit;
    for (; have < want && sc->n_closed; have++)
        open_slot(sc, sc->closed[--sc->n_closed]);
    if (have > want)
        take_back(sc, have - want);
}

/* Under a new generation, so that whoever held the old claim cannot submit it any more. */
static void offer_again(struct tr_sched *sc, struct tr_seq *q, struct tr_claim found)
{
    struct tr_claim shut = {.state = TR_CLAIM_CLOSED, .gen = q->gen};
    if (!tr_claim_swap(sc->s, q->slot, found, shut))
        return; /* it moved: the next sweep looks again */
    tr_ring_reset(sc->s, q->slot);
    q->gen = atomic_load_explicit(&tr_sched_ring(sc, q)->gen, memory_order_relaxed);
    sc->n_offered--;
    open_slot(sc, q->slot);
    if (found.state == TR_CLAIM_CLAIMED)
        tr_sched_tell_area(sc, found.area, q->slot);
}

static void sweep_offered(struct tr_sched *sc, struct tr_seq *q, struct tr_claim c)
{
    if (c.state == TR_CLAIM_OPEN && c.gen == q->gen) {
        q->claimed_ns = 0;
        return;
    }
    bool good = is_claim_of(q, c) && c.area < sc->s->config.n_areas && sc->alive[c.area] &&
                (uint16_t)sc->epoch[c.area] == c.epoch;
    if (good && !q->claimed_ns)
        q->claimed_ns = sc->now;
    if (!good || sc->now - q->claimed_ns > CLAIM_MAX_NS)
        offer_again(sc, q, c);
}

void tr_offer_sweep(struct tr_sched *sc)
{
    sc->next_sweep_ns = sc->now + SWEEP_NS;
    for (uint32_t slot = 0; slot < sc->s->config.n_slots; slot++) {
        struct tr_seq *q = &sc->seq[slot];
        struct tr_claim c = tr_claim_get(sc->s, slot);
        struct tr_claim right = {.state = q->use == TR_SLOT_LIVE ? TR_CLAIM_TAKEN : TR_CLAIM_CLOSED,
                                 .gen = q->gen};
        if (q->use == TR_SLOT_OFFERED)
            sweep_offered(sc, q, c);
        else if (tr_claim_pack(c) != tr_claim_pack(right))
            tr_claim_set(sc->s, slot, right);
    }
}
