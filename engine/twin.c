/* SPDX-License-Identifier: Apache-2.0 */
/* engine/twin.c - requests with the same Idempotency-Key: of all that come, through whatever frontends,
 * one is admitted.
 *
 * The rings are the truth: what stands in them is compared, so a new engine knows the keys of a former
 * one.  One that failed, or was cancelled, leaves no trace, nor does one that its frontend has let go. */
#include "engine/sched_priv.h"

#include <string.h>

void tr_twin_note(struct tr_sched *sc, uint32_t slot, bool there)
{
    const struct tr_ring *r = tr_ring_at(sc->s, slot);
    sc->idem[slot] = there && (r->params.flags & TR_REQ_IDEMPOTENT) ? r->idem.key[0] : 0;
}

static bool is_twin(const struct tr_sched *sc, uint32_t slot, const struct tr_request *req)
{
    const struct tr_seq *q = &sc->seq[slot];
    const struct tr_ring *r = tr_ring_at(sc->s, slot);
    /* Relaxed: only we write it. */
    bool unwanted = atomic_load_explicit(&r->unwanted, memory_order_relaxed);
    return q->use == TR_SLOT_LIVE && q->state != TR_CANCELLED && q->state != TR_ERROR &&
           !q->released && !(unwanted && tr_state_terminal(q->state)) &&
           r->idem.key[1] == req->idem.key[1] && strncmp(r->key, req->key, sizeof(r->key)) == 0;
}

bool tr_twin_has(const struct tr_sched *sc, const struct tr_request *req)
{
    uint64_t half = req->idem.key[0];
    if (!(req->params.flags & TR_REQ_IDEMPOTENT) || !half)
        return false;
    for (uint32_t slot = 0; slot < sc->s->config.n_slots; slot++)
        if (sc->idem[slot] == half && is_twin(sc, slot, req))
            return true;
    return false;
}
