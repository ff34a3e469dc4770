/* SPDX-License-Identifier: Apache-2.0 */
/* engine/kv.h - who has which block of the KV pool.
 *
 * Path: http > tokens > subq > [engine] > step > ring > detok > event > socket
 *
 * A fixed pool of n_blocks blocks of TR_KV_BLOCK tokens each; what is in them is the backend's
 * business.  Every sequence has a block table that grows as it does.  Blocks are counted: tables name
 * the same block where their sequences begin with the same tokens.
 *
 * With a prefix cache (prefix.h) a block that is full is kept by what it holds: the first blocks of a
 * table, its *known* ones, are entries of the index.  A block that a sequence still writes is never
 * known, so nobody writes a block that another table names (backend.h, I2).  A known block that its last
 * holder gives is not free but *cached*: it is found again by whoever begins with the same tokens, until
 * its memory is needed.  There is one way to a block, and it evicts when no other is free.
 *
 *   I1  free + cached + blocks held by at least one table == n_blocks
 *   I2  refs of a block == number of tables that name it
 *   I3  the known blocks of a table are a path of the index from its beginning: who holds one holds all
 *       before it
 *
 * What the plan has to know about shared blocks: a table gives only those back that are its *own*,
 * named by no other.  Tables of sequences that may lose their blocks are marked as resting; a block is
 * *loose* when no other tables hold it (or none at all), so it can be had by making them give it.  By I3
 * the loose blocks of a table are the last of it.
 *
 * Pool empty: tr_kv_reserve says -ENOMEM and changes nothing; the plan makes room first. */
#ifndef TR_ENGINE_KV_H
#define TR_ENGINE_KV_H

#include "engine/backend.h"

struct tr_kv;
struct tr_prefix;

/* Tables for n_seqs sequences of at most per_seq blocks.  NULL without memory.  The pages of a
 * table that is never used are never touched.  `prefix`, for n_blocks, is the cache's index, from here
 * on this pool's, also when NULL comes back; or NULL: blocks that are given are free. */
struct tr_kv *tr_kv_new(uint32_t n_blocks, uint32_t n_seqs, uint32_t per_seq,
                        struct tr_prefix *prefix);
void tr_kv_free(struct tr_kv *kv); /* NULL is fine */

/* Of address space: tables and the cache's index. */
uint64_t tr_kv_bytes(const struct tr_kv *kv);

/* Blocks that n_tokens need. */
static inline uint32_t tr_kv_blocks_for(uint32_t n_tokens)
{
    return n_tokens / TR_KV_BLOCK + (n_tokens % TR_KV_BLOCK != 0);
}

/* Grows the table of `seq` to hold n_tokens; 0, or -ENOMEM with nothing changed. */
int tr_kv_reserve(struct tr_kv *kv, uint32_t seq, uint32_t n_tokens);

/* Gives back all blocks of `seq`. */
void tr_kv_give(struct tr_kv *kv, uint32_t seq);

/* Borrowed until the next call that changes the table of the same sequence. */
struct tr_kv_table tr_kv_table_of(const struct tr_kv *kv, uint32_t seq);

/* ---- the cache; without one all of these do nothing and find nothing ---- */

/* What parts the sequences of one name from those of all others (prefix.h). */
uint64_t tr_kv_salt(const struct tr_kv *kv, const void *name, size_t len);

/* A new sequence: nothing is known about it.  Sequences find only what others with their salt left. */
void tr_kv_begin(struct tr_kv *kv, uint32_t seq, uint64_t salt);

/* For a sequence without blocks: how many of its first n_tokens tokens are in the cache, a multiple of
 * TR_KV_BLOCK.  What was found by the last call is not searched again. */
uint32_t tr_kv_seek(struct tr_kv *kv, uint32_t seq, const uint32_t *ids, uint32_t n_tokens);

/* Puts what the last tr_kv_seek found into the empty table.  Nothing may have been reserved or given to
 * the cache in between but by tr_kv_give, tr_kv_keep and tr_kv_take. */
void tr_kv_take(struct tr_kv *kv, uint32_t seq);

/* Names the block that follows those that are known, or were found, if it ends within the first n_tokens;
 * else 0.  Two sequences with the same name would compute the same. */
uint64_t tr_kv_next(const struct tr_kv *kv, uint32_t seq, const uint32_t *ids, uint32_t n_tokens);

/* The first n_tokens of the table are computed and will not be written again: its full blocks become
 * known.  Where another sequence was first with the same tokens its block takes the place of ours. */
void tr_kv_keep(struct tr_kv *kv, uint32_t seq, const uint32_t *ids, uint32_t n_tokens);

/* The same, and goes on where others are further with the same tokens, within the table and the first
 * n_max.  Returns how many tokens are computed now, >= n_tokens. */
uint32_t tr_kv_catch_up(struct tr_kv *kv, uint32_t seq, const uint32_t *ids, uint32_t n_tokens,
                        uint32_t n_max);

/* ---- for the plan ---- */

/* Whether the table's blocks may be had by making it give them. */
void tr_kv_rest(struct tr_kv *kv, uint32_t seq, bool rests);

/* [n_seqs] blocks of each table that no other table names. */
const uint32_t *tr_kv_own(const struct tr_kv *kv);

/* Of the table, or where it is empty of what tr_kv_seek found: how many are loose. */
uint32_t tr_kv_loose_of(const struct tr_kv *kv, uint32_t seq);

uint32_t tr_kv_n_free(const struct tr_kv *kv);   /* hold nothing */
uint32_t tr_kv_n_cached(const struct tr_kv *kv); /* known, and held by nobody */
uint32_t tr_kv_n_used(const struct tr_kv *kv);   /* held */
uint32_t tr_kv_n_loose(const struct tr_kv *kv);  /* held, by resting tables alone */
uint32_t tr_kv_refs(const struct tr_kv *kv, uint32_t block);

#endif
