/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/ring.h"

#include "shm/lpring.h"
#include "testlib/shm_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct shm_rig r;

static void setup(void)
{
    shm_rig_open(&r, 2, 0);
    shm_rig_open_slots(&r);
}

static void teardown(void)
{
    shm_rig_close(&r);
}

TestSuite(ring, .init = setup, .fini = teardown);

static uint32_t gen_of(uint32_t slot)
{
    return atomic_load(&tr_ring_at(&r.s, slot)->gen);
}

Test(ring, ids_come_back_in_order_behind_the_prompt)
{
    tr_ring_at(&r.s, 0)->prompt_len = 3;
    for (uint32_t i = 0; i < 5; i++)
        cr_assert_eq(tr_ring_push(&r.s, 0, 100 + i, 7 + i), 0);
    uint32_t state;
    cr_assert_eq(tr_ring_read(&r.s, 0, gen_of(0), &state), 5);
    cr_assert_eq(tr_ring_ids(&r.s, 0)[3 + 4], 104);
    cr_assert_eq(tr_ring_steps(&r.s, 0)[4], 11);
}

Test(ring, a_full_context_refuses_and_is_unchanged)
{
    tr_ring_at(&r.s, 0)->prompt_len = 254;
    cr_assert_eq(tr_ring_push(&r.s, 0, 1, 0), 0);
    cr_assert_eq(tr_ring_push(&r.s, 0, 2, 0), 0);
    cr_assert_eq(tr_ring_push(&r.s, 0, 3, 0), -ENOSPC);
    uint32_t state;
    cr_assert_eq(tr_ring_read(&r.s, 0, gen_of(0), &state), 2);
}

Test(ring, a_reader_of_another_generation_is_told)
{
    uint32_t old = gen_of(0), state;
    tr_ring_reset(&r.s, 0);
    cr_assert_eq(tr_ring_read(&r.s, 0, old, &state), -ESTALE);
    cr_assert_eq(tr_ring_read(&r.s, 99, 1, &state), -ESTALE);
}

Test(ring, a_request_is_there_while_state_and_generation_say_so)
{
    struct tr_ring *g = tr_ring_at(&r.s, 0);
    cr_assert_eq(tr_ring_request(&r.s, 0), 0, "free");
    g->of_gen = gen_of(0);
    cr_assert_eq(tr_ring_request(&r.s, 0), 0, "not yet admitted");
    atomic_store(&g->state, TR_WAITING);
    cr_assert_eq(tr_ring_request(&r.s, 0), gen_of(0));
    atomic_fetch_add(&g->gen, 1);
    cr_assert_eq(tr_ring_request(&r.s, 0), 0, "just being wiped");
    cr_assert_eq(tr_ring_request(&r.s, 99), 0);
}

Test(ring, a_reset_wipes_what_was_used)
{
    struct tr_ring *g = tr_ring_at(&r.s, 0);
    g->prompt_len = 4;
    tr_ring_ids_rw(&r.s, 0)[0] = 42;
    tr_ring_push(&r.s, 0, 43, 0);
    g->finish_index = 9;
    struct tr_lp lp = {.id = 43, .logprob = -1.0f};
    shm_rig_own(&r, 0);
    cr_assert_eq(tr_lpring_push(&r.s, 0, &lp), 0);
    tr_ring_reset(&r.s, 0);
    const struct tr_lp *entry =
        (const struct tr_lp *)((const char *)g + tr_layout_ring_lp(&r.s.config));
    cr_assert_eq(entry->id, 0);
    cr_assert_eq(tr_ring_ids(&r.s, 0)[0], 0);
    cr_assert_eq(tr_ring_ids(&r.s, 0)[4], 0);
    cr_assert_eq(g->finish_index, 0);
    cr_assert_eq(g->prompt_len, 0);
}

Test(ring, generation_zero_is_never_used)
{
    atomic_store(&tr_ring_at(&r.s, 0)->gen, UINT32_MAX);
    tr_ring_reset(&r.s, 0);
    cr_assert_eq(gen_of(0), 1);
}

