/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/step.h - one byte further: from heads to heads.  Private to grammar/: what the matcher does over an
 * answer and the masks do over the trie of tokens is this one function.
 *
 * A head stands where a byte may be taken: calls are opened, and rules that are final but may go on are
 * left, on the way to the byte, so a text read one way is one head. */
#ifndef TR_GRAMMAR_STEP_H
#define TR_GRAMMAR_STEP_H

#include "grammar/image.h"
#include "grammar/match.h"

/* Heads and calls looked at for one byte. */
#define TR_GRAM_LOOK 256

/* Frames in memory of the caller's.  New ones come after all that are there. */
struct tr_gframes {
    struct tr_gframe *node;
    uint32_t n, max;
    uint16_t deepest; /* depth of the deepest frame that was gone into */
    uint16_t lowest;  /* the lowest node whose frame was returned to (or the bottom, 0) */
    bool overflow;
    bool dropped;  /* a call was not opened: TR_GRAM_DEPTH */
    uint64_t work; /* goes up with what was looked at */
};

/* Where a byte or a token leads from in[0, n_in): at most TR_GRAM_HEADS heads, all different, in `out`;
 * how many.  0: nowhere, or f->overflow. */
uint32_t tr_gstep_byte(const struct tr_gprog *p, struct tr_gframes *f, const struct tr_ghead *in,
                       uint32_t n_in, uint8_t byte, struct tr_ghead *out);
uint32_t tr_gstep_token(const struct tr_gprog *p, struct tr_gframes *f, const struct tr_ghead *in,
                        uint32_t n_in, uint32_t id, struct tr_ghead *out);

/* A head in `state`; rules that can only end there are left. */
struct tr_ghead tr_gstep_settle(const struct tr_gprog *p, struct tr_gframes *f, uint32_t state,
                                uint32_t node);

/* The head that stands where the call of `node` returns to; its rule may be at an end there, too. */
struct tr_ghead tr_gstep_return(const struct tr_gprog *p, struct tr_gframes *f, uint32_t node);

/* The rule of one of the heads, and all open calls below it, may end here. */
bool tr_gstep_may_end(const struct tr_gprog *p, struct tr_gframes *f, const struct tr_ghead *in,
                      uint32_t n_in);

#endif
