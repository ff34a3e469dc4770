/* SPDX-License-Identifier: Apache-2.0 */
/* engine/sched.h - the scheduler: one turn reads what changed, makes one step, publishes.
 *
 * Path: http > tokens > subq > [engine > step] > ring > detok > event > socket
 *
 * A turn, in this order, each part never waiting for anybody:
 *   control page    deaths of frontends (what they owned is given to others or cancelled, then
 *                   acknowledged, engine/handover.c), drain
 *   submissions     copied into rings and checked (engine/admit.c); a malformed one ends at once
 *   commands        cancel, finish, release: the last thing looked at before the plan, so that what
 *                   a frontend said before a forward pass starts is obeyed before it
 *   readers         cursors: who is behind, who has caught up; those who have been found far behind
 *                   are looked at only when they move (engine/aside.c), and once in many turns
 *   slots           free those that are settled and released, keep the quota of open ones
 *   plan, step      engine/plan.h, engine/step.c
 *   settlement      records of requests whose choices have all ended (engine/settle.c)
 *   bells           every area concerned, once
 *
 * With a backend that samples by itself (backend.h: pick), a device that would wait for its host between two
 * steps, slots, settlement and places in the queue are looked after while it works, after the launch of the
 * next pass; in a turn without a step, at its end.  Tokens and their bells come first as before.
 *
 * Everything the scheduler knows beyond shared memory can be lost: tr_sched_new takes over whatever
 * a former engine left, and goes on with it (engine/recover.c).  A request that crashes engines is found
 * by trials of its own (engine/suspect.c).
 *
 * Full: no free slot is a matter of claims; no KV block parks, preempts or lets wait; no room in the
 * accounting queue keeps the slot; a full logprob ring or window parks that sequence alone.
 * Peer died: an area's requests change hands, or end with frontend_lost; without a ledger slots wait for it. */
#ifndef TR_ENGINE_SCHED_H
#define TR_ENGINE_SCHED_H

#include "engine/backend.h"

#include <stdbool.h>

enum {
    TR_MAX_EOG = 16,
    TR_ECHO_ROWS = 16 /* prompt rows in a step that may have logits, all requests together */
};

enum tr_prefix_cache {
    TR_PREFIX_ON,
    TR_PREFIX_OFF,
    TR_PREFIX_PER_KEY /* no key finds what another has left */
};

struct tr_sched_config {
    enum tr_prefix_cache prefix_cache;
    uint32_t prefill_chunk; /* prompt tokens in a step; 0: no limit */
    bool speculate;         /* engine/speculate.h */
    float
        draft_floor; /* chance above which a draft gets a row; 0: what pays by the cost of steps */
    uint32_t eog[TR_MAX_EOG];
    uint32_t n_eog;
    uint64_t ttft_target_ns; /* 0: counts as met */
    uint64_t itl_target_ns;  /* for the largest gap of a request; 0: counts as met */
    /* The vocabulary as grammar/pieces.h has it, borrowed; NULL: a request that brings a grammar is refused
     * as malformed. */
    const void *pieces;
    size_t pieces_len;
};

struct tr_shm;
struct tr_sched;

/* Takes over the shared memory: what a former engine left goes on, or ends if its end was reached.
 * Allocates all that does not depend on the model.  NULL and a sentence without memory or with a bad
 * configuration. */
struct tr_sched *tr_sched_new(struct tr_shm *s, const struct tr_sched_config *c,
                              struct tr_errbuf *err);

/* Batch limits for the backend's configuration. */
uint32_t tr_sched_max_rows(const struct tr_shm *s, const struct tr_sched_config *c);
uint32_t tr_sched_max_out(const struct tr_shm *s, const struct tr_sched_config *c);

/* The model is there: allocates the rest.  0, or -errno and a sentence (vocabulary or context that
 * shared memory was not laid out for, KV blocks for less than one context).  The backend stays the
 * caller's and must outlive the scheduler. */
int tr_sched_bind(struct tr_sched *sc, const struct tr_backend_ops *ops, struct tr_backend *b,
                  const struct tr_backend_info *info, struct tr_errbuf *err);

/* One turn; only after tr_sched_bind.  False if there was nothing to do: then sleep on the bell,
 * after one more turn between tr_bell_sleep and the wait. */
bool tr_sched_turn(struct tr_sched *sc);

/* After a cut: every request has its terminal state and its record. */
bool tr_sched_done(const struct tr_sched *sc);

/* The sign of life; also `beat` of the backend, while it opens and in the forward pass. */
void tr_sched_beat(void *sc);

/* Requests of a former engine that go on, and their tokens, which are computed again. */
uint32_t tr_sched_found(const struct tr_sched *sc, uint64_t *tokens);

/* Bytes allocated so far, for the start-up line. */
uint64_t tr_sched_bytes(const struct tr_sched *sc);

void tr_sched_free(struct tr_sched *sc); /* NULL is fine */

#endif
