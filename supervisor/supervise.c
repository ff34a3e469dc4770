/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/supervise.h"

#include "base/clock.h"
#include "base/log.h"
#include "shm/bell.h"
#include "shm/stat.h"
#include "supervisor/process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000ull
#define SECOND 1000000000ull

enum {
    TICK_MS = 20,             /* starts, limits and stalls are looked at so often */
    KILL_AFTER_CUT_MS = 5000, /* what has not ended by itself after the cut */
    KILL_AFTER_SECOND_MS = 700,
    LEDGER_END_MS = 10000, /* its last rows; a disk that does not answer is not waited for */
    CRASH_LOOP = 10, /* deaths of the engine in a row before it was ready: the service gives up */
    DELAY_MAX_MS = 2000
};

struct child {
    pid_t pid;     /* 0: not running */
    uint32_t area; /* frontends */
    uint32_t epoch;
    uint64_t started_ns;
    uint64_t retry_ns; /* not started again before this */
    uint64_t delay_ns; /* grows while it dies young */
    bool served;       /* was ready once */
    unsigned unready;  /* deaths in a row before it was ready again */
};

struct supervisor {
    struct tr_heritage *h;
    struct tr_shm s;
    struct child engine, ledger, front[TR_MAX_AREAS];
    uint32_t next_epoch[TR_MAX_AREAS];
    bool announced;
    bool failed;
    enum tr_drain drain;
    uint64_t drain_ns;  /* when the present stage of the drain began */
    uint64_t kill_ns;   /* when the rest is killed; 0: not yet set */
    uint64_t ledger_ns; /* when the ledger is killed; 0: it has not been told to end */
};

static void publish(struct supervisor *v)
{
    tr_control_publish(v->s.control);
    tr_bell_ring_engine(&v->s);
    for (uint32_t a = 0; a < v->s.config.n_areas; a++)
        tr_bell_ring_area(&v->s, a);
}

static void set_u32(_Atomic uint32_t *p, uint32_t v)
{
    /* Relaxed: tr_control_publish releases it. */
    atomic_store_explicit(p, v, memory_order_relaxed);
}

/* ---- starting ---- */

static bool born(struct child *c, pid_t pid)
{
    c->pid = pid > 0 ? pid : 0;
    c->started_ns = tr_now_ns();
    if (pid < 0) {
        tr_log(TR_LOG_ERROR, "cannot fork: %s", strerror((int)-pid));
        c->retry_ns = tr_now_ns() + SECOND;
    }
    return pid > 0;
}

/* On the page nobody lives whom there is not; an area goes back by the engine's acknowledgement. */
static void stillborn(struct supervisor *v, _Atomic uint32_t *alive)
{
    set_u32(alive, 0);
    publish(v);
}

static void start_engine(struct supervisor *v)
{
    struct tr_control *c = v->s.control;
    v->engine.epoch++;
    set_u32(&c->engine_epoch, v->engine.epoch);
    set_u32(&c->engine_alive, 1);
    publish(v);
    if (!born(&v->engine, tr_process_engine(v->h, v->engine.epoch)))
        stillborn(v, &c->engine_alive);
}

/* An area nobody has: never used, or its last owner's death was dealt with by the engine. */
static int free_area(const struct supervisor *v, uint32_t *area)
{
    const struct tr_control *c = v->s.control;
    for (uint32_t a = 0; a < v->s.config.n_areas; a++) {
        uint32_t epoch = atomic_load_explicit(&c->area_epoch[a], memory_order_relaxed);
        bool alive = atomic_load_explicit(&c->area_alive[a], memory_order_relaxed);
        uint32_t ack = atomic_load_explicit(&v->s.rings->area_ack[a], memory_order_acquire);
        if (!epoch || (!alive && ack == epoch)) {
            *area = a;
            return 0;
        }
    }
    return -EAGAIN;
}

static void start_frontend(struct supervisor *v, unsigned number)
{
    struct child *f = &v->front[number];
    uint32_t area;
    if (free_area(v, &area))
        return; /* the next tick tries again */
    f->area = area;
    f->epoch = ++v->next_epoch[area];
    /* Left by a former owner; its own first beat says that it serves. */
    set_u32(&v->s.control->area_epoch[area], f->epoch);
    set_u32(&v->s.control->area_alive[area], 1);
    publish(v);
    if (!born(f, tr_process_frontend(v->h, number, area, f->epoch)))
        stillborn(v, &v->s.control->area_alive[area]);
}

