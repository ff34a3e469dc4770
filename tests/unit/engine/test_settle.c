/* SPDX-License-Identifier: Apache-2.0 */
#include "enginerig/engine_rig.h"

#include "base/clock.h"
#include "base/sim_vocab.h"

#include <criterion/criterion.h>

static struct tr_engine_rig r;

static void open_with(uint32_t ledger)
{
    struct tr_engine_rig_config c = {
        .shm = {.n_slots = 24, .n_admit = 16, .max_seqs = 2, .window = 8, .ledger = ledger},
        .sched = {.prefill_chunk = 16}};
    tr_engine_rig_open(&r, &c);
}

static void setup(void)
{
    open_with(0);
}

static void teardown(void)
{
    tr_engine_rig_close(&r);
}

TestSuite(settle, .init = setup, .fini = teardown);

static uint32_t words[400];

static struct tr_rig_ask long_prompt(uint32_t len)
{
    struct tr_rig_ask a = tr_rig_ask();
    for (uint32_t i = 0; i < 400; i++)
        words[i] = TR_SIM_TEXT + (i * 7) % 60;
    a.prompt = words;
    a.prompt_len = len;
    return a;
}

static void check_cancelled(const struct tr_rig_req *q, enum tr_err why, uint32_t published)
{
    const struct tr_ring *ring = tr_rig_ring(&r, q);
    cr_assert_eq(tr_rig_state(&r, q), TR_CANCELLED);
    cr_assert_eq(ring->err, why);
    cr_assert_eq(tr_rig_published(&r, q), published);
    cr_assert_eq(ring->finish_index, published);
    cr_assert_neq(ring->cancel_ack_ns, 0);
    cr_assert_neq(ring->disconnect_ns, 0);
    cr_assert_leq(ring->disconnect_ns, ring->cancel_ack_ns);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 0);
    cr_assert_eq(tr_rig_hist(&r, TR_HIST_ABORT), 1);
}

/* ---- cancel in every state ---- */

Test(settle, cancel_before_the_engine_took_the_submission)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_cancel(&r, &q, TR_ERR_CLIENT_GONE);
    tr_rig_turn(&r);
    check_cancelled(&q, TR_ERR_CLIENT_GONE, 0);
    cr_assert_eq(tr_rig_hist(&r, TR_HIST_STEP), 0, "no step for it");
}

Test(settle, cancel_in_the_queue)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req run[2] = {tr_rig_submit(&r, &a), tr_rig_submit(&r, &a)};
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_WAITING);
    tr_rig_cancel(&r, &q, TR_ERR_DEADLINE);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_CANCELLED);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_END_DEADLINE), 1);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_AVOIDED), 16);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_WAITING), 0);
    (void)run;
}

Test(settle, cancel_in_prefill_frees_the_blocks_before_the_next_step)
{
    struct tr_rig_ask a = long_prompt(400);
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PREFILL);
    cr_assert_eq(tr_rig_ring(&r, &q)->prefill_done, 32);
    cr_assert_gt(tr_rig_stat(&r, TR_STAT_KV_USED), 0);
    tr_rig_cancel(&r, &q, TR_ERR_CLIENT_GONE);
    tr_rig_turn(&r);
    check_cancelled(&q, TR_ERR_CLIENT_GONE, 0);
    cr_assert_eq(tr_rig_hist(&r, TR_HIST_STEP), 2);
}

Test(settle, cancel_in_decode_takes_no_further_token)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    for (uint32_t i = 0; i < 5; i++)
        tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_RUNNING);
    tr_rig_cancel(&r, &q, TR_ERR_CLIENT_GONE);
    tr_rig_turn(&r);
    check_cancelled(&q, TR_ERR_CLIENT_GONE, 5);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_AVOIDED), 11);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_AFTER_DISCONNECT), 0);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_END_CLIENT_GONE), 1);
    const struct tr_bill *b = tr_rig_bill(&r, 0);
    cr_assert_eq(b->completion_tokens, 5);
    cr_assert_eq(b->last_token, tr_rig_output(&r, &q)[4]);
    cr_assert_neq(b->disconnect_ns, 0);
}

