/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/bell.h"

#include "shm/region.h"

#include <unistd.h>

void tr_bell_ring(int fd, const _Atomic uint32_t *sleeping)
{
    /* The publication before this call and the look at `sleeping` must not change places; pairs
     * with the fence in tr_bell_sleep. */
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(sleeping, memory_order_relaxed))
        return;
    uint64_t one = 1;
    /* EAGAIN means the counter is full, which wakes as well; nothing else can be done here. */
    ssize_t n = write(fd, &one, sizeof(one));
    (void)n;
}

void tr_bell_sleep(_Atomic uint32_t *sleeping)
{
    atomic_store_explicit(sleeping, 1, memory_order_relaxed);
    /* `sleeping` is visible before the caller looks for work; pairs with the fence in tr_bell_ring. */
    atomic_thread_fence(memory_order_seq_cst);
}

void tr_bell_awake(int fd, _Atomic uint32_t *sleeping)
{
    /* Relaxed: a ringer that still sees 1 rings for nothing. */
    atomic_store_explicit(sleeping, 0, memory_order_relaxed);
    uint64_t n;
    ssize_t got = fd >= 0 ? read(fd, &n, sizeof(n)) : 0;
    (void)got;
}

void tr_bell_ring_engine(struct tr_shm *s)
{
    tr_bell_ring(s->bell_engine, &s->rings->sleeping);
}

void tr_bell_ring_ledger(struct tr_shm *s)
{
    tr_bell_ring(s->bell_ledger, &s->ledger->sleeping);
}

void tr_bell_ring_area(struct tr_shm *s, uint32_t area)
{
    if (area < s->config.n_areas)
        tr_bell_ring(s->bell_area[area], &s->area[area]->sleeping);
}
