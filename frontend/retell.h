/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/retell.h - the text of an answer, or of a prompt, made again from the ids in its ring, in
 * pieces of any size.
 *
 * Path: http > tokens > subq > engine > step > ring > [detok] > event > socket
 *
 * For all that repeats a text: answers in one piece, objects, events that hold the whole text once more.
 * Frontend only.  Constant memory; the same ids give the same text as the stream's deltas joined.
 * That the ring is still the request's is the caller's affair (tr_ring_read). */
#ifndef TR_FRONTEND_RETELL_H
#define TR_FRONTEND_RETELL_H

#include "frontend/ask.h"
#include "frontend/emit.h"
#include "text/scan.h"

struct tr_retell {
    char *text; /* scratch of the frontend */
    const uint32_t *ids;
    uint64_t at, n;
    bool flushed;
    struct tr_scan scan;
};

/* The answer of `n` ids that make text (an end-of-turn token is none), up to a stop string of the ask. */
void tr_retell_answer(struct tr_retell *r, const struct tr_fe *fe, const struct tr_ask *a,
                      const uint32_t *ids, uint64_t n);
/* A prompt as echo shows it: a stop string in it stops nothing. */
void tr_retell_prompt(struct tr_retell *r, const struct tr_fe *fe, const struct tr_ask *a,
                      const uint32_t *ids, uint64_t n);

/* Goes on: adds text to the string that is open in `e` (tr_emit_str_piece) until `e` has at least
 * `upto` bytes or *budget tokens, which it counts down, are used.  True: the text is complete. */
bool tr_retell(struct tr_retell *r, struct tr_emit *e, size_t upto, uint64_t *budget);

#endif
