/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/ring.h"

#include "base/fault.h"
#include "shm/lpring.h"
#include "shm/region.h"

#include <errno.h>
#include <string.h>

static char *place(const struct tr_shm *s, uint32_t slot)
{
    TR_ASSERT(slot < s->config.n_slots);
    return (char *)s->rings + tr_layout_ring_at(&s->config, slot);
}

struct tr_ring *tr_ring_at(const struct tr_shm *s, uint32_t slot)
{
    return slot < s->config.n_slots ? (struct tr_ring *)place(s, slot) : NULL;
}

uint32_t *tr_ring_ids_rw(struct tr_shm *s, uint32_t slot)
{
    return (uint32_t *)(place(s, slot) + tr_layout_ring_ids(&s->config));
}

uint32_t *tr_ring_steps_rw(struct tr_shm *s, uint32_t slot)
{
    return (uint32_t *)(place(s, slot) + tr_layout_ring_steps(&s->config));
}

uint8_t *tr_ring_extra_rw(struct tr_shm *s, uint32_t slot)
{
    return (uint8_t *)(place(s, slot) + tr_layout_ring_extra(&s->config));
}

const uint32_t *tr_ring_ids(const struct tr_shm *s, uint32_t slot)
{
    return (const uint32_t *)(place(s, slot) + tr_layout_ring_ids(&s->config));
}

const uint32_t *tr_ring_steps(const struct tr_shm *s, uint32_t slot)
{
    return (const uint32_t *)(place(s, slot) + tr_layout_ring_steps(&s->config));
}

/* Word: area in bits 0..7, confirmed in bit 8, epoch in 32..63. */
#define CONFIRMED 0x100u
_Static_assert(TR_MAX_AREAS <= 0xff, "an area, or nobody, fits into the word of the owner");

struct tr_owner tr_ring_owner(const struct tr_ring *r)
{
    /* Acquire: pairs with the release in tr_ring_set_owner. */
    uint64_t w = atomic_load_explicit(&r->owner, memory_order_acquire);
    return (struct tr_owner){
        .area = w & 0xff, .epoch = (uint32_t)(w >> 32), .confirmed = w & CONFIRMED};
}

/* Entries of the logprob ring are overwritten by the new owner's counts only behind it; pairs with
 * is_still_ours in lpring.c. */
static void fence_entries(void)
{
    atomic_thread_fence(memory_order_release);
}

void tr_ring_set_owner(struct tr_ring *r, struct tr_owner o)
{
    TR_ASSERT_ROLE(TR_ROLE_ENGINE);
    uint64_t w = (o.area & 0xff) | (o.confirmed ? CONFIRMED : 0) | (uint64_t)o.epoch << 32;
    /* Release: who sees himself the owner sees all that is in the ring by now; pairs with the acquire in
     * tr_ring_owner. */
    atomic_store_explicit(&r->owner, w, memory_order_release);
    fence_entries();
}

bool tr_ring_is_ours(const struct tr_shm *s, const struct tr_ring *r)
{
    struct tr_owner o = tr_ring_owner(r);
    return o.area == s->my_area && o.epoch == s->my_epoch;
}

int tr_ring_push(struct tr_shm *s, uint32_t slot, uint32_t id, uint32_t step)
{
    TR_ASSERT_ROLE(TR_ROLE_ENGINE);
    struct tr_ring *r = tr_ring_at(s, slot);
    /* Relaxed: only we write it. */
    uint64_t n = atomic_load_explicit(&r->published, memory_order_relaxed);
    if (r->prompt_len + n >= s->config.n_ctx)
        return -ENOSPC;
    tr_ring_ids_rw(s, slot)[r->prompt_len + n] = id;
    tr_ring_steps_rw(s, slot)[n] = step;
    /* Release: the id is whole before it is counted.  Pairs with the acquire in tr_ring_read. */
    atomic_store_explicit(&r->published, n + 1, memory_order_release);
    return 0;
}

