/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/prefix.h"

#include "engine/backend.h"

#include "base/assert.h"
#include "base/siphash.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    uint64_t life; /* 0: the block is no entry */
    uint64_t hash, salt;
    uint32_t parent;
    uint32_t chained;      /* the next entry of the same bucket */
    uint32_t older, newer; /* while it rests */
    uint32_t ids[TR_KV_BLOCK];
};

struct tr_prefix {
    uint32_t n_blocks;
    uint64_t key[2];
    uint64_t lives;
    struct entry *entry; /* [n_blocks] */
    uint32_t *bucket;    /* [mask + 1] the first entry of each */
    uint64_t mask;
    uint32_t oldest, newest, n_resting;
};

struct tr_prefix *tr_prefix_new(uint32_t n_blocks, const uint64_t key[2])
{
    TR_ASSERT(n_blocks > 0);
    struct tr_prefix *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    *p = (struct tr_prefix){.n_blocks = n_blocks,
                            .key = {key[0], key[1]},
                            .oldest = TR_NO_BLOCK,
                            .newest = TR_NO_BLOCK};
    while (p->mask < n_blocks)
        p->mask = p->mask << 1 | 1;
    p->entry = calloc(n_blocks, sizeof(*p->entry));
    p->bucket = malloc((p->mask + 1) * sizeof(*p->bucket));
    if (!p->entry || !p->bucket) {
        tr_prefix_free(p);
        return NULL;
    }
    memset(p->bucket, 0xff, (p->mask + 1) * sizeof(*p->bucket)); /* TR_NO_BLOCK */
    return p;
}

void tr_prefix_free(struct tr_prefix *p)
{
    if (!p)
        return;
    free(p->entry);
    free(p->bucket);
    free(p);
}

uint64_t tr_prefix_bytes(const struct tr_prefix *p)
{
    return sizeof(*p) + p->n_blocks * sizeof(*p->entry) + (p->mask + 1) * sizeof(*p->bucket);
}

static struct entry *entry_of(const struct tr_prefix *p, uint32_t block)
{
    TR_ASSERT(block < p->n_blocks);
    return &p->entry[block];
}

/* ---- searching ---- */

uint64_t tr_prefix_salt(const struct tr_prefix *p, const void *name, size_t len)
{
    return tr_siphash(p->key, name, len);
}

struct tr_prefix_at tr_prefix_begin(const struct tr_prefix *p, uint64_t salt)
{
    return (struct tr_prefix_at){
        .block = TR_NO_BLOCK, .hash = tr_siphash(p->key, &salt, sizeof(salt)), .salt = salt};
}

static bool is(const struct entry *e, const struct tr_prefix_at *next, uint32_t parent,
               const uint32_t *ids)
{
    return e->hash == next->hash && e->parent == parent && e->salt == next->salt &&
           memcmp(e->ids, ids, sizeof(e->ids)) == 0;
}

bool tr_prefix_find(const struct tr_prefix *p, const struct tr_prefix_at *at, const uint32_t *ids,
                    struct tr_prefix_at *next)
{
    struct {
        uint64_t before;
        uint32_t ids[TR_KV_BLOCK];
    } text = {.before = at->hash};
    memcpy(text.ids, ids, sizeof(text.ids));
    uint64_t hash = tr_siphash(p->key, &text, sizeof(text));
    uint32_t parent = at->block, b = p->bucket[hash & p->mask];
    *next = (struct tr_prefix_at){.hash = hash, .salt = at->salt};
    while (b != TR_NO_BLOCK && !is(&p->entry[b], next, parent, ids))
        b = p->entry[b].chained;
    next->block = b;
    return b != TR_NO_BLOCK;
}

bool tr_prefix_has(const struct tr_prefix *p, uint32_t block)
{
    return entry_of(p, block)->life != 0;
}

uint32_t tr_prefix_parent(const struct tr_prefix *p, uint32_t block)
{
    return entry_of(p, block)->parent;
}

uint64_t tr_prefix_life(const struct tr_prefix *p, uint32_t block)
{
    return entry_of(p, block)->life;
}

/* ---- coming and going ---- */

void tr_prefix_add(struct tr_prefix *p, uint32_t block, const struct tr_prefix_at *next,
                   uint32_t parent, const uint32_t *ids)
{
    struct entry *e = entry_of(p, block);
    uint32_t *first = &p->bucket[next->hash & p->mask];
    TR_ASSERT(e->life == 0);
    TR_ASSERT(parent == TR_NO_BLOCK || tr_prefix_has(p, parent));
    e->life = ++p->lives;
    e->hash = next->hash;
    e->salt = next->salt;
    e->parent = parent;
    memcpy(e->ids, ids, sizeof(e->ids));
    e->chained = *first;
    *first = block;
}

static void remove_entry(struct tr_prefix *p, uint32_t block)
{
    struct entry *e = entry_of(p, block);
    uint32_t *link = &p->bucket[e->hash & p->mask];
    while (*link != block)
        link = &entry_of(p, *link)->chained;
    *link = e->chained;
    e->life = 0;
}

void tr_prefix_rest(struct tr_prefix *p, uint32_t block)
{
    struct entry *e = entry_of(p, block);
    TR_ASSERT(e->life);
    e->older = p->newest;
    e->newer = TR_NO_BLOCK;
    if (p->newest == TR_NO_BLOCK)
        p->oldest = block;
    else
        entry_of(p, p->newest)->newer = block;
    p->newest = block;
    p->n_resting++;
}

void tr_prefix_wake(struct tr_prefix *p, uint32_t block)
{
    const struct entry *e = entry_of(p, block);
    TR_ASSERT(e->life && p->n_resting > 0);
    if (e->older == TR_NO_BLOCK)
        p->oldest = e->newer;
    else
        entry_of(p, e->older)->newer = e->newer;
    if (e->newer == TR_NO_BLOCK)
        p->newest = e->older;
    else
        entry_of(p, e->newer)->older = e->older;
    p->n_resting--;
}

uint32_t tr_prefix_evict(struct tr_prefix *p)
{
    uint32_t block = p->oldest;
    if (block == TR_NO_BLOCK)
        return TR_NO_BLOCK;
    tr_prefix_wake(p, block);
    remove_entry(p, block);
    return block;
}

uint32_t tr_prefix_n_resting(const struct tr_prefix *p)
{
    return p->n_resting;
}
