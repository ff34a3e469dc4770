/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/gbnf.c - see gbnf.h.  What is refused is found on the trees, where the lines are known, before
 * anything is built. */
#include "grammar/gbnf.h"
#include "grammar/gbnf_tree.h"

#include <errno.h>
#include <string.h>

struct maker {
    struct tr_gb_rules g;
    struct tr_gbuild *b;
    bool *empty;     /* [rules]: the rule has the empty text */
    uint8_t *colour; /* [rules]: not seen, on the way, done */
    tr_gnode *node;  /* [rules] */
};

static bool has_empty(const struct maker *m, const struct tr_gb *t)
{
    switch (t->kind) {
    case TR_GB_TEXT:
        return !t->len;
    case TR_GB_SET:
        return false;
    case TR_GB_REF:
        return m->empty[t->rule];
    case TR_GB_REPEAT:
        return !t->min || has_empty(m, t->child);
    case TR_GB_SEQ:
    case TR_GB_ALT:
        break;
    }
    bool all = t->kind == TR_GB_SEQ;
    if (!tr_gbudget_step(m->g.w, 1))
        return false;
    for (const struct tr_gb *c = t->child; c; c = c->next)
        if (tr_gbudget_step(m->g.w, 1) && has_empty(m, c) != all)
            return !all;
    return all;
}

/* Which rules have the empty text: until nothing new is found. */
static bool find_empty(struct maker *m)
{
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < m->g.n; i++) {
            if (m->empty[i] || !has_empty(m, m->g.rule[i].body))
                continue;
            m->empty[i] = true;
            more = true;
        }
        if (!tr_gbudget_step(m->g.w, m->g.n))
            return false;
    }
    return true;
}

/* ---- rules that begin with themselves ---- */

struct way {
    uint32_t rule;
    const uint32_t *first; /* rules it can begin with; what is left of them */
    uint32_t n;
};

struct list {
    uint32_t *v;
    uint32_t n, cap;
};

static bool push(struct maker *m, struct list *l, uint32_t rule)
{
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 8;
        uint32_t *v = tr_gbudget_alloc(m->g.w, cap * sizeof *v);
        if (!v)
            return false;
        if (l->n)
            memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = rule;
    return true;
}

static bool begins(struct maker *m, const struct tr_gb *t, struct list *l)
{
    if (!tr_gbudget_step(m->g.w, 1))
        return false;
    if (t->kind == TR_GB_REF)
        return push(m, l, t->rule);
    for (const struct tr_gb *c = t->child; c; c = c->next) {
        if (!begins(m, c, l))
            return false;
        if (t->kind == TR_GB_SEQ && !has_empty(m, c))
            break;
    }
    return true;
}

static bool enter(struct maker *m, struct way *w, uint32_t rule)
{
    struct list l = {.n = 0};
    if (!begins(m, m->g.rule[rule].body, &l))
        return false;
    m->colour[rule] = 1;
    *w = (struct way){rule, l.v, l.n};
    return true;
}

/* 0, or the fault. */
static int find_loops(struct maker *m, struct tr_errbuf *err)
{
    struct way *stack = tr_gbudget_alloc(m->g.w, m->g.n * sizeof *stack);
    for (uint32_t i = 0; stack && i < m->g.n; i++) {
        uint32_t n = 0;
        if (m->colour[i])
            continue;
        if (!enter(m, &stack[n++], i))
            return tr_errf(err, tr_gbudget_why(m->g.w), "the grammar is too large");
        while (n) {
            struct way *w = &stack[n - 1];
            if (!w->n) {
                m->colour[w->rule] = 2;
                n--;
                continue;
            }
            uint32_t next = w->first[--w->n];
            const struct tr_gb_rule *r = &m->g.rule[next];
            if (m->colour[next] == 1)
                return tr_errf(err, -EINVAL,
                               "line %u of the grammar: the rule %.*s begins with itself (left "
                               "recursion); put something before it, or use * or +",
                               r->line, (int)(r->len < 64 ? r->len : 64), r->name);
            if (!m->colour[next] && !enter(m, &stack[n++], next))
                return tr_errf(err, tr_gbudget_why(m->g.w), "the grammar is too large");
        }
    }
    return stack ? 0 : tr_errf(err, tr_gbudget_why(m->g.w), "the grammar is too large");
}

