/* SPDX-License-Identifier: Apache-2.0 */
/* text/pairs.h - pairs of neighbours that wait to be joined: a heap with the lowest rank first, the
 * leftmost of equals.
 *
 * Shared by the two tokenisers that join (text/bpe.h, text/spm.h).  A pair that has changed since
 * stays in the heap; whoever takes it out sees by its rank that it is stale.
 *
 * One encoding owns it; inline, because each look-up of a merge ends here. */
#ifndef TR_TEXT_PAIRS_H
#define TR_TEXT_PAIRS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct tr_pair {
    uint32_t rank;
    uint32_t at; /* index of the left symbol */
};

struct tr_pairs {
    struct tr_pair *heap;
    size_t n;
    size_t cap;
    uint64_t steps; /* comparisons so far: what the time grows with */
};

/* Scratch memory for n elements of `each` bytes: `old` if it has room for them (*cap), else other memory
 * in its place, whose content is nothing's.  NULL without memory; then nothing has changed. */
static inline void *tr_pairs_room(void *old, size_t *cap, size_t n, size_t each)
{
    if (n <= *cap)
        return old;
    size_t more = n < 64 ? 64 : n;
    void *mem = malloc(more * each);
    if (!mem)
        return NULL;
    free(old);
    *cap = more;
    return mem;
}

/* Makes room for a word of so many symbols and empties the heap.  Each merge takes one pair and
 * adds at most two, so there are never more than twice as many pairs.  0 or -ENOMEM. */
static inline int tr_pairs_reserve(struct tr_pairs *p, size_t symbols)
{
    p->n = 0;
    struct tr_pair *heap = tr_pairs_room(p->heap, &p->cap, 2 * symbols, sizeof(*heap));
    if (!heap && symbols)
        return -ENOMEM;
    p->heap = heap;
    return 0;
}

static inline void tr_pairs_fini(struct tr_pairs *p)
{
    free(p->heap);
    *p = (struct tr_pairs){0};
}

static inline bool tr_pair_before(struct tr_pair a, struct tr_pair b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static inline void tr_pairs_push(struct tr_pairs *p, struct tr_pair x)
{
    size_t i = p->n++;

    for (; i > 0; i = (i - 1) / 2) {
        p->steps++;
        if (!tr_pair_before(x, p->heap[(i - 1) / 2]))
            break;
        p->heap[i] = p->heap[(i - 1) / 2];
    }
    p->heap[i] = x;
}

/* There must be one. */
static inline struct tr_pair tr_pairs_pop(struct tr_pairs *p)
{
    struct tr_pair top = p->heap[0];
    struct tr_pair last = p->heap[--p->n];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= p->n)
            break;
        p->steps++;
        if (child + 1 < p->n && tr_pair_before(p->heap[child + 1], p->heap[child]))
            child++;
        if (!tr_pair_before(p->heap[child], last))
            break;
        p->heap[i] = p->heap[child];
        i = child;
    }
    p->heap[i] = last;
    return top;
}

#endif