Test(settle, cancel_while_parked)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
    tr_rig_cancel(&r, &q, TR_ERR_SLOW_CLIENT);
    tr_rig_turn(&r);
    check_cancelled(&q, TR_ERR_SLOW_CLIENT, 8);
    cr_assert_eq(tr_rig_ring(&r, &q)->wants_cursor, 0);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_PARKED), 0);
}

Test(settle, tokens_after_the_disconnect_are_counted)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    tr_rig_turn(&r);
    uint64_t seen = tr_now_ns();
    tr_rig_turn(&r);
    tr_rig_turn(&r);
    tr_rig_turn(&r);
    tr_rig_cancel(&r, &q, TR_ERR_CLIENT_GONE);
    atomic_store(&tr_cursor_at(&r.s, 0, q.slot)->disconnect_ns, seen);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_AFTER_DISCONNECT), 3);
}

Test(settle, a_reason_that_is_no_cancel_is_an_error)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_submit(&r, &a), z = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    tr_rig_cancel(&r, &q, TR_ERR_INTERNAL);
    tr_rig_cancel(&r, &z, (enum tr_err)4000000);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_ERROR);
    cr_assert_eq(tr_rig_ring(&r, &q)->err, TR_ERR_INTERNAL);
    cr_assert_eq(tr_rig_state(&r, &z), TR_ERROR);
    cr_assert_eq(tr_rig_ring(&r, &z)->err, TR_ERR_INTERNAL, "nonsense is a fault of ours");
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_END_INTERNAL), 2);
}

Test(settle, one_choice_cancelled_leaves_the_others_running)
{
    struct tr_rig_ask a[2] = {tr_rig_ask(), tr_rig_ask()};
    struct tr_rig_req q[2];
    tr_rig_submit_group(&r, a, 2, q);
    tr_rig_turn(&r);
    tr_rig_cancel(&r, &q[0], TR_ERR_CLIENT_GONE);
    tr_rig_run(&r, q, 2);
    cr_assert_eq(tr_rig_state(&r, &q[1]), TR_INCOMPLETE);
    cr_assert_eq(tr_rig_bills(&r), 1);
    cr_assert_eq(tr_rig_bill(&r, 0)->state, TR_CANCELLED, "the worst of the choices");
    cr_assert_eq(tr_rig_bill(&r, 0)->completion_tokens, 17);
}

/* ---- finish ---- */

Test(settle, finish_at_a_token_counts_to_it_and_the_rest_is_overrun)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    for (uint32_t i = 0; i < 6; i++)
        tr_rig_turn(&r);
    tr_rig_finish(&r, &q, 4);
    tr_rig_turn(&r);
    const struct tr_ring *ring = tr_rig_ring(&r, &q);
    cr_assert_eq(tr_rig_state(&r, &q), TR_COMPLETED);
    cr_assert_eq(ring->finish, TR_FINISH_STOP_STRING);
    cr_assert_eq(ring->finish_index, 4);
    cr_assert_eq(ring->overrun, 2);
    cr_assert_eq(tr_rig_bill(&r, 0)->completion_tokens, 4);
    cr_assert_eq(tr_rig_bill(&r, 0)->overrun_tokens, 2);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_TOK_OVERRUN), 2);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_END_STOP_STRING), 1);
}

Test(settle, finish_beyond_what_was_published_is_cut_to_it)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    tr_rig_finish(&r, &q, 4000);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_ring(&r, &q)->finish_index, 1);
    cr_assert_eq(tr_rig_ring(&r, &q)->overrun, 0);
}

