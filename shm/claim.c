/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/claim.h"

#include "shm/region.h"

#include <errno.h>

uint64_t tr_claim_pack(struct tr_claim c)
{
    return (uint64_t)c.state | (uint64_t)c.area << 8 | (uint64_t)c.epoch << 16 |
           (uint64_t)c.gen << 32;
}

struct tr_claim tr_claim_unpack(uint64_t w)
{
    return (struct tr_claim){.state = (uint8_t)w,
                             .area = (uint8_t)(w >> 8),
                             .epoch = (uint16_t)(w >> 16),
                             .gen = (uint32_t)(w >> 32)};
}

static struct tr_claim mine_in(const struct tr_shm *s, uint32_t gen)
{
    return (struct tr_claim){.state = TR_CLAIM_CLAIMED,
                             .area = (uint8_t)s->my_area,
                             .epoch = (uint16_t)s->my_epoch,
                             .gen = gen};
}

/* Whether the engine has the slot free in that generation, which only it can say. */
static bool is_free(const struct tr_shm *s, uint32_t slot, uint32_t gen)
{
    const struct tr_ring *r = tr_ring_at(s, slot);
    return atomic_load_explicit(&r->gen, memory_order_relaxed) == gen &&
           atomic_load_explicit(&r->state, memory_order_relaxed) == TR_FREE;
}

static int take_one(struct tr_shm *s, uint32_t slot, uint32_t *gen)
{
    uint64_t word = atomic_load_explicit(&s->claims->word[slot], memory_order_relaxed);
    struct tr_claim c = tr_claim_unpack(word);
    if (c.state != TR_CLAIM_OPEN || s->taken_gen[slot] == c.gen)
        return 0;
    /* Acquire: the slot's former life is over before we use it; pairs with the release in
     * tr_claim_set.  Release: pairs with the acquire in tr_claim_get. */
    if (!atomic_compare_exchange_strong_explicit(&s->claims->word[slot], &word,
                                                 tr_claim_pack(mine_in(s, c.gen)),
                                                 memory_order_acq_rel, memory_order_relaxed))
        return 0;
    if (!is_free(s, slot, c.gen))
        return 0; /* left as it is: the engine's sweep puts it right */
    s->taken_gen[slot] = *gen = c.gen;
    return 1;
}

int tr_claim_take(struct tr_shm *s, uint32_t n, uint32_t *slots, uint32_t *gens)
{
    TR_ASSERT_ROLE(TR_ROLE_FRONTEND);
    uint32_t n_slots = s->config.n_slots, got = 0;
    for (uint32_t i = 0; i < n_slots && got < n; i++) {
        uint32_t slot = (s->claim_hint + i) % n_slots;
        if (take_one(s, slot, &gens[got]))
            slots[got++] = slot;
    }
    if (got < n) {
        while (got--)
            tr_claim_give(s, slots[got], gens[got]);
        return -EAGAIN;
    }
    if (n)
        s->claim_hint = (slots[n - 1] + 1) % n_slots;
    return 0;
}

bool tr_claim_any(const struct tr_shm *s)
{
    for (uint32_t i = 0; i < s->config.n_slots; i++) {
        uint32_t slot = (s->claim_hint + i) % s->config.n_slots;
        /* Relaxed: only tr_claim_take decides. */
        uint64_t word = atomic_load_explicit(&s->claims->word[slot], memory_order_relaxed);
        struct tr_claim c = tr_claim_unpack(word);
        if (c.state == TR_CLAIM_OPEN && s->taken_gen[slot] != c.gen && is_free(s, slot, c.gen))
            return true;
    }
    return false;
}

void tr_claim_give(struct tr_shm *s, uint32_t slot, uint32_t gen)
{
    TR_ASSERT_ROLE(TR_ROLE_FRONTEND);
    uint64_t mine = tr_claim_pack(mine_in(s, gen));
    s->taken_gen[slot] = 0;
    /* Only if it is still ours: the engine's sweep may have decided otherwise.  Release: what we
     * wrote for this slot is over before the next owner takes it. */
    atomic_compare_exchange_strong_explicit(
        &s->claims->word[slot], &mine,
        tr_claim_pack((struct tr_claim){.state = TR_CLAIM_OPEN, .gen = gen}), memory_order_release,
        memory_order_relaxed);
}

bool tr_claim_is_lost(const struct tr_shm *s, uint32_t slot, uint32_t gen)
{
    struct tr_claim c = tr_claim_get(s, slot);
    bool taken = c.state == TR_CLAIM_TAKEN && c.gen == gen;
    if (taken || tr_claim_pack(c) == tr_claim_pack(mine_in(s, gen)))
        return false;
    /* Looked at after the word (acquire): a request that was admitted is safe whatever it says. */
    return is_free(s, slot, gen);
}

void tr_claim_set(struct tr_shm *s, uint32_t slot, struct tr_claim c)
{
    TR_ASSERT_ROLE(TR_ROLE_ENGINE);
    /* Release: the ring's reset is visible to whoever claims it; pairs with take_one. */
    atomic_store_explicit(&s->claims->word[slot], tr_claim_pack(c), memory_order_release);
}

struct tr_claim tr_claim_get(const struct tr_shm *s, uint32_t slot)
{
    return tr_claim_unpack(atomic_load_explicit(&s->claims->word[slot], memory_order_acquire));
}

int tr_claim_swap(struct tr_shm *s, uint32_t slot, struct tr_claim old, struct tr_claim wanted)
{
    TR_ASSERT_ROLE(TR_ROLE_ENGINE);
    uint64_t word = tr_claim_pack(old);
    /* Release: as tr_claim_set.  No acquire: tr_claim_get, which read `old`, had it. */
    return atomic_compare_exchange_strong_explicit(&s->claims->word[slot], &word,
                                                   tr_claim_pack(wanted), memory_order_release,
                                                   memory_order_relaxed);
}
