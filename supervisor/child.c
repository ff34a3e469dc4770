/* SPDX-License-Identifier: Apache-2.0 */
/* The lives of the children: start, being ready, death, stall. */
#include "supervisor/supervise_priv.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "shm/stat.h"
#include "supervisor/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum {
    /* In a drain: a frontend that does not turn keeps the listening socket open, and clients in it
     * wait for nobody; after the cut nothing that is silent will say more. */
    DRAIN_SILENT_MS = 5000,
    SILENT_MS = 5000,   /* no progress any more, for the watchdog; /health says so then too */
    CRASH_LOOP = 10,    /* deaths of the engine in a row that were in vain: the service gives up */
    SETTLED_MS = 10000, /* an engine that has served for so long has not died in vain */
    DELAY_MAX_MS = 2000
};

/* ---- starting ---- */

static bool born(struct tr_child *c, pid_t pid)
{
    c->pid = pid > 0 ? pid : 0;
    c->killed = false;
    c->started_ns = tr_now_ns();
    if (pid < 0) {
        tr_log(TR_LOG_ERROR, "cannot fork: %s", strerror((int)-pid));
        c->retry_ns = tr_now_ns() + TR_SECOND;
    }
    return pid > 0;
}

/* On the page nobody lives whom there is not; an area goes back by the engine's acknowledgement. */
static void stillborn(struct tr_supervisor *v, _Atomic uint32_t *alive)
{
    tr_sup_set(alive, 0);
    tr_sup_publish(v);
}

static void start_engine(struct tr_supervisor *v)
{
    struct tr_control *c = v->s.control;
    v->engine.epoch++;
    tr_sup_set(&c->engine_epoch, v->engine.epoch);
    tr_sup_set(&c->engine_alive, 1);
    tr_sup_publish(v);
    if (!born(&v->engine, tr_process_engine(v->h, v->engine.epoch)))
        stillborn(v, &c->engine_alive);
}

/* An area nobody has: never used, or its last owner's death was dealt with by the engine. */
static int free_area(const struct tr_supervisor *v, uint32_t *area)
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

int tr_child_start_frontend(struct tr_supervisor *v, struct tr_child *f, unsigned number)
{
    uint32_t area;
    if (free_area(v, &area))
        return -EAGAIN; /* the next tick tries again */
    f->number = number;
    f->generation = v->generation;
    f->area = area;
    f->epoch = ++v->next_epoch[area];
    /* Alive before it has a name: an engine that looks in between must not find this epoch dead and
     * acknowledge a death that is still to come.  Release; pairs with look_at_control in engine/. */
    tr_sup_set(&v->s.control->area_alive[area], 1);
    atomic_store_explicit(&v->s.control->area_epoch[area], f->epoch, memory_order_release);
    tr_sup_publish(v);
    if (!born(f, tr_process_frontend(v->h, number, area, f->epoch)))
        stillborn(v, &v->s.control->area_alive[area]);
    return 0;
}

bool tr_child_is_due(const struct tr_child *c)
{
    return !c->pid && tr_now_ns() >= c->retry_ns;
}

/* Clients of a socket that was open before us wait in it, rather than be told that the engine starts. */
static bool may_accept(const struct tr_supervisor *v)
{
    return !v->h->systemd.n_fds || (v->engine.served && (!v->h->use_ledger || v->ledger.served));
}

void tr_child_start_due(struct tr_supervisor *v)
{
    bool draining = v->drain >= TR_DRAIN_CLOSED;
    if (v->h->use_ledger && tr_child_is_due(&v->ledger))
        born(&v->ledger, tr_process_ledger(v->h));
    if (tr_child_is_due(&v->engine) && v->drain != TR_DRAIN_CUT)
        start_engine(v);
    /* The first one alone until it serves: what keeps frontends from starting (a template, say) is
     * told once. */
    for (unsigned i = 0; i < v->n_front && !draining; i++) {
        if (v->next.pid && v->next.number == i)
            continue; /* another one starts for this place already */
        if (tr_child_is_due(&v->front[i]) && (i == 0 ? may_accept(v) : v->front[0].served))
            tr_child_start_frontend(v, &v->front[i], i);
    }
}

