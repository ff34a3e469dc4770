/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv.h"

#include "engine/prefix.h"

#include "base/assert.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct block {
    uint32_t refs;    /* tables that name it */
    uint32_t resting; /* of those, resting ones */
    uint32_t holders; /* their numbers, all xored: with one, it is that one */
};

/* How far a sequence is known.  With a table: its first n blocks.  Without: what the last search found,
 * good as long as the last block of it is in the same life. */
struct path {
    struct tr_prefix_at at;
    uint64_t life;
    uint32_t n;
};

struct tr_kv {
    uint32_t n_blocks, n_seqs, per_seq;
    uint32_t n_free, n_loose;
    uint32_t
        *free; /* [n_blocks], a stack: the block last given is taken first, its lines are warm */
    struct block *block; /* [n_blocks] */
    uint32_t *held;      /* [n_seqs] */
    uint32_t *own;       /* [n_seqs] */
    bool *rests;         /* [n_seqs] */
    struct path *path;   /* [n_seqs] */
    uint32_t *table;     /* [n_seqs, per_seq] */
    struct tr_prefix *prefix;
};

struct tr_kv *tr_kv_new(uint32_t n_blocks, uint32_t n_seqs, uint32_t per_seq,
                        struct tr_prefix *prefix)
{
    struct tr_kv *kv = calloc(1, sizeof(*kv));
    if (!kv) {
        tr_prefix_free(prefix);
        return NULL;
    }
    *kv = (struct tr_kv){
        .n_blocks = n_blocks, .n_seqs = n_seqs, .per_seq = per_seq, .prefix = prefix};
    kv->free = calloc(n_blocks, sizeof(*kv->free));
    kv->block = calloc(n_blocks, sizeof(*kv->block));
    kv->held = calloc(n_seqs, sizeof(*kv->held));
    kv->own = calloc(n_seqs, sizeof(*kv->own));
    kv->rests = calloc(n_seqs, sizeof(*kv->rests));
    kv->path = calloc(n_seqs, sizeof(*kv->path));
    kv->table = calloc((size_t)n_seqs * per_seq, sizeof(*kv->table));
    if (!kv->free || !kv->block || !kv->held || !kv->own || !kv->rests || !kv->path || !kv->table) {
        tr_kv_free(kv);
        return NULL;
    }
    for (uint32_t i = 0; i < n_blocks; i++)
        kv->free[i] = n_blocks - 1 - i;
    kv->n_free = n_blocks;
    return kv;
}

void tr_kv_free(struct tr_kv *kv)
{
    if (!kv)
        return;
    free(kv->free);
    free(kv->block);
    free(kv->held);
    free(kv->own);
    free(kv->rests);
    free(kv->path);
    free(kv->table);
    tr_prefix_free(kv->prefix);
    free(kv);
}

uint64_t tr_kv_bytes(const struct tr_kv *kv)
{
    uint64_t per_block = sizeof(*kv->free) + sizeof(*kv->block);
    uint64_t per_seq = sizeof(*kv->held) + sizeof(*kv->own) + sizeof(*kv->rests) +
                       sizeof(*kv->path) + (uint64_t)kv->per_seq * sizeof(*kv->table);
    return sizeof(*kv) + kv->n_blocks * per_block + kv->n_seqs * per_seq +
           (kv->prefix ? tr_prefix_bytes(kv->prefix) : 0);
}

static uint32_t *row(const struct tr_kv *kv, uint32_t seq)
{
    TR_ASSERT(seq < kv->n_seqs);
    return kv->table + (size_t)seq * kv->per_seq;
}

/* ---- one block, one table ---- */

static bool is_loose(const struct block *b)
{
    return b->refs == b->resting;
}

static bool is_held_loose(const struct block *b)
{
    return b->refs && is_loose(b);
}

static bool is_entry(const struct tr_kv *kv, uint32_t b)
{
    return kv->prefix && tr_prefix_has(kv->prefix, b);
}

static void hold(struct tr_kv *kv, uint32_t seq, uint32_t id)
{
    struct block *b = &kv->block[id];
    kv->n_loose -= is_held_loose(b);
    if (b->refs == 0) {
        kv->own[seq]++;
        if (is_entry(kv, id))
            tr_prefix_wake(kv->prefix, id);
    } else if (b->refs == 1) {
        kv->own[b->holders]--;
    }
    b->refs++;
    b->resting += kv->rests[seq];
    b->holders ^= seq;
    kv->n_loose += is_held_loose(b);
}

