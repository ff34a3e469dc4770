/* SPDX-License-Identifier: Apache-2.0 */
/* Requests with the same Idempotency-Key: which one is admitted, and who knows it. */
#include "enginerig/engine_rig.h"

#include <criterion/criterion.h>

static struct tr_engine_rig r;

static void setup(void)
{
    struct tr_engine_rig_config c = {
        .shm = {.n_slots = 24, .n_admit = 16, .max_seqs = 4, .n_areas = 4, .ledger = 1}};
    tr_engine_rig_open(&r, &c);
}

static void teardown(void)
{
    tr_engine_rig_close(&r);
}

TestSuite(twin, .init = setup, .fini = teardown);

static struct tr_rig_ask ask_of(uint32_t area)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.area = area;
    a.params.flags |= TR_REQ_IDEMPOTENT;
    a.idem = (struct tr_idem){{0x1111, 0x2222}, {0x3333, 0x4444}};
    return a;
}

static struct tr_rig_req submit(const struct tr_rig_ask *a)
{
    struct tr_rig_req q = tr_rig_submit(&r, a);
    tr_rig_turn(&r);
    return q;
}

static bool is_turned_away(const struct tr_rig_req *q)
{
    return tr_ring_turned_away(&r.s, q->slot, q->gen) == TR_ERR_KEY_BUSY;
}

static bool is_admitted(const struct tr_rig_req *q)
{
    return tr_ring_request(&r.s, q->slot) == q->gen;
}

static void note(void *arg, uint32_t slot)
{
    if (slot == *(uint32_t *)arg)
        *(uint32_t *)arg = UINT32_MAX;
}

static bool has_news(uint32_t area, uint32_t slot)
{
    uint32_t at = slot;
    tr_rig_be_frontend(&r, area);
    tr_news_take(&r.s, note, &at);
    return at == UINT32_MAX;
}

/* A request that has come to its end, its record durable. */
static struct tr_rig_req finished(uint32_t area)
{
    struct tr_rig_ask a = ask_of(area);
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_state(&r, &q), TR_INCOMPLETE);
    tr_rig_ledger_runs(&r);
    tr_rig_turn(&r);
    return q;
}

Test(twin, of_a_running_request_is_turned_away_at_any_frontend_and_leaves_no_record)
{
    struct tr_rig_ask here = ask_of(0), there = ask_of(1);
    struct tr_rig_req first = submit(&here), second = submit(&there), third = submit(&here);
    cr_assert(is_admitted(&first));
    cr_assert(is_turned_away(&second) && is_turned_away(&third));
    cr_expect(has_news(1, second.slot), "its frontend is told to look");
    tr_rig_run(&r, &first, 1);
    tr_rig_ledger_runs(&r);
    cr_expect_eq(tr_rig_bills(&r), 1u);
    tr_rig_release(&r, &first);
    tr_rig_turn(&r);
    cr_expect_eq(tr_rig_claims(&r, TR_CLAIM_OPEN), 16u, "no slot was lost");
    cr_expect_eq(tr_rig_stat(&r, TR_STAT_REFUSED_SUBMISSIONS), 0u);
}

Test(twin, submitted_in_the_same_moment_only_one_is_admitted)
{
    struct tr_rig_ask here = ask_of(0), there = ask_of(1);
    struct tr_rig_req q[] = {tr_rig_submit(&r, &here), tr_rig_submit(&r, &there),
                             tr_rig_submit(&r, &there)};
    uint32_t admitted = 0;
    tr_rig_turn(&r);
    for (uint32_t i = 0; i < 3; i++) {
        admitted += is_admitted(&q[i]);
        cr_expect(is_admitted(&q[i]) != is_turned_away(&q[i]));
    }
    cr_expect_eq(admitted, 1u);
}

Test(twin, it_has_the_same_hash_and_the_same_api_key)
{
    struct tr_rig_ask a = ask_of(0), others[3] = {a, a, a};
    submit(&a);
    others[0].idem.key[0]++;
    others[1].idem.key[1]++;
    others[2].key = "another";
    for (int i = 0; i < 3; i++) {
        struct tr_rig_req q = submit(&others[i]);
        cr_expect(is_admitted(&q), "%d", i);
    }
    a.idem.body[0]++;
    struct tr_rig_req q = submit(&a);
    cr_expect(is_turned_away(&q),
              "the key decides, what else came with it is the frontend's affair");
}

Test(twin, of_one_without_a_key_there_is_none)
{
    struct tr_rig_ask a = ask_of(0);
    a.params.flags &= ~(uint32_t)TR_REQ_IDEMPOTENT;
    struct tr_rig_req one = submit(&a), two = submit(&a);
    cr_expect(is_admitted(&one) && is_admitted(&two));
    cr_expect_eq(tr_rig_ring(&r, &one)->idem.key[0], 0u);
}