/* ---- being ready ---- */

static uint64_t beat_of(const struct tr_supervisor *v, const struct tr_child *c)
{
    const _Atomic uint64_t *p = c == &v->engine   ? &v->s.rings->heartbeat_ns
                                : c == &v->ledger ? &v->s.ledger->heartbeat_ns
                                                  : &v->s.area[c->area]->heartbeat_ns;
    /* Of the future: nonsense, maybe of the area's former owner. */
    uint64_t beat = atomic_load_explicit(p, memory_order_relaxed), now = tr_now_ns();
    return beat > c->started_ns && beat <= now ? beat : c->started_ns;
}

bool tr_child_is_up(const struct tr_supervisor *v, const struct tr_child *c)
{
    if (!c->pid)
        return false;
    if (c == &v->engine)
        return atomic_load_explicit(&v->s.rings->ready, memory_order_acquire) == c->epoch;
    return beat_of(v, c) > c->started_ns;
}

static void look_at(const struct tr_supervisor *v, struct tr_child *c)
{
    if (!tr_child_is_up(v, c))
        return;
    c->served = true;
    c->up_ns = tr_now_ns();
}

void tr_child_look(struct tr_supervisor *v)
{
    look_at(v, &v->engine);
    look_at(v, &v->ledger);
    for (unsigned i = 0; i < v->n_front; i++)
        look_at(v, &v->front[i]);
}

bool tr_child_all_served(const struct tr_supervisor *v)
{
    bool all = v->engine.served && (!v->h->use_ledger || v->ledger.served);
    for (unsigned i = 0; i < v->n_front; i++)
        all = all && v->front[i].served;
    return all;
}

/* ---- dying ---- */

/* Dead young: each time twice as long a pause, from none. */
void tr_child_schedule(struct tr_child *c)
{
    uint64_t now = tr_now_ns();
    bool young = now - c->started_ns < TR_SECOND;
    c->delay_ns = !young ? 0 : c->delay_ns ? 2 * c->delay_ns : 50 * TR_MS;
    if (c->delay_ns > DELAY_MAX_MS * TR_MS)
        c->delay_ns = DELAY_MAX_MS * TR_MS;
    c->retry_ns = now + c->delay_ns;
}

static void log_death(const char *who, pid_t pid, int status)
{
    if (WIFSIGNALED(status))
        tr_log(TR_LOG_WARN, "%s (pid %d) was killed by signal %d (%s)%s", who, (int)pid,
               WTERMSIG(status), strsignal(WTERMSIG(status)),
               WTERMSIG(status) == SIGSYS ? ": a system call its sandbox does not have" : "");
    else
        tr_log(TR_LOG_WARN, "%s (pid %d) ended with status %d", who, (int)pid, WEXITSTATUS(status));
}

/* A child that ended by itself before it ever served has said why: the service cannot run. */
static bool could_not_start(const struct tr_child *c, int status)
{
    return !c->served && WIFEXITED(status) && WEXITSTATUS(status) != 0;
}

/* Signals that a process brings upon itself; all others come from outside. */
static bool is_own_signal(int sig)
{
    return sig == SIGSEGV || sig == SIGBUS || sig == SIGILL || sig == SIGFPE || sig == SIGABRT ||
           sig == SIGSYS || sig == SIGTRAP;
}

static enum tr_death death_of(const struct tr_child *c, int status)
{
    if (!WIFSIGNALED(status))
        return TR_DEATH_OUTSIDE;
    if (c->killed && WTERMSIG(status) == SIGKILL)
        return TR_DEATH_STALLED;
    return is_own_signal(WTERMSIG(status)) ? TR_DEATH_CRASHED : TR_DEATH_OUTSIDE;
}

