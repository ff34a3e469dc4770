/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the service: grace, closed, cut; then engine, then ledger. */
#include "supervisor/supervise_priv.h"

#include "base/clock.h"
#include "base/log.h"

#include <signal.h>
#include <unistd.h>

enum {
    KILL_AFTER_CUT_MS = 5000, /* what has not ended by itself after the cut */
    KILL_AFTER_SECOND_MS = 700,
    LEDGER_END_MS = 10000 /* its last rows; a disk that does not answer is not waited for */
};

void tr_drain_to(struct tr_supervisor *v, enum tr_drain stage)
{
    v->drain = stage;
    v->drain_ns = tr_now_ns();
    if (stage == TR_DRAIN_CUT && !v->kill_ns)
        v->kill_ns = v->drain_ns + KILL_AFTER_CUT_MS * TR_MS;
    /* Ours too: the kernel takes connections as long as one process holds the socket, and nobody
     * would accept them. */
    for (struct tr_heritage *h = v->h; stage >= TR_DRAIN_CLOSED && h->n_listen; h->n_listen--)
        close(h->listen_fds[h->n_listen - 1]);
    tr_sup_set(&v->s.control->drain, (uint32_t)stage);
    tr_sup_publish(v);
}

void tr_drain_ask(struct tr_supervisor *v)
{
    if (v->drain == TR_DRAIN_NO) {
        tr_log(TR_LOG_INFO, "draining: open streams may finish for %.0f s",
               (double)v->h->opt.drain / 1e9);
        tr_drain_to(v, v->h->opt.drain_grace ? TR_DRAIN_GRACE : TR_DRAIN_CLOSED);
        return;
    }
    tr_log(TR_LOG_INFO, "second signal: ending now");
    uint64_t kill_ns = tr_now_ns() + KILL_AFTER_SECOND_MS * TR_MS;
    if (!v->kill_ns || kill_ns < v->kill_ns) /* a third does not put it off */
        v->kill_ns = kill_ns;
    tr_drain_to(v, TR_DRAIN_CUT);
}

static bool any_frontend(struct tr_supervisor *v)
{
    for (unsigned i = 0; i < TR_FRONTENDS; i++)
        if (tr_child_frontend(v, i)->pid)
            return true;
    return false;
}

static void kill_rest(struct tr_supervisor *v)
{
    if (v->engine.pid)
        kill(v->engine.pid, SIGKILL);
    for (unsigned i = 0; i < TR_FRONTENDS; i++)
        if (tr_child_frontend(v, i)->pid)
            kill(tr_child_frontend(v, i)->pid, SIGKILL);
}

/* Everybody who makes records is gone: the ledger empties its queue, settles the rings and ends.  One
 * that died before it was told to is started again for that (child.c). */
static bool has_ledger_ended(struct tr_supervisor *v)
{
    uint64_t now = tr_now_ns();
    if (!v->h->use_ledger || (v->ledger_told && !v->ledger.pid))
        return true;
    if (!v->ledger_ns)
        v->ledger_ns = now + LEDGER_END_MS * TR_MS;
    bool late = now >= v->ledger_ns;
    if (late && !v->failed)
        tr_log(TR_LOG_ERROR, "the ledger does not end: killed, its last records are missing");
    v->failed |= late;
    if (v->ledger.pid)
        kill(v->ledger.pid, late ? SIGKILL : SIGTERM);
    v->ledger_told |= v->ledger.pid != 0;
    return late && !v->ledger.pid;
}

/* One stage after the other; true when nothing is left. */
bool tr_drain_on(struct tr_supervisor *v)
{
    uint64_t age = tr_now_ns() - v->drain_ns;
    if (v->drain == TR_DRAIN_GRACE && age >= v->h->opt.drain_grace)
        tr_drain_to(v, TR_DRAIN_CLOSED);
    else if (v->drain == TR_DRAIN_CLOSED && (age >= v->h->opt.drain || !any_frontend(v)))
        tr_drain_to(v, TR_DRAIN_CUT);
    if (v->kill_ns && tr_now_ns() >= v->kill_ns)
        kill_rest(v);
    if (v->drain != TR_DRAIN_CUT || any_frontend(v) || v->engine.pid)
        return false;
    return has_ledger_ended(v);
}
