/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/seq.h"

#include "shm/region.h"

#include <criterion/criterion.h>
#include <signal.h>

static const enum tr_state all[] = {TR_FREE,       TR_WAITING,   TR_PREFILL,
                                    TR_RUNNING,    TR_PARKED,    TR_COMPLETED,
                                    TR_INCOMPLETE, TR_CANCELLED, TR_ERROR};
enum { N_STATES = sizeof(all) / sizeof(all[0]) };

Test(seq, every_live_state_can_end_in_every_way_and_only_once)
{
    for (uint32_t i = TR_WAITING; i <= TR_PARKED; i++)
        for (uint32_t k = TR_COMPLETED; k <= TR_ERROR; k++)
            cr_assert(tr_seq_may_move(all[i], all[k]));
    for (uint32_t i = TR_COMPLETED; i <= TR_ERROR; i++)
        for (uint32_t k = 0; k < N_STATES; k++)
            cr_assert_eq(tr_seq_may_move(all[i], all[k]), all[k] == TR_FREE);
}

Test(seq, a_free_slot_can_only_be_admitted)
{
    for (uint32_t k = 0; k < N_STATES; k++)
        cr_assert_eq(tr_seq_may_move(TR_FREE, all[k]), all[k] == TR_WAITING);
}

Test(seq, no_state_is_its_own_successor_and_nonsense_is_refused)
{
    for (uint32_t k = 0; k < N_STATES; k++)
        cr_assert(!tr_seq_may_move(all[k], all[k]));
    cr_assert(!tr_seq_may_move((enum tr_state)77, TR_FREE));
    cr_assert(!tr_seq_may_move(TR_WAITING, (enum tr_state)77));
}

Test(seq, parked_does_not_go_back_into_the_queue)
{
    cr_assert(!tr_seq_may_move(TR_PARKED, TR_WAITING));
    cr_assert(tr_seq_may_move(TR_PARKED, TR_RUNNING));
    cr_assert(tr_seq_may_move(TR_PARKED, TR_PREFILL));
}

static void attach(struct tr_shm *s)
{
    static struct tr_shm_fds fds;
    struct tr_shm_config c = {.n_ctx = 64,
                              .n_vocab = 16,
                              .n_slots = 2,
                              .n_admit = 2,
                              .max_seqs = 1,
                              .n_areas = 2,
                              .window = 8};
    struct tr_errbuf err;
    cr_assert_eq(tr_shm_create(&c, &fds, &err), 0);
    cr_assert_eq(tr_shm_attach_all(s, &fds, &err), 0);
    tr_role = TR_ROLE_ENGINE;
}

Test(seq, a_move_is_seen_in_the_ring_and_release_takes_the_next_generation)
{
    struct tr_shm s;
    attach(&s);
    struct tr_seq q = {.slot = 1};
    uint32_t gen = atomic_load(&tr_ring_at(&s, 1)->gen);
    q.gen = gen;
    tr_seq_move(&s, &q, TR_WAITING);
    cr_assert_eq(atomic_load(&tr_ring_at(&s, 1)->state), TR_WAITING);
    tr_seq_move(&s, &q, TR_CANCELLED);
    cr_assert_eq(atomic_load(&tr_ring_at(&s, 1)->state), TR_CANCELLED);
    tr_seq_move(&s, &q, TR_FREE);
    cr_assert_eq(atomic_load(&tr_ring_at(&s, 1)->state), TR_FREE);
    cr_assert_eq(q.gen, gen + 1);
}

Test(seq, a_move_outside_the_table_stops_the_process, .signal = SIGABRT)
{
    struct tr_shm s;
    attach(&s);
    struct tr_seq q = {.slot = 0};
    tr_seq_move(&s, &q, TR_RUNNING);
}

Test(seq, a_sequence_that_ends_with_blocks_stops_the_process, .signal = SIGABRT)
{
    struct tr_shm s;
    attach(&s);
    struct tr_seq q = {.slot = 0, .prompt_len = 4, .max_tokens = 4};
    tr_seq_move(&s, &q, TR_WAITING);
    q.n_blocks = 1;
    tr_seq_move(&s, &q, TR_CANCELLED);
}