/* Whether another engine would have no more luck: it never served, or it ended by its own fault, soon,
 * and no request can be blamed for it.  With requests to blame the next one knows more (suspect.c in
 * engine/), and that search has an end. */
static bool died_in_vain(const struct tr_supervisor *v, int status)
{
    const struct tr_child *c = &v->engine;
    enum tr_death death = death_of(c, status);
    uint32_t pass_of = atomic_load_explicit(&v->s.rings->in_pass, memory_order_relaxed);
    bool own = death == TR_DEATH_CRASHED || death == TR_DEATH_STALLED;
    if (!tr_child_is_up(v, c))
        return true;
    return (WIFEXITED(status) || (own && pass_of != c->epoch)) &&
           tr_now_ns() - c->started_ns < SETTLED_MS * TR_MS;
}

static void child_died(struct tr_supervisor *v, struct tr_child *c, const char *who, int status)
{
    bool expected = v->drain >= TR_DRAIN_CLOSED;
    bool vain = c != &v->engine || died_in_vain(v, status);
    tr_child_look(v);
    c->unready = vain ? c->unready + 1 : 0;
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
    if (vain)
        tr_child_schedule(c);
    else
        c->delay_ns = c->retry_ns = 0; /* at once: streams wait */
    if (c == &v->engine && c->unready >= CRASH_LOOP) {
        tr_log(
            TR_LOG_ERROR,
            "the engine died %u times in a row before it served, or by a fault of its own that is "
            "no request's: giving up",
            c->unready);
        tr_sup_set(&v->s.control->engine_gone, 1);
        tr_sup_publish(v);
        v->failed = true;
    }
}

static void engine_died(struct tr_supervisor *v, int status)
{
    /* First the page: the next engine reads there how this one died. */
    tr_sup_set(&v->s.control->engine_death, death_of(&v->engine, status));
    tr_sup_set(&v->s.control->engine_alive, 0);
    tr_sup_publish(v);
    child_died(v, &v->engine, "the engine", status);
    if (v->drain < TR_DRAIN_CLOSED)
        tr_stat_add(v->s.stat[TR_STAT_SUPERVISOR], TR_STAT_RESTART_ENGINE, 1);
}

bool tr_child_is_retired(const struct tr_supervisor *v, const struct tr_child *f)
{
    return f >= v->retired && f < v->retired + TR_MAX_AREAS;
}

/* One that has no place any more, or not yet: nobody is missed. */
static void placeless_died(struct tr_supervisor *v, struct tr_child *f, const char *who, int status)
{
    bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!good && (tr_child_is_retired(v, f) || WIFSIGNALED(status))) /* else it has said why */
        log_death(who, f->pid, status);
    else if (good && v->drain < TR_DRAIN_CLOSED)
        tr_log(TR_LOG_INFO, "%s (pid %d) has ended", who, (int)f->pid);
    f->pid = 0;
    if (!tr_child_is_retired(v, f) && v->drain < TR_DRAIN_CLOSED)
        tr_replace_failed(v, status);
}

static void frontend_died(struct tr_supervisor *v, struct tr_child *f, int status)
{
    char who[32];
    bool placed = f != &v->next && !tr_child_is_retired(v, f);
    snprintf(who, sizeof(who), "%sfrontend %u",
             tr_child_is_retired(v, f) ? "retired "
             : f == &v->next           ? "new "
                                       : "",
             f->number);
    tr_sup_set(&v->s.control->area_alive[f->area], 0);
    tr_sup_publish(v);
    if (!placed) {
        placeless_died(v, f, who, status);
        return;
    }
    child_died(v, f, who, status);
    if (v->drain < TR_DRAIN_CLOSED)
        tr_stat_add(v->s.stat[TR_STAT_SUPERVISOR], TR_STAT_RESTART_FRONTEND, 1);
}

