/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/retell.h - an answer, or a prompt, made again from the ids in its ring, in pieces of any size.
 *
 * Path: http > tokens > subq > engine > step > ring > [detok] > event > socket
 *
 * For all that repeats a text: answers in one piece, objects, events that hold the whole text once more.
 * Frontend only.  Constant memory; the same ids give the same parts as the stream's events joined.
 * That the ring is still the request's is the caller's affair (tr_ring_read). */
#ifndef TR_FRONTEND_RETELL_H
#define TR_FRONTEND_RETELL_H

#include "frontend/ask.h"
#include "base/emit.h"

/* Copied by assignment: a copy goes on from where it stands. */
struct tr_retell {
    char *text;             /* scratch of the frontend */
    struct tr_parts *parts; /* the same */
    const uint32_t *ids;
    uint64_t at, n;
    bool flushed;
    bool splits; /* the answer is taken apart */
    bool hides;  /* reasoning is left out */
    struct tr_scan scan;
    struct tr_split split;
};

/* The answer of `n` ids that make text (an end-of-turn token is none), up to a stop string of the ask. */
void tr_retell_answer(struct tr_retell *r, const struct tr_fe *fe, const struct tr_ask *a,
                      const uint32_t *ids, uint64_t n);
/* A prompt as echo shows it: a stop string in it stops nothing. */
void tr_retell_prompt(struct tr_retell *r, const struct tr_fe *fe, const struct tr_ask *a,
                      const uint32_t *ids, uint64_t n);

/* Takes a part; `text` is borrowed for the call. */
typedef void tr_retell_take(void *arg, const struct tr_part *part, const char *text);

/* Goes on by one token, or to the end: gives what comes of it to `take`.  False: it has been complete
 * before. */
bool tr_retell_step(struct tr_retell *r, tr_retell_take *take, void *arg);

/* Goes on: adds what is said, without reasoning and calls, to the string that is open in `e`
 * (tr_emit_str_piece) until `e` has at least `upto` bytes or *budget tokens, which it counts down, are
 * used.  True: the text is complete. */
bool tr_retell(struct tr_retell *r, struct tr_emit *e, size_t upto, uint64_t *budget);

#endif