static void let_go(struct tr_kv *kv, uint32_t seq, uint32_t id)
{
    struct block *b = &kv->block[id];
    TR_ASSERT(b->refs > 0);
    kv->n_loose -= is_held_loose(b);
    b->refs--;
    b->resting -= kv->rests[seq];
    b->holders ^= seq;
    kv->n_loose += is_held_loose(b);
    if (b->refs == 1) {
        kv->own[b->holders]++;
    } else if (b->refs == 0) {
        kv->own[seq]--;
        if (is_entry(kv, id))
            tr_prefix_rest(kv->prefix, id);
        else
            kv->free[kv->n_free++] = id;
    }
}

/* The only way to a block that holds nothing. */
static uint32_t empty_block(struct tr_kv *kv)
{
    uint32_t b = kv->n_free ? kv->free[--kv->n_free] : tr_prefix_evict(kv->prefix);
    TR_ASSERT(b < kv->n_blocks && kv->block[b].refs == 0);
    return b;
}

static void restart(struct tr_kv *kv, uint32_t seq)
{
    struct path *p = &kv->path[seq];
    if (kv->prefix)
        *p = (struct path){.at = tr_prefix_begin(kv->prefix, p->at.salt)};
}

int tr_kv_reserve(struct tr_kv *kv, uint32_t seq, uint32_t n_tokens)
{
    uint32_t *blocks = row(kv, seq), need = tr_kv_blocks_for(n_tokens);
    TR_ASSERT(need <= kv->per_seq);
    if (need <= kv->held[seq])
        return 0;
    if (need - kv->held[seq] > kv->n_free + tr_kv_n_cached(kv))
        return -ENOMEM;
    if (kv->held[seq] == 0)
        restart(kv, seq); /* whatever was found for it was not taken */
    while (kv->held[seq] < need) {
        uint32_t b = empty_block(kv);
        hold(kv, seq, b);
        blocks[kv->held[seq]++] = b;
    }
    return 0;
}

/* The last first: prefix.h, I2. */
void tr_kv_give(struct tr_kv *kv, uint32_t seq)
{
    const uint32_t *blocks = row(kv, seq);
    while (kv->held[seq])
        let_go(kv, seq, blocks[--kv->held[seq]]);
}

struct tr_kv_table tr_kv_table_of(const struct tr_kv *kv, uint32_t seq)
{
    return (struct tr_kv_table){.blocks = row(kv, seq), .n_blocks = kv->held[seq]};
}

/* ---- the cache ---- */

static void step_on(struct tr_kv *kv, struct path *p, const struct tr_prefix_at *next)
{
    p->at = *next;
    p->life = tr_prefix_life(kv->prefix, next->block);
    p->n++;
}

uint64_t tr_kv_salt(const struct tr_kv *kv, const void *name, size_t len)
{
    return kv->prefix ? tr_prefix_salt(kv->prefix, name, len) : 0;
}

void tr_kv_begin(struct tr_kv *kv, uint32_t seq, uint64_t salt)
{
    TR_ASSERT(seq < kv->n_seqs);
    kv->path[seq].at.salt = salt;
    restart(kv, seq);
}

uint32_t tr_kv_seek(struct tr_kv *kv, uint32_t seq, const uint32_t *ids, uint32_t n_tokens)
{
    if (!kv->prefix)
        return 0;
    TR_ASSERT(seq < kv->n_seqs && kv->held[seq] == 0);
    struct path *p = &kv->path[seq];
    struct tr_prefix_at next;
    uint32_t max = n_tokens / TR_KV_BLOCK;
    if (p->n > max || (p->n && tr_prefix_life(kv->prefix, p->at.block) != p->life))
        restart(kv, seq);
    while (p->n < max &&
           tr_prefix_find(kv->prefix, &p->at, ids + (size_t)p->n * TR_KV_BLOCK, &next))
        step_on(kv, p, &next);
    return p->n * TR_KV_BLOCK;
}

uint64_t tr_kv_next(const struct tr_kv *kv, uint32_t seq, const uint32_t *ids, uint32_t n_tokens)
{
    TR_ASSERT(seq < kv->n_seqs);
    const struct path *p = &kv->path[seq];
    struct tr_prefix_at next;
    if (!kv->prefix || p->n >= n_tokens / TR_KV_BLOCK)
        return 0;
    tr_prefix_find(kv->prefix, &p->at, ids + (size_t)p->n * TR_KV_BLOCK, &next);
    return next.hash ? next.hash : 1;
}

