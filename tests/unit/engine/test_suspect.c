/* SPDX-License-Identifier: Apache-2.0 */
#include "enginerig/engine_lives.h"
#include "enginerig/engine_rig.h"

#include "shm/control.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

enum { N = 24, SEED = 1000, TOKENS = 12 };

static struct tr_engine_rig r;
static struct tr_lives lives;

static void setup(void)
{
    struct tr_engine_rig_config c = {
        .shm = {.n_slots = 48, .n_admit = 32, .max_seqs = 16, .ledger = 1}};
    tr_engine_rig_open(&r, &c);
    tr_lives_open(&lives, &r);
}

static void teardown(void)
{
    tr_engine_rig_close(&r);
}

TestSuite(suspect, .init = setup, .fini = teardown, .timeout = 60);

/* n requests, told apart by their seeds. */
static void submit(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct tr_rig_ask a = tr_rig_ask();
        a.rand = i + 1;
        a.params.seed = SEED + i;
        a.params.temperature = 1;
        a.params.max_tokens = TOKENS;
        tr_lives_submit(&lives, &a, &(struct tr_lives_req){0}, 1);
    }
}

/* As if the engine had died in a pass of these, or of all that were in the last one. */
static void die(enum tr_death how, bool in_pass)
{
    tr_engine_rig_crash(&r);
    uint32_t epoch = atomic_load(&r.s.control->engine_epoch);
    atomic_store(&r.s.control->engine_death, how);
    atomic_store(&r.s.rings->in_pass, in_pass ? epoch : 0);
}

static uint32_t deaths_of(uint32_t i)
{
    return atomic_load(&tr_rig_ring(&r, &lives.req[i].at)->deaths);
}

Test(suspect, evidence_is_a_death_inside_a_pass_that_nobody_outside_brought_about)
{
    static const struct {
        enum tr_death how;
        bool in_pass;
        uint32_t deaths;
    } cases[] = {{TR_DEATH_OUTSIDE, true, 0},
                 {TR_DEATH_CRASHED, false, 0},
                 {TR_DEATH_STALLED, false, 0},
                 {TR_DEATH_CRASHED, true, 1},
                 {TR_DEATH_STALLED, true, 2}};
    submit(3);
    tr_rig_turn(&r);
    for (uint32_t i = 0; i < 5; i++) {
        die(cases[i].how, cases[i].in_pass);
        tr_engine_rig_restart(&r);
        for (uint32_t k = 0; k < 3; k++)
            cr_assert_eq(deaths_of(k), cases[i].deaths, "case %u", i);
        cr_assert_eq(atomic_load(&r.s.rings->in_pass), 0);
    }
}

Test(suspect, only_those_of_the_pass)
{
    submit(2);
    tr_rig_turn(&r);
    struct tr_rig_ask a = tr_rig_ask();
    tr_lives_submit(&lives, &a, &(struct tr_lives_req){0}, 1);
    die(TR_DEATH_CRASHED, true);
    tr_engine_rig_restart(&r);
    tr_rig_turn(&r);
    cr_assert_eq(deaths_of(0), 1);
    cr_assert_eq(deaths_of(1), 1);
    cr_assert_eq(deaths_of(2), 0);
}

/* A mark that was left by the one before the last says nothing about the last. */
Test(suspect, a_death_while_loading_is_no_second_evidence)
{
    submit(2);
    tr_rig_turn(&r);
    die(TR_DEATH_CRASHED, true);
    atomic_fetch_add(&r.s.control->engine_epoch, 1); /* one that died before it looked */
    tr_engine_rig_restart(&r);
    cr_assert_eq(deaths_of(0), 0);
}

Test(suspect, trials_and_others_take_turns_and_the_cleared_are_others_again)
{
    submit(4);
    tr_rig_turn(&r);
    die(TR_DEATH_CRASHED, true);
    tr_engine_rig_restart(&r);
    for (uint32_t i = 0; i < 4; i++) {
        struct tr_rig_ask a = tr_rig_ask();
        tr_lives_submit(&lives, &a, &(struct tr_lives_req){0}, 1);
    }
    uint32_t before[8], got[8];
    for (uint32_t turn = 0; turn < 6; turn++) {
        for (uint32_t i = 0; i < 8; i++)
            before[i] = tr_rig_published(&r, &lives.req[i].at);
        tr_rig_turn(&r);
        for (uint32_t i = 0; i < 8; i++)
            got[i] = tr_rig_published(&r, &lives.req[i].at) - before[i];
        /* 1st others, 2nd the older half, 3rd others and the cleared, 4th half of the rest, ... */
        static const uint32_t want[6][8] = {{0, 0, 0, 0, 1, 1, 1, 1}, {1, 1, 0, 0, 0, 0, 0, 0},
                                            {1, 1, 0, 0, 1, 1, 1, 1}, {0, 0, 1, 0, 0, 0, 0, 0},
                                            {1, 1, 1, 0, 1, 1, 1, 1}, {0, 0, 0, 1, 0, 0, 0, 0}};
        cr_assert_arr_eq(got, want[turn], sizeof(got), "turn %u", turn);
    }
    tr_rig_turn(&r);
    for (uint32_t i = 0; i < 4; i++)
        cr_assert_eq(deaths_of(i), 0);
}

