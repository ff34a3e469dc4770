/* SPDX-License-Identifier: Apache-2.0 */
/* engine/ngram.h - what a sequence may say next, looked up in what it has said (prompt lookup).
 *
 * Path: http > tokens > subq > engine > [step] > ring > detok > event > socket
 *
 * Summaries, quotations, code that is changed and lists repeat long pieces of prompt and answer.  The
 * longest suffix of the tokens so far that stood there before, latest place first, is looked up, and
 * the tokens that followed there are the guess.  A guess costs or saves time and never changes a
 * token: it is accepted only where the model says the same (engine/speculate.h).
 *
 * A place holds the index of one sequence: for each token, the latest earlier one that ends the same
 * pair of tokens.  It is brought up to date at each look from the tokens themselves, which are in the
 * sequence's ring and never change within a generation: preemption, parking and recovery need no word
 * here.  There are as many places as sequences in a step; who has none takes the one that was not
 * looked at for longest and indexes his tokens anew.
 *
 * How good guesses are is learnt per sequence, apart for short and long suffixes, from every guess,
 * whether or not the model was asked about it: the tokens that came tell. */
#ifndef TR_ENGINE_NGRAM_H
#define TR_ENGINE_NGRAM_H

#include <stdint.h>

enum { TR_GUESS_MAX = 8 /* tokens in a guess */ };

struct tr_guess {
    const uint32_t
        *ids;   /* [n], borrowed until its next look, or as many of others as there are places */
    uint32_t n; /* 0: nothing like it stood there before */
    float p;    /* estimate: each is right, given that those before it are */
};

struct tr_ngram;

/* Places for sequences of up to n_ctx tokens; `n_slots` bounds the slots that may be asked for.  *bytes
 * (may be NULL) is their address space, touched as it is used.  NULL without memory. */
struct tr_ngram *tr_ngram_new(uint32_t places, uint32_t n_slots, uint32_t n_ctx, uint64_t *bytes);
void tr_ngram_free(struct tr_ngram *g); /* NULL is fine */

/* Of one place. */
uint64_t tr_ngram_place_bytes(uint32_t n_ctx);

/* Engine.  The guess behind ids[0, total), the tokens of generation `gen` of that slot. */
struct tr_guess tr_ngram_look(struct tr_ngram *g, uint32_t slot, uint32_t gen, const uint32_t *ids,
                              uint32_t total);

#endif
