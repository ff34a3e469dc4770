/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/bill.h"

#include "testlib/shm_rig.h"

#include <criterion/criterion.h>
#include <errno.h>

static struct shm_rig r;

static void fini(void)
{
    shm_rig_close(&r);
}

TestSuite(bill, .fini = fini);

Test(bill, a_record_is_durable_only_when_the_ledger_said_so)
{
    shm_rig_open(&r, 2, 1);
    struct tr_bill b = {.completion_tokens = 5}, out;
    tr_role = TR_ROLE_ENGINE;
    uint64_t want = tr_bill_next(&r.s), seq;
    cr_assert_not(tr_bill_is_queued(&r.s, want), "a number is void until the record is counted");
    cr_assert_eq(tr_bill_push(&r.s, &b, &seq), 0);
    cr_assert_eq(seq, want);
    cr_assert(tr_bill_is_queued(&r.s, seq));
    cr_assert_not(tr_bill_is_durable(&r.s, seq));
    tr_role = TR_ROLE_LEDGER;
    cr_assert_eq(tr_bill_peek(&r.s, 0, &out), 0);
    cr_assert_eq(out.completion_tokens, 5);
    tr_bill_durable(&r.s, 1);
    cr_assert(tr_bill_is_durable(&r.s, seq));
}

Test(bill, a_full_queue_refuses_until_the_ledger_has_taken_some)
{
    shm_rig_open(&r, 2, 1);
    struct tr_bill b = {0};
    tr_role = TR_ROLE_ENGINE;
    for (int i = 0; i < TR_BILL_CAP; i++)
        cr_assert_eq(tr_bill_push(&r.s, &b, NULL), 0);
    cr_assert_eq(tr_bill_push(&r.s, &b, NULL), -EAGAIN);
    tr_role = TR_ROLE_LEDGER;
    tr_bill_durable(&r.s, 1);
    tr_role = TR_ROLE_ENGINE;
    cr_assert_eq(tr_bill_push(&r.s, &b, NULL), 0);
}

Test(bill, without_a_ledger_every_record_counts_as_durable_and_none_is_refused)
{
    shm_rig_open(&r, 2, 0);
    struct tr_bill b = {0};
    uint64_t seq = 0;
    tr_role = TR_ROLE_ENGINE;
    for (int i = 0; i < TR_BILL_CAP + 10; i++)
        cr_assert_eq(tr_bill_push(&r.s, &b, &seq), 0);
    cr_assert(tr_bill_is_durable(&r.s, seq));
}

Test(bill, who_follows_takes_each_record_and_counts_those_it_is_too_late_for)
{
    shm_rig_open(&r, 2, 0);
    struct tr_bill b = {0}, out;
    uint64_t at = 0, missed = 0;
    tr_role = TR_ROLE_ENGINE;
    cr_expect_eq(tr_bill_follow(&r.s, &at, &out, &missed), -EAGAIN);
    for (b.slot = 0; b.slot < TR_BILL_CAP - 1; b.slot++)
        tr_bill_push(&r.s, &b, NULL);
    for (uint32_t i = 0; i < TR_BILL_CAP - 1; i++) {
        cr_assert_eq(tr_bill_follow(&r.s, &at, &out, &missed), 0);
        cr_assert_eq(out.slot, i);
    }
    cr_expect(at == TR_BILL_CAP - 1 && missed == 0);
    cr_expect_eq(tr_bill_follow(&r.s, &at, &out, &missed), -EAGAIN);
    for (int i = 0; i < TR_BILL_CAP + 10; i++, b.slot++)
        tr_bill_push(&r.s, &b, NULL);
    cr_expect_eq(tr_bill_follow(&r.s, &at, &out, &missed), 0);
    /* The oldest one of a full queue may be in the making. */
    cr_expect_eq(missed, 11);
    cr_expect_eq(out.slot, TR_BILL_CAP - 1 + 11);
    while (tr_bill_follow(&r.s, &at, &out, &missed) == 0)
        ;
    cr_expect(missed == 11 && out.slot == b.slot - 1);
}
