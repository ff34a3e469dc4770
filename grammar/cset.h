/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/cset.h - sets of characters (code points of Unicode that are no surrogates).
 *
 * Pure, any thread.  A set is never changed after it was made; its memory is the arena's.  NULL
 * means that the arena is full. */
#ifndef TR_GRAMMAR_CSET_H
#define TR_GRAMMAR_CSET_H

#include "base/arena.h"
#include "grammar/build.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TR_CHAR_MAX = 0x10ffff };

struct tr_cset {
    const struct tr_grange *r; /* ascending, apart by at least one character */
    uint32_t n;
};

/* The characters of ranges r[0, n), in any order and overlapping as they like, or with `negate` all
 * others.  Ranges with lo > hi are empty; surrogates and what is no code point is left out. */
const struct tr_cset *tr_cset_make(struct tr_arena *a, const struct tr_grange *r, size_t n,
                                   bool negate);

bool tr_cset_has(const struct tr_cset *s, uint32_t c);
bool tr_cset_equal(const struct tr_cset *s, const struct tr_cset *t);

#endif
