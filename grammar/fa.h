/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/fa.h - finite automata over characters, for what expressions cannot say: that a text obeys
 * two patterns, or none, or lies between two numbers.
 *
 * An automaton is deterministic, holds only states from which an end can be reached, and never changes;
 * the builder makes it as small as it can be.  It is made state by state by a maker, which gives each state a key
 * (any bytes) and finds it again by that key.  Memory is an arena's; time is counted in a budget that
 * whoever compiles a request shares among all its automata.
 *
 * Pure, any thread. */
#ifndef TR_GRAMMAR_FA_H
#define TR_GRAMMAR_FA_H

#include "base/arena.h"
#include "grammar/cset.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What one compilation may use, all automata together. */
struct tr_gbudget {
    struct tr_arena arena;
    uint64_t steps_left;
    bool too_large; /* a bound was met: the text is to blame, not the machine */
};

#define TR_GBUDGET_BYTES ((size_t)48 << 20)
#define TR_GBUDGET_STEPS ((uint64_t)20000000)
/* States of an automaton. */
#define TR_FA_STATES 8192

void tr_gbudget_init(struct tr_gbudget *w);
void tr_gbudget_fini(struct tr_gbudget *w);
/* Takes n steps; false when they are used up. */
bool tr_gbudget_step(struct tr_gbudget *w, uint64_t n);
/* Memory of the arena; NULL when there is none left. */
void *tr_gbudget_alloc(struct tr_gbudget *w, size_t size);
/* Why something of this file or of regex.h was NULL: -E2BIG or -ENOMEM. */
int tr_gbudget_why(const struct tr_gbudget *w);

struct tr_fa_edge {
    uint32_t lo, hi; /* characters, both included */
    uint32_t to;
};

/* State 0 begins.  n 0: no text at all. */
struct tr_fa {
    uint32_t n;
    const uint32_t *first;      /* [n + 1]: edges of state s are e[first[s], first[s + 1]) */
    const struct tr_fa_edge *e; /* of one state: ascending, disjoint */
    const uint8_t *final;       /* [n] */
};

struct tr_fa_maker;

struct tr_fa_maker *tr_fa_new(struct tr_gbudget *w);
/* The state with this key, which is new if no call has named it before.  States are numbered from 0 as
 * they are first named; the first is the start.  UINT32_MAX: a bound. */
uint32_t tr_fa_state(struct tr_fa_maker *m, const void *key, size_t len);
/* States so far: to be expanded in their order. */
uint32_t tr_fa_count(const struct tr_fa_maker *m);
/* Borrowed until the arena ends. */
const void *tr_fa_key(const struct tr_fa_maker *m, uint32_t state, size_t *len);
void tr_fa_final(struct tr_fa_maker *m, uint32_t state);
/* States have to get their edges one after another in ascending order, each its edges in ascending
 * order of characters. */
void tr_fa_edge(struct tr_fa_maker *m, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to);
/* The automaton; NULL if a bound was met anywhere. */
const struct tr_fa *tr_fa_finish(struct tr_fa_maker *m);

/* All of these give NULL at a bound and when one of theirs is NULL. */
const struct tr_fa *tr_fa_and(struct tr_gbudget *w, const struct tr_fa *a, const struct tr_fa *b);
const struct tr_fa *tr_fa_minus(struct tr_gbudget *w, const struct tr_fa *a, const struct tr_fa *b);
/* Every text of min to max characters; max UINT32_MAX: no upper bound. */
const struct tr_fa *tr_fa_length(struct tr_gbudget *w, uint32_t min, uint32_t max);

struct tr_fa_word {
    const char *s; /* UTF-8 */
    size_t len;
};
/* Exactly these texts. */
const struct tr_fa *tr_fa_words(struct tr_gbudget *w, const struct tr_fa_word *words, size_t n);

/* Whether the text s[0, len) (UTF-8) is one of a's. */
bool tr_fa_takes(const struct tr_fa *a, const char *s, size_t len);

/* The node that stands for the automaton; `chars` gives the node for a set of characters, in plain
 * text or as they are written inside a JSON string. */
tr_gnode tr_fa_node(struct tr_gbudget *w, struct tr_gbuild *b, const struct tr_fa *a,
                    tr_gnode (*chars)(struct tr_gbuild *b, const struct tr_cset *set));
/* For plain text. */
tr_gnode tr_fa_plain(struct tr_gbuild *b, const struct tr_cset *set);

#endif
