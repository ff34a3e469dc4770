/* SPDX-License-Identifier: Apache-2.0 */
/* engine/aside.c - parked sequences whose reader is far behind: thousands of them cost a turn nothing.
 *
 * A sequence parks with wants_cursor set in its ring.  The next turn looks at its cursors once more; if
 * the reader is still behind, it stands aside: not in `active`, not in the plan.  From there on every
 * move of its cursors sets its dirty bit (tr_cursor_moved), and the sweep that finds the bit looks at
 * it: it ends, comes back, or stays.  Its blocks stay evictable, in a list of their own. */
#include "engine/sched_priv.h"

#include <string.h>

/* The place in slots[0, n), ordered by precedence, before which `order` belongs. */
static uint32_t place_of(const struct tr_sched *sc, const uint32_t *slots, uint32_t n,
                         uint64_t order)
{
    uint32_t lo = 0;
    while (lo < n) {
        uint32_t mid = lo + (n - lo) / 2;
        if (sc->seq[slots[mid]].order < order)
            lo = mid + 1;
        else
            n = mid;
    }
    return lo;
}

static void insert(uint32_t *list, uint32_t n, uint32_t at, uint32_t v)
{
    memmove(list + at + 1, list + at, (n - at) * sizeof(*list));
    list[at] = v;
}

static void erase(uint32_t *list, uint32_t n, uint32_t at)
{
    memmove(list + at, list + at + 1, (n - at - 1) * sizeof(*list));
}

void tr_sched_activate(struct tr_sched *sc, const struct tr_seq *q)
{
    uint32_t at = place_of(sc, sc->active, sc->n_active, q->order);
    TR_ASSERT(at == sc->n_active || sc->active[at] != q->slot);
    insert(sc->active, sc->n_active, at, q->slot);
    sc->n_active++;
}

void tr_aside_put(struct tr_sched *sc, struct tr_seq *q)
{
    TR_ASSERT(q->state == TR_PARKED && !q->aside);
    q->aside = true;
    sc->n_aside++;
    if (!q->n_blocks)
        return;
    uint32_t at = place_of(sc, sc->aside_kv, sc->n_aside_kv, q->order);
    insert(sc->aside_kv, sc->n_aside_kv, at, q->slot);
    sc->n_aside_kv++;
}

void tr_aside_take(struct tr_sched *sc, struct tr_seq *q)
{
    TR_ASSERT(q->aside && sc->n_aside > 0);
    q->aside = false;
    sc->n_aside--;
    if (!q->n_blocks)
        return;
    uint32_t at = place_of(sc, sc->aside_kv, sc->n_aside_kv, q->order);
    TR_ASSERT(at < sc->n_aside_kv && sc->aside_kv[at] == q->slot);
    erase(sc->aside_kv, sc->n_aside_kv, at);
    sc->n_aside_kv--;
}

void tr_aside_back(struct tr_sched *sc, struct tr_seq *q)
{
    tr_aside_take(sc, q);
    tr_sched_activate(sc, q);
}

void tr_aside_evict(struct tr_sched *sc, uint32_t n)
{
    TR_ASSERT(n <= sc->n_aside_kv);
    for (; n; n--) {
        sc->n_aside_kv--;
        tr_sched_drop_kv(sc, &sc->seq[sc->aside_kv[sc->n_aside_kv]]);
    }
}
