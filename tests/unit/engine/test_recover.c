/* SPDX-License-Identifier: Apache-2.0 */
#include "enginerig/engine_rig.h"

#include "shm/bill.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct tr_engine_rig r;

static void setup(void)
{
    struct tr_engine_rig_config c = {
        .shm = {.n_slots = 24, .n_admit = 12, .max_seqs = 3, .window = 6, .ledger = 1}};
    tr_engine_rig_open(&r, &c);
}

static void teardown(void)
{
    tr_engine_rig_close(&r);
}

TestSuite(recover, .init = setup, .fini = teardown);

/* What an engine gives that nobody disturbs, for one request; its slot is free again. */
struct answer {
    uint32_t n, ids[64], state;
};

static struct answer answer_of(const struct tr_rig_req *q)
{
    struct answer a = {.n = tr_rig_published(&r, q), .state = tr_rig_state(&r, q)};
    cr_assert_leq(a.n, 64);
    memcpy(a.ids, tr_rig_output(&r, q), a.n * sizeof(uint32_t));
    return a;
}

static struct answer undisturbed(const struct tr_rig_ask *a)
{
    struct tr_rig_req q = tr_rig_submit(&r, a);
    tr_rig_run(&r, &q, 1);
    struct answer out = answer_of(&q);
    tr_rig_ledger_runs(&r);
    tr_rig_release(&r, &q);
    tr_rig_run(&r, NULL, 0);
    return out;
}

static void check_same(const struct tr_rig_req *q, const struct answer *want)
{
    struct answer got = answer_of(q);
    cr_assert_eq(got.n, want->n);
    cr_assert_eq(got.state, want->state);
    cr_assert_arr_eq(got.ids, want->ids, got.n * sizeof(uint32_t));
    cr_assert_eq(tr_rig_ring(&r, q)->finish_index, want->n);
    cr_assert_neq(atomic_load(&tr_rig_ring(&r, q)->bill_seq), 0);
}

/* All released and durable: everything is as at the start. */
static void check_clean(const struct tr_rig_req *q, uint32_t n)
{
    tr_rig_ledger_runs(&r);
    for (uint32_t i = 0; i < n; i++)
        tr_rig_release(&r, &q[i]);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_OPEN), r.c.shm.n_admit);
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_TAKEN), 0);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 0);
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req next = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &next, 1);
    cr_assert_eq(tr_rig_published(&r, &next), 16);
    tr_rig_ledger_runs(&r);
    tr_rig_release(&r, &next);
    tr_rig_run(&r, NULL, 0);
}

Test(recover, every_state_goes_on_and_the_slots_come_back)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct answer want = undisturbed(&a);
    struct tr_rig_req q[8];
    uint64_t bills = tr_rig_bills(&r);
    q[0] = tr_rig_submit(&r, &a);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q[0]), TR_PARKED);
    for (uint32_t i = 1; i < 7; i++)
        q[i] = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q[1]), TR_RUNNING);
    cr_assert_eq(tr_rig_state(&r, &q[6]), TR_WAITING);
    q[7] = tr_rig_submit(&r, &a); /* still in the queue */
    uint32_t kept = tr_rig_published(&r, &q[0]);
    tr_engine_rig_crash(&r);
    tr_engine_rig_restart(&r);
    cr_assert_eq(tr_rig_published(&r, &q[0]), kept, "what was published stays");
    cr_assert_eq(tr_rig_state(&r, &q[0]), TR_PARKED);
    cr_assert_eq(tr_rig_state(&r, &q[1]), TR_WAITING);
    cr_assert_eq(tr_rig_state(&r, &q[7]), TR_FREE);
    tr_rig_run(&r, q, 8);
    for (uint32_t i = 0; i < 8; i++)
        check_same(&q[i], &want);
    cr_assert_eq(tr_rig_bills(&r), bills + 8);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_TOK_COMPLETION), 9 * want.n);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_END_LENGTH), 9);
    cr_assert_eq(tr_rig_hist(&r, TR_HIST_TTFT), 9);
    check_clean(q, 8);
}

