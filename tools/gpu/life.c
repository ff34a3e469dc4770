/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gpu/life.c - the engine as a process of its own over shared memory, supervisor and frontends played
 * here: what its host part costs a step, how fast a cancel frees what it held, and whether answers go on after
 * a kill in the middle of a pass.
 *
 * The engine is engine/engine.h's, with a table of operations around the backend's that notes in a page that
 * both have when each call began and ended: what lies between the end of a pass and the moment when the next
 * one has been given to the device is time in which the device has nothing to do. */
#include "base/clock.h"
#include "base/cpus.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/pick.h"
#include "enginerig/engine_rig.h"
#include "gpu/report.h"
#include "gpu/stages.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 256, SAMPLES = 8192, PROMPT = 64, PATIENCE_S = 60 };

struct sample {
    uint32_t rows, outs;
    double idle_us; /* since the end of the pass before */
    double forward_us, wait_us;
};

struct page {
    _Atomic uint64_t n; /* samples so far; the newest SAMPLES are there */
    struct sample s[SAMPLES];
};

static struct tr_engine_rig r;
static struct page *page;
static pid_t engine;
static uint32_t epoch;
static int weights_fd;
static uint32_t prompts[MOST][PROMPT];

/* ---- in the engine ---- */

static const struct tr_backend_ops *inner;
static struct tr_backend_ops watched;
static uint64_t last_end;
static struct sample now;

static double us(uint64_t from, uint64_t to)
{
    return from ? (double)(to - from) * 1e-3 : 0;
}

static void pass_ended(void)
{
    uint64_t n = atomic_load(&page->n);
    page->s[n % SAMPLES] = now;
    atomic_store(&page->n, n + 1);
    last_end = tr_now_ns();
}

static void watched_forward(struct tr_backend *b, const struct tr_batch *batch, float *logits,
                            void (*beat)(void *), void *arg)
{
    uint64_t t = tr_now_ns();
    bool waits = !inner->collect;
    now = (struct sample){.rows = batch->n_rows, .outs = batch->n_out};
    now.idle_us = us(last_end, t);
    inner->forward(b, batch, logits, beat, arg);
    now.forward_us = us(t, tr_now_ns());
    if (waits)
        pass_ended();
    else
        now.idle_us += now.forward_us;
}

static void watched_collect(struct tr_backend *b, struct tr_picked *out, uint32_t n,
                            void (*beat)(void *), void *arg)
{
    uint64_t t = tr_now_ns();
    inner->collect(b, out, n, beat, arg);
    now.wait_us = us(t, tr_now_ns());
    pass_ended();
}

static void live(const struct tr_engine_config *c)
{
    struct tr_shm s;
    struct tr_shm_fds fds = r.fds;
    struct tr_errbuf err;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    tr_log_init("engine", false);
    inner = c->ops;
    watched = *inner;
    watched.forward = watched_forward;
    watched.collect = inner->collect ? watched_collect : NULL;
    struct tr_engine_config mine = *c;
    mine.ops = &watched;
    if (tr_shm_attach(&s, &fds, TR_ROLE_ENGINE, 0, epoch, &err))
        _exit(99);
    _exit(tr_engine_main(&s, &mine));
}

/* ---- around it ---- */

static void nap(uint32_t n_us)
{
    struct timespec t = {.tv_nsec = (long)n_us * 1000};
    nanosleep(&t, NULL);
}

static double seconds_since(uint64_t t)
{
    return (double)(tr_now_ns() - t) * 1e-9;
}

static bool ended(void)
{
    return waitpid(engine, NULL, WNOHANG) != 0;
}

/* Seconds until the engine takes requests, or below 0: it ended instead. */
static double start(const struct tr_engine_config *c)
{
    uint64_t t = tr_now_ns();
    struct tr_engine_config mine = *c;
    mine.backend.weights_fd = weights_fd ? dup(weights_fd) : 0;
    epoch++;
    fflush(NULL);
    engine = fork();
    if (engine == 0)
        live(&mine);
    if (mine.backend.weights_fd)
        close(mine.backend.weights_fd);
    while (atomic_load(&r.s.rings->ready) != epoch) {
        if (engine < 0 || ended() || seconds_since(t) > PATIENCE_S)
            return -1;
        nap(200);
    }
    return seconds_since(t);
}

static void stop(void)
{
    kill(engine, SIGKILL);
    waitpid(engine, NULL, 0);
}

static struct tr_rig_req submit(uint32_t i, uint32_t max_tokens, double temperature)
{
    struct tr_rig_ask a = tr_rig_ask();
    struct tr_rig_req q = {0};
    a.prompt = prompts[i];
    a.prompt_len = PROMPT;
    a.params.max_tokens = max_tokens;
    a.params.temperature = temperature;
    a.params.seed = 100 + i;
    for (uint32_t k = 0; tr_rig_submit_group(&r, &a, 1, &q); k++, nap(200))
        if (k > PATIENCE_S * 5000) {
            tr_report_say("no slot is open");
            exit(1);
        }
    return q;
}

