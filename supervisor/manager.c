/* SPDX-License-Identifier: Apache-2.0 */
/* What the service manager is told: being ready, reloading, stopping, a line of status, and the
 * watchdog's food.
 *
 * It is told what is so, not what happened: each turn compares with what was told last, so that a
 * message it could not take is made up for in the next turn. */
#include "supervisor/supervise_priv.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* A start may take as long as the engine gives signs of life: put off by so much, again and again. */
enum { MORE_START_S = 60, MORE_STOP_S = 30 };

static bool is_replaced(const struct tr_supervisor *v)
{
    bool all = !v->next.pid && v->n_front == v->n_wanted;
    for (unsigned i = 0; i < v->n_front; i++)
        all = all && v->front[i].generation == v->generation;
    return all;
}

/* A reload that was told goes on until the last place has its new frontend, or it was given up. */
static enum tr_manager_phase phase_of(const struct tr_supervisor *v)
{
    if (v->drain != TR_DRAIN_NO || v->failed)
        return TR_PHASE_STOPPING;
    if (!v->announced)
        return TR_PHASE_STARTING;
    return is_replaced(v) ? TR_PHASE_READY : TR_PHASE_RELOADING;
}

static void say_status(const struct tr_supervisor *v, enum tr_manager_phase phase, char *out,
                       size_t cap)
{
    unsigned up = 0;
    for (unsigned i = 0; i < v->n_front; i++)
        up += tr_child_is_up(v, &v->front[i]);
    if (phase == TR_PHASE_STOPPING)
        snprintf(out, cap, "%s",
                 v->failed                     ? "Ending: it cannot go on"
                 : v->drain == TR_DRAIN_GRACE  ? "Draining: not ready, still accepting"
                 : v->drain == TR_DRAIN_CLOSED ? "Draining: open streams may finish"
                                               : "Draining: the rest ends now");
    else if (!tr_child_is_up(v, &v->engine))
        snprintf(out, cap, "%s %s", v->engine.served ? "The engine restarts:" : "Loading",
                 v->h->served_name);
    else if (v->h->use_ledger && !tr_child_is_up(v, &v->ledger))
        snprintf(out, cap, "The ledger process %s", v->ledger.served ? "restarts" : "starts");
    else if (up < v->n_front)
        snprintf(out, cap, "%u of %u frontends serve %s", up, v->n_front, v->h->served_name);
    else
        snprintf(out, cap, "%s %s on port %u, %u frontends",
                 phase == TR_PHASE_RELOADING ? "Replacing frontends; serving" : "Serving",
                 v->h->served_name, v->h->port, v->n_front);
}

static void say_phase(const struct tr_supervisor *v, enum tr_manager_phase phase, char *out,
                      size_t cap)
{
    const struct tr_options *o = &v->h->opt;
    *out = '\0';
    if (phase == TR_PHASE_READY)
        snprintf(out, cap, "READY=1\n");
    else if (phase == TR_PHASE_RELOADING)
        snprintf(out, cap, "RELOADING=1\nMONOTONIC_USEC=%llu\n",
                 (unsigned long long)(tr_now_ns() / 1000));
    else if (phase == TR_PHASE_STOPPING)
        snprintf(
            out, cap, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu\n",
            (unsigned long long)((o->drain_grace + o->drain) / 1000 + MORE_STOP_S * 1000000ull));
}

static void tell_change(struct tr_supervisor *v)
{
    struct tr_systemd *d = &v->h->systemd;
    enum tr_manager_phase phase = phase_of(v);
    char status[TR_STATUS_BYTES], first[128] = "", text[TR_STATUS_BYTES + 192];
    say_status(v, phase, status, sizeof(status));
    for (char *p = status; (p = strchr(p, '\n'));) /* a name is not to begin another line */
        *p = ' ';
    if (phase == d->phase && strcmp(status, d->status) == 0)
        return;
    if (phase != d->phase)
        say_phase(v, phase, first, sizeof(first));
    snprintf(text, sizeof(text), "%sSTATUS=%s\n", first, status);
    if (tr_systemd_tell(d, text))
        return; /* the next turn tries again */
    d->phase = phase;
    memcpy(d->status, status, sizeof(status));
}

/* A third of the time: one message that comes late is no harm. */
static void feed(struct tr_supervisor *v)
{
    struct tr_systemd *d = &v->h->systemd;
    uint64_t now = tr_now_ns(), period = d->watchdog_ns / 3;
    char more[64];
    snprintf(more, sizeof(more), "EXTEND_TIMEOUT_USEC=%llu\n", MORE_START_S * 1000000ull);
    if (d->phase == TR_PHASE_STARTING)
        period = TR_SECOND * MORE_START_S / 3;
    if (!period || (d->fed_ns && now - d->fed_ns < period) || !tr_child_progress(v))
        return;
    if (!tr_systemd_tell(d, d->phase == TR_PHASE_STARTING ? more : "WATCHDOG=1\n"))
        d->fed_ns = now;
}

void tr_manager_begin(struct tr_supervisor *v)
{
    const struct tr_options *o = &v->h->opt;
    uint64_t longest = o->engine_stall > o->frontend_stall ? o->engine_stall : o->frontend_stall;
    if (v->h->systemd.watchdog_ns && v->h->systemd.watchdog_ns <= longest)
        tr_log(TR_LOG_WARN,
               "the service manager's watchdog (%.0f s) ends the service before a process that "
               "stands still is replaced (--engine-stall-s, --frontend-stall-s: %.0f s)",
               (double)v->h->systemd.watchdog_ns / 1e9, (double)longest / 1e9);
}

void tr_manager_tell(struct tr_supervisor *v)
{
    if (!v->h->systemd.to_len)
        return;
    tell_change(v);
    feed(v);
}