Test(recover, what_had_ended_keeps_its_end_and_its_record)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = 3;
    struct tr_rig_req q[2] = {tr_rig_submit(&r, &a), tr_rig_submit(&r, &a)};
    tr_rig_run(&r, NULL, 0);
    tr_rig_ledger_runs(&r);
    tr_rig_release(&r, &q[0]);
    /* The dead engine had taken the dirty bit, but not the slot. */
    tr_role = TR_ROLE_ENGINE;
    tr_engine_rig_crash(&r);
    tr_engine_rig_restart(&r);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_bills(&r), 2);
    cr_assert_eq(tr_rig_state(&r, &q[1]), TR_INCOMPLETE);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q[0])->gen), q[0].gen + 1);
    check_clean(q, 2);
}

Test(recover, a_number_that_was_never_counted_is_void)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = 3;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, NULL, 0);
    /* As if the engine had died between the number and the push. */
    atomic_store(&r.s.accounting->tail, 0);
    tr_engine_rig_restart(&r);
    cr_assert_eq(tr_rig_bills(&r), 1);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q)->bill_seq), 1);
    check_clean(&q, 1);
}

Test(recover, a_group_has_one_record)
{
    struct tr_rig_ask a[3] = {tr_rig_ask(), tr_rig_ask(), tr_rig_ask()};
    struct answer want[3];
    struct tr_rig_req q[3];
    for (uint32_t i = 0; i < 3; i++) {
        a[i].params.temperature = 1;
        a[i].params.seed = 5;
        a[i].params.choice = i;
        want[i] = undisturbed(&a[i]);
    }
    tr_rig_submit_group(&r, a, 3, q);
    tr_rig_turn(&r);
    tr_engine_rig_restart(&r);
    tr_rig_run(&r, q, 3);
    for (uint32_t i = 0; i < 3; i++)
        check_same(&q[i], &want[i]);
    cr_assert_eq(tr_rig_bills(&r), 4);
    cr_assert_eq(tr_rig_bill(&r, 3)->choices, 3);
    check_clean(q, 3);

    tr_rig_submit_group(&r, a, 3, q); /* not read */
    tr_engine_rig_restart(&r);
    tr_rig_run(&r, q, 3);
    for (uint32_t i = 0; i < 3; i++)
        check_same(&q[i], &want[i]);
    cr_assert_eq(tr_rig_bills(&r), 6, "one for this group, one for the request between");
    cr_assert_eq(tr_rig_bill(&r, 5)->choices, 3);
    check_clean(q, 3);
}

Test(recover, a_group_with_a_finished_choice)
{
    struct tr_rig_ask a[2] = {tr_rig_ask(), tr_rig_ask()};
    struct tr_rig_req q[2];
    a[0].params.max_tokens = 1;
    tr_rig_submit_group(&r, a, 2, q);
    tr_rig_turn(&r);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q[0]), TR_INCOMPLETE);
    tr_engine_rig_restart(&r);
    cr_assert_eq(tr_rig_state(&r, &q[0]), TR_INCOMPLETE);
    cr_assert_eq(tr_rig_bills(&r), 0);
    tr_rig_run(&r, q, 2);
    cr_assert_eq(tr_rig_bills(&r), 1);
    cr_assert_eq(tr_rig_bill(&r, 0)->completion_tokens, 17);
    check_clean(q, 2);
}

/* A member whose frontend still holds its slot, when the lead's slot has the next group's lead. */
Test(recover, an_old_member_does_not_join_the_next_group_of_its_lead_slot)
{
    struct tr_rig_ask a[2] = {tr_rig_ask(), tr_rig_ask()}, b[2] = {tr_rig_ask(), tr_rig_ask()};
    struct tr_rig_req old[2], x, new[2];
    a[0].params.max_tokens = a[1].params.max_tokens = 1;
    tr_rig_submit_group(&r, a, 2, old);
    tr_rig_run(&r, NULL, 0);
    tr_rig_ledger_runs(&r);
    tr_rig_release(&r, &old[0]);
    tr_rig_run(&r, NULL, 0);
    x = tr_rig_submit(&r, &a[0]); /* ends, keeps its slot: the one just freed is opened */
    tr_rig_run(&r, NULL, 0);
    b[0].rand = b[1].rand = a[0].rand + 1;
    r.s.claim_hint = old[0].slot;
    tr_rig_submit_group(&r, b, 2, new);
    cr_assert_eq(new[0].slot, old[0].slot);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_bills(&r), 2);
    tr_engine_rig_restart(&r);
    tr_rig_run(&r, new, 2);
    cr_assert_eq(tr_rig_bills(&r), 3, "the new group has a record of its own");
    cr_assert_eq(tr_rig_bill(&r, 2)->choices, 2);
    struct tr_rig_req all[4] = {old[1], x, new[0], new[1]};
    check_clean(all, 4);
}

