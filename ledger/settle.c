/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/settle.h"

#include "base/clock.h"
#include "shm/close.h"

#include <string.h>

static uint32_t state_of(const struct tr_ring *r)
{
    return atomic_load_explicit(&r->state, memory_order_acquire);
}

/* How a choice ends that no engine has ended, as its client was told: by the drain's limit if that was
 * reached and there was an engine, else as an error of the service. */
static const struct tr_close_info *end_of_running(const struct tr_shm *s)
{
    uint32_t drain = atomic_load_explicit(&s->control->drain, memory_order_relaxed);
    uint32_t gone = atomic_load_explicit(&s->control->engine_gone, memory_order_relaxed);
    return tr_close_info(drain == TR_DRAIN_CUT && !gone ? TR_CLOSE_DRAIN : TR_CLOSE_ENGINE_LOST);
}

/* One that had ended keeps its end. */
static void add_choice(const struct tr_shm *s, uint32_t slot, struct tr_bill *b)
{
    const struct tr_ring *r = tr_ring_at(s, slot);
    const struct tr_close_info *lost = end_of_running(s);
    uint32_t state;
    int64_t n = tr_ring_read(s, slot, atomic_load_explicit(&r->gen, memory_order_relaxed), &state);
    uint64_t published = n > 0 ? (uint64_t)n : 0;
    bool ended = tr_state_terminal(state);
    uint64_t counted = ended && r->finish_index <= published ? r->finish_index : published;

    b->choices++;
    b->prompt_tokens += r->group_bill_prompt ? r->prompt_len : 0;
    b->cached_tokens += atomic_load_explicit(&r->cached_tokens, memory_order_relaxed);
    b->completion_tokens += counted;
    b->overrun_tokens += published - counted;
    tr_bill_started(b, r);
    uint64_t first = atomic_load_explicit(&r->first_token_ns, memory_order_relaxed);
    if (first && (!b->first_token_ns || first < b->first_token_ns))
        b->first_token_ns = first;
    if (published && r->prompt_len + published <= s->config.n_ctx)
        b->last_token = tr_ring_ids(s, slot)[r->prompt_len + published - 1];
    uint32_t last = ended ? state : lost->state;
    if (last > b->state) {
        b->state = last;
        b->err = ended ? r->err : lost->err;
        b->finish = ended ? r->finish : TR_FINISH_NONE;
    }
    if (ended && r->disconnect_ns)
        b->disconnect_ns = r->disconnect_ns;
    if (ended && r->cancel_ack_ns)
        b->cancel_ack_ns = r->cancel_ack_ns;
}

/* Admitted in this life of the slot, and its record never counted in the queue. */
static bool unbilled(const struct tr_shm *s, const struct tr_ring *r)
{
    return state_of(r) != TR_FREE &&
           r->of_gen == atomic_load_explicit(&r->gen, memory_order_acquire) &&
           !tr_bill_is_queued(s, atomic_load_explicit(&r->bill_seq, memory_order_acquire));
}

static void settle_group(const struct tr_shm *s, uint32_t lead, struct tr_bill *b)
{
    const struct tr_ring *r = tr_ring_at(s, lead);
    memset(b, 0, sizeof(*b));
    memcpy(b->request_id, r->request_id, sizeof(b->request_id) - 1);
    memcpy(b->key, r->key, sizeof(b->key) - 1);
    b->slot = lead;
    b->gen = atomic_load_explicit(&r->gen, memory_order_relaxed);
    b->owner_area = TR_MAX_AREAS;
    b->stream_rand = r->stream_rand;
    b->arrival_ns = r->arrival_ns;
    b->finished_ns = tr_now_ns();
    b->last_token = UINT32_MAX;
    tr_bill_trace(b, r);
    add_choice(s, lead, b);
    if (r->group_n <= 1)
        return;
    /* A group is known by its random bits, as in the engine's recovery: a request id is the client's
     * word, and two requests may carry the same. */
    for (uint32_t slot = 0; slot < s->config.n_slots; slot++) {
        const struct tr_ring *m = tr_ring_at(s, slot);
        if (slot != lead && unbilled(s, m) && m->group_n == r->group_n && m->group_lead == lead &&
            m->stream_rand == r->stream_rand)
            add_choice(s, slot, b);
    }
}

void tr_settle_rings(const struct tr_shm *s, void (*fn)(void *, const struct tr_bill *), void *arg)
{
    for (uint32_t slot = 0; slot < s->config.n_slots; slot++) {
        const struct tr_ring *r = tr_ring_at(s, slot);
        if (!unbilled(s, r) || (r->group_n > 1 && r->group_lead != slot))
            continue;
        struct tr_bill b;
        settle_group(s, slot, &b);
        fn(arg, &b);
    }
}
