/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/quota.h"

#include "base/assert.h"
#include "shm/region.h"

#define SECOND 1000000000ull
#define MOST_TOKENS (1ull << 48) /* of one second, that are believed: sums do not overflow */

static struct tr_quota *at(const struct tr_shm *s, uint32_t area, uint32_t key)
{
    char *stat = (char *)s->stat[TR_STAT_AREA0 + area];

    return (struct tr_quota *)(stat + tr_layout_stat_quota()) + key;
}

/* ---- own ---- */

static struct tr_quota *own(struct tr_shm *s, uint32_t key)
{
    struct tr_quota *q = at(s, s->my_area, key);

    TR_ASSERT(key < s->config.n_keys);
    if (atomic_load_explicit(&q->epoch, memory_order_relaxed) != s->my_epoch) {
        /* Nothing of a former owner runs any more. */
        atomic_store(&q->ended, atomic_load(&q->started));
        atomic_store_explicit(&q->epoch, s->my_epoch, memory_order_release);
    }
    return q;
}

/* One writer: no read-modify-write is needed; the store is a full fence (Q3). */
static void bump(_Atomic uint64_t *p, uint64_t n)
{
    atomic_store(p, atomic_load_explicit(p, memory_order_relaxed) + n);
}

void tr_quota_begin(struct tr_shm *s, uint32_t key, uint32_t streams)
{
    bump(&own(s, key)->started, streams);
}

void tr_quota_end(struct tr_shm *s, uint32_t key, uint32_t streams)
{
    bump(&own(s, key)->ended, streams);
}

static uint32_t second_of(uint64_t now_ns)
{
    return (uint32_t)(now_ns / SECOND) + 1;
}

/* The place of this second, emptied if it was another's. */
static struct tr_quota_second *place(struct tr_shm *s, uint32_t key, uint64_t now_ns)
{
    uint32_t second = second_of(now_ns);
    struct tr_quota_second *p = &own(s, key)->at[second % TR_QUOTA_SECONDS];

    if (atomic_load_explicit(&p->second, memory_order_relaxed) == second)
        return p;
    atomic_store_explicit(&p->second, 0, memory_order_relaxed);
    /* Who sees one of the counts below sees that the second is not the old one: fence in `take`. */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&p->requests, 0, memory_order_relaxed);
    atomic_store_explicit(&p->tokens, 0, memory_order_relaxed);
    atomic_store_explicit(&p->second, second, memory_order_release);
    return p;
}

void tr_quota_request(struct tr_shm *s, uint32_t key, uint64_t now_ns)
{
    struct tr_quota_second *p = place(s, key, now_ns);

    atomic_store(&p->requests, atomic_load_explicit(&p->requests, memory_order_relaxed) + 1);
}

void tr_quota_tokens(struct tr_shm *s, uint32_t key, uint64_t now_ns, uint64_t n)
{
    struct tr_quota_second *p = place(s, key, now_ns);

    /* Relaxed: how many tokens an answer will have is not known when it begins anyway. */
    atomic_store_explicit(&p->tokens, atomic_load_explicit(&p->tokens, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

void tr_quota_take_back(struct tr_shm *s, uint32_t key, uint64_t then_ns, uint64_t n)
{
    uint32_t second = second_of(then_ns);
    struct tr_quota_second *p = &own(s, key)->at[second % TR_QUOTA_SECONDS];
    uint64_t had = atomic_load_explicit(&p->tokens, memory_order_relaxed);

    if (atomic_load_explicit(&p->second, memory_order_relaxed) == second)
        atomic_store_explicit(&p->tokens, had > n ? had - n : 0, memory_order_relaxed);
}

/* ---- all ---- */

/* Whether this area was ever anybody's. */
static bool is_used(const struct tr_shm *s, uint32_t area)
{
    return area == s->my_area ||
           atomic_load_explicit(&s->control->area_epoch[area], memory_order_relaxed);
}

/* Whether what this one says is running belongs to a frontend that lives. */
static bool runs(const struct tr_shm *s, uint32_t area, const struct tr_quota *q)
{
    uint32_t epoch = atomic_load_explicit(&q->epoch, memory_order_acquire);
    const struct tr_control *c = s->control;

    if (area == s->my_area)
        return epoch == s->my_epoch;
    return epoch && epoch == atomic_load_explicit(&c->area_epoch[area], memory_order_acquire) &&
           atomic_load_explicit(&c->area_alive[area], memory_order_relaxed);
}

uint64_t tr_quota_running(const struct tr_shm *s, uint32_t key)
{
    uint64_t ended[TR_MAX_AREAS], n = 0;
    bool counts[TR_MAX_AREAS];

    for (uint32_t a = 0; a < s->config.n_areas; a++) {
        counts[a] = is_used(s, a) && runs(s, a, at(s, a, key));
        ended[a] = counts[a] ? atomic_load(&at(s, a, key)->ended) : 0;
    }
    for (uint32_t a = 0; a < s->config.n_areas; a++) {
        uint64_t started = counts[a] ? atomic_load(&at(s, a, key)->started) : 0;
        uint64_t more = started > ended[a] ? started - ended[a] : 0;
        n += more < UINT32_MAX ? more : UINT32_MAX;
    }
    return n;
}

static void take(const struct tr_quota_second *p, uint32_t now, struct tr_quota_minute *out)
{
    uint32_t second = atomic_load_explicit(&p->second, memory_order_acquire);
    /* Another's clock was read a moment later than ours. */
    uint32_t age = second == now + 1 ? 0 : now - second;

    if (!second || age >= TR_QUOTA_WINDOW_S)
        return;
    uint32_t requests = atomic_load(&p->requests);
    uint64_t tokens = atomic_load_explicit(&p->tokens, memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire); /* pairs with the one in `place` */
    if (atomic_load_explicit(&p->second, memory_order_relaxed) != second)
        return;
    out->requests[age] += requests;
    out->tokens[age] += tokens < MOST_TOKENS ? tokens : MOST_TOKENS;
}

void tr_quota_look(const struct tr_shm *s, uint32_t key, uint64_t now_ns,
                   struct tr_quota_minute *out)
{
    uint32_t now = second_of(now_ns);

    *out = (struct tr_quota_minute){0};
    for (uint32_t a = 0; a < s->config.n_areas; a++)
        for (unsigned i = 0; is_used(s, a) && i < TR_QUOTA_SECONDS; i++)
            take(&at(s, a, key)->at[i], now, out);
    for (unsigned age = 0; age < TR_QUOTA_WINDOW_S; age++) {
        out->all_requests += out->requests[age];
        out->all_tokens += out->tokens[age];
    }
}

unsigned tr_quota_wait(const uint64_t by_age[TR_QUOTA_WINDOW_S], uint64_t most)
{
    uint64_t left = 0;

    /* From the youngest: the first that is one too many has to become old enough. */
    for (unsigned age = 0; age < TR_QUOTA_WINDOW_S; age++) {
        left += by_age[age];
        if (left > most)
            return TR_QUOTA_WINDOW_S - age;
    }
    return 0;
}