/* ---- nodes ---- */

static tr_gnode build(struct maker *m, const struct tr_gb *t)
{
    uint32_t n = 0;
    switch (t->kind) {
    case TR_GB_TEXT:
        return tr_g_bytes(m->b, t->text, t->len);
    case TR_GB_SET:
        return tr_g_class(m->b, t->set->r, t->set->n, false);
    case TR_GB_REF:
        return m->node[t->rule];
    case TR_GB_REPEAT:
        return tr_g_repeat(m->b, build(m, t->child), t->min,
                           t->max == UINT32_MAX ? TR_G_INF : t->max);
    case TR_GB_SEQ:
    case TR_GB_ALT:
        break;
    }
    for (const struct tr_gb *c = t->child; c; c = c->next)
        n++;
    tr_gnode *v = tr_gbudget_alloc(m->g.w, n * sizeof *v);
    if (!v)
        return TR_G_NONE;
    n = 0;
    for (const struct tr_gb *c = t->child; c; c = c->next)
        v[n++] = build(m, c);
    return t->kind == TR_GB_SEQ ? tr_g_seq(m->b, v, n) : tr_g_alt(m->b, v, n);
}

static int check(struct maker *m, uint32_t *root, struct tr_errbuf *err)
{
    *root = UINT32_MAX;
    for (uint32_t i = 0; i < m->g.n; i++) {
        const struct tr_gb_rule *r = &m->g.rule[i];
        if (!r->body)
            return tr_errf(err, -EINVAL, "line %u of the grammar: the rule %.*s is not defined",
                           r->line, (int)(r->len < 64 ? r->len : 64), r->name);
        if (r->len == 4 && memcmp(r->name, "root", 4) == 0)
            *root = i;
    }
    if (*root == UINT32_MAX)
        return tr_errf(err, -EINVAL, "the grammar has no rule root");
    m->empty = tr_gbudget_alloc(m->g.w, m->g.n * sizeof *m->empty);
    m->colour = tr_gbudget_alloc(m->g.w, m->g.n);
    m->node = tr_gbudget_alloc(m->g.w, m->g.n * sizeof *m->node);
    if (!m->empty || !m->colour || !m->node || !find_empty(m))
        return tr_errf(err, tr_gbudget_why(m->g.w), "the grammar is too large");
    return find_loops(m, err);
}

static int make(struct maker *m, uint32_t root, tr_gnode *out, struct tr_errbuf *err)
{
    for (uint32_t i = 0; i < m->g.n; i++)
        m->node[i] = tr_g_rule(m->b);
    for (uint32_t i = 0; i < m->g.n; i++)
        tr_g_define(m->b, m->node[i], build(m, m->g.rule[i].body));
    int failed = tr_gbuild_failed(m->b);
    if (failed || m->g.w->too_large || m->g.w->arena.no_memory)
        return tr_errf(err, failed ? failed : tr_gbudget_why(m->g.w), "the grammar is too large");
    *out = m->node[root];
    return 0;
}

int tr_gbnf(struct tr_gbuild *b, const char *text, size_t len, tr_gnode *out, struct tr_errbuf *err)
{
    struct tr_gbudget w;
    struct maker m = {.g = {.w = &w}, .b = b};
    uint32_t root;
    tr_gbudget_init(&w);
    int ret = tr_gb_parse(&m.g, text, len, err);
    if (!ret)
        ret = check(&m, &root, err);
    if (!ret)
        ret = make(&m, root, out, err);
    tr_gbudget_fini(&w);
    return ret;
}
