/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/enter.c - see enter.h. */
#include "frontend/enter.h"

#include "base/clock.h"
#include "frontend/gate.h"
#include "frontend/idempotency.h"
#include "frontend/stream_priv.h"

static void nothing(void *owner)
{
    (void)owner;
}

static void gone(void *owner, enum tr_gone why)
{
    struct tr_stream *s = owner;

    s->x = NULL;
    s->hold.gone_ns = tr_now_ns();
    tr_stream_drop(s, why == TR_GONE_SHUT ? TR_ERR_DRAIN_LIMIT : TR_ERR_CLIENT_GONE, 0);
}

/* What a FIN means is looked at when there is a stream. */
static const struct tr_owner_ops owner_ops = {
    .writable = nothing, .half_closed = nothing, .gone = gone};

void tr_enter_wait(struct tr_stream *s, struct tr_exchange *x)
{
    s->entering = true;
    s->x = x;
    s->receipt.no_reader = true;
    tr_exchange_bind(x, &owner_ops, s);
}

/* The exchange, which is not ours any more. */
static struct tr_exchange *let_go(struct tr_stream *s)
{
    struct tr_exchange *x = s->x;

    s->x = NULL;
    tr_exchange_unbind(x);
    return x;
}

void tr_enter_refuse(struct tr_stream *s, enum tr_err why)
{
    struct tr_exchange *x = let_go(s);

    tr_stream_drop(s, why, 0);
    tr_exchange_error(x, why, NULL, NULL);
}

/* The generation is over and was never its own: no command is due.  What was the first one then may have
 * failed or been let go since. */
static void turned_away(struct tr_stream *s)
{
    struct tr_exchange *x = let_go(s);

    tr_gate_take_back(s->fe, s->ask->who, s->ask->stage.submitted_ns, s->prompt_charged);
    if (!tr_idempotency_answer(s->fe, x, s->ask, s->dialect, s->frame)) {
        tr_stat_add(s->fe->stat, TR_STAT_REFUSED_UNAVAILABLE, 1);
        tr_exchange_error(x, TR_ERR_OVERLOADED,
                          "The request that came first with this Idempotency-Key has just gone: "
                          "try again.",
                          NULL);
    }
    tr_stream_free(s);
}

/* What follows may end it: it is looked at once more, in the next turn, if it is there. */
static void admitted(struct tr_stream *s)
{
    struct tr_exchange *x = let_go(s);

    s->entering = false;
    s->rang = true; /* its clock was not looked at */
    tr_stream_due(s);
    s->receipt.no_reader = false;
    s->x = s->ask->detached ? NULL : x;
    tr_stream_admitted(s, x);
}

void tr_enter_look(struct tr_stream *s)
{
    const struct tr_shm *shm = s->fe->shm;
    uint32_t slot = s->name.slot, gen = s->name.gen, state = TR_FREE;

    if (s->rang) {
        s->rang = false;
        tr_stream_clock(s, tr_now_ns());
    }
    if (tr_ring_read(shm, slot, gen, &state) < 0) {
        /* Acquire: what the ring says of that generation is seen with the next one. */
        uint32_t now = atomic_load_explicit(&tr_ring_at(shm, slot)->gen, memory_order_acquire);
        if ((int32_t)(now - gen) <= 0)
            return;
        /* Forgotten: of many with one key that come at once slots go from hand to hand before all have
         * looked.  One that was admitted keeps its slot until we let it go, so this one was not. */
        if (tr_ring_turned_away(shm, slot, gen) || tr_ring_forgotten(shm, slot, gen))
            turned_away(s);
        else
            tr_enter_refuse(s, TR_ERR_ENGINE_LOST);
        return;
    }
    if (state == TR_FREE) {
        if (tr_claim_is_lost(shm, slot, gen))
            tr_enter_refuse(s, TR_ERR_ENGINE_LOST);
        return;
    }
    admitted(s);
}
