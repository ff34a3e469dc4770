/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/claim.h"

#include "testlib/shm_rig.h"

#include <criterion/criterion.h>
#include <errno.h>

static struct shm_rig r;

static void setup(void)
{
    shm_rig_open(&r, 4, 0);
    shm_rig_open_slots(&r);
    tr_role = TR_ROLE_FRONTEND;
}

static void teardown(void)
{
    shm_rig_close(&r);
}

TestSuite(claim, .init = setup, .fini = teardown);

Test(claim, a_word_keeps_every_field)
{
    struct tr_claim c = {.state = TR_CLAIM_CLAIMED, .area = 63, .epoch = 0xffff, .gen = 0xfffffffe};
    struct tr_claim d = tr_claim_unpack(tr_claim_pack(c));
    cr_assert(d.state == c.state && d.area == c.area && d.epoch == c.epoch && d.gen == c.gen);
}

Test(claim, slots_are_taken_once)
{
    uint32_t slot[4], gen[4], more, more_gen;
    cr_assert_eq(tr_claim_take(&r.s, 4, slot, gen), 0);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            cr_assert_neq(slot[i], slot[j]);
    cr_assert_eq(tr_claim_take(&r.s, 1, &more, &more_gen), -EAGAIN);
}

Test(claim, a_group_is_claimed_all_or_none)
{
    uint32_t slot[5], gen[5];
    cr_assert_eq(tr_claim_take(&r.s, 5, slot, gen), -EAGAIN);
    cr_assert_eq(tr_claim_take(&r.s, 4, slot, gen), 0, "the failed group must hold nothing");
}

Test(claim, what_is_given_back_is_open_again)
{
    uint32_t slot, gen, slots[4], gens[4];
    cr_assert_eq(tr_claim_take(&r.s, 1, &slot, &gen), 0);
    tr_claim_give(&r.s, slot, gen);
    cr_assert_eq(tr_claim_take(&r.s, 4, slots, gens), 0);
}

Test(claim, giving_back_what_the_engine_took_changes_nothing)
{
    uint32_t slot, gen;
    cr_assert_eq(tr_claim_take(&r.s, 1, &slot, &gen), 0);
    tr_role = TR_ROLE_ENGINE;
    tr_claim_set(&r.s, slot, (struct tr_claim){.state = TR_CLAIM_TAKEN, .gen = gen});
    tr_role = TR_ROLE_FRONTEND;
    tr_claim_give(&r.s, slot, gen);
    cr_assert_eq(tr_claim_get(&r.s, slot).state, TR_CLAIM_TAKEN);
}

Test(claim, the_sweep_opens_what_a_dead_frontend_held_and_nothing_else)
{
    uint32_t slot, gen;
    cr_assert_eq(tr_claim_take(&r.s, 1, &slot, &gen), 0);
    tr_role = TR_ROLE_ENGINE;
    struct tr_claim now = tr_claim_get(&r.s, slot), other = now;
    other.epoch++;
    struct tr_claim open = {.state = TR_CLAIM_OPEN, .gen = gen};
    cr_assert_not(tr_claim_swap(&r.s, slot, other, open));
    cr_assert(tr_claim_swap(&r.s, slot, now, open));
    cr_assert_eq(tr_claim_get(&r.s, slot).state, TR_CLAIM_OPEN);
}

/* ---- owner words that lie ---- */

static void lie(uint32_t slot, uint8_t state, uint32_t gen)
{
    struct tr_claim c = {.state = state, .gen = gen};
    atomic_store(&r.s.claims->word[slot], tr_claim_pack(c));
}

static void close_all(void)
{
    for (uint32_t i = 0; i < 4; i++)
        lie(i, TR_CLAIM_CLOSED, 1);
}

Test(claim, a_word_that_opens_a_slot_with_a_request_is_not_believed)
{
    uint32_t slot, gen;
    close_all();
    atomic_store(&tr_ring_at(&r.s, 2)->state, TR_RUNNING);
    lie(2, TR_CLAIM_OPEN, 1);
    cr_assert_eq(tr_claim_take(&r.s, 1, &slot, &gen), -EAGAIN);
}

Test(claim, a_word_with_another_generation_is_not_believed)
{
    uint32_t slot, gen;
    close_all();
    lie(2, TR_CLAIM_OPEN, 7);
    cr_assert_eq(tr_claim_take(&r.s, 1, &slot, &gen), -EAGAIN);
}

Test(claim, a_generation_is_taken_once_even_if_its_word_is_opened_again)
{
    uint32_t slot, gen, again;
    cr_assert_eq(tr_claim_take(&r.s, 1, &slot, &gen), 0);
    close_all();
    lie(slot, TR_CLAIM_OPEN, gen);
    cr_assert_eq(tr_claim_take(&r.s, 1, &again, &gen), -EAGAIN);
}

Test(claim, a_claim_is_lost_when_its_word_says_so_and_the_ring_has_no_request)
{
    uint32_t slot, gen;
    cr_assert_eq(tr_claim_take(&r.s, 1, &slot, &gen), 0);
    cr_assert_not(tr_claim_is_lost(&r.s, slot, gen));
    lie(slot, TR_CLAIM_TAKEN, gen);
    cr_assert_not(tr_claim_is_lost(&r.s, slot, gen), "the engine is about to admit it");
    lie(slot, TR_CLAIM_CLAIMED, gen); /* by area 0 of another epoch */
    cr_assert(tr_claim_is_lost(&r.s, slot, gen));
    lie(slot, TR_CLAIM_OPEN, gen);
    cr_assert(tr_claim_is_lost(&r.s, slot, gen));
    atomic_store(&tr_ring_at(&r.s, slot)->state, TR_WAITING);
    cr_assert_not(tr_claim_is_lost(&r.s, slot, gen), "an admitted request is safe");
}
