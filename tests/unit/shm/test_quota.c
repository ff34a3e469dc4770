/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/quota.h"
#include "testlib/shm_rig.h"

#include <criterion/criterion.h>
#include <string.h>

#define S 1000000000ull

static struct shm_rig rig;

static void open_rig(void)
{
    shm_rig_open_keys(&rig, 4);
    tr_role = TR_ROLE_FRONTEND;
}

static void close_rig(void)
{
    shm_rig_close(&rig);
}

/* From here on the process is frontend `area` in its life `epoch`, and said to live. */
static void be(uint32_t area, uint32_t epoch)
{
    rig.s.my_area = area;
    rig.s.my_epoch = epoch;
    atomic_store(&rig.s.control->area_epoch[area], epoch);
    atomic_store(&rig.s.control->area_alive[area], 1);
}

static struct tr_quota_minute look(uint32_t key, uint64_t now_ns)
{
    struct tr_quota_minute m;

    tr_quota_look(&rig.s, key, now_ns, &m);
    return m;
}

TestSuite(quota, .init = open_rig, .fini = close_rig);

Test(quota, what_every_frontend_counts_is_summed_by_key)
{
    be(0, 1);
    tr_quota_begin(&rig.s, 2, 3);
    tr_quota_request(&rig.s, 2, 100 * S);
    tr_quota_tokens(&rig.s, 2, 100 * S, 50);
    be(1, 1);
    tr_quota_begin(&rig.s, 2, 1);
    tr_quota_end(&rig.s, 2, 1);
    tr_quota_begin(&rig.s, 2, 2);
    tr_quota_request(&rig.s, 2, 101 * S);
    tr_quota_tokens(&rig.s, 2, 101 * S, 7);
    cr_expect_eq(tr_quota_running(&rig.s, 2), 5);
    struct tr_quota_minute m = look(2, 101 * S);
    cr_expect(m.all_requests == 2 && m.all_tokens == 57);
    cr_expect(m.requests[0] == 1 && m.requests[1] == 1 && m.tokens[1] == 50);
    cr_expect_eq(tr_quota_running(&rig.s, 3), 0);
    cr_expect_eq(look(3, 101 * S).all_requests, 0);
}

/* No 60 s may hold more than was counted in them: a second counts until its last moment is old. */
Test(quota, a_second_counts_for_sixty_seconds_and_not_for_two_more)
{
    be(0, 1);
    tr_quota_request(&rig.s, 0, 100 * S + S - 1);
    cr_expect_eq(look(0, 160 * S + S - 2).all_requests, 1, "60 s less a nanosecond later");
    cr_expect_eq(look(0, 161 * S).all_requests, 0);
    tr_quota_request(&rig.s, 0, 164 * S); /* the same place as 100 */
    cr_expect_eq(look(0, 164 * S).all_requests, 1);
    cr_expect_eq(look(0, 165 * S + 5).all_requests, 1);
}

Test(quota, tokens_are_taken_back_from_the_second_they_were_counted_in)
{
    be(0, 1);
    tr_quota_tokens(&rig.s, 0, 100 * S, 50);
    tr_quota_tokens(&rig.s, 0, 101 * S, 7);
    tr_quota_take_back(&rig.s, 0, 100 * S, 20);
    cr_expect_eq(look(0, 101 * S).tokens[1], 30);
    tr_quota_take_back(&rig.s, 0, 101 * S, 9); /* never less than none */
    cr_expect_eq(look(0, 101 * S).all_tokens, 30);
    tr_quota_tokens(&rig.s, 0, 164 * S, 5); /* the same place as 100 */
    tr_quota_take_back(&rig.s, 0, 100 * S, 3);
    cr_expect_eq(look(0, 164 * S).all_tokens, 5);
}

Test(quota, the_dead_run_nothing_and_their_minute_counts)
{
    be(1, 7);
    tr_quota_begin(&rig.s, 0, 4);
    tr_quota_request(&rig.s, 0, 100 * S);
    be(0, 1);
    cr_expect_eq(tr_quota_running(&rig.s, 0), 4);
    atomic_store(&rig.s.control->area_alive[1], 0);
    cr_expect_eq(tr_quota_running(&rig.s, 0), 0);
    cr_expect_eq(look(0, 110 * S).all_requests, 1);
    be(1, 8); /* the next one in that area has not counted anything yet */
    cr_expect_eq(tr_quota_running(&rig.s, 0), 0);
    be(0, 1);
    cr_expect_eq(tr_quota_running(&rig.s, 0), 0);
    be(1, 8);
    tr_quota_begin(&rig.s, 0, 1);
    tr_quota_request(&rig.s, 0, 110 * S);
    cr_expect_eq(tr_quota_running(&rig.s, 0), 1);
    cr_expect_eq(look(0, 110 * S).all_requests, 2);
    tr_quota_end(&rig.s, 0, 1);
    cr_expect_eq(tr_quota_running(&rig.s, 0), 0);
}

Test(quota, garbage_of_another_frontend_is_bounded)
{
    be(1, 1);
    tr_quota_begin(&rig.s, 0, 1);
    memset((char *)rig.s.stat[TR_STAT_AREA0 + 1] + tr_layout_stat_quota(), 0xff,
           rig.s.config.n_keys * tr_quota_bytes());
    be(0, 1);
    tr_quota_begin(&rig.s, 0, 1);
    tr_quota_request(&rig.s, 0, 100 * S);
    cr_expect_eq(tr_quota_running(&rig.s, 0), 1, "no frontend has that epoch");
    cr_expect_eq(look(0, 100 * S).all_requests, 1, "seconds of the future");
    struct tr_quota *q =
        (struct tr_quota *)((char *)rig.s.stat[TR_STAT_AREA0 + 1] + tr_layout_stat_quota());
    for (unsigned i = 0; i < TR_QUOTA_SECONDS; i++)
        atomic_store(&q->at[i].second, 90);
    atomic_store(&q->epoch, 1);
    atomic_store(&q->ended, 0);
    cr_expect_lt(tr_quota_running(&rig.s, 0), 1ull << 40);
    cr_expect_gt(look(0, 100 * S).all_tokens, 1ull << 48);
    cr_expect_lt(look(0, 100 * S).all_tokens, 1ull << 56, "and no overflow");
}

Test(quota, the_wait_is_until_enough_is_old)
{
    uint64_t row[TR_QUOTA_WINDOW_S] = {0};

    cr_expect_eq(tr_quota_wait(row, 0), 0);
    row[60] = 1;
    row[10] = 2;
    cr_expect_eq(tr_quota_wait(row, 3), 0);
    cr_expect_eq(tr_quota_wait(row, 2), 1);
    cr_expect_eq(tr_quota_wait(row, 1), 51);
    cr_expect_eq(tr_quota_wait(row, 0), 51);
}

/* What a wait promises is so. */
Test(quota, after_the_wait_there_is_room)
{
    be(0, 1);
    for (unsigned i = 0; i < 40; i++)
        tr_quota_request(&rig.s, 1, (1000 + 3 * (i % 9)) * S);
    for (uint64_t most = 0; most < 40; most++) {
        struct tr_quota_minute m = look(1, 1030 * S);
        unsigned wait = tr_quota_wait(m.requests, most);
        cr_expect_leq(look(1, (1030 + wait) * S).all_requests, most);
        cr_expect_gt(look(1, (1030 + wait - 1) * S).all_requests, most);
    }
}
