/* SPDX-License-Identifier: Apache-2.0 */
#include "engine_lives.h"

#include "shm/control.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_TURNS = 200000 };

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "engine lives: %s\n", what);
    abort();
}

static void *shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(p != MAP_FAILED, "out of memory");
    return p;
}

void tr_lives_open(struct tr_lives *l, struct tr_engine_rig *r)
{
    *l = (struct tr_lives){.r = r, .req = shared(TR_LIVES * sizeof(struct tr_lives_req))};
#ifdef TR_FAULTS
    tr_fault_table = shared(sizeof(*tr_fault_table));
#endif
}

void tr_lives_clear(struct tr_lives *l)
{
    memset(l->req, 0, TR_LIVES * sizeof(*l->req));
    l->n = 0;
}

void tr_lives_submit(struct tr_lives *l, const struct tr_rig_ask *a, const struct tr_lives_req *how,
                     uint32_t n)
{
    struct tr_rig_req at[TR_LIVES];
    must(l->n + n <= TR_LIVES, "too many requests");
    must(tr_rig_submit_group(l->r, a, n, at) == 0, "no open slot");
    for (uint32_t i = 0; i < n; i++) {
        struct tr_lives_req *q = &l->req[l->n++];
        *q = (struct tr_lives_req){.stop_at = how[i].stop_at, .slow = how[i].slow, .at = at[i]};
    }
}

/* ---- a reader ---- */

static void take_entries(struct tr_lives *l, struct tr_lives_req *q)
{
    struct tr_lp e;
    while (tr_lpring_peek(&l->r->s, q->at.slot, &e) == 0) {
        must(q->n_lp < 2 * TR_LIVES_OUT, "too many logprobs");
        q->lp[q->n_lp++] = e;
        tr_lpring_pop(&l->r->s, q->at.slot);
    }
}

static void finish(struct tr_lives *l, struct tr_lives_req *q, uint32_t state)
{
    const struct tr_ring *r = tr_rig_ring(l->r, &q->at);
    if (!atomic_load(&r->bill_seq))
        return;
    q->state = state;
    q->finish = r->finish;
    q->err = r->err;
    q->finish_index = r->finish_index;
    tr_rig_release(l->r, &q->at);
    q->done = true;
}

static void read_one(struct tr_lives *l, struct tr_lives_req *q)
{
    uint32_t state;
    int64_t n = tr_ring_read(&l->r->s, q->at.slot, q->at.gen, &state);
    if (q->done || state == TR_FREE)
        return;
    must(n >= 0 && n <= TR_LIVES_OUT, "a slot was taken away");
    if (q->slow && state != TR_PARKED && !tr_state_terminal(state))
        return;
    tr_rig_be_frontend(l->r, q->at.area);
    must((uint32_t)n >= q->n_out, "tokens were taken back");
    must(memcmp(q->out, tr_rig_output(l->r, &q->at), q->n_out * sizeof(uint32_t)) == 0,
         "tokens have changed");
    q->n_out = (uint32_t)n;
    memcpy(q->out, tr_rig_output(l->r, &q->at), q->n_out * sizeof(uint32_t));
    take_entries(l, q);
    if (q->stop_at && q->n_out >= q->stop_at)
        tr_rig_finish(l->r, &q->at, q->stop_at);
    tr_cursor_set(&l->r->s, q->at.slot, q->n_out, q->n_out);
    if (tr_state_terminal(state))
        finish(l, q, state);
}

/* ---- a life ---- */

static bool all_done(const struct tr_lives *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (!l->req[i].done)
            return false;
    return true;
}

static void live(struct tr_lives *l)
{
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    tr_engine_rig_restart(l->r);
    for (uint32_t turns = 0;; turns++) {
        must(turns < MOST_TURNS, "the engine does not come to rest");
        bool moved = tr_rig_turn(l->r);
        bool done = all_done(l);
        for (uint32_t i = 0; i < l->n; i++)
            read_one(l, &l->req[i]);
        tr_rig_ledger_runs(l->r);
        if (!moved && done)
            return;
    }
}

int tr_lives_next(struct tr_lives *l)
{
    fflush(NULL);
    pid_t pid = fork();
    must(pid >= 0, "cannot fork");
    if (pid == 0) {
        live(l);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    must(WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "an engine ended by itself");
    /* The epoch went up in its restart, on the page that all share. */
    int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    atomic_store(&l->r->s.control->engine_death,
                 sig == SIGKILL || !sig ? TR_DEATH_OUTSIDE : TR_DEATH_CRASHED);
    return sig;
}

uint32_t tr_lives_all(struct tr_lives *l, uint32_t most)
{
    uint32_t died = 0;
    while (tr_lives_next(l))
        must(++died <= most, "too many deaths");
    return died;
}

#ifdef TR_FAULTS

static void arm(enum tr_fault_id id, enum tr_fault_action a, struct tr_fault_point p)
{
    struct tr_fault_point *at = &tr_fault_table->point[id];
    at->matching = p.matching;
    at->match = p.match;
    at->left = p.left;
    at->skip = p.skip;
    at->hits = at->fired = 0;
    atomic_store(&at->action, a);
}

void tr_lives_arm(enum tr_fault_id id, enum tr_fault_action a, uint64_t left, uint64_t skip)
{
    arm(id, a, (struct tr_fault_point){.left = left, .skip = skip});
}

void tr_lives_arm_for(enum tr_fault_id id, enum tr_fault_action a, uint64_t left, uint64_t value)
{
    arm(id, a, (struct tr_fault_point){.left = left, .matching = 1, .match = value});
}

void tr_lives_disarm(enum tr_fault_id id)
{
    atomic_store(&tr_fault_table->point[id].action, TR_FAULT_NONE);
}

uint64_t tr_lives_fired(enum tr_fault_id id)
{
    return atomic_load(&tr_fault_table->point[id].fired);
}

#endif
