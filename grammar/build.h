/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/build.h - from expressions to a program: what an answer may be, as automata over bytes.
 *
 * A language is put together from nodes, then finished into a program image (grammar/program.h).
 * One builder serves one thread and one program.  What the nodes describe comes from a client, so
 * all of it is bounded: memory, states, work, depth.
 *
 * Errors are sticky: a constructor that fails, or is given TR_G_NONE, answers TR_G_NONE, and
 * tr_gbuild_finish says what happened first.  Callers need no checks in between.
 *
 * A node may be used any number of times; each use is a copy.  What is large, used often or recursive
 * belongs into a rule: its masks are shared (grammar/mask.h).  Small rules are copied all the same. */
#ifndef TR_GRAMMAR_BUILD_H
#define TR_GRAMMAR_BUILD_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tr_gbuild;

typedef uint32_t tr_gnode;
#define TR_G_NONE 0u

/* No upper bound of tr_g_repeat. */
#define TR_G_INF UINT32_MAX

/* Code points, both ends included. */
struct tr_grange {
    uint32_t lo, hi;
};

/* Memory of one builder at most: nodes, then automata. */
#define TR_GBUILD_BYTES ((size_t)16 << 20)
/* Expressions inside expressions; rules begin anew. */
#define TR_GBUILD_DEPTH 512
/* Rules of one grammar, defined or not. */
#define TR_GBUILD_RULES 16384

/* NULL when memory has run out. */
struct tr_gbuild *tr_gbuild_new(void);
void tr_gbuild_free(struct tr_gbuild *b); /* NULL is fine */

tr_gnode tr_g_empty(struct tr_gbuild *b); /* the empty text */
tr_gnode tr_g_never(struct tr_gbuild *b); /* nothing, not even the empty text */

/* Exactly these bytes; n 0 is the empty text. */
tr_gnode tr_g_bytes(struct tr_gbuild *b, const void *p, size_t n);

/* One character, in UTF-8, out of the ranges (in any order, may overlap); with `negate` any character
 * outside them.  Surrogates and what lies beyond U+10FFFF are no characters. */
tr_gnode tr_g_class(struct tr_gbuild *b, const struct tr_grange *r, size_t n, bool negate);

tr_gnode tr_g_seq(struct tr_gbuild *b, const tr_gnode *nodes, size_t n); /* n 0: empty */
tr_gnode tr_g_alt(struct tr_gbuild *b, const tr_gnode *nodes, size_t n); /* n 0: never */

/* min to max times (min <= max), or TR_G_INF. */
tr_gnode tr_g_repeat(struct tr_gbuild *b, tr_gnode node, uint32_t min, uint32_t max);

/* An automaton written out: arrows between states 0..n_states-1, of which 0 begins; its texts are those of the
 * nodes along the ways from there to a state whose `final` is not 0. */
struct tr_garrow {
    uint32_t from, to;
    tr_gnode on;
};
tr_gnode tr_g_fsm(struct tr_gbuild *b, uint32_t n_states, const struct tr_garrow *arrows, size_t n,
                  const uint8_t *final);

/* A reference to a rule that tr_g_define defines once, before or after its uses. */
tr_gnode tr_g_rule(struct tr_gbuild *b);
void tr_g_define(struct tr_gbuild *b, tr_gnode rule, tr_gnode node);

/* A token that has no bytes, by its id. */
tr_gnode tr_g_token(struct tr_gbuild *b, uint32_t id);

/* Any bytes up to and with the first occurrence of the literal (n > 0). */
tr_gnode tr_g_until(struct tr_gbuild *b, const void *literal, size_t n);

struct tr_gliteral {
    const void *p;
    size_t n; /* > 0 */
};

/* Any bytes in which none of the literals occurs.  It may end with the beginning of one, so
 * seq(without(L), alt(empty, L...)) is free text that can turn into one of them. */
tr_gnode tr_g_text_without(struct tr_gbuild *b, const struct tr_gliteral *l, size_t n);

/* Makes the program of what `start` describes: at most cap bytes at `out`, *len of them.  Once per
 * builder.
 *   -E2BIG   a bound: memory, states, work, cap
 *   -EINVAL  a rule that is not defined or begins with itself; a text that can never end; a
 *            constructor was misused
 *   -ENOMEM  the machine's memory
 * with a sentence in err; then nothing is promised about `out`. */
int tr_gbuild_finish(struct tr_gbuild *b, tr_gnode start, uint8_t *out, size_t cap, size_t *len,
                     struct tr_errbuf *err);

/* What a constructor has failed with so far: 0, -E2BIG, -EINVAL or -ENOMEM.  For callers that want to
 * stop early. */
int tr_gbuild_failed(const struct tr_gbuild *b);

#endif
