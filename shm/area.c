/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/area.h"

#include "shm/bell.h"
#include "shm/bitmap.h"
#include "shm/lpring.h"
#include "shm/region.h"

#include <errno.h>
#include <string.h>

static struct tr_msg *subq(const struct tr_shm *s, uint32_t area)
{
    return (struct tr_msg *)((char *)s->area[area] + tr_layout_area_subq(&s->config));
}

static struct tr_delivery *deliveries(const struct tr_shm *s, uint32_t area)
{
    return (struct tr_delivery *)((char *)s->area[area] + tr_layout_area_delivery(&s->config));
}

static struct tr_bitmap bitmap_at(const struct tr_shm *s, uint32_t area, size_t offset)
{
    _Atomic uint64_t *sums = (_Atomic uint64_t *)((char *)s->area[area] + offset);
    uint32_t n_sums = tr_layout_dirty_sums(&s->config);
    return (struct tr_bitmap){.sums = sums,
                              .words = sums + n_sums,
                              .n_sums = n_sums,
                              .n_words = tr_layout_dirty_words(&s->config),
                              .n_slots = s->config.n_slots};
}

static struct tr_bitmap dirty(const struct tr_shm *s, uint32_t area)
{
    return bitmap_at(s, area, tr_layout_area_dirty(&s->config));
}

static struct tr_bitmap news(const struct tr_shm *s, uint32_t area)
{
    return bitmap_at(s, area, tr_layout_area_news(&s->config));
}

static _Atomic uint64_t *cmds(const struct tr_shm *s, uint32_t area)
{
    return (_Atomic uint64_t *)((char *)s->area[area] + tr_layout_area_cmd(&s->config));
}

struct tr_cursor *tr_cursor_at(const struct tr_shm *s, uint32_t area, uint32_t slot)
{
    if (area >= s->config.n_areas || slot >= s->config.n_slots || !s->area[area])
        return NULL;
    char *base = (char *)s->area[area] + tr_layout_area_cursor(&s->config);
    return (struct tr_cursor *)base + slot;
}

void tr_area_init(struct tr_shm *s)
{
    TR_ASSERT_ROLE(TR_ROLE_FRONTEND);
    uint32_t a = s->my_area;
    /* The area may have had another owner.  Queues start where their readers stand; dirty bits of
     * the dead were swept or ask for words that no longer match a generation. */
    uint64_t head = atomic_load_explicit(&s->rings->subq_head[a], memory_order_acquire);
    uint64_t dhead = atomic_load_explicit(&s->ledger->delivery_head[a], memory_order_acquire);
    uint64_t dtail = atomic_load_explicit(&s->area[a]->delivery_tail, memory_order_relaxed);
    for (uint32_t slot = 0; slot < s->config.n_slots; slot++)
        tr_cursor_reset(s, slot, 0);
    atomic_store_explicit(&s->area[a]->streams, 0, memory_order_relaxed);
    atomic_store_explicit(&s->area[a]->connections, 0, memory_order_relaxed);
    atomic_store_explicit(&s->area[a]->sleeping, 0, memory_order_relaxed);
    /* Records the dead frontend left for the ledger are still good; nonsense is dropped. */
    if (dtail - dhead > TR_DELIVERY_CAP)
        atomic_store_explicit(&s->area[a]->delivery_tail, dhead, memory_order_release);
    atomic_store_explicit(&s->area[a]->subq_tail, head, memory_order_release);
}

/* The engine will look at the slot: at its command, and at its cursors if it is parked.  The bits
 * publish what was stored before; they pair with the take in tr_cmd_sweep. */
static void mark_dirty(struct tr_shm *s, uint32_t slot)
{
    struct tr_bitmap b = dirty(s, s->my_area);
    tr_bitmap_add(&b, slot / 64, 1ull << (slot % 64));
    tr_bell_ring_engine(s);
}

/* ---- submission queue ---- */

