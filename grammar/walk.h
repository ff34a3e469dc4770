/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/walk.h - ways through the trie of all tokens that a program goes along with.  Private to grammar/.
 *
 * One unit of work: begin, put in the heads to start from, walk below as many nodes of the trie as are
 * wanted, read the results.  Sets of heads that come up are remembered within the unit, with where each
 * byte leads from them, so a walk is mostly one look-up for each node.  Where a set leads back to itself
 * over all bytes of a subtree (a string's characters), or one state to the next (grammar/run.h), the subtree
 * is taken as a whole. */
#ifndef TR_GRAMMAR_WALK_H
#define TR_GRAMMAR_WALK_H

#include "grammar/pieces.h"
#include "grammar/run.h"
#include "grammar/spans.h"
#include "grammar/step.h"

#include <stdatomic.h>

/* More nodes at which a rule may be left are not told. */
#define TR_GWALK_LEAVES 16384

struct tr_gwalk_memo;

struct tr_gwalk {
    const struct tr_gpieces *pieces;
    const struct tr_gprog *p;
    struct tr_gframes f;
    struct tr_gspans spans; /* tokens that may be taken */
    uint32_t *leaves;       /* nodes at which all open calls may be over and tokens go on */
    uint32_t n_leaves;
    bool want_leaves, many_leaves;
    bool failed; /* the budget of work is used up, or it was left off */
    bool left_off;
    uint64_t budget, walked;
    uint64_t allowed; /* the caller's, over units: at more work than that it is left off ... */
    const atomic_bool *stop; /* ... or when this is set, by another thread; NULL: never */
    struct tr_gruns runs;
    struct tr_gwalk_memo *memo;
};

/* Takes all memory.  0 or -ENOMEM.  `pieces` is borrowed. */
int tr_gwalk_open(struct tr_gwalk *w, const struct tr_gpieces *pieces);
void tr_gwalk_close(struct tr_gwalk *w);

/* A new unit, with the stacks of n frames (n 0: the bottom alone). */
void tr_gwalk_begin(struct tr_gwalk *w, const struct tr_gprog *p, const struct tr_gframe *frames,
                    uint32_t n, bool want_leaves, uint64_t budget);

/* Whether the unit is to be left off: it has had what was allowed, or somebody says so. */
bool tr_gwalk_must_stop(struct tr_gwalk *w);

/* Walks below node v from one head, whose token so far ends at v. */
void tr_gwalk_below(struct tr_gwalk *w, uint32_t v, struct tr_ghead head);

#endif
