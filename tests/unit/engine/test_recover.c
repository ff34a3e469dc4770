/* SPDX-License-Identifier: Apache-2.0 */
#include "enginerig/engine_lives.h"
#include "enginerig/engine_rig.h"

#include "base/sim_vocab.h"
#include "shm/bill.h"

#include <criterion/criterion.h>
#include <signal.h>
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
Test(recover, no_more_tokens_are_billed_than_there_are)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = 3;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, NULL, 0);
    struct tr_ring *x = tr_rig_ring(&r, &q);
    x->finish_index = x->overrun = UINT64_MAX;
    atomic_store(&r.s.accounting->tail, 0);
    tr_engine_rig_restart(&r);
    cr_assert_eq(tr_rig_bills(&r), 1);
    cr_assert_eq(tr_rig_bill(&r, 0)->completion_tokens, 3);
    cr_assert_eq(tr_rig_bill(&r, 0)->overrun_tokens, 0);
    check_clean(&q, 1);
}

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

/* ---- torn states, by hand ---- */

static void as_engine(void)
{
    tr_role = TR_ROLE_ENGINE;
}

/* A request that has published n tokens; the engine is dead. */
static struct tr_rig_req crashed_after(const struct tr_rig_ask *a, uint32_t n)
{
    struct tr_rig_req q = tr_rig_submit(&r, a);
    while (tr_rig_published(&r, &q) < n) {
        tr_rig_turn(&r);
        tr_rig_read_all(&r, &q);
    }
    tr_engine_rig_crash(&r);
    return q;
}

Test(recover, a_last_token_without_its_end_is_the_last)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct answer want = undisturbed(&a);
    struct tr_rig_req q = crashed_after(&a, 15);
    as_engine();
    tr_ring_push(&r.s, q.slot, want.ids[15], atomic_load(&r.s.rings->step));
    tr_engine_rig_restart(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE, "without another step");
    check_same(&q, &want);
    check_clean(&q, 1);
}

Test(recover, so_is_an_end_of_turn_and_a_stop_id)
{
    static const struct tr_extra e = {.n_stop = 1, .stop_ids = {TR_SIM_TEXT + 5}};
    struct tr_rig_ask a = tr_rig_ask();
    a.params.flags = TR_REQ_STREAM;
    a.extra = &e;
    for (uint32_t i = 0; i < 2; i++) {
        struct tr_rig_req q = crashed_after(&a, 3);
        as_engine();
        tr_ring_push(&r.s, q.slot, i ? TR_SIM_EOS : TR_SIM_TEXT + 5, 0);
        tr_engine_rig_restart(&r);
        cr_assert_eq(tr_rig_state(&r, &q), TR_COMPLETED);
        cr_assert_eq(tr_rig_ring(&r, &q)->finish, i ? TR_FINISH_EOG : TR_FINISH_STOP_ID);
        cr_assert_eq(tr_rig_ring(&r, &q)->finish_index, 4);
        check_clean(&q, 1);
    }
}

/* Its end is there, but a stop string may be in what was not scanned. */
Test(recover, one_that_waits_for_the_scan_of_its_last_tokens_goes_on_waiting)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = 5;
    a.params.flags |= TR_REQ_STOP_STRINGS;
    for (uint32_t i = 0; i < 2; i++) {
        struct tr_rig_req q = tr_rig_submit(&r, &a);
        tr_rig_run(&r, NULL, 0);
        cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
        tr_engine_rig_restart(&r);
        tr_rig_run(&r, NULL, 0);
        cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
        cr_assert_eq(tr_rig_published(&r, &q), 5, "nothing beyond its end");
        if (i)
            tr_rig_finish(&r, &q, 4);
        tr_rig_read_all(&r, &q);
        tr_rig_run(&r, NULL, 0);
        cr_assert_eq(tr_rig_state(&r, &q), i ? TR_COMPLETED : TR_INCOMPLETE);
        cr_assert_eq(tr_rig_ring(&r, &q)->finish_index, i ? 4 : 5);
        check_clean(&q, 1);
    }
}