void tr_ring_end(struct tr_shm *s, uint32_t slot, enum tr_state terminal)
{
    TR_ASSERT_ROLE(TR_ROLE_ENGINE);
    TR_ASSERT(tr_state_terminal(terminal));
    /* Release: the end fields and the last ids come first.  Pairs with the acquire in tr_ring_read. */
    atomic_store_explicit(&tr_ring_at(s, slot)->state, (uint32_t)terminal, memory_order_release);
}

/* Zero from `state` to the end of the fixed part: everything but the generation. */
static void clear_fields(struct tr_ring *r)
{
    atomic_store_explicit(&r->state, TR_FREE, memory_order_relaxed);
    atomic_store_explicit(&r->queue_pos, TR_QUEUE_UNTOLD, memory_order_relaxed);
    atomic_store_explicit(&r->prefill_done, 0, memory_order_relaxed);
    atomic_store_explicit(&r->wants_cursor, 0, memory_order_relaxed);
    atomic_store_explicit(&r->published, 0, memory_order_relaxed);
    atomic_store_explicit(&r->lp_tail, 0, memory_order_relaxed);
    r->finish = r->err = 0;
    r->finish_index = r->overrun = r->finished_ns = r->cancel_ack_ns = r->disconnect_ns = 0;
    atomic_store_explicit(&r->bill_seq, 0, memory_order_relaxed);
    atomic_store_explicit(&r->admitted_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&r->started_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&r->first_token_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&r->cached_tokens, 0, memory_order_relaxed);
    atomic_store_explicit(&r->preemptions, 0, memory_order_relaxed);
    atomic_store_explicit(&r->deaths, 0, memory_order_relaxed);
    atomic_store_explicit(&r->deaths_alone, 0, memory_order_relaxed);
    atomic_store_explicit(&r->death_at, 0, memory_order_relaxed);
    atomic_store_explicit(&r->pass, 0, memory_order_relaxed);
    atomic_store_explicit(&r->owner, 0, memory_order_relaxed);
    atomic_store_explicit(&r->unwanted, 0, memory_order_relaxed);
    atomic_store_explicit(&r->asked_ns, 0, memory_order_relaxed);
    memset(&r->of_gen, 0, sizeof(*r) - offsetof(struct tr_ring, of_gen));
}

/* One word, so that it needs no order of its own: generation 32 bits, count 21, state 4, reason 7. */
static uint64_t pack_past(const struct tr_ring *r, uint32_t gen)
{
    uint64_t state = atomic_load_explicit(&r->state, memory_order_relaxed);
    return (uint64_t)gen | (r->finish_index & 0x1fffff) << 32 | (state & 15) << 53 |
           (uint64_t)(r->err & 127) << 57;
}

int tr_ring_past_of(const struct tr_shm *s, uint32_t slot, uint32_t gen, struct tr_ring_past *out)
{
    const struct tr_ring *r = tr_ring_at(s, slot);
    uint64_t w = r ? atomic_load_explicit(&r->past, memory_order_relaxed) : 0;
    uint32_t state = (uint32_t)(w >> 53) & 15;
    if (!r || (uint32_t)w != gen || !tr_state_terminal(state))
        return -ESTALE;
    *out = (struct tr_ring_past){state, (uint32_t)(w >> 57), w >> 32 & 0x1fffff};
    return 0;
}

enum tr_err tr_ring_turned_away(const struct tr_shm *s, uint32_t slot, uint32_t gen)
{
    const struct tr_ring *r = tr_ring_at(s, slot);
    /* Acquire: who sees that the generation is over sees the word; pairs with tr_ring_reset. */
    if (!r || atomic_load_explicit(&r->gen, memory_order_acquire) == gen)
        return TR_OK;
    uint64_t w = atomic_load_explicit(&r->past, memory_order_relaxed);
    uint32_t err = (uint32_t)(w >> 57);
    bool was_free = (uint32_t)w == gen && ((uint32_t)(w >> 53) & 15) == TR_FREE;
    return was_free && err < TR_ERR_COUNT ? (enum tr_err)err : TR_OK;
}