static bool due(const struct child *c)
{
    return !c->pid && tr_now_ns() >= c->retry_ns;
}

static void start_what_is_due(struct supervisor *v)
{
    bool draining = v->drain >= TR_DRAIN_CLOSED;
    if (v->h->use_ledger && due(&v->ledger))
        born(&v->ledger, tr_process_ledger(v->h));
    if (due(&v->engine) && v->drain != TR_DRAIN_CUT)
        start_engine(v);
    /* The first one alone until it serves: what keeps frontends from starting (a template, say) is
     * told once. */
    for (unsigned i = 0; i < v->h->n_frontends && !draining; i++)
        if (due(&v->front[i]) && (i == 0 || v->front[0].served))
            start_frontend(v, i);
}

/* ---- being ready ---- */

static uint64_t beat_of(const struct supervisor *v, const struct child *c)
{
    const _Atomic uint64_t *p = c == &v->engine   ? &v->s.rings->heartbeat_ns
                                : c == &v->ledger ? &v->s.ledger->heartbeat_ns
                                                  : &v->s.area[c->area]->heartbeat_ns;
    uint64_t beat = atomic_load_explicit(p, memory_order_relaxed);
    return beat > c->started_ns ? beat : c->started_ns;
}

static bool is_up(const struct supervisor *v, const struct child *c)
{
    if (!c->pid)
        return false;
    if (c == &v->engine)
        return atomic_load_explicit(&v->s.rings->ready, memory_order_acquire) == c->epoch;
    return beat_of(v, c) > c->started_ns;
}

static void announce(struct supervisor *v)
{
    const struct tr_heritage *h = v->h;
    const char *host = strcmp(h->opt.host, "0.0.0.0") == 0 || strcmp(h->opt.host, "::") == 0
                           ? "127.0.0.1"
                           : h->opt.host;
    const char *open = strchr(host, ':') ? "[" : "", *close = *open ? "]" : "";
    printf("tokenring ready on http://%s%s%s:%u (model %s, %u frontends)\n"
           "  curl -N http://%s%s%s:%u/v1/chat/completions -H 'Content-Type: application/json' -d "
           "'{\"model\":\"%s\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"Tell "
           "me about the sea.\"}]}'\n",
           open, host, close, h->port, h->served_name, h->n_frontends, open, host, close, h->port,
           h->served_name);
    fflush(stdout);
    v->announced = true;
}

static void look_who_serves(struct supervisor *v)
{
    unsigned up = 0;
    v->engine.served |= is_up(v, &v->engine);
    v->ledger.served |= is_up(v, &v->ledger);
    for (unsigned i = 0; i < v->h->n_frontends; i++) {
        v->front[i].served |= is_up(v, &v->front[i]);
        up += v->front[i].served;
    }
    bool ledger = !v->h->use_ledger || v->ledger.served;
    if (!v->announced && ledger && v->engine.served && up == v->h->n_frontends)
        announce(v);
}

/* ---- dying ---- */

/* Dead young: each time twice as long a pause, from none. */
static void schedule_restart(struct child *c)
{
    uint64_t now = tr_now_ns();
    bool young = now - c->started_ns < SECOND;
    c->delay_ns = !young ? 0 : c->delay_ns ? 2 * c->delay_ns : 50 * MS;
    if (c->delay_ns > DELAY_MAX_MS * MS)
        c->delay_ns = DELAY_MAX_MS * MS;
    c->retry_ns = now + c->delay_ns;
}

