/* SPDX-License-Identifier: Apache-2.0 */
/* text/index.c - see index.h.  Open addressing, at most half full. */
#include "text/index.h"

#include "text/vocab_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The table's contents come from a model file, not from clients, so a fixed mixer is enough. */
static uint64_t hash(const char *p, size_t len)
{
    uint64_t h = 0x9e3779b97f4a7c15ULL ^ len;
    uint64_t w;

    for (; len >= sizeof(w); p += sizeof(w), len -= sizeof(w)) {
        memcpy(&w, p, sizeof(w));
        h = (h ^ w) * 0xff51afd7ed558ccdULL;
        h ^= h >> 32;
    }
    w = 0;
    memcpy(&w, p, len);
    h = (h ^ w) * 0xc4ceb9fe1a85ec53ULL;
    h ^= h >> 29;
    h *= 0xff51afd7ed558ccdULL;
    return h ^ (h >> 32);
}

static void add(struct tr_index *x, const struct tr_vocab *v, int32_t id)
{
    size_t len;
    const char *p = tr_vocab_bytes(v, id, &len);
    uint64_t h = hash(p, len);
    size_t i = (size_t)h & x->mask;

    for (; x->slot[i].id >= 0; i = (i + 1) & x->mask) {
        size_t have;
        const char *q = tr_vocab_bytes(v, x->slot[i].id, &have);
        if (have == len && memcmp(p, q, len) == 0)
            return;
    }
    x->slot[i] = (struct tr_index_slot){(uint32_t)(h >> 32), id};
}

int tr_index_init(struct tr_index *x, const struct tr_vocab *v, unsigned want, unsigned avoid)
{
    size_t slots = 16;

    while (slots < (size_t)v->size * 2)
        slots *= 2;
    x->slot = malloc(slots * sizeof(*x->slot));
    if (!x->slot)
        return -ENOMEM;
    x->mask = slots - 1;
    for (size_t i = 0; i < slots; i++)
        x->slot[i].id = -1;
    for (uint32_t id = 0; id < v->size; id++)
        if ((v->flags[id] & want) == want && !(v->flags[id] & avoid) &&
            v->off[id + 1] != v->off[id])
            add(x, v, (int32_t)id);
    return 0;
}

void tr_index_fini(struct tr_index *x)
{
    free(x->slot);
    *x = (struct tr_index){0};
}

int32_t tr_index_find(const struct tr_index *x, const struct tr_vocab *v, const char *bytes,
                      size_t len)
{
    uint64_t h = hash(bytes, len);
    uint32_t tag = (uint32_t)(h >> 32);

    for (size_t i = (size_t)h & x->mask; x->slot[i].id >= 0; i = (i + 1) & x->mask) {
        if (x->slot[i].tag != tag)
            continue;
        uint32_t id = (uint32_t)x->slot[i].id;
        if (v->off[id + 1] - v->off[id] == len && memcmp(v->blob + v->off[id], bytes, len) == 0)
            return x->slot[i].id;
    }
    return -1;
}
