/* SPDX-License-Identifier: Apache-2.0 */
/* testlib/scripted_engine.h - an engine without a model: it admits what frontends submit, and a test
 * says which tokens come when and how requests end.  Behind the real rings, in the test's thread.
 *
 * Each call plays the engine's role and puts the caller's back. */
#ifndef TR_TESTLIB_SCRIPTED_ENGINE_H
#define TR_TESTLIB_SCRIPTED_ENGINE_H

#include "shm/lpring.h"
#include "shm/region.h"

enum { TR_SENGINE_SLOTS = 64 };

struct tr_sslot {
    uint32_t gen;
    uint32_t area;
    bool live, released;
    bool finish_at;     /* a stop string was reported */
    uint32_t cancelled; /* enum tr_err, 0 none */
    uint64_t disconnect_ns;
};

struct tr_sengine {
    struct tr_shm *shm;
    uint32_t order[TR_SENGINE_SLOTS]; /* slots in the order of their admission */
    uint32_t n_order;
    uint32_t n_released;
    uint32_t n_adopted; /* messages that asked for a stream, or confirmed one */
    bool deaf;          /* reads neither submissions nor commands */
    bool free_slots;    /* released and durable slots are opened again */
    struct tr_sslot slot[TR_SENGINE_SLOTS];
};

/* Alive, ready, the first n_open slots open. */
void tr_sengine_start(struct tr_sengine *e, struct tr_shm *s, uint32_t n_open);

/* Submissions and commands.  Cancels end at once; FINISH ends as a stop string. */
void tr_sengine_step(struct tr_sengine *e);

/* Slot of the k-th request (choice) that was admitted; UINT32_MAX if there is none yet. */
uint32_t tr_sengine_slot(const struct tr_sengine *e, uint32_t k);

/* Publishes tokens; with logprobs asked for, an entry for each (-0.5 and falling alternatives).
 * Returns how many could be: the logprob ring may be full. */
uint32_t tr_sengine_say(struct tr_sengine *e, uint32_t slot, const uint32_t *ids, uint32_t n);
/* The same for the bytes of a text (ids of the sim vocabulary). */
uint32_t tr_sengine_text(struct tr_sengine *e, uint32_t slot, const char *text);
/* Logprob entries of the prompt (echo), as many as fit; returns the next index. */
uint32_t tr_sengine_echo(struct tr_sengine *e, uint32_t slot, uint32_t from);

void tr_sengine_state(struct tr_sengine *e, uint32_t slot, enum tr_state state, uint32_t queue_pos,
                      uint32_t prefill_done);

/* Ends a choice at what is published.  The record follows when all of its group have ended. */
void tr_sengine_end(struct tr_sengine *e, uint32_t slot, enum tr_state state, enum tr_finish finish,
                    enum tr_err err);

/* It is another frontend's from here on (area 1), or given to this one (area 0); commands of others
 * than a confirmed owner are void. */
void tr_sengine_give(struct tr_sengine *e, uint32_t slot, struct tr_owner to);

/* Plays the ledger: every record is durable. */
void tr_sengine_durable(struct tr_sengine *e);

/* Plays the supervisor. */
void tr_sengine_drain(struct tr_sengine *e, enum tr_drain drain);
void tr_sengine_alive(struct tr_sengine *e, bool alive);

#endif