int tr_subq_push(struct tr_shm *s, const struct tr_msg *m, uint32_t n)
{
    TR_ASSERT_ROLE(TR_ROLE_FRONTEND);
    uint32_t a = s->my_area, cap = tr_layout_subq_cap(&s->config);
    /* Relaxed: only we write the tail. */
    uint64_t tail = atomic_load_explicit(&s->area[a]->subq_tail, memory_order_relaxed);
    /* Acquire: the engine has copied what we are about to overwrite; pairs with tr_subq_consume. */
    uint64_t head = atomic_load_explicit(&s->rings->subq_head[a], memory_order_acquire);
    if (tail - head > cap || cap - (tail - head) < n)
        return -EAGAIN;
    for (uint32_t i = 0; i < n; i++)
        subq(s, a)[(tail + i) & (cap - 1)] = m[i];
    /* Release: messages and the requests they name are whole; pairs with tr_subq_peek. */
    atomic_store_explicit(&s->area[a]->subq_tail, tail + n, memory_order_release);
    tr_bell_ring_engine(s);
    return 0;
}

uint64_t tr_subq_pushed(const struct tr_shm *s)
{
    /* Relaxed: only we write the tail. */
    return atomic_load_explicit(&s->area[s->my_area]->subq_tail, memory_order_relaxed);
}

bool tr_subq_is_heard(const struct tr_shm *s, uint64_t n)
{
    /* Acquire: pairs with the release in tr_subq_consume. */
    uint64_t head = atomic_load_explicit(&s->rings->subq_head[s->my_area], memory_order_acquire);
    return (int64_t)(head - n) >= 0;
}

uint32_t tr_subq_peek(const struct tr_shm *s, uint32_t area, struct tr_msg *out, uint32_t cap)
{
    uint32_t size = tr_layout_subq_cap(&s->config);
    /* Relaxed: only we (the engine) write the head. */
    uint64_t head = atomic_load_explicit(&s->rings->subq_head[area], memory_order_relaxed);
    /* Acquire: pairs with the release in tr_subq_push. */
    uint64_t tail = atomic_load_explicit(&s->area[area]->subq_tail, memory_order_acquire);
    uint64_t n = tail - head;
    if (n > size)
        return 0;
    if (n > cap)
        n = cap;
    for (uint64_t i = 0; i < n; i++)
        out[i] = subq(s, area)[(head + i) & (size - 1)];
    return (uint32_t)n;
}

void tr_subq_consume(struct tr_shm *s, uint32_t area, uint32_t n)
{
    TR_ASSERT_ROLE(TR_ROLE_ENGINE);
    uint64_t head = atomic_load_explicit(&s->rings->subq_head[area], memory_order_relaxed);
    /* Release: we have copied before they may be overwritten; pairs with tr_subq_push. */
    atomic_store_explicit(&s->rings->subq_head[area], head + n, memory_order_release);
}

/* ---- command words ---- */

void tr_cmd_post(struct tr_shm *s, uint32_t slot, uint32_t gen, uint32_t flags, uint32_t arg)
{
    TR_ASSERT_ROLE(TR_ROLE_FRONTEND);
    const uint32_t how = TR_CMD_CANCEL | TR_CMD_FINISH;
    _Atomic uint64_t *cmd = &cmds(s, s->my_area)[slot];
    /* Relaxed: only we write it; the dirty bit publishes. */
    uint64_t old = atomic_load_explicit(cmd, memory_order_relaxed);
    if ((int32_t)(tr_cmd_gen(old) - gen) > 0)
        return; /* the slot has been claimed again: nobody waits for this any more */
    if (tr_cmd_gen(old) != gen)
        old = 0;
    uint64_t word = old & ~0xffffffffull;
    word |= (uint64_t)(flags & ~how) << 56;
    if ((flags & how) && !(tr_cmd_flags(old) & how))
        word |= (uint64_t)(flags & how) << 56 | (uint64_t)(arg & 0xffffffu) << 32;
    atomic_store_explicit(cmd, word | gen, memory_order_relaxed);
    mark_dirty(s, slot);
}

uint64_t tr_cmd_word(const struct tr_shm *s, uint32_t area, uint32_t slot)
{
    return atomic_load_explicit(&cmds(s, area)[slot], memory_order_relaxed);
}

