/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/store.c - see store.h. */
#include "grammar/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int tr_gstore_open(struct tr_gstore *s, size_t bytes, size_t least)
{
    size_t half = bytes / 2 > least ? bytes / 2 : least;

    *s = (struct tr_gstore){0};
    half = (half < UINT32_MAX / 2 ? half : UINT32_MAX / 2) & ~(size_t)7;
    s->size = (uint32_t)half;
    s->n_buckets = 1024;
    while (s->n_buckets < half / 4096)
        s->n_buckets *= 2;
    for (int i = 0; i < 2; i++) {
        s->half[i] = malloc(half);
        s->bucket[i] = calloc(s->n_buckets, sizeof(**s->bucket));
        if (!s->half[i] || !s->bucket[i]) {
            tr_gstore_close(s);
            return -ENOMEM;
        }
    }
    return 0;
}

void tr_gstore_close(struct tr_gstore *s)
{
    for (int i = 0; i < 2; i++) {
        free(s->half[i]);
        free(s->bucket[i]);
    }
    *s = (struct tr_gstore){0};
}

static uint32_t hash_of(const void *key, uint32_t n)
{
    const uint8_t *p = key;
    uint64_t h = n, word;

    for (; n >= 4; n -= 4, p += 4) {
        word = 0;
        memcpy(&word, p, 4);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 31;
    }
    for (; n; n--, p++)
        h = (h ^ *p) * 0xff51afd7ed558ccdu, h ^= h >> 31;
    return (uint32_t)h;
}

static const uint8_t *key_of(const struct tr_gentry *e)
{
    return (const uint8_t *)e + e->size - ((e->n_key + 7u) & ~7u);
}

static struct tr_gentry *find_in(const struct tr_gstore *s, int half, const void *key,
                                 uint32_t n_key, uint32_t hash)
{
    for (uint32_t at = s->bucket[half][hash & (s->n_buckets - 1)]; at;) {
        struct tr_gentry *e = (struct tr_gentry *)(s->half[half] + at - 1);
        if (e->hash == hash && e->n_key == n_key && memcmp(key_of(e), key, n_key) == 0)
            return e;
        at = e->next;
    }
    return NULL;
}

/* Room for `size` bytes in the half of now, which may become the other one. */
static struct tr_gentry *room(struct tr_gstore *s, uint32_t size, uint32_t hash)
{
    if (size > s->size - s->used[s->now]) {
        s->now = !s->now;
        s->dropped += s->n[s->now];
        s->used[s->now] = s->n[s->now] = 0;
        memset(s->bucket[s->now], 0, s->n_buckets * sizeof(**s->bucket));
    }
    uint32_t *bucket = &s->bucket[s->now][hash & (s->n_buckets - 1)];
    struct tr_gentry *e = (struct tr_gentry *)(s->half[s->now] + s->used[s->now]);
    e->next = *bucket;
    *bucket = s->used[s->now] + 1;
    s->used[s->now] += size;
    s->n[s->now]++;
    return e;
}

struct tr_gentry *tr_gstore_find(struct tr_gstore *s, const void *key, uint32_t n_key)
{
    uint32_t hash = hash_of(key, n_key);
    struct tr_gentry *e = find_in(s, s->now, key, n_key, hash);

    if (e)
        return e;
    e = find_in(s, !s->now, key, n_key, hash);
    /* If the half of now is full, making room would empty the one that `e` is in. */
    if (!e || e->size > s->size - s->used[s->now])
        return e;
    struct tr_gentry *copy = room(s, e->size, hash);
    uint32_t next = copy->next;
    memcpy(copy, e, e->size);
    copy->next = next;
    return copy;
}

struct tr_gentry *tr_gstore_add(struct tr_gstore *s, const void *key, uint32_t n_key, size_t words)
{
    size_t size = (sizeof(struct tr_gentry) + words * 4 + 7) / 8 * 8 + ((n_key + 7u) & ~7u);

    if (size > s->size)
        return NULL;
    uint32_t hash = hash_of(key, n_key);
    struct tr_gentry *e = room(s, (uint32_t)size, hash);
    uint32_t next = e->next;
    *e = (struct tr_gentry){.size = (uint32_t)size, .hash = hash, .next = next};
    e->n_key = (uint16_t)n_key;
    memcpy((uint8_t *)e + size - ((n_key + 7u) & ~7u), key, n_key);
    return e;
}