/* A stop string at token 3, the limit at token 5: whoever is first at the engine, the count is 3. */
Test(settle, with_stop_strings_the_end_waits_for_the_scan)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = 5;
    a.params.flags |= TR_REQ_STOP_STRINGS;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_published(&r, &q), 5);
    cr_assert_eq(tr_rig_state(&r, &q), TR_PARKED);
    cr_assert_eq(tr_rig_ring(&r, &q)->wants_cursor, 1);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 0);
    tr_rig_finish(&r, &q, 3);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_COMPLETED);
    cr_assert_eq(tr_rig_ring(&r, &q)->finish_index, 3);

    struct tr_rig_req z = tr_rig_submit(&r, &a);
    tr_rig_run(&r, NULL, 0);
    tr_rig_read_all(&r, &z);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &z), TR_INCOMPLETE);
    cr_assert_eq(tr_rig_ring(&r, &z)->finish, TR_FINISH_LENGTH);
    cr_assert_eq(tr_rig_ring(&r, &z)->finish_index, 5);
}

static void ignore(void *arg, uint32_t area, uint32_t slot, uint64_t word)
{
    (void)arg, (void)area, (void)slot, (void)word;
}

/* FINISH and the cursor come between the engine's look at commands and its look at cursors, in the
 * turn after it parked: the last one that looks without being told. */
Test(settle, a_finish_behind_the_sweep_counts_before_the_scan)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = 5;
    a.params.flags |= TR_REQ_STOP_STRINGS;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    for (uint32_t i = 0; i < 100 && tr_rig_state(&r, &q) != TR_PARKED; i++)
        tr_rig_turn(&r);
    tr_rig_finish(&r, &q, 3);
    tr_rig_read_all(&r, &q);
    tr_role = TR_ROLE_ENGINE;
    tr_cmd_sweep(&r.s, q.area, ignore, NULL); /* its dirty bit is not seen in the next turn */
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_COMPLETED);
    cr_assert_eq(tr_rig_ring(&r, &q)->finish, TR_FINISH_STOP_STRING);
    cr_assert_eq(tr_rig_ring(&r, &q)->finish_index, 3);
}

Test(settle, commands_after_the_end_change_nothing)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = 4;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &q, 1);
    tr_rig_cancel(&r, &q, TR_ERR_CLIENT_GONE);
    tr_rig_finish(&r, &q, 1);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
    cr_assert_eq(tr_rig_ring(&r, &q)->finish_index, 4);
    cr_assert_eq(tr_rig_bills(&r), 1);
}

Test(settle, commands_of_somebody_else_are_not_obeyed)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    struct tr_rig_req forged = {.area = 2, .slot = q.slot, .gen = q.gen};
    tr_rig_cancel(&r, &forged, TR_ERR_CANCELLED);
    struct tr_rig_req old = {.area = 0, .slot = q.slot, .gen = q.gen + 1};
    tr_rig_cancel(&r, &old, TR_ERR_CANCELLED);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_RUNNING);
}

/* ---- parked ones, which no turn looks at ---- */

/* n of them, all behind by the window, in area 1. */
static void park_some(struct tr_rig_req *q, uint32_t n)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.area = 1;
    for (uint32_t i = 0; i < n; i++) {
        q[i] = tr_rig_submit(&r, &a);
        tr_rig_run(&r, NULL, 0);
        cr_assert_eq(tr_rig_state(&r, &q[i]), TR_PARKED);
    }
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_PARKED), n);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_SLOTS_BUSY), n);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), n, "a block each");
}

Test(settle, parked_ones_die_with_their_frontend)
{
    struct tr_rig_req q[5];
    park_some(q, 5);
    tr_rig_kill_frontend(&r, 1);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_PARKED), 0);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 0);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_END_FRONTEND_LOST), 5);
}

Test(settle, parked_ones_end_at_the_cut)
{
    struct tr_rig_req q[5];
    park_some(q, 5);
    tr_rig_drain(&r, TR_DRAIN_CUT);
    tr_rig_turn(&r);
    for (uint32_t i = 0; i < 5; i++)
        cr_assert_eq(tr_rig_ring(&r, &q[i])->err, TR_ERR_DRAIN_LIMIT);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 0);
    cr_assert(tr_sched_done(r.sched));
}

