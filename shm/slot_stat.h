/* SPDX-License-Identifier: Apache-2.0 */
/* shm/slot_stat.h - what may be seen of each slot from outside: how far it is, never what is in it.
 *
 * Written by the engine where it moves something anyway: one store for a published token, one when
 * a cursor moved, a few at admission and at a change of state.  Nobody in the service reads it;
 * `tokenring top` does (shm/observe.h).
 *
 * All relaxed, and no order between fields: a reader may see the fields of one event apart, also the
 * figures of a former request beside the state of the next one.  It bounds what it reads and shows it
 * for a second. */
#ifndef TR_SHM_SLOT_STAT_H
#define TR_SHM_SLOT_STAT_H

#include "shm/region.h"

struct tr_slot_stat {
    /*                                 engine, relaxed: when      what */
    TR_LINE _Atomic uint32_t gen; /* admission                  the slot's generation */
    _Atomic uint32_t state;       /* every move                 enum tr_state */
    _Atomic uint32_t area; /* admission, new owner       of the frontend; TR_MAX_AREAS: nobody */
    _Atomic uint32_t prompt_len;  /* admission                  tokens */
    _Atomic uint32_t max_tokens;  /* admission                  the most it may publish */
    _Atomic uint32_t prefilled;   /* chunk                      prompt tokens processed */
    _Atomic uint32_t published;   /* token                      output tokens in the ring */
    _Atomic uint32_t preemptions; /* preemption                 times put back */
    _Atomic uint64_t cursors;     /* cursor seen to move        scanned, and sent << 32 */
    _Atomic uint64_t arrival_ns;  /* admission                  monotonic, as the request says */
};

struct tr_slot_stats {
    struct tr_region_head head;
    TR_LINE struct tr_slot_stat slot[]; /* [n_slots] */
};

_Static_assert(sizeof(struct tr_slot_stat) == TR_LINE_BYTES, "a slot is a line of its own");

/* Engine.  A request has come into the slot, or was found there (recovery): its fixed figures, and
 * nothing done.  The state is stored by tr_slot_stat_state. */
void tr_slot_stat_admit(struct tr_shm *s, uint32_t slot);

static inline struct tr_slot_stat *tr_slot_stat_at(const struct tr_shm *s, uint32_t slot)
{
    TR_ASSERT(slot < s->config.n_slots);
    return &s->slots->slot[slot];
}

/* Engine. */
static inline void tr_slot_stat_state(struct tr_shm *s, uint32_t slot, uint32_t state)
{
    atomic_store_explicit(&tr_slot_stat_at(s, slot)->state, state, memory_order_relaxed);
}

static inline void tr_slot_stat_owner(struct tr_shm *s, uint32_t slot, uint32_t area)
{
    atomic_store_explicit(&tr_slot_stat_at(s, slot)->area, area, memory_order_relaxed);
}

static inline void tr_slot_stat_prefilled(struct tr_shm *s, uint32_t slot, uint32_t n)
{
    atomic_store_explicit(&tr_slot_stat_at(s, slot)->prefilled, n, memory_order_relaxed);
}

static inline void tr_slot_stat_published(struct tr_shm *s, uint32_t slot, uint32_t n)
{
    atomic_store_explicit(&tr_slot_stat_at(s, slot)->published, n, memory_order_relaxed);
}

static inline void tr_slot_stat_preempted(struct tr_shm *s, uint32_t slot, uint32_t n)
{
    atomic_store_explicit(&tr_slot_stat_at(s, slot)->preemptions, n, memory_order_relaxed);
}

static inline void tr_slot_stat_cursors(struct tr_shm *s, uint32_t slot, uint64_t scanned,
                                        uint64_t sent)
{
    atomic_store_explicit(&tr_slot_stat_at(s, slot)->cursors, (uint32_t)scanned | sent << 32,
                          memory_order_relaxed);
}

#endif