static void log_death(const char *who, pid_t pid, int status)
{
    if (WIFSIGNALED(status))
        tr_log(TR_LOG_WARN, "%s (pid %d) was killed by signal %d (%s)", who, (int)pid,
               WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        tr_log(TR_LOG_WARN, "%s (pid %d) ended with status %d", who, (int)pid, WEXITSTATUS(status));
}

/* A child that ended by itself before it ever served has said why: the service cannot run. */
static bool could_not_start(const struct child *c, int status)
{
    return !c->served && WIFEXITED(status) && WEXITSTATUS(status) != 0;
}

static void child_died(struct supervisor *v, struct child *c, const char *who, int status)
{
    bool expected = v->drain >= TR_DRAIN_CLOSED;
    look_who_serves(v);
    c->unready = is_up(v, c) ? 0 : c->unready + 1;
    if (!expected && could_not_start(c, status)) { /* nothing to add to its one sentence */
        c->pid = 0;
        v->failed = true;
        return;
    }
    if (!expected || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        log_death(who, c->pid, status);
    c->pid = 0;
    if (expected)
        return;
    schedule_restart(c);
    if (c == &v->engine && c->unready >= CRASH_LOOP) {
        tr_log(TR_LOG_ERROR, "the engine died %u times before it was ready: giving up", c->unready);
        v->failed = true;
    }
}

static void engine_died(struct supervisor *v, int status)
{
    /* First the page, so that no frontend admits another request into nothing. */
    set_u32(&v->s.control->engine_alive, 0);
    publish(v);
    child_died(v, &v->engine, "the engine", status);
    if (v->drain < TR_DRAIN_CLOSED)
        tr_stat_add(v->s.stat[TR_STAT_SUPERVISOR], TR_STAT_RESTART_ENGINE, 1);
}

static void frontend_died(struct supervisor *v, struct child *f, int status)
{
    char who[32];
    snprintf(who, sizeof(who), "frontend %d", (int)(f - v->front));
    set_u32(&v->s.control->area_alive[f->area], 0);
    publish(v);
    child_died(v, f, who, status);
    if (v->drain < TR_DRAIN_CLOSED)
        tr_stat_add(v->s.stat[TR_STAT_SUPERVISOR], TR_STAT_RESTART_FRONTEND, 1);
}

static void reap(struct supervisor *v)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid == v->engine.pid) {
            engine_died(v, status);
        } else if (pid == v->ledger.pid) {
            child_died(v, &v->ledger, "the ledger", status);
            v->failed |= v->ledger_ns && status != 0; /* its last records are not in the file */
            tr_stat_add(v->s.stat[TR_STAT_SUPERVISOR], TR_STAT_RESTART_LEDGER,
                        v->drain < TR_DRAIN_CLOSED);
        }
        for (unsigned i = 0; i < v->h->n_frontends; i++)
            if (pid == v->front[i].pid)
                frontend_died(v, &v->front[i], status);
    }
}

static void kill_stalled(struct supervisor *v, struct child *c, const char *who, uint64_t limit_ns)
{
    uint64_t now = tr_now_ns(), beat = beat_of(v, c);
    if (!c->pid || now < beat || now - beat < limit_ns)
        return;
    tr_log(TR_LOG_ERROR, "%s gave no sign of life for %.0f s: killed", who,
           (double)(now - beat) / 1e9);
    kill(c->pid, SIGKILL);
}

static void look_for_stalls(struct supervisor *v)
{
    kill_stalled(v, &v->engine, "the engine", v->h->opt.engine_stall);
    kill_stalled(v, &v->ledger, "the ledger", v->h->opt.engine_stall);
    for (unsigned i = 0; i < v->h->n_frontends; i++)
        kill_stalled(v, &v->front[i], "a frontend", v->h->opt.frontend_stall);
}

/* ---- draining ---- */

static void drain_to(struct supervisor *v, enum tr_drain stage)
{
    v->drain = stage;
    v->drain_ns = tr_now_ns();
    if (stage == TR_DRAIN_CUT && !v->kill_ns)
        v->kill_ns = v->drain_ns + KILL_AFTER_CUT_MS * MS;
    /* Ours too: the kernel takes connections as long as one process holds the socket, and nobody
     * would accept them. */
    for (struct tr_heritage *h = v->h; stage >= TR_DRAIN_CLOSED && h->n_listen; h->n_listen--)
        close(h->listen_fds[h->n_listen - 1]);
    set_u32(&v->s.control->drain, (uint32_t)stage);
    publish(v);
}