Test(twin, an_answer_stands_for_its_key_until_it_is_let_go)
{
    struct tr_rig_req first = finished(0);
    struct tr_rig_ask a = ask_of(1);
    struct tr_rig_req q = submit(&a);
    cr_assert(is_turned_away(&q));
    tr_rig_release(&r, &first);
    tr_rig_turn(&r);
    q = submit(&a);
    cr_expect(is_admitted(&q));
}

/* Its slot is still there, for its record, and its answer is nobody's any more. */
Test(twin, an_answer_that_was_let_go_stands_for_nothing_though_its_record_waits)
{
    struct tr_rig_ask a = ask_of(0);
    struct tr_rig_req first = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &first, 1);
    tr_rig_release(&r, &first);
    tr_rig_turn(&r);
    cr_assert(is_admitted(&first), "not free yet");
    struct tr_rig_req q = submit(&a);
    cr_expect(is_admitted(&q));
}

Test(twin, what_was_cancelled_or_failed_leaves_no_trace)
{
    struct tr_rig_ask a = ask_of(0);
    struct tr_rig_req q = submit(&a);
    tr_rig_cancel(&r, &q, TR_ERR_CLIENT_GONE);
    tr_rig_turn(&r);
    cr_assert_eq(tr_rig_state(&r, &q), TR_CANCELLED);
    a.prompt_len = 0; /* which the engine refuses */
    struct tr_rig_req bad = submit(&a);
    cr_assert_eq(tr_rig_state(&r, &bad), TR_ERROR);
    a.prompt_len = 3;
    q = submit(&a);
    cr_expect(is_admitted(&q));
}

Test(twin, a_new_engine_knows_them)
{
    struct tr_rig_ask a = ask_of(0), running = ask_of(0);
    struct tr_rig_req first = finished(0);
    running.idem.key[0] = 99;
    submit(&running);
    tr_engine_rig_crash(&r);
    tr_engine_rig_restart(&r);
    struct tr_rig_req q = submit(&a), p = submit(&running);
    cr_expect(is_turned_away(&q), "one that has ended");
    cr_expect(is_turned_away(&p), "one that goes on");
    cr_expect(is_admitted(&first));
}

/* It dies with the message still queued: the next one turns it away, or refuses what is of another
 * generation. */
Test(twin, a_message_that_was_obeyed_and_not_consumed_does_nothing)
{
    struct tr_rig_ask a = ask_of(0);
    submit(&a);
    struct tr_rig_req q = submit(&a);
    cr_assert(is_turned_away(&q));
    tr_rig_push(&r, &q);
    tr_rig_turn(&r);
    cr_expect(is_turned_away(&q));
    cr_expect_eq(tr_rig_stat(&r, TR_STAT_REFUSED_SUBMISSIONS), 1u);
    cr_expect_eq(tr_rig_bills(&r), 0u);
}

Test(twin, a_dead_frontends_answer_is_given_to_another_and_what_runs_is_cancelled)
{
    struct tr_rig_req done = finished(0);
    struct tr_rig_ask running = ask_of(0);
    running.idem.key[0] = 99;
    struct tr_rig_req q = submit(&running);
    tr_rig_kill_frontend(&r, 0);
    tr_rig_turn(&r);
    struct tr_owner o = tr_ring_owner(tr_rig_ring(&r, &done));
    cr_expect(o.area != 0 && o.area < 4 && !o.confirmed, "area %u", o.area);
    tr_rig_be_frontend(&r, o.area);
    uint32_t gen;
    cr_expect(tr_adopt_is_due(&r.s, done.slot, &gen) && gen == done.gen);
    cr_expect_eq(tr_confirm(&r.s, done.slot, done.gen, 4711), 0);
    tr_rig_turn(&r);
    cr_expect(tr_ring_owner(tr_rig_ring(&r, &done)).confirmed);
    cr_expect_eq(tr_rig_state(&r, &q), TR_CANCELLED);
    running.area = 1;
    q = submit(&running);
    cr_expect(is_admitted(&q));
    struct tr_rig_ask again = ask_of(2);
    q = submit(&again);
    cr_expect(is_turned_away(&q));
}

Test(twin, a_key_on_what_cannot_be_told_again_is_malformed)
{
    struct tr_rig_ask a[2] = {ask_of(0), ask_of(0)};
    struct tr_rig_req q[2];
    cr_assert_eq(tr_rig_submit_group(&r, a, 2, q), 0);
    tr_rig_turn(&r);
    cr_expect_eq(tr_rig_ring(&r, &q[0])->err, TR_ERR_BAD_SUBMISSION, "a group");
    a[0].params.flags |= TR_REQ_LOGPROBS;
    q[0] = submit(&a[0]);
    cr_expect_eq(tr_rig_ring(&r, &q[0])->err, TR_ERR_BAD_SUBMISSION, "logprobs");
    a[0] = ask_of(0);
    a[0].idem.key[0] = 0;
    q[0] = submit(&a[0]);
    cr_expect_eq(tr_rig_ring(&r, &q[0])->err, TR_ERR_BAD_SUBMISSION, "no key");
}
