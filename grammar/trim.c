/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/trim.c - automata without what is of no use: ways from which nothing can end, what the start does
 * not reach, states that are alike. */
#include "grammar/build_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct trim {
    struct tr_gbuild *b;
    struct tr_gdfa_state *s;
    struct tr_gdfa_edge *e;
    const uint32_t *rule; /* first state of each, and the end */
    uint32_t n_s, n_e, n_rules, n_todo;
    uint32_t *from;              /* [n_e] the state an edge leaves */
    uint32_t *into, *next_into;  /* [n_s], [n_e] edges into a state */
    uint32_t *calls, *next_call; /* [n_rules], [n_e] calls of a rule */
    uint32_t *todo;              /* [n_s] */
    uint32_t *rule_of;           /* [n_s] */
};

static void link_edges(struct trim *t)
{
    memset(t->into, 0xff, t->n_s * sizeof(*t->into));
    memset(t->calls, 0xff, t->n_rules * sizeof(*t->calls));
    for (uint32_t r = 0; r < t->n_rules; r++)
        for (uint32_t i = t->rule[r]; i < t->rule[r + 1]; i++)
            t->rule_of[i] = r;
    for (uint32_t i = 0; i < t->n_s; i++)
        for (uint32_t k = t->s[i].first; k < t->s[i].first + t->s[i].n; k++) {
            t->from[k] = i;
            t->next_into[k] = t->into[t->e[k].to];
            t->into[t->e[k].to] = k;
            if (t->e[k].kind == TR_GE_CALL) {
                t->next_call[k] = t->calls[t->e[k].x];
                t->calls[t->e[k].x] = k;
            }
        }
}

static void live(struct trim *t, uint32_t state)
{
    if (!t->s[state].alive) {
        t->s[state].alive = true;
        t->todo[t->n_todo++] = state;
    }
}

/* Alive is what can come to an end: backwards from final states.  A call counts once its rule's start is
 * alive. */
static void find_alive(struct trim *t)
{
    for (uint32_t i = 0; i < t->n_s; i++)
        if (t->s[i].final)
            live(t, i);
    while (t->n_todo) {
        uint32_t i = t->todo[--t->n_todo];
        uint32_t r = t->rule_of[i];
        for (uint32_t k = t->into[i]; k != NONE; k = t->next_into[k])
            if (t->e[k].kind != TR_GE_CALL || t->s[t->rule[t->e[k].x]].alive)
                live(t, t->from[k]);
        if (t->rule[r] == i)
            for (uint32_t k = t->calls[r]; k != NONE; k = t->next_call[k])
                if (t->s[t->e[k].to].alive)
                    live(t, t->from[k]);
    }
    for (uint32_t k = 0; k < t->n_e; k++)
        t->e[k].used = t->s[t->e[k].to].alive &&
                       (t->e[k].kind != TR_GE_CALL || t->s[t->rule[t->e[k].x]].alive);
}

/* ---- states that are alike: the same edges to the same states ---- */

static bool alike_edges(const struct trim *t, uint32_t ka, uint32_t kb)
{
    const struct tr_gdfa_edge *a = &t->e[ka], *b = &t->e[kb];
    return a->kind == b->kind && a->lo == b->lo && a->hi == b->hi && a->x == b->x &&
           t->s[a->to].same == t->s[b->to].same;
}

static uint32_t skip_unused(const struct trim *t, uint32_t k, uint32_t end)
{
    while (k < end && !t->e[k].used)
        k++;
    return k;
}

static bool alike(const struct trim *t, uint32_t a, uint32_t b)
{
    uint32_t ka = t->s[a].first, kb = t->s[b].first;
    uint32_t end_a = ka + t->s[a].n, end_b = kb + t->s[b].n;

    if (t->s[a].final != t->s[b].final)
        return false;
    for (;; ka++, kb++) {
        ka = skip_unused(t, ka, end_a);
        kb = skip_unused(t, kb, end_b);
        if (ka == end_a || kb == end_b)
            return ka == end_a && kb == end_b;
        if (!alike_edges(t, ka, kb))
            return false;
    }
}

static uint32_t hash_of(const struct trim *t, uint32_t i)
{
    uint64_t h = t->s[i].final;

    for (uint32_t k = t->s[i].first; k < t->s[i].first + t->s[i].n; k++) {
        if (!t->e[k].used)
            continue;
        h = (h ^ (t->e[k].x + ((uint64_t)t->e[k].kind << 56 | (uint64_t)t->e[k].lo << 48 |
                               (uint64_t)t->e[k].hi << 40))) *
            0xff51afd7ed558ccdu;
        h = (h ^ (h >> 29) ^ t->s[t->e[k].to].same) * 0xc4ceb9fe1a85ec53u;
    }
    return (uint32_t)(h >> 32);
}

