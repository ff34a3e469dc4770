/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/fair.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct key {
    char name[TR_KEY_BYTES];
    uint32_t requests;
    uint32_t weight;
    uint64_t rest; /* had, and less than its weight: not counted yet */
    uint32_t at;   /* in `busy`, with requests */
    uint32_t next; /* of the same hash */
};

struct tr_fair {
    uint32_t cap, n;  /* keys known */
    uint32_t n_busy;  /* with requests */
    uint64_t last;    /* what the key that left last had */
    struct key *keys; /* [cap] */
    uint64_t *served; /* [cap] */
    uint32_t *busy;   /* [cap] numbers of keys */
    uint32_t *heads;  /* [cap] first key of a hash */
};

struct tr_fair *tr_fair_new(uint32_t n, uint64_t *bytes)
{
    struct tr_fair *f = calloc(1, sizeof(*f));
    if (!f)
        return NULL;
    f->cap = n ? n : 1;
    f->keys = calloc(f->cap, sizeof(*f->keys));
    f->served = calloc(f->cap, sizeof(*f->served));
    f->busy = calloc(f->cap, sizeof(*f->busy));
    f->heads = malloc(f->cap * sizeof(*f->heads));
    if (!f->keys || !f->served || !f->busy || !f->heads) {
        tr_fair_free(f);
        return NULL;
    }
    memset(f->heads, 0xff, f->cap * sizeof(*f->heads));
    *bytes += sizeof(*f) + f->cap * (sizeof(*f->keys) + sizeof(*f->served) + 2 * sizeof(*f->busy));
    return f;
}

void tr_fair_free(struct tr_fair *f)
{
    if (!f)
        return;
    free(f->keys);
    free(f->served);
    free(f->busy);
    free(f->heads);
    free(f);
}

/* FNV-1a: key ids are the service's own words, nobody chooses them so that they collide. */
static uint32_t *head_of(const struct tr_fair *f, const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return &f->heads[(h ^ h >> 32) % f->cap];
}

static void forget(struct tr_fair *f, uint32_t k)
{
    uint32_t *at = head_of(f, f->keys[k].name);
    while (*at != k)
        at = &f->keys[*at].next;
    *at = f->keys[k].next;
}

/* A place for a new key.  There is one: each key that has requests has a slot. */
static uint32_t free_place(struct tr_fair *f)
{
    uint32_t best = NONE;
    if (f->n < f->cap)
        return f->n++;
    for (uint32_t k = 0; k < f->cap; k++)
        if (!f->keys[k].requests && (best == NONE || f->served[k] < f->served[best]))
            best = k;
    TR_ASSERT(best != NONE);
    forget(f, best);
    return best;
}

static uint32_t find(struct tr_fair *f, const char *name)
{
    uint32_t *head = head_of(f, name);
    for (uint32_t k = *head; k != NONE; k = f->keys[k].next)
        if (strcmp(f->keys[k].name, name) == 0)
            return k;
    uint32_t k = free_place(f);
    head = head_of(f, name);
    f->keys[k] = (struct key){.next = *head};
    memcpy(f->keys[k].name, name, strlen(name) + 1);
    f->served[k] = 0;
    *head = k;
    return k;
}

static void lift(struct tr_fair *f, uint32_t k)
{
    uint64_t least = f->n_busy ? UINT64_MAX : f->last;
    for (uint32_t i = 0; i < f->n_busy; i++)
        if (f->served[f->busy[i]] < least)
            least = f->served[f->busy[i]];
    if (f->served[k] < least)
        f->served[k] = least;
}

uint32_t tr_fair_take(struct tr_fair *f, const char *key, uint32_t weight)
{
    TR_ASSERT(strlen(key) < TR_KEY_BYTES);
    uint32_t k = find(f, key);
    f->keys[k].weight = weight ? weight : 1; /* a ring that a dead engine left may hold anything */
    if (f->keys[k].requests++ == 0) {
        lift(f, k);
        f->keys[k].at = f->n_busy;
        f->busy[f->n_busy++] = k;
    }
    return k;
}

void tr_fair_give(struct tr_fair *f, uint32_t k)
{
    struct key *key = &f->keys[k];
    TR_ASSERT(k < f->n && key->requests > 0);
    if (--key->requests)
        return;
    f->last = f->served[k];
    uint32_t moved = f->busy[--f->n_busy];
    f->busy[key->at] = moved;
    f->keys[moved].at = key->at;
}

void tr_fair_serve(struct tr_fair *f, uint32_t k, uint64_t n)
{
    TR_ASSERT(k < f->n);
    struct key *key = &f->keys[k];
    key->rest += n;
    f->served[k] += key->rest / key->weight;
    key->rest %= key->weight;
}

const uint64_t *tr_fair_served(const struct tr_fair *f)
{
    return f->n_busy > 1 ? f->served : NULL;
}
