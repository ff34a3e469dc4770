/* SPDX-License-Identifier: Apache-2.0 */
/* The pool: every task once, nothing before it is published, idle workers sleep. */
#include "fixture.h"

#include "cpu_kernels/threads.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
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

/* Threads of this process that are bound to one processor. */
static int bound_threads(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    cr_assert_not_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        cpu_set_t set;
        int tid = atoi(e->d_name);
        n += tid > 0 && sched_getaffinity(tid, sizeof(set), &set) == 0 && CPU_COUNT(&set) == 1;
    }
    closedir(d);
    return n;
}

Test(threads, pinning_leaves_the_threads_of_a_library_where_they_may_run)
{
    struct tr_errbuf err = {{0}};
    struct tr_cpu_config c = {.math = TR_OPS_BLAS, .n_threads = 2, .pin_threads = true};
    cpu_set_t set;
    sched_getaffinity(0, sizeof(set), &set);
    if (CPU_COUNT(&set) < 2)
        cr_skip_test("with one processor all are bound to it");
    struct tr_dev *dev = tr_cpu_open(&c, &err);
    cr_assert_not_null(dev, "%s", err.msg);
    cr_assert_eq(bound_threads(), 2, "the caller and its worker");
    OPS->close(dev);
}

static pthread_t caller;
static _Atomic uint32_t by_workers; /* tasks that a worker did */
static _Atomic bool lose_core;

/* A worker that is off its core in the middle of a task looks the same whoever took the core. */
static void lose_core_in_a_worker(void *arg, uint32_t i)
{
    count(arg, i);
    if (pthread_equal(pthread_self(), caller))
        return;
    atomic_fetch_add(&by_workers, 1);
    if (atomic_load(&lose_core))
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

Test(threads, a_worker_that_loses_its_core_is_left_out_and_let_in_again, .timeout = 60)
{
    struct tr_threads *t = tr_threads_start(2, NULL);
    caller = pthread_self();
    for (int times = 0; times < 3; times++) {
        uint64_t before = tr_threads_left_out(t);
        uint32_t done = atomic_load(&by_workers);
        /* Until it has taken a task and was waited for; then until it takes one again. */
        atomic_store(&lose_core, true);
        while (tr_threads_left_out(t) == before) {
            struct counts c = {0};
            tr_threads_for(t, 8, lose_core_in_a_worker, &c);
            for (uint32_t i = 0; i < 8; i++)
                cr_assert_eq(c.done[i], 1);
        }
        atomic_store(&lose_core, false);
        cr_assert_gt(atomic_load(&by_workers), done);
        done = atomic_load(&by_workers);
        while (atomic_load(&by_workers) == done) {
            struct counts c = {0};
            tr_threads_for(t, 8, lose_core_in_a_worker, &c);
            for (uint32_t i = 0; i < 8; i++)
                cr_assert_eq(c.done[i], 1);
        }
    }
    tr_threads_stop(t);
}

/* A worker's task that is long, while the caller's are short. */
static void long_in_a_worker(void *arg, uint32_t i)
{
    (void)i;
    struct timespec s;
    uint64_t begin, ns;
    if (pthread_equal(pthread_self(), caller))
        return;
    atomic_fetch_add((_Atomic uint32_t *)arg, 1);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &s);
    begin = (uint64_t)s.tv_sec * 1000000000U + (uint64_t)s.tv_nsec;
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &s);
        ns = (uint64_t)s.tv_sec * 1000000000U + (uint64_t)s.tv_nsec - begin;
    } while (ns < 2000000);
}

Test(threads, a_worker_that_works_for_long_is_not_left_out, .timeout = 60)
{
    struct tr_threads *t = tr_threads_start(2, NULL);
    caller = pthread_self();
    /* Somebody else may really take its core: then once more. */
    for (int tries = 0;; tries++) {
        uint64_t before = tr_threads_left_out(t);
        _Atomic uint32_t n = 0;
        while (atomic_load(&n) < 3)
            tr_threads_for(t, 8, long_in_a_worker, &n);
        if (tr_threads_left_out(t) == before)
            break;
        cr_assert_lt(tries, 50);
    }
    tr_threads_stop(t);
}

Test(threads, a_pool_that_left_out_a_worker_ends, .timeout = 60)
{
    struct tr_threads *t = tr_threads_start(2, NULL);
    struct counts c = {0};
    caller = pthread_self();
    atomic_store(&lose_core, true);
    while (tr_threads_left_out(t) == 0)
        tr_threads_for(t, 8, lose_core_in_a_worker, &c);
    tr_threads_stop(t);
}

static pthread_t errand_by;
static _Atomic uint64_t errands;

static void note_errand(void *arg, uint64_t what)
{
    *(uint64_t *)arg += what;
    errand_by = pthread_self();
    atomic_fetch_add(&errands, 1);
}

Test(threads, an_errand_is_done_once_by_a_worker_that_looks_for_work, .timeout = 60)
{
    cpu_set_t set;
    uint64_t sum = 0;
    struct counts c = {0};
    sched_getaffinity(0, sizeof(set), &set);
    if (CPU_COUNT(&set) < 2)
        return; /* workers do not look for work then */
    struct tr_threads *t = tr_threads_start(2, NULL);
    /* Refused while the worker sleeps or is late. */
    do
        tr_threads_for(t, 8, count, &c);
    while (!tr_threads_errand(t, note_errand, &sum, 7));
    tr_threads_stop(t);
    cr_assert_eq(atomic_load(&errands), 1);
    cr_assert_eq(sum, 7);
    cr_assert(!pthread_equal(errand_by, pthread_self()));
}

Test(threads, an_errand_that_nobody_takes_is_refused_and_not_done_later, .timeout = 60)
{
    for (uint32_t n = 1; n <= 2; n++) {
        uint64_t sum = 0, taken = 0;
        struct counts c = {0};
        struct tr_threads *t = tr_threads_start(n, NULL);
        atomic_store(&errands, 0);
        /* In the end the worker sleeps. */
        while (tr_threads_errand(t, note_errand, &sum, 1)) {
            taken++;
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        }
        tr_threads_for(t, 8, count, &c);
        tr_threads_stop(t);
        cr_assert_eq(atomic_load(&errands), taken);
        cr_assert_eq(sum, taken);
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
