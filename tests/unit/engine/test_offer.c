/* SPDX-License-Identifier: Apache-2.0 */
#include "enginerig/engine_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <time.h>

static struct tr_engine_rig r;

static void setup(void)
{
    struct tr_engine_rig_config c = {
        .shm = {.n_slots = 20, .n_admit = 6, .max_seqs = 4, .window = 8}};
    tr_engine_rig_open(&r, &c);
}

static void teardown(void)
{
    tr_engine_rig_close(&r);
}

TestSuite(offer, .init = setup, .fini = teardown);

static void wait_for_sweep(void)
{
    struct timespec t = {.tv_nsec = 110000000};
    nanosleep(&t, NULL);
    tr_rig_turn(&r);
}

static uint32_t counted(void)
{
    return tr_rig_claims(&r, TR_CLAIM_OPEN) + tr_rig_claims(&r, TR_CLAIM_CLAIMED) +
           (uint32_t)tr_rig_stat(&r, TR_STAT_WAITING) + (uint32_t)tr_rig_stat(&r, TR_STAT_RUNNING);
}

Test(offer, open_claimed_waiting_and_running_are_always_the_quota)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q[6];
    cr_assert_eq(counted(), 6);
    for (uint32_t i = 0; i < 6; i++) {
        cr_assert_eq(tr_rig_submit_group(&r, &a, 1, &q[i]), 0);
        tr_rig_turn(&r);
        cr_assert_eq(counted(), 6);
    }
    struct tr_rig_req no;
    cr_assert_eq(tr_rig_submit_group(&r, &a, 1, &no), -EAGAIN);
    tr_rig_run(&r, q, 6);
    cr_assert_eq(counted(), 6);
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_TAKEN), 6, "ended, not yet released");
}

Test(offer, parked_requests_keep_their_slot_but_do_not_count)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q[3];
    for (uint32_t i = 0; i < 3; i++)
        q[i] = tr_rig_submit(&r, &a);
    tr_rig_run(&r, NULL, 0);
    for (uint32_t i = 0; i < 3; i++)
        cr_assert_eq(tr_rig_state(&r, &q[i]), TR_PARKED);
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_OPEN), 6);
    /* They come back: that many open slots are taken back. */
    for (uint32_t i = 0; i < 3; i++)
        tr_rig_read_all(&r, &q[i]);
    tr_rig_turn(&r);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_RUNNING), 3);
    cr_assert_eq(counted(), 6);
}

Test(offer, a_claim_given_back_can_be_taken_again)
{
    uint32_t slot, gen;
    tr_rig_be_frontend(&r, 0);
    for (uint32_t i = 0; i < 100; i++) {
        cr_assert_eq(tr_claim_take(&r.s, 1, &slot, &gen), 0);
        tr_claim_give(&r.s, slot, gen);
    }
    wait_for_sweep();
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_OPEN), 6);
}

Test(offer, claims_of_a_dead_frontend_are_opened_under_a_new_generation)
{
    uint32_t slots[6], gens[6];
    tr_rig_be_frontend(&r, 1);
    cr_assert_eq(tr_claim_take(&r.s, 6, slots, gens), 0);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_OPEN), 0);
    tr_rig_kill_frontend(&r, 1);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_OPEN), 6);
    cr_assert_eq(atomic_load(&r.s.rings->area_ack[1]), 1);
    for (uint32_t i = 0; i < 6; i++)
        cr_assert_eq(tr_claim_get(&r.s, slots[i]).gen, gens[i] + 1);
}

Test(offer, garbage_in_the_claims_is_put_right_and_touches_no_stream)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = 300;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    srand(1);
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < r.c.shm.n_slots; i++)
            atomic_store(&r.s.claims->word[i], (uint64_t)rand() << 33 ^ (uint64_t)rand());
        tr_rig_read_all(&r, &q);
        tr_rig_turn(&r);
        cr_assert_eq(tr_rig_state(&r, &q), TR_RUNNING);
    }
    wait_for_sweep();
    wait_for_sweep();
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_OPEN), 5);
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_TAKEN), 1);
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_CLOSED), 14);
    /* And what is open can be used. */
    a.params.max_tokens = 3;
    for (uint32_t i = 0; i < 5; i++) {
        struct tr_rig_req n;
        cr_assert_eq(tr_rig_submit_group(&r, &a, 1, &n), 0);
        tr_rig_run(&r, &n, 1);
        cr_assert_eq(tr_rig_published(&r, &n), 3);
    }
}

Test(offer, a_slot_is_reused_under_the_next_generation)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &q, 1);
    tr_rig_release(&r, &q);
    tr_rig_turn(&r);
    struct tr_ring *ring = tr_rig_ring(&r, &q);
    cr_assert_eq(atomic_load(&ring->gen), q.gen + 1);
    cr_assert_eq(atomic_load(&ring->published), 0);
    cr_assert_eq(tr_ring_ids(&r.s, q.slot)[0], 0, "wiped");
    /* Words of the old generation are nobody's. */
    tr_rig_cancel(&r, &q, TR_ERR_CANCELLED);
    for (uint32_t i = 0; i < 40; i++) {
        struct tr_rig_req n = tr_rig_submit(&r, &a);
        tr_rig_cancel(&r, &q, TR_ERR_CLIENT_GONE);
        tr_rig_run(&r, &n, 1);
        bool reused = n.slot == q.slot;
        cr_assert(reused || tr_rig_state(&r, &n) == TR_INCOMPLETE);
        tr_rig_release(&r, &n);
        tr_rig_turn(&r);
    }
}
