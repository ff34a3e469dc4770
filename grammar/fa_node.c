/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/fa_node.c - an automaton as a node of the builder; see fa.h.  Edges between the same two states
 * are one set of characters, and each set becomes a node once. */
#include "grammar/fa.h"

#include <stdlib.h>
#include <string.h>

enum { SETS = 256 }; /* sets remembered, by hash; a newer one takes the place of an older */

struct known {
    const struct tr_cset *set;
    tr_gnode node;
};

struct drawing {
    struct tr_gbudget *w;
    struct tr_gbuild *b;
    tr_gnode (*chars)(struct tr_gbuild *b, const struct tr_cset *set);
    struct known *known; /* [SETS] */
    struct tr_grange *r; /* ranges of the edge at hand */
    struct tr_garrow *e;
    uint32_t n;
};

tr_gnode tr_fa_plain(struct tr_gbuild *b, const struct tr_cset *set)
{
    return tr_g_class(b, set->r, set->n, false);
}

static tr_gnode node_of(struct drawing *d, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++)
        h = (((h ^ d->r[i].lo) * 16777619u) ^ d->r[i].hi) * 16777619u;
    struct known *k = &d->known[(h ^ h >> 16) % SETS];
    const struct tr_cset now = {d->r, (uint32_t)n};
    if (k->set && tr_cset_equal(k->set, &now))
        return k->node;
    k->set = tr_cset_make(&d->w->arena, d->r, n, false);
    if (!k->set)
        return TR_G_NONE;
    k->node = d->chars(d->b, k->set);
    return k->node;
}

static int by_target(const void *a, const void *b)
{
    const struct tr_fa_edge *x = a;
    const struct tr_fa_edge *y = b;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

static void draw_state(struct drawing *d, uint32_t s, struct tr_fa_edge *e, uint32_t n)
{
    qsort(e, n, sizeof *e, by_target);
    for (uint32_t i = 0; i < n;) {
        uint32_t k = 0;
        uint32_t to = e[i].to;
        for (; i < n && e[i].to == to; i++)
            d->r[k++] = (struct tr_grange){e[i].lo, e[i].hi};
        d->e[d->n++] = (struct tr_garrow){s, to, node_of(d, k)};
    }
}

tr_gnode tr_fa_node(struct tr_gbudget *w, struct tr_gbuild *b, const struct tr_fa *a,
                    tr_gnode (*chars)(struct tr_gbuild *b, const struct tr_cset *set))
{
    if (!a)
        return TR_G_NONE;
    if (!a->n)
        return tr_g_never(b);
    uint32_t n_edges = a->first[a->n];
    struct drawing d = {.w = w, .b = b, .chars = chars};
    struct tr_fa_edge *e = tr_gbudget_alloc(w, n_edges * sizeof *e);
    d.known = tr_gbudget_alloc(w, SETS * sizeof *d.known);
    d.r = tr_gbudget_alloc(w, n_edges * sizeof *d.r);
    d.e = tr_gbudget_alloc(w, n_edges * sizeof *d.e);
    if (!e || !d.known || !d.r || !d.e || !tr_gbudget_step(w, n_edges))
        return TR_G_NONE;
    memcpy(e, a->e, n_edges * sizeof *e);
    for (uint32_t s = 0; s < a->n; s++)
        draw_state(&d, s, e + a->first[s], a->first[s + 1] - a->first[s]);
    return tr_g_fsm(b, a->n, d.e, d.n, a->final);
}
