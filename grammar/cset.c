/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/cset.h"

#include <stdlib.h>
#include <string.h>

enum { SURROGATE_LO = 0xd800, SURROGATE_HI = 0xdfff };

static int by_lo(const void *a, const void *b)
{
    const struct tr_grange *x = a;
    const struct tr_grange *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

/* Adds lo..hi, which begins at or after everything in out[0, n), without the surrogates. */
static size_t add(struct tr_grange *out, size_t n, uint32_t lo, uint32_t hi)
{
    if (hi > TR_CHAR_MAX)
        hi = TR_CHAR_MAX;
    if (lo > hi)
        return n;
    if (lo <= SURROGATE_HI && hi >= SURROGATE_LO) {
        if (lo < SURROGATE_LO)
            n = add(out, n, lo, SURROGATE_LO - 1);
        if (hi > SURROGATE_HI)
            n = add(out, n, SURROGATE_HI + 1, hi);
        return n;
    }
    if (n && lo <= out[n - 1].hi + 1) {
        if (hi > out[n - 1].hi)
            out[n - 1].hi = hi;
        return n;
    }
    out[n] = (struct tr_grange){lo, hi};
    return n + 1;
}

const struct tr_cset *tr_cset_make(struct tr_arena *a, const struct tr_grange *r, size_t n,
                                   bool negate)
{
    struct tr_cset *s = tr_arena_alloc(a, sizeof *s);
    struct tr_grange *sorted = tr_arena_alloc(a, n * sizeof *sorted);
    /* The surrogates cut at most one range in two; a complement has one more range. */
    struct tr_grange *out = tr_arena_alloc(a, (n + 3) * sizeof *out);
    if (!s || !sorted || !out)
        return NULL;
    if (n) {
        memcpy(sorted, r, n * sizeof *r);
        qsort(sorted, n, sizeof *sorted, by_lo);
    }
    size_t m = 0;
    uint32_t from = 0; /* negate: the first character not yet decided */
    for (size_t i = 0; i < n; i++) {
        if (sorted[i].lo > sorted[i].hi)
            continue;
        if (!negate) {
            m = add(out, m, sorted[i].lo, sorted[i].hi);
            continue;
        }
        if (sorted[i].lo > from)
            m = add(out, m, from, sorted[i].lo - 1);
        if (sorted[i].hi >= TR_CHAR_MAX)
            from = TR_CHAR_MAX + 1;
        else if (sorted[i].hi + 1 > from)
            from = sorted[i].hi + 1;
    }
    if (negate && from <= TR_CHAR_MAX)
        m = add(out, m, from, TR_CHAR_MAX);
    s->r = out;
    s->n = (uint32_t)m;
    return s;
}

bool tr_cset_has(const struct tr_cset *s, uint32_t c)
{
    uint32_t lo = 0;
    uint32_t hi = s->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (s->r[mid].hi < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < s->n && s->r[lo].lo <= c;
}

bool tr_cset_equal(const struct tr_cset *s, const struct tr_cset *t)
{
    return s->n == t->n && memcmp(s->r, t->r, s->n * sizeof *s->r) == 0;
}