struct sweep {
    const struct tr_shm *s;
    uint32_t area;
    void (*fn)(void *, uint32_t, uint32_t, uint64_t);
    void *arg;
};

static void sweep_slot(void *arg, uint32_t slot)
{
    const struct sweep *w = arg;
    w->fn(w->arg, w->area, slot, tr_cmd_word(w->s, w->area, slot));
}

void tr_cmd_sweep(struct tr_shm *s, uint32_t area, void (*fn)(void *, uint32_t, uint32_t, uint64_t),
                  void *arg)
{
    TR_ASSERT_ROLE(TR_ROLE_ENGINE);
    struct sweep w = {s, area, fn, arg};
    struct tr_bitmap b = dirty(s, area);
    tr_bitmap_take(&b, sweep_slot, &w);
}

/* ---- news ---- */

void tr_news_post(struct tr_shm *s, uint32_t area, uint32_t word, uint64_t bits)
{
    TR_ASSERT_ROLE(TR_ROLE_ENGINE);
    struct tr_bitmap b = news(s, area);
    tr_bitmap_add(&b, word, bits);
}

void tr_news_post_all(struct tr_shm *s, uint32_t area)
{
    TR_ASSERT_ROLE(TR_ROLE_ENGINE);
    struct tr_bitmap b = news(s, area);
    for (uint32_t w = 0; w < b.n_words; w++)
        tr_bitmap_add(&b, w, UINT64_MAX);
}

void tr_news_take(struct tr_shm *s, void (*fn)(void *arg, uint32_t slot), void *arg)
{
    TR_ASSERT_ROLE(TR_ROLE_FRONTEND);
    struct tr_bitmap b = news(s, s->my_area);
    tr_bitmap_take(&b, fn, arg);
}

/* ---- cursors ---- */

void tr_cursor_reset(struct tr_shm *s, uint32_t slot, uint32_t gen)
{
    TR_ASSERT_ROLE(TR_ROLE_FRONTEND);
    struct tr_cursor *c = tr_cursor_at(s, s->my_area, slot);
    /* Relaxed: the engine looks at them only for a request it got through the queue (acquire). */
    atomic_store_explicit(&c->scanned, 0, memory_order_relaxed);
    atomic_store_explicit(&c->sent, 0, memory_order_relaxed);
    atomic_store_explicit(&c->lp_head, 0, memory_order_relaxed);
    atomic_store_explicit(&c->disconnect_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&cmds(s, s->my_area)[slot], gen, memory_order_relaxed);
}

static bool is_kept(const struct tr_ring *r)
{
    /* Relaxed: tr_ring_request has looked; from an end on it does not change. */
    return tr_state_is_kept(r->params.flags, atomic_load_explicit(&r->state, memory_order_relaxed));
}

/* A slot of another generation may be one that we have claimed: its words are not touched. */
static bool may_be_adopted(const struct tr_shm *s, uint32_t slot, uint32_t gen,
                           uint64_t stream_rand)
{
    const struct tr_ring *r = tr_ring_at(s, slot);
    return gen && tr_ring_request(s, slot) == gen && r->stream_rand == stream_rand && is_kept(r);
}

bool tr_adopt_is_due(const struct tr_shm *s, uint32_t slot, uint32_t *gen)
{
    const struct tr_ring *r = tr_ring_at(s, slot);
    uint32_t g = tr_ring_request(s, slot);
    if (!g || !is_kept(r) || !tr_ring_is_ours(s, r))
        return false;
    /* A release is of no effect if somebody had adopted the stream before, and died: not confirmed,
     * it is given to us once more. */
    uint64_t word = tr_cmd_word(s, s->my_area, slot);
    bool released = tr_cmd_gen(word) == g && (tr_cmd_flags(word) & TR_CMD_RELEASE);
    if (released && tr_ring_owner(r).confirmed)
        return false;
    *gen = g;
    return true;
}

