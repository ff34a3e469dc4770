/* SPDX-License-Identifier: Apache-2.0 */
/* engine/plan.h - what the next step works on, as a pure function.
 *
 * Path: http > tokens > subq > [engine] > step > ring > detok > event > socket
 *
 * In: what every sequence needs and holds, what is free.  Out: for every sequence, what happens to
 * it and how many rows it gets.  No clock, no shared memory, no memory of its own.
 *
 * The order of the rules is the policy:
 *   1  who must not run (reader behind) gives back its place in the batch at once
 *   2  every running sequence gets its row, oldest first.  If blocks run out, parked sequences lose
 *      theirs (first those that stand aside, whose readers are farthest behind; youngest first), then
 *      the youngest in the batch is preempted
 *   3  prefills under way share the chunk of the step, oldest first
 *   4  parked sequences whose reader has caught up come back, oldest first
 *   5  waiting ones are admitted in the order of arrival while places, blocks and chunk last, unless
 *      somebody was preempted in this step.  The first that does not fit ends the search: nobody
 *      is overtaken.  Blocks of parked sequences count as free when that lets one in
 *   6  suspects of a crash (engine/suspect.c) share no step with others: a step is for the others,
 *      or for those on trial.  Who is not meant by a step keeps what it has; who waits for its trial
 *      has its place and its blocks kept free, so that nobody comes in before it
 * A sequence that comes in takes the blocks for all tokens it has, and is let in only if beyond
 * those every sequence of the batch that can still grow could take one more block: without that
 * reserve the newcomer would be preempted at once, again and again. */
#ifndef TR_ENGINE_PLAN_H
#define TR_ENGINE_PLAN_H

#include "shm/ring.h"

#include <stdbool.h>
#include <stdint.h>

enum tr_plan_part {
    TR_PLAN_OTHERS,  /* no suspect */
    TR_PLAN_TRIAL,   /* suspect, and its trial is on */
    TR_PLAN_SUSPECT, /* suspect, waits for its trial */
};

struct tr_plan_seq {
    enum tr_state state; /* WAITING, PREFILL, RUNNING or PARKED; all others are passed over */
    uint32_t total;      /* tokens it has */
    uint32_t in_kv;      /* < total */
    uint32_t limit;      /* tokens it can have at most, >= total */
    uint32_t blocks;     /* held */
    uint32_t row_cap;    /* most rows in one step; 0 only with `hold` */
    bool out_rows;       /* every row may need logits (echoed logprobs) */
    bool hold;           /* reader behind: must not run */
    bool ready;          /* PARKED: reader has caught up */
    enum tr_plan_part part;
};

struct tr_plan_in {
    const struct tr_plan_seq *seqs; /* [n], oldest first */
    uint32_t n;
    const uint32_t *aside; /* [n_aside], oldest first: blocks of parked ones that are not in seqs */
    uint32_t n_aside;
    uint32_t aside_total;   /* blocks of all of those */
    uint32_t max_seqs;      /* places in the batch */
    uint32_t max_rows;      /* rows in a step */
    uint32_t prefill_chunk; /* prefill tokens in a step, all sequences together; 0: no limit */
    uint32_t out_chunk;     /* of those, rows of sequences with out_rows */
    uint32_t free_blocks;
    enum tr_plan_part part; /* who the step is for: OTHERS or TRIAL */
};

enum tr_plan_what { TR_PLAN_STAY, TR_PLAN_PARK, TR_PLAN_UNPARK, TR_PLAN_ADMIT, TR_PLAN_PREEMPT };

struct tr_plan_do {
    enum tr_plan_what what;
    bool drop;     /* gives back all its blocks (always with PREEMPT) */
    uint32_t rows; /* rows in this step: tokens in_kv .. in_kv + rows, in_kv as 0 after a drop */
};

/* Fills todo [n]; *evict of those aside, the youngest, give back their blocks.  Returns the rows of
 * the step. */
uint32_t tr_plan_make(const struct tr_plan_in *in, struct tr_plan_do *todo, uint32_t *evict);

#endif