Test(recover, open_and_claimed_slots_stay_with_their_frontends)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_prepare(&r, &a);
    tr_engine_rig_restart(&r);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_OPEN), 11);
    tr_rig_push(&r, &q);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_published(&r, &q), 16);
    check_clean(&q, 1);
}

Test(recover, a_release_that_was_cut_short_is_done_again)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = 3;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, NULL, 0);
    tr_rig_ledger_runs(&r);
    atomic_fetch_add(&tr_rig_ring(&r, &q)->gen, 1); /* the first thing a reset does */
    tr_engine_rig_restart(&r);
    tr_rig_turn(&r);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q)->state), TR_FREE);
    cr_assert_eq(tr_rig_bills(&r), 1);
    check_clean(NULL, 0);
}

Test(recover, a_frontend_that_died_with_the_engine_is_buried)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.area = 2;
    struct tr_rig_req q[2] = {tr_rig_submit(&r, &a), tr_rig_submit(&r, &a)};
    tr_rig_turn(&r);
    struct tr_rig_req unread = tr_rig_submit(&r, &a);
    tr_engine_rig_crash(&r);
    tr_rig_kill_frontend(&r, 2);
    tr_engine_rig_restart(&r);
    cr_assert_eq(atomic_load(&r.s.rings->area_ack[2]), 1);
    cr_assert_eq(tr_rig_bills(&r), 3);
    check_clean(NULL, 0);
    (void)q;
    (void)unread;
}

Test(recover, nonsense_in_the_rings_is_bounded)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q[3];
    for (uint32_t i = 0; i < 3; i++)
        q[i] = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    struct tr_ring *x = tr_rig_ring(&r, &q[0]), *y = tr_rig_ring(&r, &q[1]);
    x->prompt_len = UINT32_MAX;
    atomic_store(&x->published, UINT64_MAX);
    atomic_store(&x->owner, 77);
    y->group_lead = 99999;
    y->group_n = 5;
    atomic_store(&tr_rig_ring(&r, &q[2])->state, 1234);
    tr_engine_rig_restart(&r);
    for (uint32_t i = 0; i < 3; i += 2) {
        cr_assert_eq(tr_rig_state(&r, &q[i]), TR_ERROR);
        cr_assert_neq(tr_rig_ring(&r, &q[i])->err, TR_OK);
    }
    tr_rig_run(&r, &q[1], 1);
    cr_assert_eq(tr_rig_state(&r, &q[1]), TR_INCOMPLETE);
    cr_assert_eq(tr_rig_bills(&r), 3);
    check_clean(q + 1, 2);
}

/* Restarts at any moment of random traffic: one record for each request, every slot comes back. */
Test(recover, any_moment, .timeout = 100)
{
    enum { ROUNDS = 300 };
    struct tr_rig_req q[12];
    uint64_t submitted = 0;
    srand(21);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct tr_rig_ask a[3] = {tr_rig_ask(), tr_rig_ask(), tr_rig_ask()};
        uint32_t n = 0;
        while (n < 9) {
            uint32_t g = 1 + (uint32_t)rand() % 3;
            a[0].area = a[1].area = a[2].area = (uint32_t)rand() % 4;
            if (tr_rig_submit_group(&r, a, g, &q[n]))
                break;
            submitted++;
            for (uint32_t k = (uint32_t)rand() % 4; k; k--)
                tr_rig_turn(&r);
            if (rand() % 4 == 0)
                tr_rig_cancel(&r, &q[n], TR_ERR_CLIENT_GONE);
            n += g;
        }
        for (uint32_t k = (uint32_t)rand() % 8; k; k--)
            tr_rig_turn(&r);
        tr_engine_rig_restart(&r);
        for (uint32_t i = 0; i < n; i++)
            tr_rig_read_all(&r, &q[i]); /* a turn in which all stand still would be the last */
        tr_rig_run(&r, q, n);
        cr_assert_eq(tr_rig_bills(&r), submitted, "round %u", round);
        tr_rig_ledger_runs(&r);
        for (uint32_t i = 0; i < n; i++)
            tr_rig_release(&r, &q[i]);
        tr_rig_run(&r, NULL, 0);
        cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_OPEN), r.c.shm.n_admit);
    }
}
