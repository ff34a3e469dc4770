/* SPDX-License-Identifier: Apache-2.0 */
/* engine/plan.h - what the next step works on, as a pure function.
 *
 * Path: http > tokens > subq > [engine] > step > ring > detok > event > socket
 *
 * In: what every sequence needs and holds, what is free, what work costs.  Out: for every sequence, what
 * happens to it and how many rows it gets.  No clock, no shared memory, no memory of its own.
 *
 * Precedence is the place in seqs: by priority, then by age (tr_plan_seq, `again` apart).
 *
 * The order of the rules is the policy:
 *   1  who must not run (reader behind) gives back its place in the batch at once
 *   2  every running sequence gets its row, in order of precedence.  If blocks run out, parked sequences
 *      lose theirs (first those that stand aside, whose readers are farthest behind; last in precedence
 *      first), then the last of the batch is preempted, unless it came back from an earlier preemption
 *      and has made no token since: so each preemption is paid for by a token, and they come to an end
 *   3  parked sequences whose reader has caught up and whose KV is still there come back
 *   4  draft tokens of running sequences get rows while blocks are free and the time of the step lasts
 *   5  prompts share what is left of the step: those under way, and those that wait for a place or for
 *      their turn after a preemption or a parking.  The first of them gets half, what is left goes to
 *      the one with the least work left, then to the next, and so on
 *   6  who waits comes in when its turn comes in rule 5, unless somebody was preempted in this step.  If
 *      the first of them does not fit (place, blocks), nobody comes in: none is kept out by others that
 *      need less.  Blocks of parked sequences count as free when that lets one in
 *   7  of several that would compute the same block in one step, the first does, and the others find it
 *      in the cache afterwards: they get no rows, and those that wait find their place kept from all
 *      that come behind them
 *   8  suspects of a crash (engine/suspect.c) share no step with others: a step is for the others,
 *      or for those on trial.  Who is not meant by a step keeps what it has; who waits for its trial
 *      has its place and its blocks kept free, so that nobody comes in before it
 *
 * Rule 5 is shortest remaining first, which gives the least time to first token on the whole and lets a
 * short prompt pass a long one, with a half kept for the first in line against starvation: the first
 * takes at most twice as long as alone, and everybody is the first at last.  Without the half long
 * prompts wait for ever under a stream of short ones; first come, first served, a question waits for the
 * whole of a document.  The order is: priority; who was in the batch before (`again`, unparked); the key
 * that was served least (virtual token counters: Sheng et al., Fairness in Serving Large Language
 * Models, 2024, engine/fair.h); then age for the first half, work left for the rest.
 *
 * The time: with budget_ns a prompt gets rows as long as the step is predicted to stay within it, and
 * never less than an eighth of it, nor less than one row, all together, so that a batch that is too slow
 * without them does not starve them.  With nobody in the batch who waits for a next token, idle_ns
 * counts instead.
 *
 * Blocks can be shared (kv.h).  Who loses its blocks is believed to give back those that nobody else
 * holds: too few if several that share some go, so that one more may have to; its blocks are then mostly
 * still in the cache.  What all that are parked hold together is known, and so is what is left when
 * everybody else has gone: nobody waits for blocks that could be had.
 *
 * A sequence that comes in takes the blocks for all tokens it has, and is let in only if beyond
 * those every sequence of the batch that can still grow could take one more block: without that
 * reserve the newcomer would be preempted at once, again and again. */
#ifndef TR_ENGINE_PLAN_H
#define TR_ENGINE_PLAN_H

#include "engine/cost.h"
#include "shm/ring.h"

#include <stdbool.h>
#include <stdint.h>

enum tr_plan_part {
    TR_PLAN_OTHERS,  /* no suspect */
    TR_PLAN_TRIAL,   /* suspect, and its trial is on */
    TR_PLAN_SUSPECT, /* suspect, waits for its trial; or in the batch, and waits for a mask */
};

