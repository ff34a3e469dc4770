/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/seq.h"

#include "base/assert.h"
#include "shm/region.h"
#include "shm/slot_stat.h"

#define TO(s) (1u << (s))
enum { ANY_END = TO(TR_COMPLETED) | TO(TR_INCOMPLETE) | TO(TR_CANCELLED) | TO(TR_ERROR) };

/* Row: from; bits: to.  A waiting request can be complete: a stop string found in tokens that were
 * published before it was preempted.  One that a former engine left waits at first, and is then parked
 * if its reader is behind (recover.c). */
static const uint32_t moves[] = {
    [TR_FREE] = TO(TR_WAITING),
    [TR_WAITING] = TO(TR_PREFILL) | TO(TR_PARKED) | ANY_END,
    [TR_PREFILL] = TO(TR_WAITING) | TO(TR_RUNNING) | TO(TR_PARKED) | ANY_END,
    [TR_RUNNING] = TO(TR_WAITING) | TO(TR_PARKED) | ANY_END,
    [TR_PARKED] = TO(TR_RUNNING) | TO(TR_PREFILL) | ANY_END,
    [TR_COMPLETED] = TO(TR_FREE),
    [TR_INCOMPLETE] = TO(TR_FREE),
    [TR_CANCELLED] = TO(TR_FREE),
    [TR_ERROR] = TO(TR_FREE),
};

bool tr_seq_may_move(enum tr_state from, enum tr_state to)
{
    return (uint32_t)from <= TR_ERROR && (uint32_t)to <= TR_ERROR && (moves[from] & TO(to));
}

static void check(const struct tr_seq *q)
{
    TR_ASSERT(q->in_kv <= tr_seq_total(q));
    TR_ASSERT(q->n_out <= q->max_tokens);
    if (q->state == TR_FREE || q->state == TR_WAITING || tr_state_terminal(q->state))
        TR_ASSERT(q->n_blocks == 0 && q->in_kv == 0);
    if (q->state == TR_RUNNING)
        TR_ASSERT(q->n_out > 0 && q->in_kv + 1 == tr_seq_total(q));
    TR_ASSERT(!q->aside || q->state == TR_PARKED);
    if (q->closing)
        TR_ASSERT(q->state != TR_RUNNING && q->state != TR_PREFILL && q->n_blocks == 0);
}

void tr_seq_move(struct tr_shm *s, struct tr_seq *q, enum tr_state to)
{
    TR_ASSERT_ROLE(TR_ROLE_ENGINE);
    TR_ASSERT(tr_seq_may_move(q->state, to));
    struct tr_ring *r = tr_ring_at(s, q->slot);
    q->state = to;
    check(q);
    tr_slot_stat_state(s, q->slot, to);
    if (to == TR_FREE) {
        tr_ring_reset(s, q->slot);
        q->gen = atomic_load_explicit(&r->gen, memory_order_relaxed);
        return;
    }
    if (tr_state_terminal(to)) {
        tr_ring_end(s, q->slot, to);
        return;
    }
    /* Release: whoever sees WAITING sees the fixed fields; pairs with the acquire in tr_ring_read. */
    atomic_store_explicit(&r->state, (uint32_t)to, memory_order_release);
}
