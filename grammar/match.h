/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/match.h - how far an answer has come in its program.
 *
 * A matcher is a set of heads, each a state with a stack of states to return to; stacks share their
 * tails.  It is plain memory of fixed size: copy it by assignment.  It holds no pointer; the program
 * goes with it in each call and must be one that tr_gprog_open has accepted.  No allocation.  Any process.
 *
 * Bounds:  a text that would need more than TR_GRAM_DEPTH open calls is not accepted.  A call in last
 *          place opens none, so lists by recursion to the right have no limit.  More than TR_GRAM_HEADS
 *          ways to read a text at once is not followed: the call says false and sets `overflow`. */
#ifndef TR_GRAMMAR_MATCH_H
#define TR_GRAMMAR_MATCH_H

#include "grammar/program.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TR_GRAM_DEPTH 256
#define TR_GRAM_HEADS 64
#define TR_GRAM_NODES 1024

/* The state of a head for which nothing may follow. */
#define TR_GRAM_OVER UINT16_MAX

struct tr_ghead {
    uint16_t state;
    uint16_t node; /* its stack */
};

/* An open call: where it goes on afterwards.  Node 0 is the bottom and returns nowhere. */
struct tr_gframe {
    uint16_t state;
    uint16_t parent; /* always below the node's own index */
    uint16_t depth;
};

struct tr_gmatch {
    uint16_t n_heads; /* at least 1 */
    uint16_t n_nodes;
    bool fresh;    /* nothing was taken yet */
    bool overflow; /* the last call that said false met a bound: not the text is to blame */
    struct tr_ghead heads[TR_GRAM_HEADS];
    struct tr_gframe nodes[TR_GRAM_NODES];
};

void tr_gmatch_start(struct tr_gmatch *m, const struct tr_gprog *p);

/* Takes n bytes.  False: no text of the program goes on like this; `m` is then as before, but for
 * `overflow`. */
bool tr_gmatch_bytes(struct tr_gmatch *m, const struct tr_gprog *p, const void *bytes, size_t n);

/* Takes a token that has no bytes.  Same result. */
bool tr_gmatch_token(struct tr_gmatch *m, const struct tr_gprog *p, uint32_t id);

/* What was taken is a whole text of the program. */
bool tr_gmatch_may_end(const struct tr_gmatch *m, const struct tr_gprog *p);

/* ... and nothing may follow it. */
bool tr_gmatch_is_over(const struct tr_gmatch *m, const struct tr_gprog *p);

#endif
