/* SPDX-License-Identifier: Apache-2.0 */
/* engine/prefix.h - the index of the prefix cache: which block of the KV pool holds which tokens.
 *
 * An entry is a full block: its own TR_KV_BLOCK tokens, and the entry that stands before it in its
 * sequence, its parent.  Entries that begin a sequence have none, and a salt instead: what stands under
 * one salt is never found with another.  The hash of an entry goes on from its parent's, so that a
 * search costs one look for each block; tokens, parent and salt are compared, so that two prompts with
 * the same hash are two prompts.
 *
 * An entry is held by sequences, or it rests: held by nobody, it can be evicted.
 *
 *   I1  the parent of an entry is an entry, and is not resting while the entry is held
 *   I2  of two resting entries the child was given before its parent
 *
 * Both are the caller's duty (kv.c: who holds a block holds all before it, and gives the last first).
 * From them follows that the entry that has rested longest is nobody's parent: what is evicted is the
 * end of what was used longest ago, and all that rests can be evicted, one after the other. */
#ifndef TR_ENGINE_PREFIX_H
#define TR_ENGINE_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TR_NO_BLOCK UINT32_MAX

struct tr_prefix;

/* A place in the index: an entry, or the beginning of all sequences of a salt. */
struct tr_prefix_at {
    uint32_t block; /* TR_NO_BLOCK: the beginning */
    uint64_t hash;  /* of all tokens up to here */
    uint64_t salt;
};

/* For blocks 0 .. n_blocks - 1, at least one.  `key` is not known outside, so that nobody can choose prompts
 * that share a hash, which would make everybody's searches long, or names that share a salt.  NULL without
 * memory. */
struct tr_prefix *tr_prefix_new(uint32_t n_blocks, const uint64_t key[2]);
void tr_prefix_free(struct tr_prefix *p); /* NULL is fine */
uint64_t tr_prefix_bytes(const struct tr_prefix *p);

/* The salt of a name.  What parts tenants is this number alone: two names share one by chance only. */
uint64_t tr_prefix_salt(const struct tr_prefix *p, const void *name, size_t len);

struct tr_prefix_at tr_prefix_begin(const struct tr_prefix *p, uint64_t salt);

/* The entry that follows *at with these tokens [TR_KV_BLOCK]: *next is where it is, or would be, then
 * with the block TR_NO_BLOCK.  Whether there is one. */
bool tr_prefix_find(const struct tr_prefix *p, const struct tr_prefix_at *at, const uint32_t *ids,
                    struct tr_prefix_at *next);

/* Makes `block` the entry at *next, as tr_prefix_find has left it, behind `parent`.  Held. */
void tr_prefix_add(struct tr_prefix *p, uint32_t block, const struct tr_prefix_at *next,
                   uint32_t parent, const uint32_t *ids);

bool tr_prefix_has(const struct tr_prefix *p, uint32_t block);
/* Of an entry: the one before it, or TR_NO_BLOCK; and the number of this life of it, never 0. */
uint32_t tr_prefix_parent(const struct tr_prefix *p, uint32_t block);
uint64_t tr_prefix_life(const struct tr_prefix *p, uint32_t block); /* 0: no entry */

/* The last that held it has given it, or somebody holds it again. */
void tr_prefix_rest(struct tr_prefix *p, uint32_t block);
void tr_prefix_wake(struct tr_prefix *p, uint32_t block);

/* Takes the entry that has rested longest out of the index; TR_NO_BLOCK if none rests. */
uint32_t tr_prefix_evict(struct tr_prefix *p);

uint32_t tr_prefix_n_resting(const struct tr_prefix *p);

#endif