/* One pass over a rule, from its end.  The start stays itself. */
static bool join_once(struct trim *t, uint32_t first, uint32_t end, uint32_t *table, uint32_t mask)
{
    bool any = false;

    memset(table, 0xff, ((size_t)mask + 1) * sizeof(*table));
    for (uint32_t i = end; i-- > first + 1 && tr_gwork(t->b, 1 + t->s[i].n);) {
        if (!t->s[i].alive || t->s[i].same != i)
            continue;
        uint32_t at = hash_of(t, i) & mask;
        while (table[at] != NONE && !alike(t, table[at], i))
            at = (at + 1) & mask;
        if (table[at] == NONE) {
            table[at] = i;
        } else {
            t->s[i].same = table[at];
            any = true;
        }
    }
    return any;
}

/* A state's `same` may itself have been joined later: the end of the way counts. */
static void settle_same(struct trim *t, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        uint32_t s = t->s[i].same;
        while (t->s[s].same != s)
            s = t->s[s].same;
        t->s[i].same = s;
    }
}

static void join(struct trim *t, uint32_t first, uint32_t end)
{
    uint32_t size = 16;

    while (size < 2 * (end - first))
        size *= 2;
    uint32_t *table = malloc(size * sizeof(*table));
    if (!table) {
        tr_gfail(t->b, -ENOMEM, "no memory");
        return;
    }
    /* Each pass is right by itself; more find more. */
    for (int pass = 0; pass < 16 && join_once(t, first, end, table, size - 1); pass++)
        settle_same(t, first, end);
    free(table);
}

static void reach(struct trim *t, uint32_t state)
{
    state = t->s[state].same;
    if (!t->s[state].reached) {
        t->s[state].reached = true;
        t->todo[t->n_todo++] = state;
    }
}

static void find_reached(struct trim *t)
{
    reach(t, t->rule[t->n_rules - 1]);
    while (t->n_todo) {
        uint32_t i = t->todo[--t->n_todo];
        struct tr_gdfa_edge *last = NULL;
        for (uint32_t k = t->s[i].first; k < t->s[i].first + t->s[i].n; k++) {
            if (!t->e[k].used)
                continue;
            t->e[k].to = t->s[t->e[k].to].same;
            if (last && last->kind == TR_GE_BYTE && t->e[k].kind == TR_GE_BYTE &&
                last->hi + 1 == t->e[k].lo && last->to == t->e[k].to) {
                last->hi = t->e[k].hi;
                t->e[k].used = false;
                continue;
            }
            last = &t->e[k];
            reach(t, t->e[k].to);
            if (t->e[k].kind == TR_GE_CALL)
                reach(t, t->rule[t->e[k].x]);
        }
    }
}

static int run(struct trim *t, bool empty)
{
    for (uint32_t i = 0; i < t->n_s; i++)
        t->s[i].same = i;
    link_edges(t);
    find_alive(t);
    if (!empty && !t->s[t->rule[t->n_rules - 1]].alive)
        return tr_gfail(t->b, -EINVAL, "the grammar has no text that could end");
    for (uint32_t r = 0; r < t->n_rules && !t->b->failed; r++)
        join(t, t->rule[r], t->rule[r + 1]);
    find_reached(t);
    return t->b->failed;
}

int tr_gdfa_trim(struct tr_gbuild *b, bool empty)
{
    struct trim t = {.b = b, .s = b->dfa.p, .e = b->dfa_edges.p, .n_s = b->dfa.n};
    uint32_t *end = tr_gvec_room(b, &b->dfa_rule, sizeof(*end), 1);

    if (!end)
        return b->failed;
    *end = b->dfa.n;
    t.n_rules = b->dfa_rule.n;
    t.rule = b->dfa_rule.p;
    t.n_e = b->dfa_edges.n;
    size_t words = 3 * (size_t)t.n_s + 3 * (size_t)t.n_e + t.n_rules;
    uint32_t *space = malloc(words * sizeof(*space));
    if (!space)
        return tr_gfail(b, -ENOMEM, "no memory");
    t.into = space;
    t.todo = t.into + t.n_s;
    t.rule_of = t.todo + t.n_s;
    t.calls = t.rule_of + t.n_s;
    t.from = t.calls + t.n_rules;
    t.next_into = t.from + t.n_e;
    t.next_call = t.next_into + t.n_e;
    int rc = run(&t, empty);
    free(space);
    return rc;
}
