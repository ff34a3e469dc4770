/* SPDX-License-Identifier: Apache-2.0 */
/* text/index.h - from the bytes of a piece to its id: a hash table, built once, then only read. */
#ifndef TR_TEXT_INDEX_H
#define TR_TEXT_INDEX_H

#include <stddef.h>
#include <stdint.h>

struct tr_vocab;

struct tr_index {
    struct tr_index_slot {
        uint32_t tag; /* upper half of the hash */
        int32_t id;   /* -1: free */
    } * slot;
    size_t mask; /* slots - 1, a power of two less one */
};

/* Indexes the non-empty pieces of v whose flags (text/vocab_priv.h) hold all of `want` and none
 * of `avoid`.  Of two pieces with the same bytes the lower id is found.  0 or -ENOMEM. */
int tr_index_init(struct tr_index *x, const struct tr_vocab *v, unsigned want, unsigned avoid);
void tr_index_fini(struct tr_index *x);

/* The id, or -1. */
int32_t tr_index_find(const struct tr_index *x, const struct tr_vocab *v, const char *bytes,
                      size_t len);

#endif
