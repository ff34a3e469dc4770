/* SPDX-License-Identifier: Apache-2.0 */
/* engine/speculate.h - several tokens of a sequence in one step, by guessing them beforehand.
 *
 * Path: http > tokens > subq > engine > [step] > ring > detok > event > socket
 *
 * A running sequence may have a guess of what it says next (engine/ngram.h).  Its first tokens, the
 * *drafts*, become rows of the step behind the sequence's own row; every one of these rows has logits
 * and is sampled as if all drafts before it were tokens of the answer: same penalties, same counts, same
 * draw f(seed, choice, token index).  Then, in order, each row's sampled token is published, and as long
 * as it is the draft that the next row went on from, that row's token is the next one of the answer.
 * At the first difference the rest is dropped.  So what is published is what steps of one row would have
 * published, bit for bit (DESIGN N1, N5, P10), and what was guessed decides about time alone.
 *
 * K and V of dropped rows stay behind the sequence's last token and are written again by its next step:
 * `in_kv` never counts them, so no cache and no other sequence ever sees them.
 *
 * Who gets how many is this file: a pure function.  A draft is worth its row if its chance to be right
 * is larger than what the row costs, in tokens at the rate of the step without it. */
#ifndef TR_ENGINE_SPECULATE_H
#define TR_ENGINE_SPECULATE_H

#include "engine/cost.h"

enum { TR_DRAFT_ROWS = 32 /* drafts in a step, all sequences together */ };

struct tr_share {
    float p;        /* chance that a draft is right, given that those before it are */
    uint32_t offer; /* drafts it has */
    uint32_t rows;  /* out: drafts that are worth it, <= offer */
};

/* Rows for drafts in a step: fewer than TR_DRAFT_ROWS where the vocabulary makes rows of logits large. */
uint32_t tr_speculate_rows(uint32_t n_vocab);

/* Gives s[0, n) their rows, at most `budget` together: first drafts of all before second ones, as long as
 * the chance of a draft, with all before it, is above `floor`. */
void tr_speculate_share(struct tr_share *s, uint32_t n, uint32_t budget, float floor);

/* That floor for a step with `w` in it, of which n rows decode: what one draft would add to its time,
 * divided by the time for each of its tokens, and a quarter more. */
float tr_speculate_floor(const struct tr_cost *c, const struct tr_cost_work *w);

#endif