void tr_child_reap(struct tr_supervisor *v)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        TR_FAULT(SUPERVISOR_REAPED);
        if (pid == v->engine.pid) {
            engine_died(v, status);
        } else if (pid == v->ledger.pid) {
            child_died(v, &v->ledger, "the ledger", status);
            v->failed |= v->ledger_ns && status != 0; /* its last records are not in the file */
            tr_stat_add(v->s.stat[TR_STAT_SUPERVISOR], TR_STAT_RESTART_LEDGER,
                        v->drain < TR_DRAIN_CLOSED);
        }
        for (unsigned i = 0; i < TR_FRONTENDS; i++)
            if (pid == tr_child_frontend(v, i)->pid)
                frontend_died(v, tr_child_frontend(v, i), status);
    }
}

static void kill_stalled(struct tr_supervisor *v, struct tr_child *c, const char *who,
                         uint64_t limit_ns)
{
    uint64_t now = tr_now_ns(), beat = beat_of(v, c);
    if (beat < v->watching_ns)
        beat = v->watching_ns;
    if (!c->pid || c->killed || now < beat || now - beat < limit_ns)
        return;
    c->killed = true;
    tr_log(TR_LOG_ERROR, "%s gave no sign of life for %.0f s: killed", who,
           (double)(now - beat) / 1e9);
    kill(c->pid, SIGKILL);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* How long each may be silent.  The ledger's own limit after the cut is drain.c's: its disk may be
 * slow. */
void tr_child_stalls(struct tr_supervisor *v)
{
    const struct tr_options *o = &v->h->opt;
    uint64_t now = tr_now_ns(), silent = DRAIN_SILENT_MS * TR_MS;
    uint64_t engine = o->engine_stall, frontend = o->frontend_stall;
    /* Whoever stood still with us (a container that was frozen) has its time from here on. */
    if (now - v->looked_ns > TR_SECOND)
        v->watching_ns = now;
    v->looked_ns = now;
    if (v->drain >= TR_DRAIN_CLOSED)
        frontend = least(frontend, silent);
    if (v->drain == TR_DRAIN_CUT)
        engine = least(engine, silent);
    else if (v->drain == TR_DRAIN_CLOSED) /* a step may take its time, but not all of the drain's */
        engine = least(engine, o->drain > silent ? o->drain : silent);
    kill_stalled(v, &v->engine, "the engine", engine);
    if (v->drain != TR_DRAIN_CUT)
        kill_stalled(v, &v->ledger, "the ledger", o->engine_stall);
    for (unsigned i = 0; i < TR_FRONTENDS; i++)
        kill_stalled(v, tr_child_frontend(v, i), "a frontend", frontend);
}

/* An engine that loads beats too: it has as long as it gives signs of life.  Any other one that does not
 * serve is a replacement, or none yet: a limit from when the last one served. */
static bool makes_progress(const struct tr_supervisor *v, const struct tr_child *c, uint64_t limit)
{
    uint64_t now = tr_now_ns(), beat = beat_of(v, c);
    if (beat < v->watching_ns)
        beat = v->watching_ns;
    bool fresh = c->pid && now - least(beat, now) < SILENT_MS * TR_MS;
    if (tr_child_is_up(v, c))
        return fresh;
    return (fresh && c == &v->engine && beat > c->started_ns) ||
           now - (c->up_ns ? c->up_ns : c->started_ns) < limit;
}

/* In a drain they end, in limits of its own. */
bool tr_child_progress(const struct tr_supervisor *v)
{
    const struct tr_options *o = &v->h->opt;
    bool all = makes_progress(v, &v->engine, o->engine_stall) &&
               (!v->h->use_ledger || makes_progress(v, &v->ledger, o->engine_stall));
    for (unsigned i = 0; i < v->n_front; i++)
        all = all && makes_progress(v, &v->front[i], o->frontend_stall);
    return all || v->drain >= TR_DRAIN_CLOSED;
}
