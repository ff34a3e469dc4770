/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/ws_turn.h"

#include <criterion/criterion.h>

enum { N = 4 };

struct rig {
    struct tr_ws_turn t;
    struct tr_ws_member m[N];
};

static void setup(struct rig *r)
{
    *r = (struct rig){0};
    tr_ws_turn_init(&r->t);
}

static int number(const struct rig *r, const struct tr_ws_member *m)
{
    return m ? (int)(m - r->m) : -1;
}

Test(ws_turn, nobody_waits_while_the_socket_takes_everything)
{
    struct rig r;
    setup(&r);
    for (int i = 0; i < N; i++) {
        cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[i], 100), 100);
        tr_ws_turn_wrote(&r.t, &r.m[i]);
        cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[i], 100), 100);
    }
    cr_expect_eq(tr_ws_turn_round(&r.t), 0);
    cr_expect_null(tr_ws_turn_next(&r.t));
}

Test(ws_turn, those_in_line_are_let_in_in_order_and_one_event_each)
{
    struct rig r;
    setup(&r);
    for (int i = 0; i < N; i++)
        cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[i], 0), 0);
    cr_expect_eq(tr_ws_turn_round(&r.t), N);
    for (int i = 0; i < N; i++)
        cr_expect_eq(number(&r, tr_ws_turn_next(&r.t)), i);
    /* Whoever has more stands in line again, though there is room. */
    for (int i = 0; i < N; i++) {
        cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[i], 50), 50, "%d", i);
        tr_ws_turn_wrote(&r.t, &r.m[i]);
        if (i < N - 1)
            cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[i], 50), 0, "%d", i);
    }
    cr_expect_eq(tr_ws_turn_round(&r.t), N - 1);
    for (int i = 0; i < N - 1; i++)
        cr_expect_eq(number(&r, tr_ws_turn_next(&r.t)), i);
}

Test(ws_turn, who_was_let_in_and_has_nothing_to_write_holds_nobody_up)
{
    struct rig r;
    setup(&r);
    tr_ws_turn_room(&r.t, &r.m[0], 0);
    tr_ws_turn_room(&r.t, &r.m[1], 0);
    for (size_t n = tr_ws_turn_round(&r.t); n; n--)
        tr_ws_turn_next(&r.t);
    cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[1], 10), 10);
    tr_ws_turn_wrote(&r.t, &r.m[1]);
    cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[1], 10), 0, "0 may still come");
    cr_expect_eq(tr_ws_turn_round(&r.t), 1);
    cr_expect_eq(number(&r, tr_ws_turn_next(&r.t)), 1);
    tr_ws_turn_wrote(&r.t, &r.m[1]);
    cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[1], 10), 10);
    cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[0], 10), 10);
}

Test(ws_turn, whoever_comes_while_others_wait_waits_too)
{
    struct rig r;
    setup(&r);
    cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[2], 0), 0);
    cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[0], 100), 0);
    cr_expect_eq(number(&r, tr_ws_turn_next(&r.t)), 2);
    cr_expect_eq(number(&r, tr_ws_turn_next(&r.t)), 0);
}

Test(ws_turn, who_was_let_in_and_found_no_room_keeps_its_place)
{
    struct rig r;
    setup(&r);
    for (int i = 0; i < N; i++)
        tr_ws_turn_room(&r.t, &r.m[i], 0);
    for (size_t n = tr_ws_turn_round(&r.t); n; n--)
        tr_ws_turn_next(&r.t);
    /* The first two fill the socket and want more; the others come after that. */
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[i], 10), 10);
        tr_ws_turn_wrote(&r.t, &r.m[i]);
    }
    for (int i = 0; i < N; i++)
        cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[i], 0), 0);
    static const int want[N] = {2, 3, 0, 1};
    for (int i = 0; i < N; i++)
        cr_expect_eq(number(&r, tr_ws_turn_next(&r.t)), want[i], "%d", i);
}

Test(ws_turn, the_first_in_line_goes_on_when_there_is_room_after_all)
{
    struct rig r;
    setup(&r);
    tr_ws_turn_room(&r.t, &r.m[0], 0);
    tr_ws_turn_room(&r.t, &r.m[1], 0);
    cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[1], 10), 0, "0 is before it");
    cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[0], 10), 10);
    tr_ws_turn_wrote(&r.t, &r.m[0]);
    cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[0], 10), 0, "now 1 is");
    cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[1], 10), 10);
}

Test(ws_turn, who_leaves_is_not_let_in)
{
    struct rig r;
    setup(&r);
    for (int i = 0; i < 3; i++)
        tr_ws_turn_room(&r.t, &r.m[i], 0);
    tr_ws_turn_next(&r.t);
    tr_ws_turn_room(&r.t, &r.m[0], 0); /* at the front again */
    tr_ws_turn_leave(&r.t, &r.m[0]);
    tr_ws_turn_leave(&r.t, &r.m[3]); /* never stood there */
    cr_expect_null(r.t.kept);
    cr_expect_eq(number(&r, tr_ws_turn_next(&r.t)), 1);
    tr_ws_turn_leave(&r.t, &r.m[1]);
    cr_expect_eq(tr_ws_turn_room(&r.t, &r.m[1], 0), 0);
    cr_expect_eq(number(&r, tr_ws_turn_next(&r.t)), 2);
    cr_expect_eq(number(&r, tr_ws_turn_next(&r.t)), 1);
    cr_expect_eq(tr_ws_turn_round(&r.t), 0);
}

/* Sizes as they come, room as it comes; who is told first looks first. */
Test(ws_turn, nobody_gets_two_events_before_all_who_wait_got_one)
{
    struct rig r;
    unsigned served[N] = {0}, state = 1;
    setup(&r);
    for (int i = 0; i < N; i++)
        tr_ws_turn_room(&r.t, &r.m[i], 0);
    for (int round = 0; round < 2000; round++) {
        size_t room = (state = state * 1103515245 + 12345) >> 16 & 63;
        if (!room)
            continue;
        struct tr_ws_member *told[N];
        size_t n = tr_ws_turn_round(&r.t);
        for (size_t k = 0; k < n; k++)
            told[k] = tr_ws_turn_next(&r.t);
        for (size_t k = 0; k < n; k++)
            while (tr_ws_turn_room(&r.t, told[k], room)) {
                size_t len = 1 + ((state = state * 1103515245 + 12345) >> 16 & 31);
                room = room > len ? room - len : 0;
                tr_ws_turn_wrote(&r.t, told[k]);
                served[number(&r, told[k])]++;
                if (n == N && k == N - 1)
                    room = 0; /* else the last of them, alone, writes on */
            }
        for (int i = 1; i < N; i++)
            cr_assert(served[i] + 1 >= served[0] && served[i] <= served[0] + 1, "%d: %u and %u",
                      round, served[i], served[0]);
    }
    cr_expect_gt(served[0], 1000);
}