Test(settle, parked_ones_wait_for_the_drain_and_keep_the_service_up)
{
    struct tr_rig_req q[1];
    park_some(q, 1);
    tr_rig_drain(&r, TR_DRAIN_CLOSED);
    tr_rig_run(&r, NULL, 0);
    cr_assert(!tr_sched_done(r.sched));
    tr_rig_read_all(&r, &q[0]);
    tr_rig_run(&r, q, 1);
    cr_assert_eq(tr_rig_state(&r, &q[0]), TR_INCOMPLETE);
}

/* Out of the middle, from the front, by others: the rest keeps its blocks and its place. */
Test(settle, parked_ones_are_cancelled_one_by_one)
{
    static const uint32_t order[] = {2, 0, 3, 4, 1};
    struct tr_rig_req q[5];
    park_some(q, 5);
    for (uint32_t i = 0; i < 5; i++) {
        tr_rig_cancel(&r, &q[order[i]], TR_ERR_SLOW_CLIENT);
        tr_rig_turn(&r);
        cr_assert_eq(tr_rig_ring(&r, &q[order[i]])->err, TR_ERR_SLOW_CLIENT);
        cr_assert_eq(tr_rig_stat(&r, TR_STAT_PARKED), 4 - i);
        cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 4 - i);
    }
}

/* ---- frontends that die ---- */

Test(settle, a_dead_frontends_requests_end_and_free_everything_the_others_go_on)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.area = 1;
    struct tr_rig_req q[3];
    for (uint32_t i = 0; i < 3; i++)
        q[i] = tr_rig_submit(&r, &a);
    a.area = 0;
    struct tr_rig_req other = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    a.area = 1;
    struct tr_rig_req unread = tr_rig_submit(&r, &a);
    tr_rig_kill_frontend(&r, 1);
    tr_rig_turn(&r);
    cr_assert_eq(atomic_load(&r.s.rings->area_ack[1]), 1);
    tr_rig_run(&r, &other, 1);
    cr_assert_eq(tr_rig_published(&r, &other), 16);
    cr_assert_eq(tr_rig_bills(&r), 5, "also the submission that nobody had read");
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_END_FRONTEND_LOST), 4);
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_TAKEN), 1, "nobody needs their rings");
    (void)q;
    (void)unread;
    /* The area's next owner starts clean. */
    tr_rig_start_frontend(&r, 1);
    struct tr_rig_req next = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &next, 1);
    cr_assert_eq(tr_rig_published(&r, &next), 16);
    cr_assert_eq(tr_ring_owner(tr_rig_ring(&r, &next)).epoch, 2);
}

Test(settle, a_frontend_that_comes_and_submits_between_two_looks_is_known)
{
    tr_rig_kill_frontend(&r, 3);
    tr_rig_turn(&r);
    tr_rig_start_frontend(&r, 3);
    struct tr_rig_ask a = tr_rig_ask();
    a.area = 3;
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_published(&r, &q), 16);
}

/* ---- drain ---- */

Test(settle, cut_ends_everything_with_drain_limit_and_then_it_is_done)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q[4];
    for (uint32_t i = 0; i < 4; i++)
        q[i] = tr_rig_submit(&r, &a);
    tr_rig_turn(&r);
    tr_rig_drain(&r, TR_DRAIN_CLOSED);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q[0]), TR_RUNNING);
    cr_assert(!tr_sched_done(r.sched));
    tr_rig_drain(&r, TR_DRAIN_CUT);
    tr_rig_turn(&r);
    for (uint32_t i = 0; i < 4; i++)
        cr_assert_eq(tr_rig_ring(&r, &q[i])->err, TR_ERR_DRAIN_LIMIT);
    cr_assert(tr_sched_done(r.sched));
    cr_assert_eq(tr_rig_bills(&r), 4);
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_OPEN), 0);
}

/* ---- records and release ---- */

