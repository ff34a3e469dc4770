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
