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
 * what it has not begun by the end of the pass is tried by who wants them, who has so much work for all masks
 * of a step together and no more.  A mask that is not made by then is the thread's, first asked, first made,
 * however many steps that takes: its sequence sits out until then, and nobody else waits for it.  That masks
 * are made, not when or by whom, decides what is sampled (P10).  One row of a sequence in a step: drafts of
 * an answer that obeys a grammar would need masks of their own, and there are none (speculate.h).
 *
 * Engine only, after the fork.  All memory is taken at the start; pages of matchers are touched by the
 * slots that have one. */
#ifndef TR_ENGINE_CONSTRAIN_H
#define TR_ENGINE_CONSTRAIN_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Masks that are remembered (grammar/mask.h), by the thread and by the step. */
#define TR_CONSTRAIN_CACHE_BYTES ((size_t)32 << 20)

struct tr_constrain;

/* `pieces`: the image of the vocabulary (grammar/pieces.h), borrowed; n_vocab tokens.  NULL and a sentence
 * if it is none or memory has run out.  *bytes: address space taken. */
struct tr_constrain *tr_constrain_new(uint32_t n_slots, uint32_t n_vocab, const void *pieces,
                                      size_t len, uint64_t *bytes, struct tr_errbuf *err);
void tr_constrain_free(struct tr_constrain *c); /* NULL is fine */

/* Room for masks, and the thread.  0 or -errno. */
int tr_constrain_start(struct tr_constrain *c, uint64_t *bytes);

/* ---- a slot's answer ---- */

/* Begins at the beginning of a program.  `image` is borrowed until tr_constrain_drop.  0, or -EINVAL if it
 * is no program. */
int tr_constrain_open(struct tr_constrain *c, uint32_t slot, const uint8_t *image, uint32_t len);
/* c may be NULL, or have nothing there. */
void tr_constrain_drop(struct tr_constrain *c, uint32_t slot);
bool tr_constrain_has(const struct tr_constrain *c, uint32_t slot);

/* A token was published.  False: no answer goes on like this, or its matcher has met a bound. */
bool tr_constrain_take(struct tr_constrain *c, uint32_t slot, uint32_t id);

/* The answer is whole and nothing may follow. */
bool tr_constrain_is_over(const struct tr_constrain *c, uint32_t slot);

/* ---- the masks of a step ---- */

/* Work (TR_GMASK_WORK counts it) that the step's own thread does for all masks of a step, and for one of them:
 * some milliseconds.  What is remembered costs none. */
#define TR_CONSTRAIN_STEP_WORK 1000000u
#define TR_CONSTRAIN_MASK_WORK 250000u

/* The mask of the slot's next token, [(n_vocab + 31) / 32]: bit set, may be sampled.  It is there when
 * tr_constrain_is_made says so, until its token is taken or the slot is dropped. */
const uint32_t *tr_constrain_ask(struct tr_constrain *c, uint32_t slot);
bool tr_constrain_is_made(struct tr_constrain *c, uint32_t slot);
/* It was asked for and is not made yet.  c may be NULL. */
bool tr_constrain_is_waited_for(struct tr_constrain *c, uint32_t slot);

/* Before the pass: the thread begins. */
void tr_constrain_begin(struct tr_constrain *c);
/* After it: does no more than `work` of what the thread has not begun; UINT64_MAX: all of it, and waits for
 * the thread's.  `beat`: after each mask. */
void tr_constrain_join(struct tr_constrain *c, uint64_t work, void (*beat)(void *arg), void *arg);
/* Nobody can go on but for masks: waits until one more is made, at most for so long; not at all if none is
 * waited for any more. */
void tr_constrain_wait(struct tr_constrain *c, uint64_t ns);

#endif