bool tr_ring_forgotten(const struct tr_shm *s, uint32_t slot, uint32_t gen)
{
    const struct tr_ring *r = tr_ring_at(s, slot);
    uint64_t w = r ? atomic_load_explicit(&r->past, memory_order_relaxed) : 0;
    /* The word itself, not `gen`, which is stored after it. */
    return r && (int32_t)((uint32_t)w - gen) > 0;
}

void tr_ring_reset(struct tr_shm *s, uint32_t slot)
{
    TR_ASSERT_ROLE(TR_ROLE_ENGINE);
    struct tr_ring *r = tr_ring_at(s, slot);
    uint32_t gen = atomic_load_explicit(&r->gen, memory_order_relaxed);
    uint64_t used = r->prompt_len + atomic_load_explicit(&r->published, memory_order_relaxed);
    if (used > s->config.n_ctx)
        used = s->config.n_ctx;
    atomic_store_explicit(&r->past, pack_past(r, gen), memory_order_relaxed);
    /* The generation first: a reader that copies while we wipe finds it changed afterwards.  The
     * fence keeps the wiping behind it; pairs with the acquire fence in tr_ring_read's callers,
     * who compare `gen` again after they copied.  Release: `past` comes before it; pairs with
     * tr_ring_turned_away. */
    atomic_store_explicit(&r->gen, gen + 1 ? gen + 1 : 1, memory_order_release);
    atomic_thread_fence(memory_order_release);
    TR_FAULT(ENGINE_RESET_GENERATION);
    memset(tr_ring_ids_rw(s, slot), 0, used * sizeof(uint32_t));
    tr_shm_wipe(tr_ring_extra_rw(s, slot),
                r->extra_len <= TR_EXTRA_BYTES ? r->extra_len : TR_EXTRA_BYTES);
    uint64_t lps = atomic_load_explicit(&r->lp_tail, memory_order_relaxed);
    memset(place(s, slot) + tr_layout_ring_lp(&s->config), 0,
           (lps < s->config.window ? lps : s->config.window) * sizeof(struct tr_lp));
    clear_fields(r);
}

uint32_t tr_ring_request(const struct tr_shm *s, uint32_t slot)
{
    const struct tr_ring *r = tr_ring_at(s, slot);
    /* Acquire: the fixed fields of a request are there with its state; pairs with tr_seq_move. */
    if (!r || atomic_load_explicit(&r->state, memory_order_acquire) == TR_FREE)
        return 0;
    /* In a reset the generation comes first and `of_gen` is wiped: the two differ. */
    uint32_t gen = atomic_load_explicit(&r->gen, memory_order_relaxed);
    return r->of_gen == gen ? gen : 0;
}

int64_t tr_ring_read(const struct tr_shm *s, uint32_t slot, uint32_t gen, uint32_t *state)
{
    const struct tr_ring *r = tr_ring_at(s, slot);
    if (!r)
        return -ESTALE;
    /* Acquire: a terminal state makes the end fields and the last count visible; pairs with
     * tr_ring_end. */
    *state = atomic_load_explicit(&r->state, memory_order_acquire);
    /* Acquire: the ids below the count are whole; pairs with tr_ring_push. */
    uint64_t n = atomic_load_explicit(&r->published, memory_order_acquire);
    /* Relaxed: the two acquires above keep it behind them; a ring that was reset meanwhile shows. */
    if (atomic_load_explicit(&r->gen, memory_order_relaxed) != gen)
        return -ESTALE;
    uint32_t prompt = r->prompt_len;
    uint64_t room = prompt < s->config.n_ctx ? s->config.n_ctx - prompt : 0;
    return (int64_t)(n < room ? n : room);
}

const char *tr_state_name(uint32_t s)
{
    switch (s) {
    case TR_COMPLETED:
        return "completed";
    case TR_INCOMPLETE:
        return "incomplete";
    case TR_CANCELLED:
        return "cancelled";
    case TR_ERROR:
        return "error";
    default:
        return NULL;
    }
}