Test(suspect, one_that_waits_for_its_reader_keeps_nobody_waiting)
{
    tr_engine_rig_close(&r);
    struct tr_engine_rig_config c = {
        .shm = {.n_slots = 48, .n_admit = 32, .max_seqs = 16, .window = 4, .ledger = 1}};
    tr_engine_rig_open(&r, &c);
    submit(2);
    for (uint32_t i = 0; i < 4; i++) {
        tr_rig_turn(&r);
        tr_rig_read_all(&r, &lives.req[1].at);
    }
    die(TR_DEATH_CRASHED, true);
    tr_engine_rig_restart(&r);
    cr_assert_eq(tr_rig_state(&r, &lives.req[0].at), TR_PARKED);
    tr_rig_run(&r, &lives.req[1].at, 1);
    cr_assert_eq(tr_rig_state(&r, &lives.req[1].at), TR_INCOMPLETE);
    cr_assert_eq(deaths_of(0), 1, "it is still to be tried");
    tr_rig_read_all(&r, &lives.req[0].at);
    tr_rig_run(&r, &lives.req[0].at, 1);
    cr_assert_eq(tr_rig_state(&r, &lives.req[0].at), TR_INCOMPLETE);
}

Test(suspect, guilty_is_who_was_twice_alone)
{
    submit(1);
    tr_rig_turn(&r);
    for (uint32_t i = 1; i <= 2; i++) {
        cr_assert(!tr_state_terminal(tr_rig_state(&r, &lives.req[0].at)));
        die(TR_DEATH_CRASHED, true);
        tr_engine_rig_restart(&r);
    }
    cr_assert_eq(tr_rig_state(&r, &lives.req[0].at), TR_ERROR);
    cr_assert_eq(tr_rig_ring(&r, &lives.req[0].at)->err, TR_ERR_ENGINE_CRASHED);
    cr_assert_eq(tr_rig_bills(&r), 1);
    cr_assert_eq(tr_rig_stat(&r, TR_STAT_END_ENGINE_CRASHED), 1);
}

Test(suspect, what_is_said_about_a_slot_ends_with_its_request)
{
    submit(1);
    tr_rig_turn(&r);
    die(TR_DEATH_CRASHED, true);
    tr_engine_rig_restart(&r);
    tr_rig_cancel(&r, &lives.req[0].at, TR_ERR_CLIENT_GONE);
    tr_rig_run(&r, NULL, 0);
    tr_rig_release(&r, &lives.req[0].at);
    tr_rig_ledger_runs(&r);
    tr_rig_run(&r, NULL, 0);
    cr_assert_eq(atomic_load(&tr_rig_ring(&r, &lives.req[0].at)->state), TR_FREE);
    cr_assert_eq(deaths_of(0), 0);
}

#ifdef TR_FAULTS

static struct tr_lives_req want[N];

static void undisturbed(void)
{
    submit(N);
    cr_assert_eq(tr_lives_all(&lives, 0), 0);
    memcpy(want, lives.req, sizeof(want));
    tr_lives_clear(&lives);
    submit(N);
}

/* All are as undisturbed, but for those with a bit in `guilty`. */
static void check_all(uint32_t guilty)
{
    for (uint32_t i = 0; i < N; i++) {
        const struct tr_lives_req *q = &lives.req[i];
        if (guilty & 1u << i) {
            cr_assert(q->state == TR_ERROR && q->err == TR_ERR_ENGINE_CRASHED, "%u: %u %u", i,
                      q->state, q->err);
            continue;
        }
        cr_assert(q->state == want[i].state && q->n_out == want[i].n_out, "%u: %u %u", i, q->state,
                  q->err);
        cr_assert_arr_eq(q->out, want[i].out, q->n_out * sizeof(uint32_t), "%u", i);
    }
}

Test(suspect, one_of_many_is_found_wherever_it_is_and_the_others_lose_nothing)
{
    undisturbed();
    for (uint32_t i = 0; i < N; i += 5) {
        tr_lives_arm_for(TR_FAULT_ENGINE_PASS_SEQUENCE, TR_FAULT_ABORT, UINT64_MAX, SEED + i);
        uint32_t died = tr_lives_all(&lives, 8);
        cr_assert_geq(died, 2);
        tr_lives_disarm(TR_FAULT_ENGINE_PASS_SEQUENCE);
        check_all(1u << i);
        tr_lives_clear(&lives);
        submit(N);
    }
    cr_assert_eq(tr_lives_all(&lives, 0), 0);
}

/* In the middle of its answer: it crashes again when it is there again. */
Test(suspect, one_that_crashes_later_is_found_too)
{
    undisturbed();
    tr_lives_arm_for(TR_FAULT_ENGINE_STEP_PUSH, TR_FAULT_COUNT, UINT64_MAX, SEED + 7);
    tr_lives_arm_for(TR_FAULT_ENGINE_PASS_SEQUENCE, TR_FAULT_SEGV, UINT64_MAX, SEED + 7);
    tr_fault_table->point[TR_FAULT_ENGINE_PASS_SEQUENCE].skip = 6;
    uint32_t died = tr_lives_all(&lives, 8);
    cr_assert_geq(died, 2);
    check_all(1u << 7);
    cr_assert_geq(lives.req[7].n_out, 4);
}

Test(suspect, a_crash_that_does_not_come_again_costs_nobody_his_answer)
{
    undisturbed();
    tr_lives_arm_for(TR_FAULT_ENGINE_PASS_SEQUENCE, TR_FAULT_SEGV, 1, SEED + 3);
    cr_assert_eq(tr_lives_all(&lives, 1), 1);
    check_all(0);
}

Test(suspect, kills_from_outside_make_no_suspects)
{
    undisturbed();
    tr_lives_arm_for(TR_FAULT_ENGINE_PASS_SEQUENCE, TR_FAULT_KILL, 9, SEED + 3);
    cr_assert_eq(tr_lives_all(&lives, 9), 9);
    check_all(0);
}

#endif
