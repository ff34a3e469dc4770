/* SPDX-License-Identifier: Apache-2.0 */
/* The engine as a process of its own, frontends and supervisor played by the test. */
#include "engine/engine.h"
#include "enginerig/engine_rig.h"
#include "enginerig/late_backend.h"

#include "base/clock.h"
#include "base/log.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct tr_engine_rig r;
static pid_t engine;
static uint32_t epoch;

static void nap(uint32_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static uint64_t idle_ns = 20000000000; /* longer than any test waits: what wakes is a bell */

static void start_backend(const struct tr_backend_ops *ops, const char *model, uint32_t step_us)
{
    struct tr_engine_config c = {.ops = ops, .sched = r.c.sched};
    c.backend.model_path = model;
    c.backend.sim_step_us = step_us;
    c.backend.n_threads = 1;
    c.idle_ns = idle_ns;
    struct tr_shm_fds fds = r.fds;
    epoch++;
    engine = fork();
    if (engine)
        return;
    struct tr_shm s;
    struct tr_errbuf err;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    tr_log_init("engine", false);
    if (tr_shm_attach(&s, &fds, TR_ROLE_ENGINE, 0, epoch, &err))
        _exit(99);
    _exit(tr_engine_main(&s, &c));
}

static void start(const char *model, uint32_t step_us)
{
    start_backend(&tr_backend_sim, model, step_us);
}

static int wait_for_end(void)
{
    int st = 0;
    waitpid(engine, &st, 0);
    return WIFEXITED(st) ? WEXITSTATUS(st) : -WTERMSIG(st);
}

static bool wait_ready(void)
{
    for (uint32_t i = 0; i < 5000 && atomic_load(&r.s.rings->ready) != epoch; i++)
        nap(1);
    return atomic_load(&r.s.rings->ready) == epoch;
}

/* Reads along until the request has ended. */
static bool wait_end(const struct tr_rig_req *q)
{
    for (uint32_t i = 0; i < 10000; i++) {
        tr_rig_read_all(&r, q);
        if (tr_state_terminal(tr_rig_state(&r, q)))
            return true;
        nap(1);
    }
    return false;
}

static void setup(void)
{
    struct tr_engine_rig_config c = {.no_engine = true, .shm = {.window = 16}};
    tr_engine_rig_open(&r, &c);
    epoch = 0;
}

static void teardown(void)
{
    tr_engine_rig_close(&r);
}

TestSuite(engine, .init = setup, .fini = teardown, .timeout = 60);

static struct tr_rig_req submit(uint32_t max_tokens)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q;
    a.params.max_tokens = max_tokens;
    for (uint32_t i = 0; i < 2000; i++, nap(1))
        if (tr_rig_submit_group(&r, &a, 1, &q) == 0)
            return q;
    cr_assert_fail("no open slot");
    return (struct tr_rig_req){0};
}

/* The pass that nobody asked for is waited for, or the next one finds the device at work. */
Test(engine, a_device_warms_up_and_serves)
{
    tr_late.over = &tr_backend_sim;
    start_backend(&tr_backend_late, NULL, 0);
    cr_assert(wait_ready());
    struct tr_rig_req q = submit(40);
    cr_assert(wait_end(&q));
    cr_assert_eq(tr_rig_published(&r, &q), 40);
    tr_rig_drain(&r, TR_DRAIN_CUT);
    cr_assert_eq(wait_for_end(), 0);
    cr_assert_eq(tr_rig_bills(&r), 1);
}

Test(engine, serves_drains_and_exits_with_0)
{
    start(NULL, 1000);
    cr_assert(wait_ready());
    struct tr_rig_req q = submit(40), z = submit(400);
    cr_assert(wait_end(&q));
    cr_assert_eq(tr_rig_published(&r, &q), 40);
    tr_rig_drain(&r, TR_DRAIN_CLOSED);
    nap(30);
    cr_assert(!tr_state_terminal(tr_rig_state(&r, &z)));
    tr_rig_drain(&r, TR_DRAIN_CUT);
    cr_assert_eq(wait_for_end(), 0);
    cr_assert_eq(tr_rig_ring(&r, &z)->err, TR_ERR_DRAIN_LIMIT);
    cr_assert_eq(tr_rig_bills(&r), 2);
}

Test(engine, sleeps_when_idle_and_is_woken_by_the_bell)
{
    start(NULL, 0);
    cr_assert(wait_ready());
    while (!atomic_load(&r.s.rings->sleeping))
        nap(1);
    struct tr_rig_req q = submit(1);
    cr_assert(wait_end(&q));
    const struct tr_ring *ring = tr_rig_ring(&r, &q);
    /* The limit of a sleep is 20 s here: less means that the bell did it. */
    cr_assert_lt(ring->admitted_ns - ring->arrival_ns, 15000000000);
    tr_rig_drain(&r, TR_DRAIN_CUT);
    cr_assert_eq(wait_for_end(), 0);
}

