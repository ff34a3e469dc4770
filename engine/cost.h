/* SPDX-License-Identifier: Apache-2.0 */
/* engine/cost.h - how long a step will take, learnt from the steps that were made.
 *
 * Path: http > tokens > subq > [engine] > step > ring > detok > event > socket
 *
 * The time of a step is taken to be a sum of what is in it, each with a price that is never negative:
 * so more work is never predicted to be faster.  The prices follow the measurements as a Kalman filter
 * with independent prices does: each step corrects those it depends on, the more the less they are
 * known.  (With the covariances of the prices it is no better here and loses its footing after hours of
 * equal steps.)  What a step says
 * nothing about stays: hours of decoding do not make it forget what a prompt costs.
 *
 * Robust: errors are relative, and one that is far beyond the usual ones counts as three usual ones: a
 * step during which somebody else had the processor moves the prices little; if all steps are like that,
 * the usual error grows and the prices follow within some ten steps.
 *
 * Before anything was measured a price is a guess from the bytes of the weights, on the slow side; if
 * the first steps are slower still, all prices grow with them.  No
 * more prefill rows are trusted than four times the most that were measured: a model that is slower
 * than the guess is found out with a small chunk.
 *
 * Arithmetic alone: no clock, no shared memory, no allocation.  The same steps give the same prices. */
#ifndef TR_ENGINE_COST_H
#define TR_ENGINE_COST_H

#include <stdbool.h>
#include <stdint.h>

enum tr_cost_part {
    TR_COST_STEP,       /* each step */
    TR_COST_DECODE,     /* row of a sequence that decodes, and its drafts */
    TR_COST_DECODE_KV,  /* position that such a row reads */
    TR_COST_PREFILL,    /* row of a prompt */
    TR_COST_PREFILL_KV, /* position that such a row reads */
    TR_COST_LOGITS,     /* row with logits: head and sampling */
    TR_COST_PARTS
};

/* What is in a step: so many of each; [TR_COST_STEP] is 1. */
struct tr_cost_work {
    uint64_t n[TR_COST_PARTS];
};

struct tr_cost {
    double price[TR_COST_PARTS];  /* ns, >= 0 */
    double unsure[TR_COST_PARTS]; /* variance of each price, ns^2 */
    double guess[TR_COST_PARTS];  /* the prices before anything was measured */
    double error;                 /* usual relative error of a prediction */
    double late;                  /* usual relative excess of steps with prefill */
    bool known;                   /* predictions were not far off once */
    uint32_t n_slow;              /* steps that were far too slow, the last ones in a row */
    double slow;                  /* the least excess of those, as a factor */
    uint32_t measured;            /* most prefill rows of a measured step */
};

/* `weight_bytes` as tr_backend_info tells them; 0: not known. */
void tr_cost_init(struct tr_cost *c, uint64_t weight_bytes);

/* A step with that in it took so long. */
void tr_cost_learn(struct tr_cost *c, const struct tr_cost_work *w, uint64_t ns);

/* Nanoseconds; grows with each part. */
uint64_t tr_cost_predict(const struct tr_cost *c, const struct tr_cost_work *w);

/* n prefill rows from position `pos` on, added to a step. */
void tr_cost_add_prefill(struct tr_cost_work *w, uint32_t pos, uint32_t n);

/* A decode row at position `pos`, with logits. */
void tr_cost_add_decode(struct tr_cost_work *w, uint32_t pos);

/* The most rows <= n from position `pos` on with which the step, as predicted and as much later as is
 * usual, takes no longer than limit_ns. */
uint32_t tr_cost_fit(const struct tr_cost *c, const struct tr_cost_work *w, uint32_t pos,
                     uint32_t n, uint64_t limit_ns);

/* The most prefill rows that a step should have, all together. */
uint32_t tr_cost_trusted(const struct tr_cost *c);

#endif
