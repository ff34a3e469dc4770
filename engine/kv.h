/* SPDX-License-Identifier: Apache-2.0 */
/* engine/kv.h - who has which block of the KV pool.
 *
 * Path: http > tokens > subq > [engine] > step > ring > detok > event > socket
 *
 * A fixed pool of n_blocks blocks of TR_KV_BLOCK tokens each; what is in them is the backend's
 * business.  Every sequence has a block table that grows as it does.  Blocks are counted: two
 * tables may name one block if neither writes it any more (backend.h, I2); it goes back to the
 * pool with its last holder.
 *
 *   I1  free + blocks held by at least one table == n_blocks
 *   I2  refs of a block == number of tables that name it
 *
 * Pool empty: tr_kv_reserve says -ENOMEM and changes nothing; the plan makes room first. */
#ifndef TR_ENGINE_KV_H
#define TR_ENGINE_KV_H

#include "engine/backend.h"

struct tr_kv;

/* Tables for n_seqs sequences of at most per_seq blocks.  NULL without memory.  The pages of a
 * table that is never used are never touched. */
struct tr_kv *tr_kv_new(uint32_t n_blocks, uint32_t n_seqs, uint32_t per_seq);
void tr_kv_free(struct tr_kv *kv); /* NULL is fine */

/* Blocks that n_tokens need. */
static inline uint32_t tr_kv_blocks_for(uint32_t n_tokens)
{
    return n_tokens / TR_KV_BLOCK + (n_tokens % TR_KV_BLOCK != 0);
}

/* Grows the table of `seq` to hold n_tokens; 0, or -ENOMEM with nothing changed. */
int tr_kv_reserve(struct tr_kv *kv, uint32_t seq, uint32_t n_tokens);

/* Puts the first n blocks of `from` into the empty table of `to`; they are then held twice. */
void tr_kv_share(struct tr_kv *kv, uint32_t from, uint32_t to, uint32_t n);

/* Gives back all blocks of `seq`. */
void tr_kv_give(struct tr_kv *kv, uint32_t seq);

/* Borrowed until the next reserve, share or give of the same sequence. */
struct tr_kv_table tr_kv_table_of(const struct tr_kv *kv, uint32_t seq);

uint32_t tr_kv_n_free(const struct tr_kv *kv);
uint32_t tr_kv_n_used(const struct tr_kv *kv);
uint32_t tr_kv_refs(const struct tr_kv *kv, uint32_t block);

#endif
