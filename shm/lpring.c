/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/lpring.h"

#include "shm/region.h"

#include <errno.h>

static struct tr_lp *entries(const struct tr_shm *s, uint32_t slot)
{
    char *ring = (char *)tr_ring_at(s, slot);
    return (struct tr_lp *)(ring + tr_layout_ring_lp(&s->config));
}

/* Acquire: the reader is done with the entries before `head`; pairs with tr_lpring_pop. */
static uint64_t head_of(const struct tr_shm *s, uint32_t area, uint32_t slot)
{
    const struct tr_cursor *c = tr_cursor_at(s, area, slot);
    return c ? atomic_load_explicit(&c->lp_head, memory_order_acquire) : 0;
}

uint32_t tr_lpring_room(const struct tr_shm *s, uint32_t slot)
{
    const struct tr_ring *r = tr_ring_at(s, slot);
    struct tr_owner o = tr_ring_owner(r);
    if (!o.confirmed)
        return 0;
    uint64_t used =
        atomic_load_explicit(&r->lp_tail, memory_order_relaxed) - head_of(s, o.area, slot);
    /* A nonsense head gives a huge difference, which looks like a full ring. */
    return used >= s->config.window ? 0 : s->config.window - (uint32_t)used;
}

int tr_lpring_push(struct tr_shm *s, uint32_t slot, const struct tr_lp *e)
{
    TR_ASSERT_ROLE(TR_ROLE_ENGINE);
    if (!tr_lpring_room(s, slot))
        return -EAGAIN;
    struct tr_ring *r = tr_ring_at(s, slot);
    uint64_t tail = atomic_load_explicit(&r->lp_tail, memory_order_relaxed);
    entries(s, slot)[tail % s->config.window] = *e;
    /* Release: the entry is whole before it is counted; pairs with tr_lpring_peek. */
    atomic_store_explicit(&r->lp_tail, tail + 1, memory_order_release);
    return 0;
}

uint32_t tr_lpring_last(const struct tr_shm *s, uint32_t slot)
{
    uint64_t tail = atomic_load_explicit(&tr_ring_at(s, slot)->lp_tail, memory_order_relaxed);
    return entries(s, slot)[(tail - 1) % s->config.window].id;
}

/* Another owner's count may have let the engine overwrite what was just copied.  The copy comes before
 * the look; pairs with fence_entries in ring.c. */
static bool is_still_ours(const struct tr_shm *s, const struct tr_ring *r)
{
    atomic_thread_fence(memory_order_acquire);
    return tr_ring_is_ours(s, r);
}

int tr_lpring_peek(const struct tr_shm *s, uint32_t slot, struct tr_lp *out)
{
    const struct tr_ring *r = tr_ring_at(s, slot);
    const struct tr_cursor *c = tr_cursor_at(s, s->my_area, slot);
    /* Relaxed: only we write it. */
    uint64_t head = atomic_load_explicit(&c->lp_head, memory_order_relaxed);
    /* Acquire: pairs with the release in tr_lpring_push. */
    uint64_t tail = atomic_load_explicit(&r->lp_tail, memory_order_acquire);
    if (head >= tail)
        return -EAGAIN;
    *out = entries(s, slot)[head % s->config.window];
    if (out->n_top > TR_MAX_TOP)
        out->n_top = TR_MAX_TOP;
    return is_still_ours(s, r) ? 0 : -EAGAIN;
}

void tr_lpring_skip(struct tr_shm *s, uint32_t slot)
{
    TR_ASSERT_ROLE(TR_ROLE_FRONTEND);
    /* Relaxed, both: the engine reads the head after the message that makes us the owner (release). */
    atomic_store_explicit(&tr_cursor_at(s, s->my_area, slot)->lp_head,
                          atomic_load_explicit(&tr_ring_at(s, slot)->lp_tail, memory_order_relaxed),
                          memory_order_relaxed);
}

void tr_lpring_pop(struct tr_shm *s, uint32_t slot)
{
    TR_ASSERT_ROLE(TR_ROLE_FRONTEND);
    struct tr_cursor *c = tr_cursor_at(s, s->my_area, slot);
    uint64_t head = atomic_load_explicit(&c->lp_head, memory_order_relaxed);
    /* Release: we have copied the entry before it may be overwritten; pairs with head_of. */
    atomic_store_explicit(&c->lp_head, head + 1, memory_order_release);
    /* A sequence that parked on a full ring waits for this. */
    tr_cursor_moved(s, slot);
}
