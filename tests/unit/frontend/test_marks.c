/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/marks.h"

#include <criterion/criterion.h>

Test(marks, bytes_side_by_side_are_told_to_the_byte)
{
    struct tr_marks m = {0};
    tr_marks_add(&m, 100, 1100);
    tr_marks_add(&m, 50, 1150);
    cr_expect_eq(m.n, 1);
    cr_expect_eq(tr_marks_acked(&m, 900), 0);
    cr_expect_eq(tr_marks_acked(&m, 1001), 1);
    cr_expect_eq(tr_marks_acked(&m, 1120), 120);
    cr_expect_eq(tr_marks_acked(&m, 1150), 150);
    cr_expect_eq(tr_marks_acked(&m, 2000), 150);
}

Test(marks, the_bytes_of_others_between_are_not_ours)
{
    struct tr_marks m = {0};
    tr_marks_add(&m, 10, 10);
    tr_marks_add(&m, 10, 120); /* 100 of others before it */
    cr_expect_eq(tr_marks_upto(&m, 115), 15, "asked without giving a mark back");
    cr_expect_eq(tr_marks_acked(&m, 5), 5);
    cr_expect_eq(tr_marks_acked(&m, 60), 10);
    cr_expect_eq(tr_marks_acked(&m, 111), 11);
    cr_expect_eq(tr_marks_acked(&m, 120), 20);
}

/* Which byte of a connection is whose is kept here in full: it is never told too many. */
Test(marks, with_few_marks_it_is_coarse_and_never_high)
{
    static uint32_t ours[20000]; /* of the first i bytes */
    struct tr_marks m = {0};
    uint64_t conn = 0, acked = 0;
    unsigned state = 1;
    while (conn + 40 < 20000) {
        unsigned n = 1 + ((state = state * 1103515245 + 12345) >> 16) % 20;
        bool our = state >> 20 & 1;
        for (unsigned i = 0; i < n; i++, conn++)
            ours[conn + 1] = ours[conn] + our;
        if (our)
            tr_marks_add(&m, n, conn);
        cr_assert_leq(m.n, TR_MARKS);
        if ((state >> 8 & 63) == 0)
            acked += (conn - acked) * (state >> 24) / 256;
        uint64_t told = tr_marks_acked(&m, acked);
        cr_assert_leq(told, ours[acked], "%u of %u bytes", (unsigned)told, ours[acked]);
    }
    cr_expect_eq(tr_marks_acked(&m, conn), m.own);
    cr_expect_eq(m.own, ours[conn]);
}
