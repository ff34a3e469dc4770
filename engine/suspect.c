/* SPDX-License-Identifier: Apache-2.0 */
/* engine/suspect.c - a request that crashes the engine is found, and ends alone.
 *
 * Evidence is a death inside a forward pass, by a signal of the engine's own or by the supervisor's hand
 * because it stood still.  A kill from outside says nothing about anybody.  The pass is marked in shared
 * memory: rings->in_pass, and in every ring the number of the last pass it was in.
 *
 * All requests of that pass are suspects from then on; it stands in their rings, so it outlives every
 * engine.  Suspects share no pass with others (plan.h, rule 6).  Of those that can run the ones with the
 * most deaths are looked at, and one half of them, the older one, is on trial.  An engine that dies in a
 * pass of the trial has halved the search; one that does not has cleared each that got further than it
 * was when the engine died, and then the next half has its trial.  The others run meanwhile, one step
 * for each step of the trial and the first one after a start.
 *
 * Guilty is who was twice the only one in such a pass: error `engine_crashed`. */
#include "engine/sched_priv.h"

#include "shm/control.h"

enum { GUILTY = 2 };

/* ---- the mark of the pass ---- */

void tr_suspect_pass_begins(struct tr_sched *sc)
{
    struct tr_rings *rings = sc->s->rings;
    uint64_t pass = 1 + atomic_load_explicit(&rings->pass, memory_order_relaxed);
    atomic_store_explicit(&rings->pass, pass, memory_order_relaxed);
    for (uint32_t i = 0; i < sc->n_active; i++)
        if (sc->plan_do[i].rows)
            atomic_store_explicit(&tr_ring_at(sc->s, sc->active[i])->pass, pass,
                                  memory_order_relaxed);
    /* Release: who died behind this has named all that were with it; pairs with the acquire in
     * is_evidence, in the next engine. */
    atomic_store_explicit(&rings->in_pass, sc->my_epoch, memory_order_release);
}

void tr_suspect_pass_goes_on(struct tr_sched *sc)
{
    /* Relaxed: who is in it was named before. */
    atomic_store_explicit(&sc->s->rings->in_pass, sc->my_epoch, memory_order_relaxed);
}

void tr_suspect_pass_ends(struct tr_sched *sc)
{
    /* Relaxed: what a crash finds done is what was done before it in this process. */
    atomic_store_explicit(&sc->s->rings->in_pass, 0, memory_order_relaxed);
}

/* ---- after a death ---- */

/* Of our predecessor alone: one that died while it loaded leaves the mark of the one before it. */
static bool is_evidence(const struct tr_sched *sc)
{
    const struct tr_shm *s = sc->s;
    uint32_t death = atomic_load_explicit(&s->control->engine_death, memory_order_relaxed);
    uint32_t in_pass = atomic_load_explicit(&s->rings->in_pass, memory_order_acquire);
    return in_pass && in_pass + 1 == sc->my_epoch &&
           (death == TR_DEATH_CRASHED || death == TR_DEATH_STALLED);
}

static bool was_in(const struct tr_sched *sc, const struct tr_seq *q)
{
    uint64_t pass = atomic_load_explicit(&sc->s->rings->pass, memory_order_relaxed);
    return q->use == TR_SLOT_LIVE && !tr_state_terminal(q->state) &&
           atomic_load_explicit(&tr_sched_ring(sc, q)->pass, memory_order_relaxed) == pass;
}

static void blame(struct tr_sched *sc, struct tr_seq *q, bool alone)
{
    struct tr_ring *r = tr_sched_ring(sc, q);
    q->deaths++;
    q->deaths_alone += alone;
    q->death_at = q->n_out;
    sc->suspects = true;
    /* Relaxed: the next engine reads them, after this one. */
    atomic_store_explicit(&r->deaths, q->deaths, memory_order_relaxed);
    atomic_store_explicit(&r->deaths_alone, q->deaths_alone, memory_order_relaxed);
    atomic_store_explicit(&r->death_at, q->death_at, memory_order_relaxed);
}

