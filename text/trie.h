/* SPDX-License-Identifier: Apache-2.0 */
/* text/trie.h - the longest of a set of pieces at a place in a text.
 *
 * A sorted list of pieces that is narrowed byte by byte: no nodes to build, a few binary
 * searches in a match.  Used for control and user-defined tokens and for the sim vocabulary. */
#ifndef TR_TEXT_TRIE_H
#define TR_TEXT_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tr_vocab;

struct tr_trie {
    int32_t *ids; /* sorted by bytes, then by id */
    size_t n;
    uint32_t first[257]; /* ids[first[b], first[b + 1]) start with byte b */
};

/* Holds the non-empty pieces of v whose flags hold all of `want` and none of `avoid`.
 * 0 or -ENOMEM. */
int tr_trie_init(struct tr_trie *t, const struct tr_vocab *v, unsigned want, unsigned avoid);
void tr_trie_fini(struct tr_trie *t);

static inline bool tr_trie_may_start(const struct tr_trie *t, char c)
{
    return t->first[(uint8_t)c] != t->first[(uint8_t)c + 1];
}

/* The longest piece that text[0, len) starts with, the lowest id of several; -1 if none. */
int32_t tr_trie_longest(const struct tr_trie *t, const struct tr_vocab *v, const char *text,
                        size_t len);

#endif
