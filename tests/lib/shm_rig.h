/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/shm_rig.h - all regions in one process, small, read-write; roles are played by hand. */
#ifndef TR_TESTS_SHM_RIG_H
#define TR_TESTS_SHM_RIG_H

#include "shm/region.h"

struct shm_rig {
    struct tr_shm_fds fds;
    struct tr_shm s;
};

/* n_slots slots of 256 tokens, window 16, two areas; aborts when it cannot. */
void shm_rig_open(struct shm_rig *r, uint32_t n_slots, uint32_t ledger);
/* The same with counters for so many API keys. */
void shm_rig_open_keys(struct shm_rig *r, uint32_t n_keys);
void shm_rig_close(struct shm_rig *r);

/* What the engine does with a free slot: generation 1, claim open. */
void shm_rig_open_slots(struct shm_rig *r);

/* What the engine notes at admission: the slot's request is this process's (area 0). */
void shm_rig_own(struct shm_rig *r, uint32_t slot);

#endif
