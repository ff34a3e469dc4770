/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/pb_arena.c - see pb_arena.h. */
#include "frontend/pb_arena.h"

#include <stdalign.h>
#include <stdlib.h>

enum { BASE_BYTES = 64 << 10, BLOCK_BYTES = 4096 };

struct tr_pb_block {
    struct tr_pb_block *next;
    size_t used, cap;
    alignas(max_align_t) char bytes[];
};

static void *take(void *data, size_t size)
{
    struct tr_pb_arena *a = data;
    struct tr_pb_block *b = a->blocks;

    size = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    if (size > a->left) {
        a->full = true;
        return NULL;
    }
    if (!b || size > b->cap - b->used) {
        size_t cap = size > BLOCK_BYTES ? size : BLOCK_BYTES;
        b = malloc(sizeof(*b) + cap);
        if (!b)
            return NULL;
        *b = (struct tr_pb_block){.next = a->blocks, .cap = cap};
        a->blocks = b;
    }
    void *p = b->bytes + b->used;
    b->used += size;
    a->left -= size;
    return p;
}

/* The parser gives back what it needs no more; all goes together. */
static void give(void *data, void *p)
{
    (void)data;
    (void)p;
}

void tr_pb_arena_init(struct tr_pb_arena *a, size_t len)
{
    *a = (struct tr_pb_arena){
        .left = BASE_BYTES + 2 * len,
        .allocator = {.alloc = take, .free = give, .allocator_data = a},
    };
}

void tr_pb_arena_fini(struct tr_pb_arena *a)
{
    struct tr_pb_block *next;

    for (struct tr_pb_block *b = a->blocks; b; b = next) {
        next = b->next;
        free(b);
    }
    a->blocks = NULL;
}
