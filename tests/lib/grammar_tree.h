/* SPDX-License-Identifier: Apache-2.0 */
/* testlib/grammar_tree.h - small random grammars over the letters a to c, and what they mean by definition: a
 * matcher that tries everything.
 *
 * Every expression has a text, and rules take a letter before they call one another, so what has not failed
 * when the text ends can still be completed. */
#ifndef TR_TESTLIB_GRAMMAR_TREE_H
#define TR_TESTLIB_GRAMMAR_TREE_H

#include "base/assert.h"
#include "grammar/build.h"
#include "testlib/rand.h"

#include <string.h>

enum { TREE_NODES = 400, TREE_RULES = 6, TREE_TEXT_MAX = 30 };

enum tree_kind {
    TREE_LIT,
    TREE_CLASS,
    TREE_SEQ,
    TREE_ALT,
    TREE_REPEAT,
    TREE_RULE,
    TREE_WITHOUT,
    TREE_UNTIL
};

struct tree_node {
    enum tree_kind kind;
    char lit[8];
    uint32_t kid[4], n, min, max;
};

struct tree {
    struct tree_node node[TREE_NODES];
    uint32_t n, n_rules, rule[TREE_RULES], start;
};

static inline uint32_t tree_some(struct tree *t, uint64_t *seed, int depth, bool after_letter);

static inline uint32_t tree_new(struct tree *t, enum tree_kind kind)
{
    TR_ASSERT(t->n < TREE_NODES);
    t->node[t->n] = (struct tree_node){.kind = kind};
    return t->n++;
}

static inline uint32_t tree_leaf(struct tree *t, uint64_t *seed)
{
    uint32_t v = tree_new(t, tiny_rand(seed) % 4 ? TREE_LIT : TREE_CLASS);
    uint32_t n = t->node[v].kind == TREE_LIT ? 1 + tiny_rand(seed) % 3 : 1 + tiny_rand(seed) % 2;

    for (uint32_t i = 0; i < n; i++) /* a class of one or two neighbours is lit[0] .. lit[n - 1] */
        t->node[v].lit[i] = (char)('a' + (t->node[v].kind == TREE_LIT ? tiny_rand(seed) % 3 : i));
    return v;
}

static inline uint32_t tree_of(struct tree *t, uint64_t *seed, int depth, bool after_letter,
                               enum tree_kind kind)
{
    uint32_t v = tree_new(t, kind), n = 2 + tiny_rand(seed) % 2;

    if (kind == TREE_REPEAT) {
        n = 1;
        t->node[v].min = tiny_rand(seed) % 3;
        t->node[v].max = tiny_rand(seed) % 2 ? TR_G_INF : t->node[v].min + tiny_rand(seed) % 3;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t kid = tree_some(t, seed, depth - 1, after_letter);
        t->node[v].kid[i] = kid;
    }
    t->node[v].n = n;
    return v;
}

static inline uint32_t tree_some(struct tree *t, uint64_t *seed, int depth, bool after_letter)
{
    uint32_t pick = tiny_rand(seed) % 12;

    if (depth <= 0 || t->n > TREE_NODES - 60)
        pick = 0;
    if (pick < 3)
        return tree_leaf(t, seed);
    if (pick < 6)
        return tree_of(t, seed, depth, after_letter, TREE_SEQ);
    if (pick < 8)
        return tree_of(t, seed, depth, after_letter, TREE_ALT);
    if (pick < 10)
        return tree_of(t, seed, depth, after_letter, TREE_REPEAT);
    if (pick == 10 && t->n_rules && after_letter) {
        uint32_t v = tree_new(t, TREE_RULE);
        t->node[v].n = tiny_rand(seed) % t->n_rules;
        return v;
    }
    uint32_t v = tree_new(t, tiny_rand(seed) % 2 ? TREE_WITHOUT : TREE_UNTIL);
    for (uint32_t i = 0, n = 1 + tiny_rand(seed) % 3; i < n; i++)
        t->node[v].lit[i] = (char)('a' + tiny_rand(seed) % 3);
    return v;
}

/* A rule: a letter alone, or a letter and then anything. */
static inline uint32_t tree_rule(struct tree *t, uint64_t *seed)
{
    uint32_t alt = tree_new(t, TREE_ALT), seq = tree_new(t, TREE_SEQ), end = tree_leaf(t, seed);
    uint32_t head = tree_leaf(t, seed), rest = tree_some(t, seed, 4, true);

    t->node[seq].kid[0] = head;
    t->node[seq].kid[1] = rest;
    t->node[alt].kid[0] = end;
    t->node[alt].kid[1] = seq;
    t->node[seq].n = t->node[alt].n = 2;
    return alt;
}

static inline void tree_random(struct tree *t, uint64_t *seed)
{
    memset(t, 0, sizeof(*t));
    t->n_rules = tiny_rand(seed) % (TREE_RULES + 1);
    for (uint32_t i = 0; i < t->n_rules; i++)
        t->rule[i] = tree_rule(t, seed);
    t->start = tree_some(t, seed, 5, true);
}

