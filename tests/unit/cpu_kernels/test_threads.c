/* SPDX-License-Identifier: Apache-2.0 */
/* The pool: every task once, nothing before it is published, idle workers sleep. */
#include "fixture.h"

#include "cpu_kernels/threads.h"

#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

struct counts {
    _Atomic uint32_t done[1000];
};

static void count(void *arg, uint32_t i)
{
    struct counts *c = arg;
    atomic_fetch_add(&c->done[i], 1);
}

Test(threads, every_task_runs_exactly_once)
{
    for (uint32_t n_threads = 1; n_threads <= 5; n_threads += 2) {
        struct tr_threads *t = tr_threads_start(n_threads, NULL);
        cr_assert_not_null(t);
        cr_assert_eq(tr_threads_count(t), n_threads);
        for (uint32_t n = 0; n < 1000; n += 37) {
            struct counts c = {0};
            tr_threads_for(t, n, count, &c);
            for (uint32_t i = 0; i < 1000; i++)
                cr_assert_eq(c.done[i], i < n ? 1 : 0);
        }
        tr_threads_stop(t);
    }
}

static void count_range(void *arg, uint32_t first, uint32_t end)
{
    struct counts *c = arg;
    cr_assert_lt(first, end);
    for (uint32_t i = first; i < end; i++)
        atomic_fetch_add(&c->done[i], 1);
}

Test(threads, ranges_cover_everything_exactly_once)
{
    for (uint32_t n_threads = 1; n_threads <= 5; n_threads++) {
        struct tr_threads *t = tr_threads_start(n_threads, NULL);
        for (uint32_t n = 0; n < 1000; n += 37) {
            for (uint32_t grain = 0; grain < 40; grain += 13) {
                struct counts c = {0};
                tr_threads_ranges(t, n, grain, count_range, &c);
                for (uint32_t i = 0; i < 1000; i++)
                    cr_assert_eq(c.done[i], i < n ? 1 : 0);
            }
        }
        tr_threads_stop(t);
    }
}

/* The longest range of a call. */
static void longest(void *arg, uint32_t first, uint32_t end)
{
    _Atomic uint32_t *most = arg;
    uint32_t was = atomic_load(most);
    while (was < end - first && !atomic_compare_exchange_weak(most, &was, end - first))
        ;
}

Test(threads, no_range_is_so_long_that_its_thread_is_waited_for_long)
{
    struct tr_threads *t = tr_threads_start(4, NULL);
    for (uint32_t n = 64; n < 1000; n += 37) {
        _Atomic uint32_t most = 0;
        tr_threads_ranges(t, n, 1, longest, &most);
        cr_assert_leq(most, n / 8 + 1, "%u of %u", most, n);
    }
    tr_threads_stop(t);
}

Test(threads, pinned_threads_do_the_same)
{
    struct tr_threads *t = tr_threads_start(3, NULL);
    struct counts c = {0};
    cr_assert_eq(tr_threads_pin(t), 0);
    tr_threads_for(t, 1000, count, &c);
    for (uint32_t i = 0; i < 1000; i++)
        cr_assert_eq(c.done[i], 1);
    tr_threads_stop(t);
}

Test(threads, senseless_counts_are_refused_with_a_sentence)
{
    struct tr_errbuf err = {{0}};
    cr_assert_null(tr_threads_start(0, &err));
    cr_assert_neq(err.msg[0], 0);
    cr_assert_null(tr_threads_start(TR_THREADS_MAX + 1, &err));
    tr_threads_stop(NULL);
}

Test(threads, an_idle_pool_uses_no_processor)
{
    struct tr_threads *t = tr_threads_start(3, NULL);
    struct counts c = {0};
    struct rusage before;
    struct rusage after;
    tr_threads_for(t, 100, count, &c);
    getrusage(RUSAGE_SELF, &before);
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    getrusage(RUSAGE_SELF, &after);
    double used = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
                  (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec) * 1e-6;
    cr_assert_lt(used, 0.05, "%f s in 0.2 s", used);
    tr_threads_stop(t);
}