Test(ring, a_nonsense_count_is_bounded_by_the_context)
{
    struct tr_ring *g = tr_ring_at(&r.s, 0);
    uint32_t state;
    g->prompt_len = 10;
    atomic_store(&g->published, UINT64_MAX);
    cr_assert_eq(tr_ring_read(&r.s, 0, gen_of(0), &state), 246);
    g->prompt_len = UINT32_MAX;
    cr_assert_eq(tr_ring_read(&r.s, 0, gen_of(0), &state), 0);
}

Test(ring, logprob_entries_fill_the_window_and_no_more)
{
    struct tr_lp e = {.id = 1}, out;
    shm_rig_own(&r, 0);
    for (uint32_t i = 0; i < 16; i++) {
        e.id = i;
        cr_assert_eq(tr_lpring_push(&r.s, 0, &e), 0);
    }
    cr_assert_eq(tr_lpring_push(&r.s, 0, &e), -EAGAIN);
    tr_role = TR_ROLE_FRONTEND;
    for (uint32_t i = 0; i < 16; i++) {
        cr_assert_eq(tr_lpring_peek(&r.s, 0, &out), 0);
        cr_assert_eq(out.id, i);
        tr_lpring_pop(&r.s, 0);
    }
    cr_assert_eq(tr_lpring_peek(&r.s, 0, &out), -EAGAIN);
}

Test(ring, a_nonsense_logprob_head_looks_full)
{
    struct tr_lp e = {.id = 1};
    shm_rig_own(&r, 0);
    atomic_store(&tr_cursor_at(&r.s, 0, 0)->lp_head, UINT64_MAX / 2);
    cr_assert_eq(tr_lpring_push(&r.s, 0, &e), -EAGAIN);
}

Test(ring, a_nonsense_number_of_alternatives_is_bounded_on_reading)
{
    struct tr_lp e = {.id = 1, .n_top = 4000000000u}, out;
    shm_rig_own(&r, 0);
    cr_assert_eq(tr_lpring_push(&r.s, 0, &e), 0);
    cr_assert_eq(tr_lpring_peek(&r.s, 0, &out), 0);
    cr_assert_leq(out.n_top, TR_MAX_TOP);
}

Test(ring, only_terminal_states_have_a_name)
{
    for (uint32_t s = TR_FREE; s < TR_ERROR + 2; s++)
        cr_expect((tr_state_name(s) != NULL) == tr_state_terminal(s), "%u", s);
    cr_expect(strcmp(tr_state_name(TR_INCOMPLETE), "incomplete") == 0);
}

Test(ring, the_end_before_is_told_for_one_generation_more)
{
    struct tr_ring *ring = tr_ring_at(&r.s, 0);
    uint32_t gen = gen_of(0);
    struct tr_ring_past p;

    ring->finish_index = 1 << 20;
    ring->err = TR_ERR_FRONTEND_LOST;
    tr_ring_end(&r.s, 0, TR_CANCELLED);
    cr_expect_eq(tr_ring_past_of(&r.s, 0, gen, &p), -ESTALE, "it is the present one");
    tr_ring_reset(&r.s, 0);
    cr_assert_eq(tr_ring_past_of(&r.s, 0, gen, &p), 0);
    cr_expect(p.state == TR_CANCELLED && p.err == TR_ERR_FRONTEND_LOST &&
              p.finish_index == 1 << 20);
    cr_expect_eq(tr_ring_past_of(&r.s, 0, gen + 1, &p), -ESTALE);
    tr_ring_reset(&r.s, 0);
    cr_expect_eq(tr_ring_past_of(&r.s, 0, gen, &p), -ESTALE);
    cr_expect_eq(tr_ring_past_of(&r.s, 0, gen + 1, &p), -ESTALE, "it had no end");
    cr_expect_eq(tr_ring_past_of(&r.s, 99, gen, &p), -ESTALE, "no such slot");
}
