/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/supervise_priv.h - what supervise.c, child.c, replace.c, drain.c and manager.c share: the
 * supervisor's state.
 *
 * Nobody else includes it.  One thread; a turn of the loop is TICK_MS or a signal. */
#ifndef TR_SUPERVISOR_SUPERVISE_PRIV_H
#define TR_SUPERVISOR_SUPERVISE_PRIV_H

#include "supervisor/heritage.h"

#include <stdbool.h>

#define TR_MS 1000000ull
#define TR_SECOND 1000000000ull

struct tr_child {
    pid_t pid; /* 0: not running */
    uint32_t epoch;
    uint64_t started_ns;
    uint64_t retry_ns; /* not started again before this */
    uint64_t delay_ns; /* grows while it dies young */
    uint64_t up_ns;    /* was seen serving last */
    bool served;       /* was ready once */
    bool killed;       /* for a stall; it may take a while to die */
    unsigned unready;  /* deaths in a row that were in vain */
    /* frontends */
    unsigned number; /* its place */
    uint32_t area;
    uint64_t generation; /* how many SIGHUPs it has seen the files after */
};

struct tr_supervisor {
    struct tr_heritage *h;
    struct tr_shm s;
    struct tr_child engine, ledger;
    struct tr_child front[TR_MAX_AREAS];   /* by number: those that serve, or are to */
    struct tr_child next;                  /* starts; then it has a place (replace.c) */
    struct tr_child retired[TR_MAX_AREAS]; /* by area: had a place, end by themselves */
    unsigned n_front;                      /* places; 1 <= n_front */
    unsigned n_wanted;                     /* places asked for */
    uint64_t generation;                   /* SIGHUPs */
    uint64_t looked_ns;                    /* for stalls */
    uint64_t watching_ns;                  /* without a pause of our own since */
    bool area_missed;                      /* said that no area is free */
    uint32_t next_epoch[TR_MAX_AREAS];
    bool announced;
    bool at_terminal; /* a hang-up that takes it away ends the service */
    bool failed;      /* the service cannot run: it ends with status 1 */
    enum tr_drain drain;
    uint64_t drain_ns;  /* when the present stage of the drain began */
    uint64_t kill_ns;   /* when the rest is killed; 0: not yet set */
    uint64_t ledger_ns; /* when the ledger is killed; 0: others have to end first */
    bool ledger_told;   /* it was told to end */
};

/* Every frontend process there may be, whatever its part. */
enum { TR_FRONTENDS = 2 * TR_MAX_AREAS + 1 };
static inline struct tr_child *tr_child_frontend(struct tr_supervisor *v, unsigned i)
{
    return i < TR_MAX_AREAS       ? &v->front[i]
           : i < 2 * TR_MAX_AREAS ? &v->retired[i - TR_MAX_AREAS]
                                  : &v->next;
}

/* ---- supervise.c: the control page ---- */

/* Stores a word of it; tr_sup_publish makes it known. */
void tr_sup_set(_Atomic uint32_t *p, uint32_t v);
/* What was set is told, and everybody is woken. */
void tr_sup_publish(struct tr_supervisor *v);

/* ---- child.c: lives ---- */

void tr_child_start_due(struct tr_supervisor *v);
bool tr_child_is_due(const struct tr_child *c);
/* For a place, in a free area; -EAGAIN when there is none now. */
int tr_child_start_frontend(struct tr_supervisor *v, struct tr_child *f, unsigned number);
/* Later when it died young. */
void tr_child_schedule(struct tr_child *c);
/* Notes who has been ready; a child is up when it serves now. */
void tr_child_look(struct tr_supervisor *v);
bool tr_child_all_served(const struct tr_supervisor *v);
bool tr_child_is_up(const struct tr_supervisor *v, const struct tr_child *c);
/* Had a place, and ends by itself. */
bool tr_child_is_retired(const struct tr_supervisor *v, const struct tr_child *f);
/* Takes the dead: the control page first, then when they are started again. */
void tr_child_reap(struct tr_supervisor *v);
/* Kills who has given no sign of life for its limit, which is shorter in a drain. */
void tr_child_stalls(struct tr_supervisor *v);
/* Every role makes progress: it gives signs of life, or it is being replaced and has been for less than
 * its limit. */
bool tr_child_progress(const struct tr_supervisor *v);

/* ---- replace.c: SIGHUP, SIGTTIN, SIGTTOU ---- */

/* All frontends that run now are replaced, one after the other. */
void tr_replace_all(struct tr_supervisor *v);
/* One more, one less. */
void tr_replace_more(struct tr_supervisor *v);
void tr_replace_fewer(struct tr_supervisor *v);
/* A step of what was asked for. */
void tr_replace_on(struct tr_supervisor *v);
/* v->next has died (pid is 0): what becomes of its place. */
void tr_replace_failed(struct tr_supervisor *v, int status);

/* ---- drain.c ---- */

/* A signal that ends the service: the first begins the drain, the second cuts it short. */
void tr_drain_ask(struct tr_supervisor *v);
void tr_drain_to(struct tr_supervisor *v, enum tr_drain stage);
/* One stage after the other; true when nothing is left. */
bool tr_drain_on(struct tr_supervisor *v);

/* ---- manager.c: the service manager ---- */

void tr_manager_begin(struct tr_supervisor *v);
/* What has changed since it was told last. */
void tr_manager_tell(struct tr_supervisor *v);

/* ---- tell.c ---- */

/* Which processes there are, for observers. */
void tr_tell(struct tr_supervisor *v);

#endif