Test(settle, a_slot_is_free_when_durable_and_released_in_either_order)
{
    teardown();
    open_with(1);
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = 3;
    struct tr_rig_req q = tr_rig_submit(&r, &a), z = tr_rig_submit(&r, &a);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_bills(&r), 2);
    tr_rig_release(&r, &q);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q)->gen), q.gen, "not durable");
    tr_rig_ledger_runs(&r);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &q)->gen), q.gen + 1);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &z)->gen), z.gen, "not released");
    tr_rig_release(&r, &z);
    tr_rig_turn(&r);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &z)->gen), z.gen + 1);
}

Test(settle, ends_that_nobody_reads_wait_for_their_release_or_the_death_of_their_owner)
{
    tr_engine_rig_close(&r);
    open_with(1);
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q[6];
    a.params.max_tokens = 2;
    for (uint32_t i = 0; i < 6; i++) {
        a.area = i % 2;
        q[i] = tr_rig_submit(&r, &a);
    }
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_SLOTS_ENDED), 6);
    tr_rig_release(&r, &q[0]);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_SLOTS_ENDED), 6, "its record is not durable");
    tr_rig_ledger_runs(&r);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_SLOTS_ENDED), 5);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_LEDGER_LAG_US), 0);
    tr_rig_release(&r, &q[2]);
    tr_rig_release(&r, &q[2]);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_SLOTS_ENDED), 4, "in the same turn");
    tr_rig_kill_frontend(&r, 1);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_SLOTS_ENDED), 1);
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_TAKEN), 1);
}

Test(settle, a_full_queue_keeps_slots_until_the_ledger_is_back)
{
    teardown();
    open_with(1);
    atomic_store(&r.s.accounting->tail, TR_BILL_CAP - 2);
    struct tr_rig_ask a = tr_rig_ask();
    a.params.max_tokens = 1;
    struct tr_rig_req q[5];
    for (uint32_t i = 0; i < 5; i++)
        q[i] = tr_rig_submit(&r, &a);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_bills(&r), TR_BILL_CAP);
    uint32_t with = 0;
    for (uint32_t i = 0; i < 5; i++) {
        cr_assert_eq(tr_rig_state(&r, &q[i]), TR_INCOMPLETE, "the end is told all the same");
        with += atomic_load(&tr_rig_ring(&r, &q[i])->bill_seq) != 0;
        tr_rig_release(&r, &q[i]);
    }
    cr_assert_eq(with, 2);
    tr_rig_run(&r, NULL, 0);
    tr_rig_ledger_runs(&r);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_bills(&r), TR_BILL_CAP + 3);
    tr_rig_ledger_runs(&r);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_TAKEN), 0);
    cr_assert_eq(tr_rig_claims(&r, TR_CLAIM_OPEN), 16);
}

Test(settle, figures_equal_the_records)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q[12];
    uint64_t prompt = 0, completion = 0, overrun = 0;
    for (uint32_t i = 0; i < 12; i++) {
        a.params.max_tokens = 2 + i;
        q[i] = tr_rig_submit(&r, &a);
        for (uint32_t k = 0; k < 4; k++)
            tr_rig_turn(&r);
        if (i % 3 == 1)
            tr_rig_cancel(&r, &q[i], TR_ERR_CLIENT_GONE);
        if (i % 3 == 2)
            tr_rig_finish(&r, &q[i], 2);
    }
    tr_rig_run(&r, q, 12);
    cr_assert_eq(tr_rig_bills(&r), 12);
    for (uint32_t i = 0; i < 12; i++) {
        prompt += tr_rig_bill(&r, i)->prompt_tokens;
        completion += tr_rig_bill(&r, i)->completion_tokens;
        overrun += tr_rig_bill(&r, i)->overrun_tokens;
    }
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_TOK_PROMPT), prompt);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_TOK_COMPLETION), completion);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_TOK_OVERRUN), overrun);
    cr_assert_eq(tr_rig_hist(&r, TR_HIST_E2E), 12);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_KV_USED), 0);
}