static void forget_bit(void *arg, uint32_t area, uint32_t slot, uint64_t word)
{
    (void)arg;
    (void)area;
    (void)slot;
    (void)word;
}

Test(recover, commands_are_read_again)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q[2];
    for (uint32_t i = 0; i < 2; i++)
        q[i] = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    tr_rig_turn(&r);
    tr_rig_cancel(&r, &q[0], TR_ERR_DEADLINE);
    tr_rig_finish(&r, &q[1], 1);
    as_engine();
    tr_cmd_sweep(&r.s, 0, forget_bit, NULL);
    tr_engine_rig_restart(&r);
    cr_assert_eq(tr_rig_state(&r, &q[0]), TR_CANCELLED);
    cr_assert_eq(tr_rig_ring(&r, &q[0])->err, TR_ERR_DEADLINE);
    cr_assert_eq(tr_rig_state(&r, &q[1]), TR_COMPLETED);
    cr_assert_eq(tr_rig_ring(&r, &q[1])->finish, TR_FINISH_STOP_STRING);
    check_clean(q, 2);
}

Test(recover, a_record_that_was_not_counted_is_counted_once)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_TOK_COMPLETION), 16);
    /* As if it had died between the record and the statistics. */
    as_engine();
    atomic_store(&r.s.rings->bills_counted, 0);
    atomic_store(&r.s.stat[TR_STAT_ENGINE]->value[TR_STAT_TOK_COMPLETION], 0);
    for (uint32_t i = 0; i < 2; i++) {
        tr_engine_rig_restart(&r);
        cr_assert_eq(tr_rig_stat(&r, TR_STAT_TOK_COMPLETION), 16);
    }
    check_clean(&q, 1);
}

Test(recover, who_has_waited_longest_for_a_token_comes_first_and_then_those_that_waited)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q[5];
    for (uint32_t i = 0; i < 5; i++) {
        q[i] = tr_rig_submit(&r, &a);
        tr_rig_turn(&r);
    }
    cr_assert_eq(tr_rig_state(&r, &q[3]), TR_WAITING);
    /* All were served by the same steps: as if the third had not been for some. */
    uint32_t *steps = (uint32_t *)tr_ring_steps(&r.s, q[2].slot);
    steps[tr_rig_published(&r, &q[2]) - 1] = 0;
    tr_engine_rig_crash(&r);
    r.c.sched.prefill_chunk = 4;
    r.c.shm.max_seqs = r.s.config.max_seqs;
    tr_engine_rig_restart(&r);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q[2]), TR_PREFILL);
    cr_assert_eq(tr_rig_state(&r, &q[0]), TR_WAITING);
    tr_rig_run(&r, q, 5);
    for (uint32_t i = 0; i < 4; i++)
        cr_assert_leq(tr_rig_ring(&r, &q[i])->finished_ns, tr_rig_ring(&r, &q[4])->finished_ns);
    check_clean(q, 5);
}

Test(recover, what_admission_would_not_have_let_pass_ends_with_engine_lost)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.params.flags |= TR_REQ_LOGPROBS;
    struct tr_rig_req q[4];
    for (uint32_t i = 0; i < 3; i++)
        q[i] = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    as_engine();
    tr_ring_ids_rw(&r.s, q[0].slot)[1] = UINT32_MAX;
    tr_rig_ring(&r, &q[1])->params.temperature = -1;
    atomic_store(&tr_rig_ring(&r, &q[2])->lp_tail, 9);
    tr_engine_rig_restart(&r);
    for (uint32_t i = 0; i < 3; i++)
        cr_assert_eq(tr_rig_ring(&r, &q[i])->err, TR_ERR_ENGINE_LOST, "%u", i);
    check_clean(q, 3);
}

/* ---- torn states, all of them: killed at every point that there is ---- */

#ifdef TR_FAULTS