/* Reads along until all of n have `tokens` tokens or their end; false after a minute without any. */
static bool read_until(const struct tr_rig_req *q, uint32_t n, uint32_t tokens)
{
    uint64_t t = tr_now_ns();
    uint32_t seen = 0;
    for (;;) {
        uint32_t left = 0, sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            tr_rig_read_all(&r, &q[i]);
            sum += tr_rig_published(&r, &q[i]);
            left +=
                tr_rig_published(&r, &q[i]) < tokens && !tr_state_terminal(tr_rig_state(&r, &q[i]));
        }
        if (left == 0)
            return true;
        t = sum != seen ? tr_now_ns() : t;
        seen = sum;
        if (ended() || seconds_since(t) > PATIENCE_S)
            return false;
        nap(100);
    }
}

static void release(const struct tr_rig_req *q, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        tr_rig_release(&r, &q[i]);
}

/* ---- what a step costs the host ---- */

static void report_steps(uint32_t n, double seconds, uint32_t tokens, uint64_t first)
{
    static const char *const columns[] = {"sequences",       "tokens/s",      "steps",
                                          "idle us, median", "idle us, 99 %", "forward us",
                                          "wait us"};
    static double idle[SAMPLES], forward[SAMPLES], wait[SAMPLES];
    uint64_t end = atomic_load(&page->n);
    uint32_t k = 0;
    if (end - first > SAMPLES)
        first = end - SAMPLES;
    for (; first < end; first++) {
        const struct sample *s = &page->s[first % SAMPLES];
        if (s->outs != n || s->rows != n) /* all decode, and nothing else */
            continue;
        idle[k] = s->idle_us;
        forward[k] = s->forward_us;
        wait[k++] = s->wait_us;
    }
    tr_report_table("steps of the whole engine", 7, columns);
    tr_report_number(n, 0);
    tr_report_number(tokens / seconds, 0);
    tr_report_number(k, 0);
    tr_report_number(tr_gpu_quantile(idle, k, 0.5), 1);
    tr_report_number(tr_gpu_quantile(idle, k, 0.99), 1);
    tr_report_number(tr_gpu_quantile(forward, k, 0.5), 1);
    tr_report_number(tr_gpu_quantile(wait, k, 0.5), 1);
}

static int steps(uint32_t n, uint32_t tokens)
{
    static struct tr_rig_req q[MOST];
    for (uint32_t i = 0; i < n; i++)
        q[i] = submit(i, tokens, 0);
    bool ok = read_until(q, n, 1);
    uint64_t t = tr_now_ns(), first = atomic_load(&page->n);
    uint32_t before = 0, after = 0;
    for (uint32_t i = 0; i < n; i++)
        before += tr_rig_published(&r, &q[i]);
    ok = ok && read_until(q, n, tokens);
    for (uint32_t i = 0; i < n; i++)
        after += tr_rig_published(&r, &q[i]);
    if (ok)
        report_steps(n, seconds_since(t), after - before, first);
    else
        tr_report_say("%u sequences: the engine does not go on", n);
    release(q, n);
    return ok ? 0 : 1;
}

/* ---- aborts ---- */

static int aborts(uint32_t n, uint32_t tokens)
{
    static const char *const columns[] = {"cancelled", "us to the end, median",
                                          "us to the end, most",
                                          "us until its KV blocks are free, mean"};
    static struct tr_rig_req q[MOST];
    static double took[MOST];
    const struct tr_hist *abort = &r.s.stat[TR_STAT_ENGINE]->hist[TR_HIST_ABORT];
    uint64_t freed = atomic_load(&abort->count), sum = atomic_load(&abort->sum);
    for (uint32_t i = 0; i < n; i++)
        q[i] = submit(i, tokens, 0);
    bool ok = read_until(q, n, 2);
    uint32_t k = 0;
    for (uint32_t i = 0; i < n && ok; i++) {
        uint64_t t = tr_now_ns();
        tr_rig_cancel(&r, &q[i], TR_ERR_CLIENT_GONE);
        while (!tr_state_terminal(tr_rig_state(&r, &q[i])) && ok)
            ok = seconds_since(t) < PATIENCE_S && !ended();
        took[k] = seconds_since(t) * 1e6;
        k += tr_rig_state(&r, &q[i]) == TR_CANCELLED; /* else its answer was over before */
        read_until(q + i + 1, n - i - 1, 0);
    }
    for (uint32_t i = 0; i < 50000 && atomic_load(&abort->count) < freed + k; i++)
        nap(100);
    freed = atomic_load(&abort->count) - freed;
    ok = ok && k && freed == k;
    if (ok) {
        tr_report_table("aborts", 4, columns);
        tr_report_number(k, 0);
        tr_report_number(tr_gpu_quantile(took, k, 0.5), 0);
        tr_report_number(tr_gpu_quantile(took, k, 1), 0);
        tr_report_number((double)(atomic_load(&abort->sum) - sum) / k * 1e-3, 0);
    } else {
        tr_report_say("aborts: %" PRIu64 " of %u have freed what they held", freed, k);
    }
    release(q, n);
    return ok ? 0 : 1;
}

