/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/supervise_priv.h - what supervise.c, child.c and drain.c share: the supervisor's state.
 *
 * Nobody else includes it.  One thread; a turn of the loop is TICK_MS or a signal. */
#ifndef TR_SUPERVISOR_SUPERVISE_PRIV_H
#define TR_SUPERVISOR_SUPERVISE_PRIV_H

#include "supervisor/heritage.h"

#include <stdbool.h>

#define TR_MS 1000000ull
#define TR_SECOND 1000000000ull

struct tr_child {
    pid_t pid;     /* 0: not running */
    uint32_t area; /* frontends */
    uint32_t epoch;
    uint64_t started_ns;
    uint64_t retry_ns; /* not started again before this */
    uint64_t delay_ns; /* grows while it dies young */
    bool served;       /* was ready once */
    unsigned unready;  /* deaths in a row before it was ready again */
};

struct tr_supervisor {
    struct tr_heritage *h;
    struct tr_shm s;
    struct tr_child engine, ledger, front[TR_MAX_AREAS];
    uint32_t next_epoch[TR_MAX_AREAS];
    bool announced;
    bool failed; /* the service cannot run: it ends with status 1 */
    enum tr_drain drain;
    uint64_t drain_ns;  /* when the present stage of the drain began */
    uint64_t kill_ns;   /* when the rest is killed; 0: not yet set */
    uint64_t ledger_ns; /* when the ledger is killed; 0: it has not been told to end */
};

/* ---- supervise.c: the control page ---- */

/* Stores a word of it; tr_sup_publish makes it known. */
void tr_sup_set(_Atomic uint32_t *p, uint32_t v);
/* What was set is told, and everybody is woken. */
void tr_sup_publish(struct tr_supervisor *v);

/* ---- child.c: lives ---- */

void tr_child_start_due(struct tr_supervisor *v);
/* Notes who has been ready; a child is up when it serves now. */
void tr_child_look(struct tr_supervisor *v);
bool tr_child_all_served(const struct tr_supervisor *v);
bool tr_child_is_up(const struct tr_supervisor *v, const struct tr_child *c);
/* Takes the dead: the control page first, then when they are started again. */
void tr_child_reap(struct tr_supervisor *v);
/* Kills who has given no sign of life for its limit. */
void tr_child_stalls(struct tr_supervisor *v);

/* ---- drain.c ---- */

/* A signal that ends the service: the first begins the drain, the second cuts it short. */
void tr_drain_ask(struct tr_supervisor *v);
void tr_drain_to(struct tr_supervisor *v, enum tr_drain stage);
/* One stage after the other; true when nothing is left. */
bool tr_drain_on(struct tr_supervisor *v);

/* ---- tell.c ---- */

/* Which processes there are, for observers. */
void tr_tell(struct tr_supervisor *v);

#endif