static struct tr_lives lives;

static const char *const points[] = {
#define X(id, name, what) name,
#include "base/fault.def"
#undef X
};

enum { CHOICES = 10, PROMPT = 40 };

static uint32_t long_prompt[PROMPT];

static bool guesses; /* speculation is on, and some answers are easily guessed */

/* One of each kind: greedy, sampled with everything, a group, logprobs, echoes, a stop string found late,
 * a reader that is always behind, nothing but a prompt. */
static void submit_all(void)
{
    static const struct tr_extra two = {.n_bias = 2,
                                        .bias = {{TR_SIM_TEXT + 5, 97}, {TR_SIM_TEXT + 6, 100}}};
    static const struct tr_extra e = {.n_bias = 2,
                                      .bias = {{TR_SIM_TEXT + 3, 4}, {TR_SIM_TEXT + 9, -50}},
                                      .n_stop = 1,
                                      .stop_ids = {TR_SIM_TEXT + 3}};
    struct tr_rig_ask a[CHOICES];
    struct tr_lives_req how[CHOICES] = {0};
    for (uint32_t i = 0; i < PROMPT; i++)
        long_prompt[i] = TR_SIM_TEXT + i;
    for (uint32_t i = 0; i < CHOICES; i++) {
        a[i] = tr_rig_ask();
        a[i].rand = i + 1;
        a[i].params.seed = i + 100;
        a[i].area = i % 4;
        a[i].params.max_tokens = 20 + i;
        a[i].params.temperature = i % 2 ? 1 : 0;
    }
    a[1].params.flags = TR_REQ_STREAM;
    a[1].params.repetition_penalty = 1.3F;
    a[1].params.presence_penalty = 0.5F;
    a[1].params.frequency_penalty = 0.3F;
    a[1].params.min_tokens = 12;
    a[1].extra = &e;
    a[3].area = a[2].area;
    a[3].rand = a[2].rand;
    a[3].params.choice = 1;
    a[3].params.max_tokens = 3;
    a[4].params.flags |= TR_REQ_LOGPROBS;
    a[4].params.n_top = 3;
    for (uint32_t i = 5; i < 7; i++) {
        a[i].prompt = long_prompt;
        a[i].prompt_len = PROMPT;
        a[i].params.flags |= TR_REQ_ECHO_LOGPROBS | (i == 5 ? TR_REQ_LOGPROBS : 0);
    }
    a[6].params.max_tokens = 0;
    a[7].params.flags |= TR_REQ_STOP_STRINGS;
    how[7] = (struct tr_lives_req){.stop_at = 9, .slow = true};
    how[8].slow = true;
    a[9].params.flags |= TR_REQ_STOP_STRINGS;
    for (uint32_t i = 3; i < CHOICES && guesses; i++)
        a[i].extra = &two;
    for (uint32_t i = 0; i < CHOICES; i++) {
        uint32_t n = i == 2 ? 2 : 1;
        tr_lives_submit(&lives, &a[i], &how[i], n);
        i += n - 1;
    }
}

static void check_as(const struct tr_lives_req *as, const char *where, uint64_t skip)
{
    for (uint32_t i = 0; i < CHOICES; i++) {
        const struct tr_lives_req *q = &lives.req[i], *w = &as[i];
        cr_assert(q->state == w->state && q->finish == w->finish && q->err == w->err &&
                      q->finish_index == w->finish_index,
                  "%s +%lu, request %u: ended %u %u %u at %lu, not %u %u %u at %lu", where, skip, i,
                  q->state, q->finish, q->err, q->finish_index, w->state, w->finish, w->err,
                  w->finish_index);
        cr_assert(memcmp(q->out, w->out, q->finish_index * sizeof(uint32_t)) == 0,
                  "%s +%lu, request %u: other tokens", where, skip, i);
        cr_assert(q->n_lp == w->n_lp && memcmp(q->lp, w->lp, q->n_lp * sizeof(struct tr_lp)) == 0,
                  "%s +%lu, request %u: other logprobs (%u, not %u)", where, skip, i, q->n_lp,
                  w->n_lp);
    }
}

