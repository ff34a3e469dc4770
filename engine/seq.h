/* SPDX-License-Identifier: Apache-2.0 */
/* engine/seq.h - the life of one request in the engine.
 *
 * Path: http > tokens > subq > [engine] > step > ring > detok > event > socket
 *
 *           admit            first chunk            first token
 *   FREE ----------> WAITING -----------> PREFILL ----------------> RUNNING --+
 *    ^                 ^ ^                 |  ^ |                    | |  ^    |
 *    |                 | +---- preempt ----+  | +------ park ------+ | |  |    |
 *    |                 +---------- preempt ---|--------------------|-+ |  |    |
 *    |                                        |                    v   |  |    |
 *    |                                        +- unpark -------- PARKED <-+    |
 *    |                                           (KV evicted)      | unpark    |
 *    +---- release ---- COMPLETED, INCOMPLETE, CANCELLED, ERROR <--+-----------+
 *                       (from every state but FREE; each exactly once)
 *
 * One per slot, private to the engine, made from the slot's ring at admission.  The moves are the
 * table in seq.c; tr_seq_move is the only place that changes `state`, here and in the ring.
 *
 * Always true:
 *   I1  in_kv <= prompt_len + n_out, and n_out <= max_tokens
 *   I2  FREE, WAITING and terminal states hold no KV blocks; PREFILL and RUNNING a place in the batch
 *   I3  RUNNING: all but the newest token is in the KV
 *   I4  a sequence that has its end but not yet its terminal state (`closing`) is PARKED, holds no
 *       blocks and never runs again
 *   I5  `aside` only PARKED, `settled` only in a terminal state */
#ifndef TR_ENGINE_SEQ_H
#define TR_ENGINE_SEQ_H

#include "shm/ring.h"

#include <stdbool.h>

#define TR_NO_SLOT UINT32_MAX
#define TR_NO_KEY UINT32_MAX

enum tr_slot_use {
    TR_SLOT_CLOSED,  /* nobody has it */
    TR_SLOT_OFFERED, /* open or claimed, see shm/claim.h */
    TR_SLOT_LIVE     /* holds a request, from admission to release */
};

struct tr_seq {
    uint32_t slot, gen;
    enum tr_slot_use use;
    enum tr_state state;
    bool released;  /* the frontend does not need the ring any more, or is dead */
    bool settled;   /* ended and durable: only its release is waited for */
    bool aside;     /* parked, and looked at only when its dirty bit is found (aside.c) */
    uint32_t area;  /* owner as the ring has it; only its words are obeyed */
    uint32_t epoch; /* of the owner */
    bool confirmed; /* the owner has taken it: its words in this slot are about it */
    uint64_t order; /* tr_seq_order: who has the least goes first, who has the most is preempted */
    int32_t priority; /* copy of the ring's, validated */
    uint32_t key;     /* of the scheduler's counters (fair.h) while it is not ended, or TR_NO_KEY */

    uint32_t prompt_len, max_tokens, flags; /* copies of the ring's, validated */
    uint32_t n_out;                         /* published */
    uint32_t in_kv;                         /* tokens whose K and V are in the blocks */
    uint32_t n_blocks;                      /* held */
    bool in_cache;                          /* the pool knows which tokens it may share */
    bool first_prefill;                     /* what the cache saves it is counted */
    bool
        again; /* preempted, or begun by an engine that died, and no token since: it goes first and is
                   not preempted (plan.h) */
    uint64_t scanned, sent; /* cursors as last believed: they only grow, <= n_out */
    uint32_t queue_pos;     /* as the ring has it */

    bool
        closing; /* ended, but a stop string may still turn up in what the reader has not scanned */
    enum tr_state close_state;
    enum tr_finish close_finish;

    uint32_t deaths, deaths_alone; /* as in the ring; a suspect if not 0 (suspect.c) */
    uint64_t death_at;
    bool on_trial;

    uint32_t lead;       /* slot of the group's first choice */
    uint32_t group_next; /* next member, or TR_NO_SLOT */
    uint32_t group_left; /* lead: members that have not ended */
    uint64_t bill_seq;   /* 0: not billed */

    uint64_t claimed_ns;    /* OFFERED: when it was first seen claimed; 0 open */
    uint64_t last_token_ns; /* for the gap; 0 when the next gap is not the engine's (parked) */
    uint64_t first_token_ns, started_ns, finished_ns;
    uint64_t max_gap_ns;
};

/* Tokens so far: all of them must be in the KV before the next one can be sampled, except that
 * the rows for the missing ones run in that same step. */
static inline uint32_t tr_seq_total(const struct tr_seq *q)
{
    return q->prompt_len + q->n_out;
}

/* Precedence of the n-th admission (n < 2^48): by priority, then first come, first served. */
static inline uint64_t tr_seq_order(int32_t priority, uint64_t n)
{
    return (uint64_t)(priority + TR_PRIORITY_MAX + 1) << 48 | n;
}

/* Whether the table allows the move. */
bool tr_seq_may_move(enum tr_state from, enum tr_state to);

/* Engine.  Makes the move, checks the invariant and stores the ring's state (release; terminal
 * states with tr_ring_end, whose end fields must have been written; FREE resets the ring and takes
 * its new generation over).  A move outside the table is our own mistake and stops the process. */
struct tr_shm;
void tr_seq_move(struct tr_shm *s, struct tr_seq *q, enum tr_state to);

#endif
