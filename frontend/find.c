/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/find.c - see find.h. */
#include "frontend/find.h"

#include "frontend/hold.h"
#include "shm/claim.h"

#include <string.h>

enum tr_err tr_find_ring(const struct tr_fe *fe, struct tr_stream_id id,
                         const char key[TR_KEY_BYTES], struct tr_find *out)
{
    const struct tr_ring *r = tr_ring_at(fe->shm, id.slot);
    struct tr_claim claim = tr_claim_get(fe->shm, id.slot);

    if (tr_ring_read(fe->shm, id.slot, id.gen, &out->state) >= 0 && out->state != TR_FREE) {
        out->match = r->stream_rand == id.rand && strncmp(r->key, key, sizeof(r->key)) == 0;
        out->flags = r->params.flags;
        uint32_t due;
        out->let_go = tr_ring_is_ours(fe->shm, r) && tr_ring_owner(r).confirmed &&
                      !tr_adopt_is_due(fe->shm, id.slot, &due);
        bool cancelled = out->state == TR_CANCELLED && r->err == TR_ERR_CANCELLED;
        out->unwanted = atomic_load_explicit(&r->unwanted, memory_order_relaxed) ||
                        (cancelled && !(out->flags & TR_REQ_CANCEL_KEEPS));
        /* The slot may have been wiped while we looked. */
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&r->gen, memory_order_relaxed) == id.gen)
            return out->match && (out->flags & TR_REQ_RESUMABLE) ? TR_OK : TR_ERR_NOT_FOUND;
    }
    uint32_t gen = atomic_load_explicit(&r->gen, memory_order_relaxed);
    if (id.gen != 0 && (int32_t)(gen - id.gen) > 0)
        return TR_ERR_STREAM_OVER;
    /* Submitted, and the engine has not come to it yet: soon. */
    bool soon = gen == id.gen && claim.gen == gen && claim.state == TR_CLAIM_CLAIMED;
    return soon ? TR_ERR_ENGINE_DOWN : TR_ERR_NOT_FOUND;
}

struct tr_stream *tr_find_stream(struct tr_fe *fe, struct tr_stream_id id,
                                 const char key[TR_KEY_BYTES], enum tr_err *e)
{
    struct tr_stream *s = tr_hold_find(fe, id);
    struct tr_find l;

    if (s && (!tr_hold_is_resumable(s) || strncmp(s->ask->key, key, TR_KEY_BYTES) != 0)) {
        *e = TR_ERR_NOT_FOUND;
        return NULL;
    }
    *e = tr_find_ring(fe, id, key, &l);
    bool over = *e == TR_OK && (l.unwanted || l.let_go);
    if (over || (s && s->hold.unwanted))
        *e = TR_ERR_STREAM_OVER;
    return s && *e != TR_ERR_STREAM_OVER ? s : NULL;
}