/* ---- the same for the builder ---- */

static inline tr_gnode tree_node_build(const struct tree *t, uint32_t v, struct tr_gbuild *b,
                                       const tr_gnode *rules)
{
    const struct tree_node *n = &t->node[v];
    tr_gnode kid[4];
    struct tr_gliteral l = {n->lit, strlen(n->lit)};

    for (uint32_t i = 0; i < n->n && n->kind != TREE_RULE; i++)
        kid[i] = tree_node_build(t, n->kid[i], b, rules);
    switch (n->kind) {
    case TREE_LIT:
        return tr_g_bytes(b, n->lit, l.n);
    case TREE_CLASS:
        return tr_g_class(b, &(struct tr_grange){'a', (uint32_t)n->lit[l.n - 1]}, 1, false);
    case TREE_SEQ:
        return tr_g_seq(b, kid, n->n);
    case TREE_ALT:
        return tr_g_alt(b, kid, n->n);
    case TREE_REPEAT:
        return tr_g_repeat(b, kid[0], n->min, n->max);
    case TREE_RULE:
        return rules[n->n];
    case TREE_WITHOUT:
        return tr_g_text_without(b, &l, 1);
    default:
        return tr_g_until(b, n->lit, l.n);
    }
}

static inline tr_gnode tree_build(const struct tree *t, struct tr_gbuild *b)
{
    tr_gnode rules[TREE_RULES];

    for (uint32_t i = 0; i < t->n_rules; i++)
        rules[i] = tr_g_rule(b);
    for (uint32_t i = 0; i < t->n_rules; i++)
        tr_g_define(b, rules[i], tree_node_build(t, t->rule[i], b, rules));
    return tree_node_build(t, t->start, b, rules);
}

/* ---- and by trying everything ---- */

struct tree_ask {
    const struct tree *t;
    const char *s;
    uint32_t len;
    bool open; /* the text ended within something: it can go on */
};

/* Bit e: a text of node v can be s[at, e). */
static inline uint32_t tree_ends(struct tree_ask *q, uint32_t v, uint32_t at)
{
    const struct tree_node *n = &q->t->node[v];
    uint32_t len = (uint32_t)strlen(n->lit), ends = 0, from = 1u << at, next;

    switch (n->kind) {
    case TREE_LIT:
        for (uint32_t i = 0; i < len; i++) {
            if (at + i == q->len) {
                q->open = true;
                return 0;
            }
            if (q->s[at + i] != n->lit[i])
                return 0;
        }
        return 1u << (at + len);
    case TREE_CLASS:
        if (at == q->len) {
            q->open = true;
            return 0;
        }
        return q->s[at] >= 'a' && q->s[at] <= n->lit[len - 1] ? 2u << at : 0;
    case TREE_SEQ:
        for (uint32_t i = 0; i < n->n; i++, from = next) {
            next = 0;
            for (uint32_t e = 0; e <= q->len; e++)
                if (from >> e & 1)
                    next |= tree_ends(q, n->kid[i], e);
        }
        return from;
    case TREE_ALT:
        for (uint32_t i = 0; i < n->n; i++)
            ends |= tree_ends(q, n->kid[i], at);
        return ends;
    case TREE_REPEAT:
        /* More rounds than there are bytes change nothing any more. */
        for (uint32_t i = 0; from && (n->max == TR_G_INF ? i <= n->min + q->len : i <= n->max);
             i++) {
            if (i >= n->min)
                ends |= from;
            if (n->max != TR_G_INF && i == n->max)
                break;
            next = 0;
            for (uint32_t e = 0; e <= q->len; e++)
                if (from >> e & 1)
                    next |= tree_ends(q, n->kid[0], e);
            from = next;
        }
        return ends;
    case TREE_RULE:
        return tree_ends(q, q->t->rule[n->n], at);
    case TREE_WITHOUT:
        ends = 1u << at;
        for (uint32_t e = at + 1; e <= q->len; e++) {
            if (e - at >= len && memcmp(q->s + e - len, n->lit, len) == 0)
                return ends;
            ends |= 1u << e;
        }
        q->open = true;
        return ends;
    default:
        for (uint32_t e = at + len; e <= q->len; e++)
            if (memcmp(q->s + e - len, n->lit, len) == 0)
                return 1u << e;
        q->open = true;
        return 0;
    }
}

/* Whether s is the beginning of a text of t; *whole: it is one. */
static inline bool tree_begins(const struct tree *t, const char *s, uint32_t len, bool *whole)
{
    struct tree_ask q = {.t = t, .s = s, .len = len};
    uint32_t ends = tree_ends(&q, t->start, 0);

    *whole = ends >> len & 1;
    return q.open || *whole;
}

#endif
