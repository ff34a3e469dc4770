/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv.h"

#include "base/assert.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct tr_kv {
    uint32_t n_blocks, n_seqs, per_seq;
    uint32_t n_free;
    uint32_t
        *free; /* [n_blocks], a stack: the block last given is taken first, its lines are warm */
    uint32_t *refs;  /* [n_blocks] */
    uint32_t *held;  /* [n_seqs] */
    uint32_t *table; /* [n_seqs, per_seq] */
};

struct tr_kv *tr_kv_new(uint32_t n_blocks, uint32_t n_seqs, uint32_t per_seq)
{
    struct tr_kv *kv = calloc(1, sizeof(*kv));
    if (!kv)
        return NULL;
    *kv = (struct tr_kv){.n_blocks = n_blocks, .n_seqs = n_seqs, .per_seq = per_seq};
    kv->free = calloc(n_blocks, sizeof(uint32_t));
    kv->refs = calloc(n_blocks, sizeof(uint32_t));
    kv->held = calloc(n_seqs, sizeof(uint32_t));
    kv->table = calloc((size_t)n_seqs * per_seq, sizeof(uint32_t));
    if (!kv->free || !kv->refs || !kv->held || !kv->table) {
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
    free(kv->refs);
    free(kv->held);
    free(kv->table);
    free(kv);
}

static uint32_t *row(const struct tr_kv *kv, uint32_t seq)
{
    TR_ASSERT(seq < kv->n_seqs);
    return kv->table + (size_t)seq * kv->per_seq;
}

int tr_kv_reserve(struct tr_kv *kv, uint32_t seq, uint32_t n_tokens)
{
    uint32_t *blocks = row(kv, seq), need = tr_kv_blocks_for(n_tokens);
    TR_ASSERT(need <= kv->per_seq);
    if (need <= kv->held[seq])
        return 0;
    if (need - kv->held[seq] > kv->n_free)
        return -ENOMEM;
    while (kv->held[seq] < need) {
        uint32_t b = kv->free[--kv->n_free];
        TR_ASSERT(kv->refs[b] == 0);
        kv->refs[b] = 1;
        blocks[kv->held[seq]++] = b;
    }
    return 0;
}

void tr_kv_share(struct tr_kv *kv, uint32_t from, uint32_t to, uint32_t n)
{
    const uint32_t *src = row(kv, from);
    uint32_t *dst = row(kv, to);
    TR_ASSERT(kv->held[to] == 0 && n <= kv->held[from]);
    for (uint32_t i = 0; i < n; i++) {
        dst[i] = src[i];
        kv->refs[src[i]]++;
    }
    kv->held[to] = n;
}

void tr_kv_give(struct tr_kv *kv, uint32_t seq)
{
    const uint32_t *blocks = row(kv, seq);
    while (kv->held[seq]) {
        uint32_t b = blocks[--kv->held[seq]];
        TR_ASSERT(kv->refs[b] > 0);
        if (--kv->refs[b] == 0)
            kv->free[kv->n_free++] = b;
    }
}

struct tr_kv_table tr_kv_table_of(const struct tr_kv *kv, uint32_t seq)
{
    return (struct tr_kv_table){.blocks = row(kv, seq), .n_blocks = kv->held[seq]};
}

uint32_t tr_kv_n_free(const struct tr_kv *kv)
{
    return kv->n_free;
}

uint32_t tr_kv_n_used(const struct tr_kv *kv)
{
    return kv->n_blocks - kv->n_free;
}

uint32_t tr_kv_refs(const struct tr_kv *kv, uint32_t block)
{
    return block < kv->n_blocks ? kv->refs[block] : 0;
}
