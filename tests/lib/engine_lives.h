/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/engine_lives.h - requests on which several engines work, one after the other: each is a
 * process of its own that may be killed wherever a fault point stands (base/fault.h).
 *
 * The rig's shared memory, what readers have seen and the table of faults outlive them.  Whoever is not
 * the engine is played between its turns, in the same process, so that a kill tears the engine's work
 * alone.  Any failure of its own ends the program with a sentence. */
#ifndef TR_TESTS_ENGINE_LIVES_H
#define TR_TESTS_ENGINE_LIVES_H

#include "base/fault.h"
#include "engine_rig.h"

#include "shm/lpring.h"

enum { TR_LIVES = 64, TR_LIVES_OUT = 256 };

/* How a request is read, and what was seen of it. */
struct tr_lives_req {
    uint32_t stop_at; /* a stop string is found after so many tokens; 0: none */
    bool slow;        /* reads on only when it is parked */
    struct tr_rig_req at;
    bool done;
    uint32_t n_out, n_lp, state, finish, err;
    uint64_t finish_index;
    uint32_t out[TR_LIVES_OUT];
    struct tr_lp lp[2 * TR_LIVES_OUT];
};

struct tr_lives {
    struct tr_engine_rig *r;
    struct tr_lives_req *req; /* [TR_LIVES] */
    uint32_t n;
};

/* The rig must be open.  A table of faults that outlives processes becomes the process's own. */
void tr_lives_open(struct tr_lives *l, struct tr_engine_rig *r);
/* Submits n asks as a group; `how` [n] says how they are read. */
void tr_lives_submit(struct tr_lives *l, const struct tr_rig_ask *a, const struct tr_lives_req *how,
                     uint32_t n);
/* One engine, until every request is done and all is at rest, or it dies.  The signal that killed it,
 * or 0.  The control page then says how. */
int tr_lives_next(struct tr_lives *l);
/* Lives until one comes to rest; how many died, at most `most`. */
uint32_t tr_lives_all(struct tr_lives *l, uint32_t most);
/* Forgets the requests. */
void tr_lives_clear(struct tr_lives *l);

#ifdef TR_FAULTS
void tr_lives_arm(enum tr_fault_id id, enum tr_fault_action a, uint64_t left, uint64_t skip);
void tr_lives_arm_for(enum tr_fault_id id, enum tr_fault_action a, uint64_t left, uint64_t value);
void tr_lives_disarm(enum tr_fault_id id);
uint64_t tr_lives_fired(enum tr_fault_id id);
#endif

#endif
