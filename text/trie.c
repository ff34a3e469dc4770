/* SPDX-License-Identifier: Apache-2.0 */
/* text/trie.c - see trie.h. */
#include "text/trie.h"

#include "text/vocab_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int by_bytes(const void *a, const void *b, void *vocab)
{
    const struct tr_vocab *v = vocab;
    int32_t ia = *(const int32_t *)a;
    int32_t ib = *(const int32_t *)b;
    size_t la;
    size_t lb;
    const char *pa = tr_vocab_bytes(v, ia, &la);
    const char *pb = tr_vocab_bytes(v, ib, &lb);
    int c = memcmp(pa, pb, la < lb ? la : lb);

    if (c != 0)
        return c;
    if (la != lb)
        return la < lb ? -1 : 1;
    return ia < ib ? -1 : ia > ib;
}

static bool wanted(const struct tr_vocab *v, uint32_t id, unsigned want, unsigned avoid)
{
    return (v->flags[id] & want) == want && !(v->flags[id] & avoid) && v->off[id + 1] != v->off[id];
}

int tr_trie_init(struct tr_trie *t, const struct tr_vocab *v, unsigned want, unsigned avoid)
{
    size_t n = 0;

    for (uint32_t id = 0; id < v->size; id++)
        n += wanted(v, id, want, avoid);
    *t = (struct tr_trie){.n = n, .ids = malloc((n ? n : 1) * sizeof(*t->ids))};
    if (!t->ids)
        return -ENOMEM;
    n = 0;
    for (uint32_t id = 0; id < v->size; id++)
        if (wanted(v, id, want, avoid))
            t->ids[n++] = (int32_t)id;
    qsort_r(t->ids, n, sizeof(*t->ids), by_bytes, (void *)v);
    for (size_t i = 0; i < n; i++)
        t->first[(uint8_t)v->blob[v->off[t->ids[i]]] + 1]++;
    for (size_t b = 0; b < 256; b++)
        t->first[b + 1] += t->first[b];
    return 0;
}

void tr_trie_fini(struct tr_trie *t)
{
    free(t->ids);
    *t = (struct tr_trie){0};
}

/* Byte number `at` of piece i, -1 beyond its end (so that it sorts first). */
static int byte_at(const struct tr_trie *t, const struct tr_vocab *v, size_t i, size_t at)
{
    size_t len;
    const char *p = tr_vocab_bytes(v, t->ids[i], &len);

    return at < len ? (uint8_t)p[at] : -1;
}

/* First i in [lo, hi) with byte_at(i, at) >= c; hi if there is none. */
static size_t lower(const struct tr_trie *t, const struct tr_vocab *v, size_t lo, size_t hi,
                    size_t at, int c)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (byte_at(t, v, mid, at) < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int32_t tr_trie_longest(const struct tr_trie *t, const struct tr_vocab *v, const char *text,
                        size_t len)
{
    int32_t best = -1;

    if (len == 0)
        return -1;
    size_t lo = t->first[(uint8_t)text[0]];
    size_t hi = t->first[(uint8_t)text[0] + 1];
    for (size_t at = 1; lo < hi; at++) {
        /* All pieces in [lo, hi) start with text[0, at). */
        if (byte_at(t, v, lo, at) < 0)
            best = t->ids[lo];
        if (at == len)
            break;
        int c = (uint8_t)text[at];
        lo = lower(t, v, lo, hi, at, c);
        hi = lower(t, v, lo, hi, at, c + 1);
    }
    return best;
}
