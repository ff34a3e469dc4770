/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct tr_arena_chunk {
    struct tr_arena_chunk *next;
    size_t used;
    size_t size;
    alignas(16) unsigned char mem[];
};

/* The first chunk is small: most arenas hold little. */
#define CHUNK_MIN ((size_t)4096)
#define CHUNK_MAX ((size_t)256 * 1024)

void tr_arena_init(struct tr_arena *a, size_t limit)
{
    *a = (struct tr_arena){.limit = limit};
}

void tr_arena_fini(struct tr_arena *a)
{
    struct tr_arena_chunk *c = a->head;
    while (c) {
        struct tr_arena_chunk *next = c->next;
        free(c);
        c = next;
    }
    a->head = NULL;
    a->used = 0;
}

static struct tr_arena_chunk *add_chunk(struct tr_arena *a, size_t need)
{
    size_t size = a->head ? a->head->size * 2 : CHUNK_MIN;
    if (size > CHUNK_MAX)
        size = CHUNK_MAX;
    if (size < need)
        size = need;
    struct tr_arena_chunk *c = malloc(sizeof *c + size);
    if (!c) {
        a->no_memory = true;
        return NULL;
    }
    c->used = 0;
    c->size = size;
    /* A chunk for one large block goes behind the head, so that the head's rest stays in use. */
    if (a->head && need > CHUNK_MAX / 2) {
        c->next = a->head->next;
        a->head->next = c;
    } else {
        c->next = a->head;
        a->head = c;
    }
    return c;
}

void *tr_arena_alloc(struct tr_arena *a, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size_t need = size ? (size + 15) & ~(size_t)15 : 16;
    if (need > a->limit - a->used)
        return NULL;
    struct tr_arena_chunk *c = a->head;
    if (!c || c->size - c->used < need) {
        c = add_chunk(a, need);
        if (!c)
            return NULL;
    }
    void *p = c->mem + c->used;
    c->used += need;
    a->used += need;
    memset(p, 0, need);
    return p;
}