/* ---- crashes ---- */

static uint32_t differ(const uint32_t *want, const struct tr_rig_req *q, uint32_t n,
                       uint32_t tokens)
{
    uint32_t bad = 0;
    for (uint32_t i = 0; i < n; i++)
        bad += tr_rig_published(&r, &q[i]) != tokens ||
               memcmp(want + (size_t)i * tokens, tr_rig_output(&r, &q[i]),
                      tokens * sizeof(*want)) != 0;
    return bad;
}

static void kill_in_a_pass(void)
{
    for (uint32_t i = 0; i < 200000 && !atomic_load(&r.s.rings->in_pass); i++)
        ;
    kill(engine, SIGKILL);
    waitpid(engine, NULL, 0);
    atomic_store(&r.s.control->engine_death, TR_DEATH_OUTSIDE);
}

/* Half of them greedy: once undisturbed, once with a death halfway. */
static int crash(const struct tr_engine_config *c, uint32_t n, uint32_t tokens)
{
    static const char *const columns[] = {"sequences", "s to ready again", "s until all go on",
                                          "answers that differ"};
    static struct tr_rig_req q[MOST];
    uint32_t *want = calloc((size_t)n * tokens, sizeof(*want));
    bool ok = want != NULL;
    for (int round = 0; round < 2 && ok; round++) {
        double ready = 0, all = 0;
        for (uint32_t i = 0; i < n; i++)
            q[i] = submit(i, tokens, i % 2 ? 0.8 : 0);
        if (round == 1) {
            ok = read_until(q, n, tokens / 2);
            uint64_t t = tr_now_ns();
            kill_in_a_pass();
            uint32_t most = 0;
            for (uint32_t i = 0; i < n; i++)
                most = tr_rig_published(&r, &q[i]) > most ? tr_rig_published(&r, &q[i]) : most;
            ready = start(c);
            ok = ok && ready > 0 && read_until(q, n, most + 1);
            all = seconds_since(t);
        }
        ok = ok && read_until(q, n, tokens);
        for (uint32_t i = 0; i < n && ok && round == 0; i++)
            memcpy(want + (size_t)i * tokens, tr_rig_output(&r, &q[i]), tokens * sizeof(*want));
        if (ok && round == 1) {
            uint32_t bad = differ(want, q, n, tokens);
            tr_report_table("kill -9 in a pass", 4, columns);
            tr_report_number(n, 0);
            tr_report_number(ready, 2);
            tr_report_number(all, 2);
            tr_report_number(bad, 0);
            ok = !bad || !c->backend.deterministic;
        }
        release(q, n);
    }
    free(want);
    if (!ok)
        tr_report_say("kill -9 in a pass: answers did not go on as they were");
    return ok ? 0 : 1;
}

/* ---- the stage ---- */

static void open_rig(const struct tr_gpu_args *a, uint32_t n_vocab, uint32_t most)
{
    struct tr_engine_rig_config c = {.no_engine = true, .ops = tr_gpu_backend(a->backend)};
    c.shm = (struct tr_shm_config){.n_ctx = a->dry ? 256 : 2048,
                                   .n_vocab = n_vocab,
                                   .n_slots = 2 * most + 32,
                                   .n_admit = most + 32,
                                   .max_seqs = most,
                                   .window = a->dry ? 256 : 2048};
    c.sched.prefix_cache = TR_PREFIX_OFF; /* the same work in every round */
    c.sched.eog[0] = 2;
    c.sched.n_eog = 1;
    tr_engine_rig_open(&r, &c);
    for (uint32_t i = 0; i < MOST; i++)
        for (uint32_t k = 0; k < PROMPT; k++)
            prompts[i][k] = (3 + i * 7919 + k * 613) % n_vocab;
}

int tr_gpu_life(const struct tr_gpu_args *a)
{
    struct tr_gpu_file file;
    uint32_t most = a->dry ? 4 : MOST;
    if (tr_gpu_file(a->model, &file))
        return 1;
    page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return 1;
    open_rig(a, file.n_vocab, most);
    weights_fd = tr_gpu_weights_fd();
    struct tr_engine_config c = {.ops = r.c.ops, .sched = r.c.sched};
    c.backend.model_path = a->model;
    c.backend.n_threads = tr_cpus_usable();
    c.backend.deterministic = a->deterministic;
    double ready = start(&c);
    if (ready < 0) {
        tr_report_say("the engine did not start");
        return 1;
    }
    tr_report_say("ready after %.2f s", ready);
    int bad = 0;
    for (uint32_t n = 1; n <= most && !bad && tr_report_has_time(5); n *= a->dry || n == 64 ? 4 : 8)
        bad = steps(n, a->dry ? 6 : 200);
    if (!bad && tr_report_has_time(5))
        bad = aborts(a->dry ? 4 : 32, a->dry ? 180 : 1500);
    if (!bad && tr_report_has_time(15))
        bad = crash(&c, a->dry ? 4 : 32, a->dry ? 12 : 128);
    stop();
    tr_engine_rig_close(&r);
    if (weights_fd)
        close(weights_fd);
    return bad;
}
