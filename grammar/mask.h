/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/mask.h - which tokens may come next.
 *
 * One object serves all programs of an engine and remembers masks across requests: a mask is known by
 * what it was computed from, the digest of a rule's group, the state in it and the frames of the stack
 * that were looked at.  So what programs have in common (JSON strings, numbers, blanks) is computed once.
 * What is remembered never changes a result.
 *
 * All memory is taken at open.  Used by one thread at a time; different ones may take turns. */
#ifndef TR_GRAMMAR_MASK_H
#define TR_GRAMMAR_MASK_H

#include "grammar/match.h"
#include "grammar/pieces.h"

#include <stdatomic.h>

struct tr_gmasks;

/* `pieces` is borrowed.  cache_bytes: for remembered masks (room for a few at least is taken anyway).
 * NULL when memory has run out. */
struct tr_gmasks *tr_gmasks_open(const struct tr_gpieces *pieces, size_t cache_bytes);
void tr_gmasks_close(struct tr_gmasks *c); /* NULL is fine */

/* Words of a mask. */
static inline size_t tr_gmask_words(uint32_t n_vocab)
{
    return ((size_t)n_vocab + 31) / 32;
}

/* Writes tr_gmask_words(n_vocab) words: bit id is set if token id may be sampled, that is
 *   text     tr_gmatch_bytes would take its bytes
 *   control  tr_gmatch_token would take it
 *   eog      tr_gmatch_may_end, even if a token edge asks for it
 * False: no bit is set, since nothing may follow or every way on meets a bound, one of them TR_GMASK_WORK.
 *
 * One bound differs from the matcher's.  A mask is the union of what each head allows, so if those together
 * become more than TR_GRAM_HEADS within a token, the bit is set and the matcher refuses with `overflow`. */
bool tr_gmasks_fill(struct tr_gmasks *c, const struct tr_gprog *p, const struct tr_gmatch *m,
                    uint32_t *mask);

/* The same with no more work than *allowed, which it counts down, and not beyond the moment in which `stop`
 * (NULL: never) is set by another thread.  What is remembered costs nothing.  False: it was left off, the mask
 * is not made and *some (as above) not set; to begin again finds what parts of it were finished. */
bool tr_gmasks_try(struct tr_gmasks *c, const struct tr_gprog *p, const struct tr_gmatch *m,
                   uint32_t *mask, uint64_t *allowed, const atomic_bool *stop, bool *some);

/* The most work for one mask: 0.1 to 0.3 s of a processor, and once more at most, as a part is begun whose end
 * is beyond it.  Counted as if nothing were remembered, so that what happens does not depend on what happened
 * before. */
#define TR_GMASK_WORK 30000000u

struct tr_gmasks_stats {
    uint64_t fills;
    uint64_t hits, misses; /* of what a mask is put together from */
    uint64_t walked;       /* nodes of the trie */
    uint64_t dropped;      /* results forgotten for room */
};

void tr_gmasks_stats(const struct tr_gmasks *c, struct tr_gmasks_stats *s);

#endif
