/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/close.h"

#include <criterion/criterion.h>
#include <stdio.h>

Test(close, every_row_is_found_by_what_a_ring_says_of_it)
{
    for (unsigned c = 0; c < TR_CLOSE_COUNT; c++) {
        const struct tr_close_info *i = tr_close_info((enum tr_close)c);
        cr_expect(tr_state_terminal(i->state), "%s", i->reason);
        cr_expect_eq(tr_close_of(i->state, i->finish, i->err), c, "%s", i->reason);
        if (i->err)
            cr_expect_eq(tr_close_by(i->err), c, "%s", i->reason);
    }
}

/* What a client reads as `code` is what ledger, metrics and log call the reason. */
Test(close, the_reason_of_a_fault_is_its_code)
{
    for (unsigned c = 0; c < TR_CLOSE_COUNT; c++) {
        const struct tr_close_info *i = tr_close_info((enum tr_close)c);
        bool by_engine = i->state == TR_COMPLETED || i->state == TR_INCOMPLETE;
        cr_expect_eq(by_engine, i->err == TR_OK, "%s", i->reason);
        if (i->err)
            cr_expect_str_eq(i->reason, tr_err_info(i->err)->code);
    }
}

Test(close, every_reason_is_a_label_of_its_own)
{
    char want[64];

    for (unsigned c = 0; c < TR_CLOSE_COUNT; c++) {
        const struct tr_close_info *i = tr_close_info((enum tr_close)c);
        const struct tr_stat_row *r = &tr_stat_rows[i->stat];
        snprintf(want, sizeof(want), "reason=\"%s\"", i->reason);
        cr_expect_str_eq(r->metric, "streams_ended_total");
        cr_expect_str_eq(r->labels, want);
        for (unsigned d = 0; d < c; d++)
            cr_expect_str_neq(i->reason, tr_close_info((enum tr_close)d)->reason);
    }
}

Test(close, nonsense_is_a_fault_of_ours)
{
    cr_expect_eq(tr_close_of(77, 0, 9999), TR_CLOSE_INTERNAL);
    cr_expect_eq(tr_close_of(TR_CANCELLED, 0, TR_OK), TR_CLOSE_INTERNAL);
    cr_expect_eq(tr_close_of(TR_COMPLETED, TR_FINISH_NONE, 0), TR_CLOSE_INTERNAL);
    cr_expect_eq(tr_close_by(TR_ERR_BAD_JSON), TR_CLOSE_INTERNAL);
    cr_expect_eq(tr_close_info((enum tr_close)9999)->err, TR_ERR_INTERNAL);
}