struct tr_plan_seq {
    enum tr_state state; /* WAITING, PREFILL, RUNNING or PARKED; all others are passed over */
    int32_t priority;    /* lower goes first */
    uint32_t key;        /* of tr_plan_in.served */
    uint32_t total;      /* tokens it has */
    uint32_t in_kv;      /* < total */
    uint32_t limit;      /* tokens it can have at most, >= total */
    uint32_t blocks;     /* held */
    uint32_t shared;     /* of those, held by others as well: they stay when it gives up the rest */
    uint32_t bound;      /* of those, by others that are neither parked nor on hold */
    /* If it comes in without blocks: tokens at its beginning that the prefix cache holds now, whole
     * blocks and < total; it starts behind them.  Of those blocks, so many are held by nobody, or only
     * by who is parked or on hold, and therefore counted in free_blocks or in evictable. */
    uint32_t cached, cached_free;
    uint64_t next; /* names the block that it computes first, if others could use it; 0: none */
    uint32_t
        drafts; /* RUNNING: rows that it could use beyond its own, for tokens that were guessed */
    uint32_t row_cap; /* most rows in one step; 0 only with `hold` */
    bool out_rows;    /* every row may need logits (echoed logprobs) */
    bool hold;        /* reader behind: must not run */
    bool ready;       /* PARKED: reader has caught up */
    bool again;       /* was preempted, or lost its engine, and has made no token since */
    enum tr_plan_part part;
};

struct tr_plan_in {
    const struct tr_plan_seq *seqs; /* [n], by precedence: priority, then the oldest first */
    uint32_t n;
    const uint64_t *served; /* [keys] how much each has had; NULL: all have had the same */
    const uint32_t
        *aside; /* [n_aside], by precedence: parked ones with blocks that are not in seqs */
    uint32_t n_aside;
    const uint32_t *own;        /* by what stands in `aside`: blocks that nobody else holds */
    uint32_t evictable;         /* blocks held only by who is parked, aside or not, or on hold */
    uint32_t max_seqs;          /* places in the batch */
    uint32_t max_rows;          /* rows in a step */
    uint32_t prefill_chunk;     /* prefill tokens in a step, all sequences together; 0: no limit */
    uint32_t out_chunk;         /* of those, rows of sequences with out_rows */
    uint32_t free_blocks;       /* those of the prefix cache that nobody holds included */
    uint32_t n_blocks;          /* of the pool */
    const struct tr_cost *cost; /* NULL without a budget */
    uint64_t budget_ns;         /* time of a step with sequences that decode; 0: no limit */
    uint64_t idle_ns;           /* the same without them */
    enum tr_plan_part part;     /* who the step is for: OTHERS or TRIAL */
};

enum tr_plan_what { TR_PLAN_STAY, TR_PLAN_PARK, TR_PLAN_UNPARK, TR_PLAN_ADMIT, TR_PLAN_PREEMPT };

struct tr_plan_do {
    enum tr_plan_what what;
    bool drop; /* gives back all its blocks (always with PREEMPT) */
    uint32_t
        rows; /* rows in this step: tokens from in_kv on; without blocks, also after a drop, from
                      `cached` on */
};

struct tr_plan_step {
    uint32_t rows;
    uint32_t evict; /* of those aside, the last so many give back their blocks */
    struct tr_cost_work work;
};

/* A step without anybody who decodes may take so much of the target for first tokens: whoever comes
 * meanwhile waits for its end. */
enum { TR_PLAN_IDLE_SHARE = 4 };

/* Budgets of a service with these objectives (0: none).  Without a limit of tokens there is none of
 * time. */
static inline void tr_plan_set_targets(struct tr_plan_in *in, uint64_t itl_ns, uint64_t ttft_ns)
{
    if (in->prefill_chunk) {
        in->budget_ns = itl_ns;
        in->idle_ns = ttft_ns / TR_PLAN_IDLE_SHARE;
    }
}

/* Fills todo [n].  Returns the step's rows. */
uint32_t tr_plan_make(const struct tr_plan_in *in, struct tr_plan_do *todo,
                      struct tr_plan_step *step);

#endif