void tr_suspect_remember(struct tr_sched *sc, struct tr_seq *q)
{
    const struct tr_ring *r = tr_sched_ring(sc, q);
    q->deaths = atomic_load_explicit(&r->deaths, memory_order_relaxed);
    q->deaths_alone = atomic_load_explicit(&r->deaths_alone, memory_order_relaxed);
    q->death_at = atomic_load_explicit(&r->death_at, memory_order_relaxed);
    sc->suspects |= q->deaths != 0;
}

void tr_suspect_blame(struct tr_sched *sc)
{
    uint32_t n = 0, n_slots = sc->s->config.n_slots;
    if (is_evidence(sc)) {
        for (uint32_t slot = 0; slot < n_slots; slot++)
            n += was_in(sc, &sc->seq[slot]);
        for (uint32_t slot = 0; slot < n_slots; slot++)
            if (was_in(sc, &sc->seq[slot]))
                blame(sc, &sc->seq[slot], n == 1);
    }
    tr_suspect_pass_ends(sc);
}

bool tr_suspect_is_guilty(const struct tr_seq *q)
{
    return q->deaths_alone >= GUILTY;
}

/* ---- the trial ---- */

/* Further than when the engine died. */
static void clear(struct tr_sched *sc, struct tr_seq *q)
{
    struct tr_ring *r = tr_sched_ring(sc, q);
    q->deaths = q->deaths_alone = 0;
    q->on_trial = false;
    atomic_store_explicit(&r->deaths, 0, memory_order_relaxed);
    atomic_store_explicit(&r->deaths_alone, 0, memory_order_relaxed);
}

/* Whether it can have rows: who waits for his reader keeps nobody waiting. */
static bool can_run(const struct tr_plan_seq *p)
{
    return !p->hold && (p->state == TR_WAITING || p->state == TR_PREFILL ||
                        p->state == TR_RUNNING || (p->state == TR_PARKED && p->ready));
}

static uint32_t most_deaths(const struct tr_sched *sc, uint32_t *n)
{
    uint32_t most = 0;
    *n = 0;
    for (uint32_t i = 0; i < sc->n_active; i++) {
        uint32_t deaths = sc->seq[sc->active[i]].deaths;
        if (!deaths || deaths < most || !can_run(&sc->plan_in[i]))
            continue;
        *n = deaths > most ? 1 : *n + 1;
        most = deaths;
    }
    return most;
}

static void begin_trial(struct tr_sched *sc)
{
    uint32_t n, most = most_deaths(sc, &n);
    uint32_t left = n - n / 2;
    for (uint32_t i = 0; i < sc->n_active; i++) {
        struct tr_seq *q = &sc->seq[sc->active[i]];
        q->on_trial = q->deaths && q->deaths == most && left && can_run(&sc->plan_in[i]);
        left -= q->on_trial;
    }
}

bool tr_suspect_trial(struct tr_sched *sc)
{
    bool any = false, goes_on = false;
    if (!sc->suspects)
        return false;
    for (uint32_t i = 0; i < sc->n_active; i++) {
        struct tr_seq *q = &sc->seq[sc->active[i]];
        if (q->deaths && q->n_out > q->death_at)
            clear(sc, q);
        any |= q->deaths != 0;
        goes_on |= q->on_trial && can_run(&sc->plan_in[i]);
    }
    if (!any)
        return false;
    if (!goes_on)
        begin_trial(sc);
    for (uint32_t i = 0; i < sc->n_active; i++) {
        const struct tr_seq *q = &sc->seq[sc->active[i]];
        sc->plan_in[i].part = !q->deaths    ? TR_PLAN_OTHERS
                              : q->on_trial ? TR_PLAN_TRIAL
                                            : TR_PLAN_SUSPECT;
    }
    return true;
}
