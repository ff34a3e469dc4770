/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/regex_nfa.c - see regex_nfa.h.  Drawn from the end to the beginning: what a tree draws knows
 * where it leads. */
#include "grammar/regex_nfa.h"

#include <string.h>

struct pen {
    struct tr_gbudget *w;
    struct tr_rn *a;
    uint32_t *table; /* set + 1 by hash, [SET_TABLE] */
    bool failed;
};

enum { SET_TABLE = 2 * TR_RE_SETS };

static uint32_t part(struct pen *p, struct tr_rn_part v)
{
    struct tr_rn *a = p->a;
    if (p->failed || !tr_gbudget_step(p->w, 1) || a->n >= TR_RE_PARTS) {
        p->failed = true;
        return 0;
    }
    if (a->n == a->cap) {
        uint32_t cap = a->cap ? a->cap * 2 : 64;
        struct tr_rn_part *parts = tr_gbudget_alloc(p->w, cap * sizeof *parts);
        if (!parts) {
            p->failed = true;
            return 0;
        }
        if (a->n)
            memcpy(parts, a->part, a->n * sizeof *parts);
        a->part = parts;
        a->cap = cap;
    }
    a->part[a->n] = v;
    return a->n++;
}

static uint32_t set_number(struct pen *p, const struct tr_cset *s)
{
    uint32_t h = 2166136261u;
    for (uint32_t i = 0; i < s->n; i++)
        h = (((h ^ s->r[i].lo) * 16777619u) ^ s->r[i].hi) * 16777619u;
    uint32_t at = (h ^ h >> 15) % SET_TABLE;
    for (; p->table[at]; at = (at + 1) % SET_TABLE)
        if (tr_cset_equal(p->a->set[p->table[at] - 1], s))
            return p->table[at] - 1;
    if (p->a->n_sets == TR_RE_SETS) {
        p->failed = true;
        return 0;
    }
    p->a->set[p->a->n_sets++] = s;
    p->table[at] = p->a->n_sets;
    return p->a->n_sets - 1;
}

static uint32_t draw(struct pen *p, const struct tr_re *t, uint32_t to);

static uint32_t draw_alt(struct pen *p, const struct tr_re *t, uint32_t to)
{
    uint32_t at = draw(p, t->child, to);
    for (const struct tr_re *c = t->child->next; c && !p->failed; c = c->next) {
        uint32_t other = draw(p, c, to);
        at = part(p, (struct tr_rn_part){TR_RN_FORK, 0, at, other});
    }
    return at;
}

static uint32_t draw_seq(struct pen *p, const struct tr_re *t, uint32_t to)
{
    /* Backwards; the list goes forwards. */
    uint32_t n = 0;
    for (const struct tr_re *c = t->child; c; c = c->next)
        n++;
    const struct tr_re **v = tr_gbudget_alloc(p->w, n * sizeof(const struct tr_re *));
    if (!v) {
        p->failed = true;
        return 0;
    }
    n = 0;
    for (const struct tr_re *c = t->child; c; c = c->next)
        v[n++] = c;
    while (n && !p->failed)
        to = draw(p, v[--n], to);
    return to;
}

static uint32_t draw_repeat(struct pen *p, const struct tr_re *t, uint32_t to)
{
    uint32_t at = to;
    if (t->max == UINT32_MAX) {
        at = part(p, (struct tr_rn_part){TR_RN_FORK, 0, TR_RN_NONE, to});
        uint32_t body = draw(p, t->child, at);
        if (p->failed)
            return 0;
        p->a->part[at].to = body;
    }
    for (uint32_t i = t->min; t->max != UINT32_MAX && i < t->max && !p->failed; i++) {
        uint32_t body = draw(p, t->child, at);
        at = part(p, (struct tr_rn_part){TR_RN_FORK, 0, body, to});
    }
    for (uint32_t i = 0; i < t->min && !p->failed; i++)
        at = draw(p, t->child, at);
    return at;
}

/* The part where t begins, which goes on to `to`. */
static uint32_t draw(struct pen *p, const struct tr_re *t, uint32_t to)
{
    if (p->failed || !tr_gbudget_step(p->w, 1)) {
        p->failed = true;
        return 0;
    }
    switch (t->kind) {
    case TR_RE_SET:
        return part(p, (struct tr_rn_part){TR_RN_CHAR, set_number(p, t->set), to, TR_RN_NONE});
    case TR_RE_SEQ:
        return draw_seq(p, t, to);
    case TR_RE_ALT:
        return draw_alt(p, t, to);
    case TR_RE_REPEAT:
        return draw_repeat(p, t, to);
    case TR_RE_BEGIN:
        return part(p, (struct tr_rn_part){TR_RN_BEGIN, 0, to, TR_RN_NONE});
    case TR_RE_END:
        return part(p, (struct tr_rn_part){TR_RN_END, 0, to, TR_RN_NONE});
    }
    return to;
}

/* Any text may stand before the pattern. */
static uint32_t draw_lead(struct pen *p, uint32_t to)
{
    const struct tr_cset *any = tr_cset_make(&p->w->arena, NULL, 0, true);
    if (!any) {
        p->failed = true;
        return 0;
    }
    uint32_t fork = part(p, (struct tr_rn_part){TR_RN_FORK, 0, TR_RN_NONE, to});
    uint32_t body = part(p, (struct tr_rn_part){TR_RN_CHAR, set_number(p, any), fork, TR_RN_NONE});
    if (!p->failed)
        p->a->part[fork].to = body;
    return fork;
}

bool tr_rn_draw(struct tr_gbudget *w, const struct tr_re *t, enum tr_re_place place,
                struct tr_rn *out)
{
    *out = (struct tr_rn){.n = 0};
    struct pen p = {.w = w, .a = out};
    out->set = tr_gbudget_alloc(w, TR_RE_SETS * sizeof(const struct tr_cset *));
    p.table = tr_gbudget_alloc(w, SET_TABLE * sizeof *p.table);
    p.failed = !out->set || !p.table;
    bool search = place == TR_RE_SEARCH;
    uint32_t end =
        part(&p, (struct tr_rn_part){search ? TR_RN_REST : TR_RN_MATCH, 0, TR_RN_NONE, TR_RN_NONE});
    out->start = draw(&p, t, end);
    if (search)
        out->start = draw_lead(&p, out->start);
    return !p.failed;
}
