/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/fa_ops.c - automata from automata, from lengths and from words; see fa.h. */
#include "base/utf8.h"
#include "grammar/fa.h"
#include "grammar/utf8_char.h"

#include <stdlib.h>
#include <string.h>

/* No state: the text is not one of b's, and none that begins with it. */
#define NOWHERE UINT32_MAX

struct pair {
    uint32_t a, b;
};

/* Edges of state x of a, met with those of y of b: for each stretch of characters that a takes, where
 * b is then. */
static void pair_edges(struct tr_fa_maker *m, uint32_t from, const struct tr_fa *a,
                       const struct tr_fa *b, struct pair p, bool both)
{
    uint32_t j = p.b == NOWHERE ? 0 : b->first[p.b];
    uint32_t j_end = p.b == NOWHERE ? 0 : b->first[p.b + 1];
    for (uint32_t i = a->first[p.a]; i < a->first[p.a + 1]; i++) {
        uint32_t lo = a->e[i].lo;
        while (lo <= a->e[i].hi) {
            while (j < j_end && b->e[j].hi < lo)
                j++;
            struct pair to = {a->e[i].to, NOWHERE};
            uint32_t hi = a->e[i].hi;
            if (j < j_end && b->e[j].lo <= lo) {
                to.b = b->e[j].to;
                hi = hi < b->e[j].hi ? hi : b->e[j].hi;
            } else if (j < j_end && b->e[j].lo <= hi) {
                hi = b->e[j].lo - 1;
            }
            if (to.b != NOWHERE || !both)
                tr_fa_edge(m, from, lo, hi, tr_fa_state(m, &to, sizeof to));
            lo = hi + 1;
        }
    }
}

/* Texts of a that are of b, too (both), or are not. */
static const struct tr_fa *product(struct tr_gbudget *w, const struct tr_fa *a,
                                   const struct tr_fa *b, bool both)
{
    if (!a || !b)
        return NULL;
    if (!a->n || (!b->n && !both))
        return a;
    if (!b->n)
        return b;
    struct tr_fa_maker *m = tr_fa_new(w);
    if (!m)
        return NULL;
    struct pair p = {0, 0};
    (void)tr_fa_state(m, &p, sizeof p);
    for (uint32_t s = 0; s < tr_fa_count(m); s++) {
        size_t len;
        memcpy(&p, tr_fa_key(m, s, &len), sizeof p);
        if (a->final[p.a] && both == (p.b != NOWHERE && b->final[p.b]))
            tr_fa_final(m, s);
        pair_edges(m, s, a, b, p, both);
    }
    return tr_fa_finish(m);
}

const struct tr_fa *tr_fa_and(struct tr_gbudget *w, const struct tr_fa *a, const struct tr_fa *b)
{
    return product(w, a, b, true);
}

const struct tr_fa *tr_fa_minus(struct tr_gbudget *w, const struct tr_fa *a, const struct tr_fa *b)
{
    return product(w, a, b, false);
}

static void any_char(struct tr_fa_maker *m, uint32_t from, uint32_t to)
{
    tr_fa_edge(m, from, 0, 0xd7ff, to);
    tr_fa_edge(m, from, 0xe000, TR_CHAR_MAX, to);
}

const struct tr_fa *tr_fa_length(struct tr_gbudget *w, uint32_t min, uint32_t max)
{
    struct tr_fa_maker *m = tr_fa_new(w);
    if (!m)
        return NULL;
    /* Without an upper bound the state `min` leads to itself. */
    uint32_t last = max == UINT32_MAX ? min : max;
    uint32_t n = 0;
    (void)tr_fa_state(m, &n, sizeof n);
    for (uint32_t s = 0; s < tr_fa_count(m); s++) {
        if (s >= min)
            tr_fa_final(m, s);
        if (s == last && max != UINT32_MAX)
            break;
        uint32_t next = s < last ? s + 1 : last;
        any_char(m, s, tr_fa_state(m, &next, sizeof next));
    }
    return tr_fa_finish(m);
}

/* ---- words: a tree over their characters ---- */

static int by_bytes(const void *a, const void *b)
{
    const struct tr_fa_word *x = a;
    const struct tr_fa_word *y = b;
    size_t n = x->len < y->len ? x->len : y->len;
    int d = n ? memcmp(x->s, y->s, n) : 0;
    return d ? d : (x->len > y->len) - (x->len < y->len);
}

/* A state of the tree is the words [lo, hi) that share their first `at` bytes. */
struct node {
    uint32_t lo, hi, at;
};

static void word_edges(struct tr_fa_maker *m, uint32_t from, const struct tr_fa_word *v,
                       struct node t)
{
    uint32_t i = t.lo;
    for (; i < t.hi && v[i].len == t.at; i++)
        tr_fa_final(m, from);
    while (i < t.hi) {
        uint32_t c = 0;
        size_t n = tr_utf8_char(v[i].s + t.at, v[i].len - t.at, &c);
        if (!n) { /* no UTF-8: such a word is not in the set */
            i++;
            continue;
        }
        uint32_t j = i + 1;
        while (j < t.hi && v[j].len >= t.at + n && memcmp(v[j].s + t.at, v[i].s + t.at, n) == 0)
            j++;
        struct node next = {i, j, t.at + (uint32_t)n};
        tr_fa_edge(m, from, c, c, tr_fa_state(m, &next, sizeof next));
        i = j;
    }
}

const struct tr_fa *tr_fa_words(struct tr_gbudget *w, const struct tr_fa_word *words, size_t n)
{
    struct tr_fa_maker *m = tr_fa_new(w);
    struct tr_fa_word *v = tr_gbudget_alloc(w, n * sizeof *v);
    if (!m || !v || n > UINT32_MAX)
        return NULL;
    if (n) {
        memcpy(v, words, n * sizeof *v);
        qsort(v, n, sizeof *v, by_bytes); /* the order of bytes is that of characters */
    }
    struct node t = {0, (uint32_t)n, 0};
    (void)tr_fa_state(m, &t, sizeof t);
    for (uint32_t s = 0; s < tr_fa_count(m); s++) {
        size_t len;
        memcpy(&t, tr_fa_key(m, s, &len), sizeof t);
        word_edges(m, s, v, t);
    }
    return tr_fa_finish(m);
}

bool tr_fa_takes(const struct tr_fa *a, const char *s, size_t len)
{
    uint32_t at = 0;
    if (!a->n)
        return false;
    while (len) {
        uint32_t c;
        size_t n = tr_utf8_char(s, len, &c);
        if (!n)
            return false;
        uint32_t i = a->first[at];
        uint32_t end = a->first[at + 1];
        while (i < end && a->e[i].hi < c)
            i++;
        if (i == end || a->e[i].lo > c)
            return false;
        at = a->e[i].to;
        s += n;
        len -= n;
    }
    return a->final[at];
}
