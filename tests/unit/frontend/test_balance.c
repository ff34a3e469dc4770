/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/balance.h"

#include "shm/control.h"

#include <criterion/criterion.h>

#define MS 1000000ull

enum { N = 4 };

static struct {
    struct tr_shm shm;
    struct tr_control control;
    struct tr_stat stat[N];
    struct tr_balance b;
    struct tr_balance_left left;
} rig;

static void load(uint32_t area, uint64_t v)
{
    atomic_store(&rig.stat[area].load, v);
}

/* Ours is area 0; all four live and take. */
static void start(uint64_t mine, uint64_t first, uint64_t second, uint64_t third)
{
    rig.shm.config.n_areas = N;
    rig.shm.control = &rig.control;
    for (uint32_t a = 0; a < N; a++) {
        rig.shm.stat[TR_STAT_AREA0 + a] = &rig.stat[a];
        atomic_store(&rig.control.area_alive[a], 1);
        atomic_store(&rig.stat[a].heartbeat_ns, 1900 * MS); /* no test lasts longer */
    }
    tr_balance_init(&rig.b, &rig.shm, 100);
    cr_assert_eq(atomic_load(&rig.stat[0].load), TR_LOAD_CLOSED);
    rig.b.closed = false;
    tr_balance_tell(&rig.b, &(struct tr_httpd_stats){.open = mine});
    load(1, first);
    load(2, second);
    load(3, third);
}

static bool ours(uint64_t ms)
{
    return tr_balance_is_ours(&rig.b, &rig.left, 1000 * MS + ms * MS);
}

Test(balance, says_connections_and_streams_full_and_closed)
{
    start(7, 0, 0, 0);
    rig.b.streams = 3;
    tr_balance_tell(&rig.b, &(struct tr_httpd_stats){.open = 7, .accepted = 9});
    cr_expect_eq(atomic_load(&rig.stat[0].load), 10);
    cr_expect_eq(atomic_load(&rig.stat[0].taken), 9);
    tr_balance_tell(&rig.b, &(struct tr_httpd_stats){.open = 100});
    cr_expect_eq(atomic_load(&rig.stat[0].load), TR_LOAD_FULL);
    rig.b.closed = true;
    tr_balance_tell(&rig.b, &(struct tr_httpd_stats){.open = 100});
    cr_expect_eq(atomic_load(&rig.stat[0].load), TR_LOAD_CLOSED);
}

Test(balance, takes_unless_it_has_clearly_more)
{
    start(4, 0, 9, 9);
    cr_expect(ours(0));
    start(5, 0, 9, 9);
    cr_expect(!ours(0));
    start(60, 50, 60, 60);
    cr_expect(ours(0)); /* a part of a larger load is not clearly more */
    start(61, 50, 60, 60);
    cr_expect(!ours(0));
    load(1, 90);
    cr_expect(ours(0));
}

Test(balance, the_dead_and_closed_and_full_are_not_asked)
{
    start(50, 0, TR_LOAD_CLOSED, TR_LOAD_FULL);
    cr_expect(!ours(0));
    atomic_store(&rig.control.area_alive[1], 0);
    cr_expect(ours(0));
    atomic_store(&rig.control.area_alive[1], 1);
    cr_expect(!ours(0));
    atomic_store(&rig.stat[1].heartbeat_ns, 500 * MS); /* half a second ago */
    cr_expect(ours(0));
}

Test(balance, who_does_not_take_is_waited_for_once)
{
    start(50, 0, 50, 50);
    cr_expect(!ours(0));
    cr_expect(!ours(4));
    cr_expect(ours(5));
    cr_expect(ours(6)); /* the next one does not wait */
    cr_expect(ours(204));
    cr_expect(!ours(205)); /* asked again */
    cr_expect(!ours(209));
    cr_expect(ours(210));
}

Test(balance, who_takes_is_given_longer_but_not_for_ever)
{
    start(50, 0, 50, 50);
    cr_expect(!ours(0));
    for (uint64_t t = 1; t < 20; t++) {
        atomic_fetch_add(&rig.stat[1].taken, 1);
        cr_expect(!ours(t));
    }
    atomic_fetch_add(&rig.stat[1].taken, 1);
    cr_expect(ours(20));
}

Test(balance, a_connection_that_another_took_is_forgotten)
{
    start(50, 0, 50, 50);
    cr_expect(!ours(0));
    rig.left.since_ns = 0; /* the queue was empty (listen.c) */
    cr_expect(!ours(100));
    cr_expect(!ours(104));
}

Test(balance, a_full_one_leaves_as_long_as_there_is_room)
{
    start(100, 90, TR_LOAD_FULL, 95);
    cr_expect(!ours(0));
    cr_expect(!ours(499));
    cr_expect(!ours(500)); /* the second one with room */
    cr_expect(!ours(999));
    cr_expect(ours(1000)); /* to say 503 */
    start(100, TR_LOAD_FULL, TR_LOAD_FULL, TR_LOAD_CLOSED);
    cr_expect(ours(0));
}

Test(balance, impatience_with_room_does_not_count_when_full)
{
    start(50, 0, 50, 50);
    cr_expect(!ours(0));
    cr_expect(ours(5));
    tr_balance_tell(&rig.b, &(struct tr_httpd_stats){.open = 100});
    cr_expect(!ours(6));
}
