/* SPDX-License-Identifier: Apache-2.0 */
/* base/arena.h - a bump allocator with a byte limit: everything lives until the arena ends.
 *
 * For work with one lifetime (a request's parsed body, one rendering of a template).  Not for
 * several threads at once.  An arena is given back as a whole; there is no free of one block.
 *
 * Full:  tr_arena_alloc says NULL at the limit (or when malloc does) and changes nothing. */
#ifndef TR_BASE_ARENA_H
#define TR_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct tr_arena_chunk;

struct tr_arena {
    struct tr_arena_chunk *head; /* newest chunk first */
    size_t used;                 /* bytes handed out, rounding included */
    size_t limit;                /* the most that may be handed out */
    bool no_memory; /* an allocation failed below the limit: the machine's, not the caller's */
};

/* `a` is the caller's memory.  Allocates nothing yet. */
void tr_arena_init(struct tr_arena *a, size_t limit);

/* Frees everything; `a` is then as after tr_arena_init with the same limit. */
void tr_arena_fini(struct tr_arena *a);

/* `size` bytes, zeroed, aligned to 16.  size 0 gives a valid pointer.  NULL at the limit. */
void *tr_arena_alloc(struct tr_arena *a, size_t size);

#endif