static int ask_for(struct tr_shm *s, struct tr_msg m, bool only_given)
{
    TR_ASSERT_ROLE(TR_ROLE_FRONTEND);
    if (!may_be_adopted(s, m.slot, m.gen, m.stream_rand))
        return -ESTALE;
    const struct tr_ring *r = tr_ring_at(s, m.slot);
    if (tr_ring_is_ours(s, r)) {
        if (tr_ring_owner(r).confirmed)
            return -EALREADY;
        m.kind = TR_MSG_CONFIRM;
    } else if (only_given) {
        return -ESTALE;
    }
    tr_cursor_reset(s, m.slot, m.gen);
    tr_lpring_skip(s, m.slot);
    /* Release, in the push: the engine reads the reset words or later ones. */
    return tr_subq_push(s, &m, 1);
}

int tr_adopt(struct tr_shm *s, uint32_t slot, uint32_t gen, uint64_t stream_rand)
{
    struct tr_msg m = {.kind = TR_MSG_ADOPT, .slot = slot, .gen = gen, .stream_rand = stream_rand};
    return ask_for(s, m, false);
}

int tr_confirm(struct tr_shm *s, uint32_t slot, uint32_t gen, uint64_t stream_rand)
{
    struct tr_msg m = {
        .kind = TR_MSG_CONFIRM, .slot = slot, .gen = gen, .stream_rand = stream_rand};
    return ask_for(s, m, true);
}

void tr_cursor_want(struct tr_shm *s, uint32_t slot)
{
    TR_ASSERT_ROLE(TR_ROLE_ENGINE);
    atomic_store_explicit(&tr_ring_at(s, slot)->wants_cursor, 1, memory_order_relaxed);
    /* The caller's look at the cursors comes behind this; pairs with the fence in tr_cursor_moved. */
    atomic_thread_fence(memory_order_seq_cst);
}

void tr_cursor_moved(struct tr_shm *s, uint32_t slot)
{
    /* Parking is a Dekker handshake: the engine stores wants_cursor, fences and reads the cursors
     * again; the caller has stored them, we fence and read wants_cursor.  One of us sees the other. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&tr_ring_at(s, slot)->wants_cursor, memory_order_relaxed))
        mark_dirty(s, slot);
}

void tr_cursor_set(struct tr_shm *s, uint32_t slot, uint64_t scanned, uint64_t sent)
{
    TR_ASSERT_ROLE(TR_ROLE_FRONTEND);
    struct tr_cursor *c = tr_cursor_at(s, s->my_area, slot);
    atomic_store_explicit(&c->scanned, scanned, memory_order_release);
    atomic_store_explicit(&c->sent, sent, memory_order_release);
    tr_cursor_moved(s, slot);
}

/* ---- delivery records ---- */

int tr_delivery_push(struct tr_shm *s, const struct tr_delivery *d)
{
    TR_ASSERT_ROLE(TR_ROLE_FRONTEND);
    uint32_t a = s->my_area;
    uint64_t tail = atomic_load_explicit(&s->area[a]->delivery_tail, memory_order_relaxed);
    /* Acquire: the ledger has copied what we overwrite; pairs with tr_delivery_pop. */
    uint64_t head = atomic_load_explicit(&s->ledger->delivery_head[a], memory_order_acquire);
    if (tail - head >= TR_DELIVERY_CAP)
        return -EAGAIN;
    deliveries(s, a)[tail % TR_DELIVERY_CAP] = *d;
    /* Release: pairs with the acquire in tr_delivery_pop. */
    atomic_store_explicit(&s->area[a]->delivery_tail, tail + 1, memory_order_release);
    tr_bell_ring_ledger(s);
    return 0;
}

int tr_delivery_pop(struct tr_shm *s, uint32_t area, struct tr_delivery *out)
{
    TR_ASSERT_ROLE(TR_ROLE_LEDGER);
    uint64_t head = atomic_load_explicit(&s->ledger->delivery_head[area], memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&s->area[area]->delivery_tail, memory_order_acquire);
    if (tail == head || tail - head > TR_DELIVERY_CAP)
        return -EAGAIN;
    *out = deliveries(s, area)[head % TR_DELIVERY_CAP];
    out->request_id[TR_ID_BYTES - 1] = '\0';
    /* Release: pairs with the acquire in tr_delivery_push. */
    atomic_store_explicit(&s->ledger->delivery_head[area], head + 1, memory_order_release);
    return 0;
}
