/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/slot_stat.h"

#include "shm/ring.h"

void tr_slot_stat_admit(struct tr_shm *s, uint32_t slot)
{
    TR_ASSERT_ROLE(TR_ROLE_ENGINE);
    struct tr_slot_stat *t = tr_slot_stat_at(s, slot);
    const struct tr_ring *r = tr_ring_at(s, slot);
    uint64_t published = atomic_load_explicit(&r->published, memory_order_relaxed);
    uint32_t gen = atomic_load_explicit(&r->gen, memory_order_relaxed);
    /* Relaxed, all of it: figures for people (slot_stat.h). */
    atomic_store_explicit(&t->gen, gen, memory_order_relaxed);
    atomic_store_explicit(&t->area, tr_ring_owner(r).area, memory_order_relaxed);
    atomic_store_explicit(&t->prompt_len, r->prompt_len, memory_order_relaxed);
    atomic_store_explicit(&t->max_tokens, r->params.max_tokens, memory_order_relaxed);
    atomic_store_explicit(&t->prefilled,
                          atomic_load_explicit(&r->prefill_done, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&t->published, (uint32_t)published, memory_order_relaxed);
    atomic_store_explicit(&t->preemptions,
                          atomic_load_explicit(&r->preemptions, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&t->cursors, 0, memory_order_relaxed);
    atomic_store_explicit(&t->arrival_ns, r->arrival_ns, memory_order_relaxed);
}
