/* SPDX-License-Identifier: Apache-2.0 */
/* tests/stress/threads.c - the pool of cpu_kernels under many short operations.
 *
 * Plain data on both sides of tr_threads_for, so that a thread sanitiser sees every order that is
 * missing: tasks write plain memory that the caller reads afterwards, and read plain memory that
 * the caller wrote before.  Pauses of different lengths let workers spin, fall asleep and be late. */
#include "base/clock.h"
#include "cpu_kernels/threads.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TASKS = 24 };

struct operation {
    uint64_t input; /* written by the caller before each operation */
    uint64_t result[TASKS];
    uint32_t spin; /* work of a task */
};

static void task(void *arg, uint32_t i)
{
    struct operation *o = arg;
    uint64_t x = o->input + i;
    for (uint32_t n = 0; n < o->spin; n++)
        x = x * 6364136223846793005U + 1;
    o->result[i] = x;
}

static int check(const struct operation *o, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t x = o->input + i;
        for (uint32_t k = 0; k < o->spin; k++)
            x = x * 6364136223846793005U + 1;
        if (o->result[i] != x)
            return 1;
    }
    return 0;
}

/* `rounds` operations; every `pause_every`-th is followed by a sleep. */
static int hammer(uint32_t n_threads, uint32_t rounds, uint32_t pause_every, uint32_t spin)
{
    struct tr_threads *t = tr_threads_start(n_threads, NULL);
    struct operation o = {.spin = spin};
    int bad = !t;
    for (uint32_t r = 0; t && r < rounds; r++) {
        uint32_t n = r % TASKS + 1;
        memset(o.result, 0, sizeof o.result);
        o.input = r;
        tr_threads_for(t, n, task, &o);
        bad |= check(&o, n);
        if (pause_every && r % pause_every == 0)
            nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    }
    tr_threads_stop(t);
    return bad;
}

/* The same in ranges; now and then whoever has the last one sleeps in it, so that a worker is left
 * out and let in again. */
static void tasks(void *arg, uint32_t first, uint32_t end)
{
    struct operation *o = arg;
    if (o->input % 50 == 49 && end == TASKS)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    for (uint32_t i = first; i < end; i++)
        task(o, i);
}

static int hammer_ranges(uint32_t n_threads, uint32_t rounds, uint32_t grain, bool pinned)
{
    struct tr_threads *t = tr_threads_start(n_threads, NULL);
    struct operation o = {.spin = 20};
    int bad = !t || (pinned && tr_threads_pin(t) != 0);
    for (uint32_t r = 0; t && r < rounds; r++) {
        memset(o.result, 0, sizeof o.result);
        o.input = r;
        tr_threads_ranges(t, TASKS, grain, tasks, &o);
        bad |= check(&o, TASKS);
    }
    bad |= t && n_threads == 1 && tr_threads_left_out(t) != 0;
    tr_threads_stop(t);
    return bad;
}

/* Errands: what one reads was written by the caller just before, and what it writes is looked at when
 * the workers have ended.  Only a worker that is on a processor takes one, so caller and worker meet
 * in an operation before some are offered in a row.  It goes on until enough were taken for a missing
 * order to show, or the machine has no time for that. */
enum {
    ERRANDS = 20000,
    ENOUGH = 400,
    AT_LEAST = 2000,
    IN_A_ROW = 4,
    PATIENCE_NS = 2000000,
    LINGER_NS = 3000
};

static struct errands {
    uint64_t input[ERRANDS], done[ERRANDS];
} errands;

static void do_errand(void *arg, uint64_t what)
{
    struct errands *e = arg;
    e->done[what] += e->input[what];
}

/* Relaxed: the meeting must not order anything by itself. */
static void meet(void *arg, uint32_t i)
{
    _Atomic uint32_t *here = arg;
    uint64_t began = tr_now_ns();
    (void)i;
    atomic_fetch_add_explicit(here, 1, memory_order_relaxed);
    while (atomic_load_explicit(here, memory_order_relaxed) < 2 &&
           tr_now_ns() - began < PATIENCE_NS)
        ; /* no yield: who comes back later finds the other one asleep */
}

/* Time for a worker to come out of an operation, or an errand, and to look for the next. */
static void linger(uint64_t ns)
{
    for (uint64_t began = tr_now_ns(); tr_now_ns() - began < ns;)
        ;
}

static int hammer_errands(uint32_t n_threads, uint32_t n_cpus)
{
    struct errands *e = &errands;
    struct tr_threads *t = tr_threads_start(n_threads, NULL);
    uint32_t r = 0, taken = 0;
    bool looks = n_threads > 1 && n_cpus >= n_threads;
    memset(e, 0, sizeof *e);
    if (t && looks)
        tr_threads_pin(t); /* or a busy machine runs them in turn on one processor */
    for (; t && r < ERRANDS && (r < AT_LEAST || (looks && taken < ENOUGH)); r++) {
        _Atomic uint32_t here = n_threads == 1;
        if (r % IN_A_ROW == 0)
            tr_threads_for(t, 2, meet, &here);
        linger(LINGER_NS);
        e->input[r] = r + 1;
        if (tr_threads_errand(t, do_errand, e, r))
            taken++;
        else
            do_errand(e, r);
    }
    tr_threads_stop(t);
    int bad = !t;
    for (uint32_t i = 0; i < r; i++)
        bad |= e->done[i] != i + 1;
    return bad;
}

int main(void)
{
    cpu_set_t all;
    static const uint32_t cases[][4] = {{1, 1000, 0, 10},   {2, 20000, 0, 10}, {2, 300, 1, 10},
                                        {3, 10000, 0, 300}, {4, 10000, 0, 1},  {8, 3000, 100, 100},
                                        {4, 500, 3, 3000},  {16, 500, 0, 50}};
    int n = (int)(sizeof cases / sizeof cases[0]);
    int failed = 0;

    for (int i = 0; i < n; i++)
        failed += hammer(cases[i][0], cases[i][1], cases[i][2], cases[i][3]);
    sched_getaffinity(0, sizeof all, &all);
    for (uint32_t i = 0; i < 8; i++) {
        failed += hammer_ranges(i % 4 + 1, 4000, i % 3, i > 3);
        sched_setaffinity(0, sizeof all, &all); /* what follows is not for one processor alone */
    }
    for (uint32_t i = 0; i < 4; i++) {
        failed += hammer_errands(i + 1, (uint32_t)CPU_COUNT(&all));
        sched_setaffinity(0, sizeof all, &all);
    }
    /* Starting and stopping, with and without work in between. */
    for (uint32_t i = 0; i < 200; i++)
        failed += hammer(i % 5 + 1, i % 3, 0, 1);
    printf("%d passed, %d failed\n", n + 212 - failed, failed);
    return failed != 0;
}