void tr_kv_take(struct tr_kv *kv, uint32_t seq)
{
    if (!kv->prefix)
        return;
    uint32_t *blocks = row(kv, seq), n = kv->path[seq].n, b = kv->path[seq].at.block;
    TR_ASSERT(kv->held[seq] == 0 && n <= kv->per_seq);
    TR_ASSERT(n == 0 || tr_prefix_life(kv->prefix, b) == kv->path[seq].life);
    for (uint32_t i = n; i-- > 0; b = tr_prefix_parent(kv->prefix, b))
        blocks[i] = b;
    TR_ASSERT(n == 0 || b == TR_NO_BLOCK);
    for (uint32_t i = 0; i < n; i++)
        hold(kv, seq, blocks[i]);
    kv->held[seq] = n;
}

/* Another one's block in the place of ours. */
static void replace(struct tr_kv *kv, uint32_t seq, uint32_t *ours, uint32_t by)
{
    hold(kv, seq, by);
    let_go(kv, seq, *ours);
    *ours = by;
}

void tr_kv_keep(struct tr_kv *kv, uint32_t seq, const uint32_t *ids, uint32_t n_tokens)
{
    if (!kv->prefix)
        return;
    uint32_t *blocks = row(kv, seq), n_full = n_tokens / TR_KV_BLOCK;
    struct path *p = &kv->path[seq];
    TR_ASSERT(n_full <= kv->held[seq]);
    while (p->n < n_full) {
        const uint32_t *own_ids = ids + (size_t)p->n * TR_KV_BLOCK;
        struct tr_prefix_at next;
        if (tr_prefix_find(kv->prefix, &p->at, own_ids, &next)) {
            replace(kv, seq, &blocks[p->n], next.block);
        } else {
            next.block = blocks[p->n];
            tr_prefix_add(kv->prefix, next.block, &next, p->at.block, own_ids);
        }
        step_on(kv, p, &next);
    }
}

uint32_t tr_kv_catch_up(struct tr_kv *kv, uint32_t seq, const uint32_t *ids, uint32_t n_tokens,
                        uint32_t n_max)
{
    if (!kv->prefix)
        return n_tokens;
    tr_kv_keep(kv, seq, ids, n_tokens);
    uint32_t *blocks = row(kv, seq), max = n_max / TR_KV_BLOCK;
    struct path *p = &kv->path[seq];
    struct tr_prefix_at next;
    if (max > kv->held[seq])
        max = kv->held[seq];
    while (p->n < max &&
           tr_prefix_find(kv->prefix, &p->at, ids + (size_t)p->n * TR_KV_BLOCK, &next)) {
        replace(kv, seq, &blocks[p->n], next.block);
        step_on(kv, p, &next);
    }
    return p->n * TR_KV_BLOCK > n_tokens ? p->n * TR_KV_BLOCK : n_tokens;
}

/* ---- for the plan ---- */

void tr_kv_rest(struct tr_kv *kv, uint32_t seq, bool rests)
{
    const uint32_t *blocks = row(kv, seq);
    if (kv->rests[seq] == rests)
        return;
    kv->rests[seq] = rests;
    for (uint32_t i = 0; i < kv->held[seq]; i++) {
        struct block *b = &kv->block[blocks[i]];
        kv->n_loose -= is_held_loose(b);
        b->resting += rests ? 1u : UINT32_MAX;
        kv->n_loose += is_held_loose(b);
    }
}

const uint32_t *tr_kv_own(const struct tr_kv *kv)
{
    return kv->own;
}

uint32_t tr_kv_loose_of(const struct tr_kv *kv, uint32_t seq)
{
    const uint32_t *blocks = row(kv, seq);
    uint32_t loose = 0, n = kv->held[seq];
    if (n) {
        while (loose < n && is_loose(&kv->block[blocks[n - 1 - loose]]))
            loose++;
        return loose;
    }
    uint32_t b = kv->path[seq].at.block;
    for (n = kv->path[seq].n; loose < n && is_loose(&kv->block[b]); loose++)
        b = tr_prefix_parent(kv->prefix, b);
    return loose;
}

uint32_t tr_kv_n_free(const struct tr_kv *kv)
{
    return kv->n_free;
}

uint32_t tr_kv_n_cached(const struct tr_kv *kv)
{
    return kv->prefix ? tr_prefix_n_resting(kv->prefix) : 0;
}

uint32_t tr_kv_n_used(const struct tr_kv *kv)
{
    return kv->n_blocks - kv->n_free - tr_kv_n_cached(kv);
}

uint32_t tr_kv_n_loose(const struct tr_kv *kv)
{
    return kv->n_loose;
}

uint32_t tr_kv_refs(const struct tr_kv *kv, uint32_t block)
{
    return block < kv->n_blocks ? kv->block[block].refs : 0;
}
