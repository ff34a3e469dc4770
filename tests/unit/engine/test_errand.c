/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/errand.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static _Atomic uint64_t done;
static _Atomic bool gate;
static pthread_t by;

static void add(void *arg, uint64_t what)
{
    by = pthread_self();
    atomic_fetch_add((_Atomic uint64_t *)arg, what);
}

static void add_behind_the_gate(void *arg, uint64_t what)
{
    while (!gate)
        usleep(100);
    add(arg, what);
}

static void give_until_taken(struct tr_errand *e, uint64_t what)
{
    while (!tr_errand_give(e, add, &done, what))
        usleep(100);
}

TestSuite(errand, .timeout = 60);

Test(errand, is_done_by_another_thread)
{
    struct tr_errand *e = tr_errand_open();
    cr_assert_not_null(e);
    cr_assert(tr_errand_give(e, add, &done, 7));
    while (!done)
        usleep(100);
    cr_assert_eq(done, 7);
    cr_assert_not(pthread_equal(by, pthread_self()));
    give_until_taken(e, 30);
    tr_errand_close(e);
    cr_assert_eq(done, 37, "what was given is done before it closes");
}

Test(errand, is_not_taken_while_the_last_one_is_not_done)
{
    struct tr_errand *e = tr_errand_open();
    cr_assert(tr_errand_give(e, add_behind_the_gate, &done, 1));
    cr_assert_not(tr_errand_give(e, add, &done, 100));
    gate = true;
    give_until_taken(e, 10);
    tr_errand_close(e);
    cr_assert_eq(done, 11);
}

Test(errand, many_come_through_each_once)
{
    struct tr_errand *e = tr_errand_open();
    uint64_t own = 0;
    for (uint64_t i = 0; i < 20000; i++)
        if (!tr_errand_give(e, add, &done, 1))
            own++;
    tr_errand_close(e);
    cr_assert_eq(done + own, 20000);
    cr_assert_gt(done, 0);
}

Test(errand, closes_without_any)
{
    tr_errand_close(tr_errand_open());
    tr_errand_close(NULL);
}
