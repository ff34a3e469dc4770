/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/store.h - remembered results by key, in fixed memory.  Private to grammar/.
 *
 * Two halves: new entries go into one, and when it is full the other one is emptied and takes its place.
 * An entry that is found in the older half is copied into the newer, so what is in use stays. */
#ifndef TR_GRAMMAR_STORE_H
#define TR_GRAMMAR_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tr_gentry {
    uint32_t size; /* of all of it, a multiple of 8 */
    uint32_t hash;
    uint32_t next;  /* in its bucket, offset + 1 */
    uint16_t n_key; /* bytes */
    uint16_t reach; /* frames opened above the ones that were there */
    uint32_t cost;  /* work it took */
    uint32_t n_ids; /* ids, or TR_GENTRY_DENSE: a mask */
    uint32_t n_leaves;
    uint32_t looked; /* bit k: results exist that depend on k frames */
    bool failed, direct;
    uint32_t data[]; /* ids or mask words; leaves; then the key */
};

#define TR_GENTRY_DENSE UINT32_MAX

struct tr_gstore {
    uint8_t *half[2];
    uint32_t *bucket[2]; /* offset + 1 */
    uint32_t used[2];
    uint32_t size, n_buckets; /* of a half */
    int now;
    uint64_t dropped; /* entries */
    uint32_t n[2];
};

/* Takes memory for `bytes`, at least `least` in each half.  0 or -ENOMEM. */
int tr_gstore_open(struct tr_gstore *s, size_t bytes, size_t least);
void tr_gstore_close(struct tr_gstore *s);

/* NULL if it is not there.  Valid until the next tr_gstore_add. */
struct tr_gentry *tr_gstore_find(struct tr_gstore *s, const void *key, uint32_t n_key);

/* A new entry with room for `words` of data; the key is copied.  It must not be there yet.  NULL: larger
 * than a half. */
struct tr_gentry *tr_gstore_add(struct tr_gstore *s, const void *key, uint32_t n_key, size_t words);

#endif
