/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/dfa.c - the automaton of a rule made deterministic, with calls and tokens as letters (subset
 * construction).  Every step counts as work, so what would grow without bound is refused soon. */
#include "grammar/build_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The sets of NFA states that are the new states: sorted, equal ones are one. */
struct sets {
    struct tr_gvec items; /* uint32_t, set after set */
    struct tr_gvec first; /* uint32_t by set, and the end of the last one */
    uint32_t *table;      /* set + 1, by hash */
    uint32_t mask;
};

struct make {
    struct tr_gbuild *b;
    struct sets sets;
    uint32_t *mark; /* [NFA states] the closure it was met in */
    uint32_t closure;
    struct tr_gvec found, stack; /* uint32_t */
    struct tr_gvec labelled;     /* struct tr_gnfa_edge of the set at hand */
    uint32_t base;               /* the rule's first DFA state */
};

static const uint32_t *set_at(const struct sets *s, uint32_t i, uint32_t *n)
{
    const uint32_t *first = s->first.p;

    *n = first[i + 1] - first[i];
    return (const uint32_t *)s->items.p + first[i];
}

static bool push(struct tr_gbuild *b, struct tr_gvec *v, uint32_t x)
{
    uint32_t *to = tr_gvec_room(b, v, sizeof(*to), 1);

    if (!to)
        return false;
    *to = x;
    v->n++;
    return true;
}

/* Adds what can be reached from `state` without taking anything to `found`: states with labelled edges, and
 * the last one (1), which makes a set final. */
static void closure(struct make *m, uint32_t state)
{
    const uint32_t *heads = m->b->nfa.p;
    const struct tr_gnfa_edge *edges = m->b->nfa_edges.p;

    if (m->mark[state] == m->closure)
        return;
    m->mark[state] = m->closure;
    push(m->b, &m->stack, state);
    while (m->stack.n && !m->b->failed) {
        uint32_t s = ((uint32_t *)m->stack.p)[--m->stack.n];
        bool keep = s == 1;
        for (uint32_t e = heads[s]; e && tr_gwork(m->b, 1); e = edges[e - 1].next) {
            if (edges[e - 1].kind != TR_GE_EPS) {
                keep = true;
            } else if (m->mark[edges[e - 1].to] != m->closure) {
                m->mark[edges[e - 1].to] = m->closure;
                push(m->b, &m->stack, edges[e - 1].to);
            }
        }
        if (keep)
            push(m->b, &m->found, s);
    }
}

static int by_number(const void *va, const void *vb)
{
    uint32_t a = *(const uint32_t *)va, b = *(const uint32_t *)vb;
    return a < b ? -1 : a > b;
}

static uint32_t hash_of(const uint32_t *p, uint32_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15u + n;

    for (uint32_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0xff51afd7ed558ccdu, h ^= h >> 32;
    return (uint32_t)h;
}

static void grow_table(struct make *m)
{
    struct sets *s = &m->sets;
    uint32_t n_sets = s->first.n ? s->first.n - 1 : 0, n, size = s->table ? 2 * (s->mask + 1) : 256;
    uint32_t *t = calloc(size, sizeof(*t));

    if (!t) {
        tr_gfail(m->b, -ENOMEM, "no memory");
        return;
    }
    for (uint32_t i = 0; i < n_sets; i++) {
        const uint32_t *p = set_at(s, i, &n);
        uint32_t at = hash_of(p, n) & (size - 1);
        while (t[at])
            at = (at + 1) & (size - 1);
        t[at] = i + 1;
    }
    free(s->table);
    s->table = t;
    s->mask = size - 1;
}

/* The state of the set in `found`, a new one if need be. */
static uint32_t state_of_found(struct make *m)
{
    struct sets *s = &m->sets;
    uint32_t n = m->found.n, n_old;
    uint32_t *p = m->found.p;

    if (n > 1)
        qsort(p, n, sizeof(*p), by_number);
    if (!tr_gwork(m->b, 2 * n + 1))
        return 0;
    if (!s->table || 2 * s->first.n > s->mask)
        grow_table(m);
    if (m->b->failed || !s->table)
        return 0;
    uint32_t at = hash_of(p, n) & s->mask;
    for (; s->table[at]; at = (at + 1) & s->mask) {
        const uint32_t *old = set_at(s, s->table[at] - 1, &n_old);
        if (n_old == n && (n == 0 || memcmp(old, p, n * sizeof(*p)) == 0))
            return s->table[at] - 1;
    }
    if (m->base + s->first.n > TR_GBUILD_DFA_STATES) {
        tr_gfail(m->b, -E2BIG, "the grammar needs more than %u states", TR_GBUILD_DFA_STATES);
        return 0;
    }
    uint32_t *to = tr_gvec_room(m->b, &s->items, sizeof(*to), n);
    if (!to)
        return 0;
    if (n)
        memcpy(to, p, n * sizeof(*p));
    s->items.n += n;
    push(m->b, &s->first, s->items.n);
    s->table[at] = s->first.n - 1;
    return s->first.n - 2;
}

static void begin_set(struct make *m)
{
    m->found.n = 0;
    m->closure++;
}

/* Labelled edges of set i, in order: bytes by lo, calls by rule, tokens by id. */
static int by_letter(const void *va, const void *vb)
{
    const struct tr_gnfa_edge *a = va, *b = vb;

    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->kind == TR_GE_BYTE)
        return a->lo - b->lo;
    return a->x < b->x ? -1 : a->x > b->x;
}

