/* SPDX-License-Identifier: Apache-2.0 */
/* shm/bell.h - doorbells: an eventfd each for the engine, the ledger and every area.
 *
 * Rung only when the other side sleeps.  The ringer publishes, fences, looks at `sleeping`; the
 * sleeper sets `sleeping`, fences, looks for work once more, and only then sleeps: one of the two
 * always sees the other (both fences seq_cst).  Another thread than the one that published may ring for
 * it, after it has acquired what that one released (the engine's does).  A bell that is rung for nothing is harmless; every
 * sleep also has a time limit, so that a process which steals from an eventfd delays and no more. */
#ifndef TR_SHM_BELL_H
#define TR_SHM_BELL_H

#include <stdatomic.h>
#include <stdint.h>

/* Ringer: after publishing.  Writes to `fd` if the other side sleeps. */
void tr_bell_ring(int fd, const _Atomic uint32_t *sleeping);

/* Sleeper: announce, then (after this returns) look for work, then wait on fd, then tr_bell_awake. */
void tr_bell_sleep(_Atomic uint32_t *sleeping);
/* Sleeper: takes back the announcement and empties the eventfd; fd -1: it need not be, since it is
 * empty or the sleeper waits for edges. */
void tr_bell_awake(int fd, _Atomic uint32_t *sleeping);

struct tr_shm;
void tr_bell_ring_engine(struct tr_shm *s);
void tr_bell_ring_ledger(struct tr_shm *s);
void tr_bell_ring_area(struct tr_shm *s, uint32_t area);

#endif
