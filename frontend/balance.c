/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/balance.h"

#include "shm/control.h"

enum {
    MARGIN = 4,      /* more than the least loaded by so many, */
    MARGIN_PART = 8, /* and by this part of its load: not yet clearly more */
    NOBODY = TR_MAX_AREAS
};
#define MS 1000000ull
#define PATIENCE_NS (5 * MS)
#define PATIENCE_MAX_NS (20 * MS)
#define DISTRUST_NS (200 * MS)
#define PATIENCE_FULL_NS (500 * MS) /* a 503 is worse than a wait */
#define DISTRUST_FULL_NS (2000 * MS)
#define STALE_NS (500 * MS) /* its loop turns every 200 ms at least */

void tr_balance_init(struct tr_balance *b, const struct tr_shm *s, uint32_t max_connections)
{
    *b = (struct tr_balance){.shm = s, .max = max_connections, .closed = true};
    tr_balance_tell(b, &(struct tr_httpd_stats){0});
}

static struct tr_stat *page(const struct tr_balance *b, uint32_t area)
{
    return b->shm->stat[TR_STAT_AREA0 + area];
}

/* Relaxed, all of it: a moment's difference leaves one connection more or less with somebody. */
static uint64_t get(const _Atomic uint64_t *p)
{
    return atomic_load_explicit(p, memory_order_relaxed);
}

void tr_balance_tell(struct tr_balance *b, const struct tr_httpd_stats *st)
{
    struct tr_stat *mine = page(b, b->shm->my_area);
    uint64_t load = st->open + b->streams;
    if (b->closed)
        load = TR_LOAD_CLOSED;
    else if (st->open - st->overfull >= b->max)
        load = TR_LOAD_FULL;
    atomic_store_explicit(&mine->taken, st->accepted, memory_order_relaxed);
    atomic_store_explicit(&mine->load, load, memory_order_relaxed);
}

/* The least loaded other one that has room and may be asked. */
static uint32_t least(const struct tr_balance *b, uint64_t now, bool full, uint64_t *load)
{
    const struct tr_control *c = b->shm->control;
    uint32_t found = NOBODY;
    *load = TR_LOAD_FULL;
    for (uint32_t a = 0; a < b->shm->config.n_areas; a++) {
        if (a == b->shm->my_area || now < b->distrust_ns[full][a] ||
            !atomic_load_explicit(&c->area_alive[a], memory_order_relaxed))
            continue;
        uint64_t l = get(&page(b, a)->load), beat = get(&page(b, a)->heartbeat_ns);
        if (l < *load && now < beat + STALE_NS) {
            *load = l;
            found = a;
        }
    }
    return found;
}

static void ask(const struct tr_balance *b, struct tr_balance_left *left, uint32_t area,
                uint64_t now)
{
    *left = (struct tr_balance_left){
        .asked = area, .taken = get(&page(b, area)->taken), .since_ns = now, .moved_ns = now};
}

/* Whether the one that was asked has had its time. */
static bool is_over(const struct tr_balance *b, struct tr_balance_left *left, uint64_t now,
                    bool full)
{
    uint64_t taken = get(&page(b, left->asked)->taken);
    if (taken != left->taken) {
        left->taken = taken;
        left->moved_ns = now;
    }
    if (full)
        return now - left->since_ns >= PATIENCE_FULL_NS;
    return now - left->moved_ns >= PATIENCE_NS || now - left->since_ns >= PATIENCE_MAX_NS;
}

bool tr_balance_is_ours(struct tr_balance *b, struct tr_balance_left *left, uint64_t now)
{
    uint64_t mine = get(&page(b, b->shm->my_area)->load), theirs;
    bool full = mine == TR_LOAD_FULL;
    for (;;) { /* each round takes one of the others out, or ends */
        uint32_t a = least(b, now, full, &theirs);
        if (a == NOBODY || mine <= theirs + MARGIN + theirs / MARGIN_PART)
            break;
        if (!left->since_ns)
            ask(b, left, a, now);
        if (!is_over(b, left, now, full))
            return false;
        b->distrust_ns[full][left->asked] = now + (full ? DISTRUST_FULL_NS : DISTRUST_NS);
        if (!full)
            break;
        left->since_ns = 0;
    }
    left->since_ns = 0;
    return true;
}
