/* SPDX-License-Identifier: Apache-2.0 */
#include "testlib/shm_rig.h"

#include <stdio.h>
#include <stdlib.h>

static void open_rig(struct shm_rig *r, uint32_t n_slots, uint32_t ledger, uint32_t n_keys)
{
    struct tr_errbuf err;
    struct tr_shm_config c = {.n_ctx = 256,
                              .n_vocab = 1000,
                              .n_slots = n_slots,
                              .n_admit = n_slots,
                              .max_seqs = n_slots,
                              .n_areas = 2,
                              .window = 16,
                              .ledger = ledger,
                              .n_keys = n_keys};
    if (tr_shm_create(&c, &r->fds, &err) || tr_shm_attach_all(&r->s, &r->fds, &err)) {
        fprintf(stderr, "shm_rig: %s\n", err.msg);
        abort();
    }
}

void shm_rig_open(struct shm_rig *r, uint32_t n_slots, uint32_t ledger)
{
    open_rig(r, n_slots, ledger, 0);
}

void shm_rig_open_keys(struct shm_rig *r, uint32_t n_keys)
{
    open_rig(r, 4, 0, n_keys);
}

void shm_rig_close(struct shm_rig *r)
{
    tr_shm_detach(&r->s);
    tr_shm_close_fds(&r->fds);
}

void shm_rig_open_slots(struct shm_rig *r)
{
    tr_role = TR_ROLE_ENGINE;
    for (uint32_t i = 0; i < r->s.config.n_slots; i++) {
        tr_ring_reset(&r->s, i);
        uint32_t gen = atomic_load(&tr_ring_at(&r->s, i)->gen);
        tr_claim_set(&r->s, i, (struct tr_claim){.state = TR_CLAIM_OPEN, .gen = gen});
    }
}

void shm_rig_own(struct shm_rig *r, uint32_t slot)
{
    tr_role = TR_ROLE_ENGINE;
    tr_ring_set_owner(
        tr_ring_at(&r->s, slot),
        (struct tr_owner){.area = r->s.my_area, .epoch = r->s.my_epoch, .confirmed = true});
}