static uint64_t completion_of_all(void)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < CHOICES; i++)
        n += lives.req[i].finish_index;
    return n;
}

static struct tr_lives_req want[CHOICES];
static uint64_t requests, tokens; /* before those that are at work */

static void lives_with(bool speculate)
{
    tr_engine_rig_close(&r);
    struct tr_engine_rig_config c = {
        .shm =
            {.n_ctx = 96, .n_slots = 24, .n_admit = 16, .max_seqs = 5, .window = 16, .ledger = 1},
        .sched = {.prefill_chunk = 12, .speculate = speculate, .draft_floor = 0.2F},
        .kv_blocks = 6};
    tr_engine_rig_open(&r, &c);
    tr_lives_open(&lives, &r);
    submit_all();
    cr_assert_eq(tr_lives_all(&lives, 0), 0);
}

/* Never speculating, nobody dies. */
static void open_lives(void)
{
    lives_with(false);
    memcpy(want, lives.req, sizeof(want));
    if (guesses)
        lives_with(true);
}

/* The same requests once more; the first engine dies in the middle of it if `twice`. */
static void begin_again(bool twice)
{
    requests += CHOICES - 1;
    tokens += completion_of_all();
    tr_lives_clear(&lives);
    submit_all();
    if (!twice)
        return;
    tr_lives_arm(TR_FAULT_ENGINE_STEP_PUSHED, TR_FAULT_KILL, 1, 30);
    cr_assert_eq(tr_lives_next(&lives), SIGKILL);
    tr_lives_disarm(TR_FAULT_ENGINE_STEP_PUSHED);
}

/* Killed at a point, and then left alone.  Whether it got there. */
static uint64_t die_at(uint32_t p, uint64_t skip)
{
    tr_lives_arm(p, TR_FAULT_KILL, 1, skip);
    cr_assert_leq(tr_lives_all(&lives, 1), 1);
    uint64_t fired = tr_lives_fired(p);
    tr_lives_disarm(p);
    check_as(want, points[p], skip);
    cr_assert_eq(tr_rig_bills(&r), requests + CHOICES - 1, "%s +%lu: one record for each",
                 points[p], skip);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_TOK_COMPLETION), tokens + completion_of_all(),
                 "%s +%lu: counted once", points[p], skip);
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_OPEN), 16, "%s +%lu", points[p], skip);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 0);
    return fired;
}

static void everywhere(bool twice, const uint64_t *skips, uint32_t n)
{
    uint64_t fired = 0;
    open_lives();
    for (uint32_t p = 0; p < TR_FAULT_POINTS; p++)
        for (uint32_t k = 0; k < n && strncmp(points[p], "engine.", 7) == 0; k++) {
            begin_again(twice);
            fired += die_at(p, skips[k]);
        }
    cr_assert_gt(fired, 100, "%lu engines died", fired);
    cr_assert_eq(guesses, tr_rig_stat(&r, TR_STAT_ACCEPTED) > 1000);
}

Test(recover, killed_anywhere_nothing_is_another, .timeout = 200)
{
    static const uint64_t skips[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 17, 23, 40};
    everywhere(false, skips, sizeof(skips) / sizeof(skips[0]));
}

/* Between the tokens of one step, too. */
Test(recover, nor_if_tokens_are_guessed, .timeout = 200)
{
    static const uint64_t skips[] = {0, 1, 2, 3, 5, 7, 11, 20, 31, 50};
    guesses = true;
    everywhere(false, skips, sizeof(skips) / sizeof(skips[0]));
}

Test(recover, nor_if_the_next_one_is_killed_while_it_recovers_or_later, .timeout = 200)
{
    static const uint64_t skips[] = {0, 1, 3, 6, 15};
    everywhere(true, skips, sizeof(skips) / sizeof(skips[0]));
}

#endif
