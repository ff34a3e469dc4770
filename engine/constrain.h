/* SPDX-License-Identifier: Apache-2.0 */
/* engine/constrain.h - answers that obey a grammar.
 *
 * Path: http > tokens > subq > engine > [step] > ring > detok > event > socket
 *
 * A request may bring a program (grammar/program.h), compiled by its frontend.  It is checked once, where
 * the request is admitted or found again, and read in its ring from then on.  How far the answer has come is
 * a matcher for each slot, a function of the program and the published tokens: it takes each token as it is
 * published, stays through parking and preemption, and is made again from the ring by a new engine.
 *
 * Which tokens may come next is a mask for each row that is sampled.  What it depends on is known
 * before the forward pass of its step begins, so masks are made during the pass, by a thread of their own;
 * what it has not done by the end of the pass is done by who wants them.  That they are made, not when
 * or by whom, decides what is sampled (P10).  One row of a sequence in a step: drafts of an answer that
 * obeys a grammar would need masks of their own, and there are none (speculate.h).
 *
 * Engine only, after the fork.  All memory is taken at the start; pages of matchers are touched by the
 * slots that have one. */
#ifndef TR_ENGINE_CONSTRAIN_H
#define TR_ENGINE_CONSTRAIN_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Masks that are remembered (grammar/mask.h). */
#define TR_CONSTRAIN_CACHE_BYTES ((size_t)32 << 20)

struct tr_constrain;

/* `pieces`: the image of the vocabulary (grammar/pieces.h), borrowed; n_vocab tokens.  NULL and a sentence
 * if it is none or memory has run out.  *bytes: address space taken. */
struct tr_constrain *tr_constrain_new(uint32_t n_slots, uint32_t n_vocab, const void *pieces,
                                      size_t len, uint64_t *bytes, struct tr_errbuf *err);
void tr_constrain_free(struct tr_constrain *c); /* NULL is fine */

/* Room for so many masks in a step, and the thread.  0 or -errno. */
int tr_constrain_start(struct tr_constrain *c, uint32_t max_rows, uint64_t *bytes);

/* ---- a slot's answer ---- */

/* Begins at the beginning of a program.  `image` is borrowed until tr_constrain_drop.  0, or -EINVAL if it
 * is no program. */
int tr_constrain_open(struct tr_constrain *c, uint32_t slot, const uint8_t *image, uint32_t len);
void tr_constrain_drop(struct tr_constrain *c,
                       uint32_t slot); /* c may be NULL, or have nothing there */
bool tr_constrain_has(const struct tr_constrain *c, uint32_t slot);

/* A token was published.  False: no answer goes on like this, or its matcher has met a bound. */
bool tr_constrain_take(struct tr_constrain *c, uint32_t slot, uint32_t id);

/* The answer is whole and nothing may follow. */
bool tr_constrain_is_over(const struct tr_constrain *c, uint32_t slot);

/* ---- the masks of a step ---- */

/* The mask of the slot's next token, [(n_vocab + 31) / 32]: bit set, may be sampled.  It is there after
 * tr_constrain_join, until the next step's first. */
const uint32_t *tr_constrain_ask(struct tr_constrain *c, uint32_t slot);
/* Before the pass; matchers do not move until tr_constrain_join. */
void tr_constrain_begin(struct tr_constrain *c);
/* `beat`: between two masks, each of which may take as long as TR_GMASK_WORK says. */
void tr_constrain_join(struct tr_constrain *c, void (*beat)(void *arg), void *arg);

#endif
