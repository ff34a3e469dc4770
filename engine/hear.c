/* SPDX-License-Identifier: Apache-2.0 */
/* engine/hear.c - what frontends say about admitted requests: command words and cursors.
 *
 * Heard is the owner in the ring, once it has confirmed (handover.c).  A word about another generation is
 * none; a command is obeyed at once; cursors are believed only forwards. */
#include "engine/sched_priv.h"

#include "base/fault.h"

enum { ROUND_TURNS = 256 /* in which all that stand aside are looked at once more */ };

/* ---- of one request: its command ---- */

void tr_hear_obey(struct tr_sched *sc, struct tr_seq *q, uint64_t word)
{
    uint32_t flags = tr_cmd_flags(word), arg = tr_cmd_arg(word);
    if (tr_cmd_gen(word) != q->gen)
        return;
    if (flags & TR_CMD_UNWANTED) /* relaxed: published by the news, or with another owner */
        atomic_store_explicit(&tr_sched_ring(sc, q)->unwanted, 1, memory_order_relaxed);
    if (flags & TR_CMD_RELEASE)
        tr_settle_release(sc, q);
    if (tr_state_terminal(q->state))
        return;
    if (flags & TR_CMD_CANCEL)
        tr_settle_cancel(sc, q, (enum tr_err)arg);
    else if (flags & TR_CMD_FINISH)
        tr_settle_end(sc, q,
                      (struct tr_end){.state = TR_COMPLETED,
                                      .finish = TR_FINISH_STOP_STRING,
                                      .finish_index = arg});
}

/* ---- of one request: its cursors ---- */

/* Cursors are input: they count only forwards and only to what has been published. */
static uint64_t believe(uint64_t before, uint64_t said, uint64_t n_out)
{
    uint64_t v = said < n_out ? said : n_out;
    return v > before ? v : before;
}

static void believe_cursors(struct tr_sched *sc, struct tr_seq *q)
{
    const struct tr_cursor *c = tr_cursor_at(sc->s, q->area, q->slot);
    uint64_t scanned = q->scanned, sent = q->sent;
    /* Acquire: pairs with the releases in tr_cursor_set. */
    q->scanned =
        believe(q->scanned, atomic_load_explicit(&c->scanned, memory_order_acquire), q->n_out);
    q->sent = believe(q->sent, atomic_load_explicit(&c->sent, memory_order_acquire), q->n_out);
    if (q->scanned != scanned || q->sent != sent)
        tr_slot_stat_cursors(sc->s, q->slot, q->scanned, q->sent);
}

void tr_hear_reader(struct tr_sched *sc, struct tr_seq *q)
{
    if (q->confirmed)
        believe_cursors(sc, q);
    bool scanned = q->confirmed && q->scanned == q->n_out;
    /* A stop string found in the last tokens: its FINISH was stored before the cursor that we have
     * just read (acquire), maybe after this turn's sweep. */
    if (q->closing && scanned)
        tr_hear_obey(sc, q, tr_cmd_word(sc->s, q->area, q->slot));
    if (tr_state_terminal(q->state))
        return;
    if (q->closing && (scanned || sc->cut))
        tr_settle_end(sc, q,
                      (struct tr_end){.state = q->close_state,
                                      .finish = q->close_finish,
                                      .finish_index = q->n_out});
    else if (sc->cut)
        tr_settle_cancel(sc, q, TR_ERR_DRAIN_LIMIT);
}

/* ---- of all ---- */

/* Its cursors have moved, or there was a command, or it has a new owner. */
void tr_hear_parked(struct tr_sched *sc, struct tr_seq *q)
{
    tr_hear_reader(sc, q);
    if (q->aside && !q->closing && tr_step_caught_up(sc, q))
        tr_aside_back(sc, q);
}

/* Obeyed is the owner in the ring, whatever the claims say. */
static void on_command(void *arg, uint32_t area, uint32_t slot, uint64_t word)
{
    struct tr_sched *sc = arg;
    struct tr_seq *q = &sc->seq[slot];
    if (q->use != TR_SLOT_LIVE || q->area != area || q->epoch != sc->epoch[area] || !q->confirmed)
        return;
    TR_FAULT_FOR(ENGINE_COMMAND_TAKEN, tr_sched_ring(sc, q)->params.seed);
    tr_hear_obey(sc, q, word);
    /* Thousands of slow readers move their cursors: one that is still behind is no reason for another
     * turn. */
    if (q->aside)
        tr_hear_parked(sc, q);
    else
        sc->progress = true;
}

void tr_hear_commands(struct tr_sched *sc)
{
    for (uint32_t a = 0; a < sc->s->config.n_areas; a++)
        if (sc->alive[a])
            tr_cmd_sweep(sc->s, a, on_command, sc);
}

void tr_hear_cursors(struct tr_sched *sc)
{
    for (uint32_t i = 0; i < sc->n_active; i++) {
        struct tr_seq *q = &sc->seq[sc->active[i]];
        if (!tr_state_terminal(q->state))
            tr_hear_reader(sc, q);
        if (q->state == TR_PARKED && (q->closing || !tr_step_caught_up(sc, q)))
            tr_aside_put(sc, q);
    }
}

/* A few of those that stand aside, each in its turn.  A frontend that forgot a bit, or lost it, would wait
 * for ever otherwise, and its client with it: this is no promise, and costs next to nothing. */
void tr_hear_again(struct tr_sched *sc)
{
    uint32_t n = sc->s->config.n_slots;
    for (uint32_t i = 0; i < n / ROUND_TURNS + 1; i++) {
        sc->look_at = sc->look_at + 1 < n ? sc->look_at + 1 : 0;
        if (sc->seq[sc->look_at].aside)
            tr_hear_parked(sc, &sc->seq[sc->look_at]);
    }
}

/* The service is cut off: who stands aside ends as well. */
void tr_hear_cut(struct tr_sched *sc)
{
    for (uint32_t slot = 0; slot < sc->s->config.n_slots && sc->n_aside; slot++)
        if (sc->seq[slot].aside)
            tr_hear_reader(sc, &sc->seq[slot]);
}