static bool gather(struct make *m, uint32_t i)
{
    const struct tr_gnfa_edge *edges = m->b->nfa_edges.p;
    bool final = false;
    uint32_t n;

    m->labelled.n = 0;
    set_at(&m->sets, i, &n);
    for (uint32_t k = 0; k < n && !m->b->failed; k++) {
        uint32_t s = set_at(&m->sets, i, &n)[k];
        final = final || s == 1;
        for (uint32_t e = ((uint32_t *)m->b->nfa.p)[s]; e; e = edges[e - 1].next) {
            if (edges[e - 1].kind == TR_GE_EPS || !tr_gwork(m->b, 4))
                continue;
            struct tr_gnfa_edge *to = tr_gvec_room(m->b, &m->labelled, sizeof(*to), 1);
            if (to) {
                *to = edges[e - 1];
                m->labelled.n++;
            }
        }
    }
    if (m->labelled.n > 1)
        qsort(m->labelled.p, m->labelled.n, sizeof(struct tr_gnfa_edge), by_letter);
    return final;
}

static void emit_edge(struct make *m, struct tr_gdfa_edge e)
{
    struct tr_gbuild *b = m->b;
    struct tr_gdfa_state *s = (struct tr_gdfa_state *)b->dfa.p + b->dfa.n - 1;

    if (b->failed)
        return;
    if (s->n && e.kind == TR_GE_BYTE) {
        struct tr_gdfa_edge *last = (struct tr_gdfa_edge *)b->dfa_edges.p + b->dfa_edges.n - 1;
        if (last->to == e.to && last->hi + 1 == e.lo) {
            last->hi = e.hi;
            return;
        }
    }
    struct tr_gdfa_edge *to = tr_gvec_room(b, &b->dfa_edges, sizeof(*to), 1);
    if (!to)
        return;
    *to = e;
    b->dfa_edges.n++;
    s->n++;
}

/* Cuts the byte ranges where one begins or ends; each piece leads to the set of all that cover it. */
static void byte_edges(struct make *m, uint32_t n)
{
    const struct tr_gnfa_edge *e = m->labelled.p;
    bool cut[257] = {false};

    for (uint32_t i = 0; i < n; i++)
        cut[e[i].lo] = cut[e[i].hi + 1] = true;
    for (uint32_t lo = 0, hi; lo < 256 && !m->b->failed; lo = hi) {
        for (hi = lo + 1; hi < 256 && !cut[hi];)
            hi++;
        begin_set(m);
        bool any = false;
        for (uint32_t i = 0; i < n && e[i].lo <= lo && tr_gwork(m->b, 1); i++)
            if (e[i].hi >= lo) {
                closure(m, e[i].to);
                any = true;
            }
        if (any)
            emit_edge(m, (struct tr_gdfa_edge){.kind = TR_GE_BYTE,
                                               .lo = (uint8_t)lo,
                                               .hi = (uint8_t)(hi - 1),
                                               .to = m->base + state_of_found(m)});
    }
}

/* Calls and tokens: equal letters lead to one set. */
static void other_edges(struct make *m, uint32_t from)
{
    const struct tr_gnfa_edge *e = m->labelled.p;

    for (uint32_t i = from, end; i < m->labelled.n && !m->b->failed; i = end) {
        begin_set(m);
        for (end = i; end < m->labelled.n && e[end].kind == e[i].kind && e[end].x == e[i].x; end++)
            closure(m, e[end].to);
        emit_edge(m, (struct tr_gdfa_edge){
                         .kind = e[i].kind, .x = e[i].x, .to = m->base + state_of_found(m)});
    }
}

static struct tr_gdfa_state *new_state(struct tr_gbuild *b, bool final)
{
    struct tr_gdfa_state *s = tr_gvec_room(b, &b->dfa, sizeof(*s), 1);

    if (!s)
        return NULL;
    *s = (struct tr_gdfa_state){.first = b->dfa_edges.n, .final = final};
    b->dfa.n++;
    return s;
}

/* The rule's state 0 is its start and never final, so that no rule has the empty text: if the start set is
 * final, state 0 is a copy of it that is not, and the sets are numbered from 1. */
static void make_states(struct make *m, bool *empty)
{
    struct tr_gbuild *b = m->b;

    push(b, &m->sets.first, 0);
    begin_set(m);
    closure(m, 0);
    state_of_found(m);
    if (b->failed)
        return;
    *empty = gather(m, 0);
    if (*empty)
        m->base++;
    for (int copy = *empty; copy >= 0; copy--)
        for (uint32_t i = 0; i + 1 < (copy ? 2 : m->sets.first.n) && !b->failed; i++) {
            bool final = gather(m, i);
            if (!new_state(b, final && !copy))
                return;
            uint32_t n_bytes = 0;
            const struct tr_gnfa_edge *e = m->labelled.p;
            while (n_bytes < m->labelled.n && e[n_bytes].kind == TR_GE_BYTE)
                n_bytes++;
            byte_edges(m, n_bytes);
            other_edges(m, n_bytes);
        }
}

int tr_gdfa_make(struct tr_gbuild *b, bool *empty)
{
    struct make m = {.b = b, .base = b->dfa.n};

    push(b, &b->dfa_rule, b->dfa.n);
    m.mark = calloc(b->nfa.n, sizeof(*m.mark));
    if (!m.mark)
        tr_gfail(b, -ENOMEM, "no memory");
    else if (!b->failed)
        make_states(&m, empty);
    size_t given = ((size_t)m.sets.items.max + m.sets.first.max + m.found.max + m.stack.max) *
                       sizeof(uint32_t) +
                   (size_t)m.labelled.max * sizeof(struct tr_gnfa_edge);
    b->bytes_used -= given;
    free(m.sets.items.p);
    free(m.sets.first.p);
    free(m.sets.table);
    free(m.found.p);
    free(m.stack.p);
    free(m.labelled.p);
    free(m.mark);
    return b->failed;
}