Test(engine, a_parked_reader_that_moves_wakes_it)
{
    start(NULL, 0);
    cr_assert(wait_ready());
    struct tr_rig_req q = submit(200);
    for (uint32_t i = 0; i < 12; i++) {
        for (uint32_t k = 0; k < 3000 && tr_rig_state(&r, &q) != TR_PARKED; k++)
            nap(1);
        uint32_t n = tr_rig_published(&r, &q);
        uint64_t t = tr_now_ns();
        tr_rig_read_all(&r, &q);
        while (tr_rig_published(&r, &q) == n && tr_now_ns() - t < 10000000000) /* half of idle_ns */
            nap(1);
        cr_assert_gt(tr_rig_published(&r, &q), n);
    }
    cr_assert(wait_end(&q));
    kill(engine, SIGKILL);
    wait_for_end();
}

/* Waits for `n` new values of the heartbeat; false if they do not come. */
static bool wait_beats(uint32_t n)
{
    uint64_t last = atomic_load(&r.s.rings->heartbeat_ns);
    for (uint32_t i = 0; i < 20000 && n; i++, nap(1)) {
        uint64_t beat = atomic_load(&r.s.rings->heartbeat_ns);
        n -= beat != last;
        last = beat;
    }
    return n == 0;
}

Test(engine, beats_during_a_long_step)
{
    start(NULL, 30000000);
    cr_assert(wait_beats(3), "the warm-up is a step too");
    kill(engine, SIGKILL);
    wait_for_end();
}

/* A model that comes from a slow disk: longer than this test runs. */
static struct tr_backend *open_slowly(const struct tr_backend_config *c,
                                      struct tr_backend_info *info, struct tr_errbuf *err)
{
    for (uint32_t i = 0; i < 20000; i++, nap(5))
        c->beat(c->beat_arg);
    return tr_backend_sim.open(c, info, err);
}

Test(engine, beats_while_the_model_loads)
{
    struct tr_backend_ops slow = tr_backend_sim;
    slow.open = open_slowly;
    start_backend(&slow, NULL, 0);
    cr_assert(wait_beats(5), "the supervisor would take it for stalled");
    cr_assert_eq(atomic_load(&r.s.rings->ready), 0);
    kill(engine, SIGKILL);
    wait_for_end();
}

Test(engine, beats_while_it_sleeps)
{
    idle_ns = 10000000;
    start(NULL, 0);
    cr_assert(wait_ready());
    cr_assert(wait_beats(5));
    kill(engine, SIGKILL);
    wait_for_end();
}

Test(engine, killed_it_leaves_nothing_undone_for_the_next)
{
    start(NULL, 2000);
    cr_assert(wait_ready());
    struct tr_rig_req q[6];
    for (uint32_t i = 0; i < 6; i++)
        q[i] = submit(300);
    nap(40);
    kill(engine, SIGKILL);
    cr_assert_eq(wait_for_end(), -SIGKILL);
    struct tr_rig_req late = submit(5);
    cr_assert_eq(tr_rig_state(&r, &late), TR_FREE);
    start(NULL, 0);
    cr_assert(wait_ready());
    for (uint32_t i = 0; i < 6; i++) {
        cr_assert(wait_end(&q[i]));
        cr_assert_eq(tr_rig_ring(&r, &q[i])->finish_index, 300);
    }
    cr_assert(wait_end(&late));
    cr_assert_eq(tr_rig_ring(&r, &late)->finish_index, 5);
    for (uint32_t i = 0; i < 5000 && tr_rig_bills(&r) < 7; i++)
        nap(1);
    cr_assert_eq(tr_rig_bills(&r), 7);
    struct tr_rig_req next = submit(5);
    cr_assert(wait_end(&next));
    cr_assert_eq(tr_rig_published(&r, &next), 5);
    tr_rig_drain(&r, TR_DRAIN_CUT);
    cr_assert_eq(wait_for_end(), 0);
}

/* Whoever can load it goes on. */
Test(engine, what_is_left_is_kept_even_if_the_model_does_not_load)
{
    struct tr_rig_req q;
    start(NULL, 2000);
    cr_assert(wait_ready());
    q = submit(300);
    nap(20);
    kill(engine, SIGKILL);
    wait_for_end();
    start("/nonexistent/model.gguf", 0);
    cr_assert_eq(wait_for_end(), 1);
    cr_assert_eq(atomic_load(&r.s.rings->ready), 0);
    cr_assert(!tr_state_terminal(tr_rig_state(&r, &q)));
    start(NULL, 0);
    cr_assert(wait_end(&q));
    cr_assert_eq(tr_rig_ring(&r, &q)->finish_index, 300);
    kill(engine, SIGKILL);
    wait_for_end();
}