static void asked_to_stop(struct supervisor *v)
{
    if (v->drain == TR_DRAIN_NO) {
        tr_log(TR_LOG_INFO, "draining: open streams may finish for %.0f s",
               (double)v->h->opt.drain / 1e9);
        drain_to(v, v->h->opt.drain_grace ? TR_DRAIN_GRACE : TR_DRAIN_CLOSED);
        return;
    }
    tr_log(TR_LOG_INFO, "second signal: ending now");
    v->kill_ns = tr_now_ns() + KILL_AFTER_SECOND_MS * MS;
    drain_to(v, TR_DRAIN_CUT);
}

static bool any_frontend(const struct supervisor *v)
{
    for (unsigned i = 0; i < v->h->n_frontends; i++)
        if (v->front[i].pid)
            return true;
    return false;
}

static void kill_rest(struct supervisor *v)
{
    if (v->engine.pid)
        kill(v->engine.pid, SIGKILL);
    for (unsigned i = 0; i < v->h->n_frontends; i++)
        if (v->front[i].pid)
            kill(v->front[i].pid, SIGKILL);
}

/* Everybody who makes records is gone: the ledger empties its queue, settles the rings and ends. */
static void end_ledger(struct supervisor *v)
{
    uint64_t now = tr_now_ns();
    if (!v->ledger_ns)
        v->ledger_ns = now + LEDGER_END_MS * MS;
    bool late = now >= v->ledger_ns;
    if (late)
        tr_log(TR_LOG_ERROR, "the ledger does not end: killed, its last records are missing");
    kill(v->ledger.pid, late ? SIGKILL : SIGTERM);
}

/* One stage after the other; true when nothing is left. */
static bool drain_on(struct supervisor *v)
{
    uint64_t age = tr_now_ns() - v->drain_ns;
    if (v->drain == TR_DRAIN_GRACE && age >= v->h->opt.drain_grace)
        drain_to(v, TR_DRAIN_CLOSED);
    else if (v->drain == TR_DRAIN_CLOSED && (age >= v->h->opt.drain || !any_frontend(v)))
        drain_to(v, TR_DRAIN_CUT);
    if (v->kill_ns && tr_now_ns() >= v->kill_ns)
        kill_rest(v);
    if (v->drain != TR_DRAIN_CUT || any_frontend(v) || v->engine.pid)
        return false;
    if (v->ledger.pid)
        end_ledger(v);
    return !v->ledger.pid;
}

/* ---- the loop ---- */

static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGQUIT);
    sigaddset(&set, SIGHUP); /* a terminal that went away; nothing is reloaded */
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void take_signals(struct supervisor *v)
{
    struct signalfd_siginfo si;
    while (read(v->h->signals, &si, sizeof(si)) == (ssize_t)sizeof(si))
        if (si.ssi_signo != SIGCHLD)
            asked_to_stop(v);
    reap(v);
}

static int run(struct supervisor *v)
{
    struct pollfd p = {.fd = v->h->signals, .events = POLLIN};
    for (;;) {
        start_what_is_due(v);
        poll(&p, 1, TICK_MS);
        take_signals(v);
        look_who_serves(v);
        if (v->failed && !v->announced)
            return 1;
        /* Streams get their end and their record as far as the processes left can do it. */
        if (v->failed && v->drain != TR_DRAIN_CUT)
            drain_to(v, TR_DRAIN_CUT);
        if (v->drain != TR_DRAIN_NO && drain_on(v))
            return v->failed;
        if (v->drain == TR_DRAIN_NO)
            look_for_stalls(v);
    }
}

int tr_supervise(struct tr_heritage *h)
{
    struct supervisor v = {.h = h};
    struct tr_errbuf err;
    if (tr_shm_attach(&v.s, &h->fds, TR_ROLE_SUPERVISOR, 0, 0, &err)) {
        tr_log(TR_LOG_ERROR, "%s", err.msg);
        return 1;
    }
    atomic_store_explicit(&v.s.stat[TR_STAT_SUPERVISOR]->pid, (uint64_t)getpid(),
                          memory_order_relaxed);
    h->signals = open_signals();
    if (h->signals < 0) {
        tr_log(TR_LOG_ERROR, "cannot take signals: %s", strerror(errno));
        return 1;
    }
    int status = run(&v);
    /* After a failure children may still live: PDEATHSIG ends them, the ledger last. */
    close(h->signals);
    tr_shm_detach(&v.s);
    return status;
}
