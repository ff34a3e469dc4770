/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/nfa.c - the automaton of one rule, with edges that take nothing (after Thompson).  Every
 * expression adds ways from one state to another and nothing that leads into the first or out of the
 * second, so parts can be put side by side. */
#include "grammar/build_priv.h"

#include <errno.h>

uint32_t tr_gnfa_state(struct tr_gbuild *b)
{
    if (b->nfa.n == TR_GBUILD_NFA_STATES)
        tr_gfail(b, -E2BIG, "a rule of the grammar is too large");
    uint32_t *s = tr_gvec_room(b, &b->nfa, sizeof(*s), 1);
    if (!s || !tr_gwork(b, 1))
        return 0;
    *s = 0;
    return b->nfa.n++;
}

void tr_gnfa_edge(struct tr_gbuild *b, uint32_t from, struct tr_gnfa_edge e)
{
    struct tr_gnfa_edge *to = tr_gvec_room(b, &b->nfa_edges, sizeof(*to), 1);

    if (!to || !tr_gwork(b, 1))
        return;
    uint32_t *head = (uint32_t *)b->nfa.p + from;
    e.next = *head;
    *to = e;
    *head = ++b->nfa_edges.n;
}

static void add(struct tr_gbuild *b, tr_gnode n, uint32_t from, uint32_t to);

static void skip(struct tr_gbuild *b, uint32_t from, uint32_t to)
{
    tr_gnfa_edge(b, from, (struct tr_gnfa_edge){.kind = TR_GE_EPS, .to = to});
}

static void add_bytes(struct tr_gbuild *b, uint32_t at, uint32_t n, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < n; i++) {
        uint8_t byte = ((const uint8_t *)b->bytes.p)[at + i];
        uint32_t next = i + 1 < n ? tr_gnfa_state(b) : to;
        tr_gnfa_edge(b, from,
                     (struct tr_gnfa_edge){.kind = TR_GE_BYTE, .lo = byte, .hi = byte, .to = next});
        from = next;
    }
}

static void add_repeat(struct tr_gbuild *b, const uint32_t *w, uint32_t from, uint32_t to)
{
    tr_gnode of = w[0];
    uint32_t min = w[1], max = w[2];

    for (uint32_t i = 0; i < min && !b->failed; i++) {
        uint32_t next = tr_gnfa_state(b);
        add(b, of, from, next);
        from = next;
    }
    if (max == TR_G_INF) {
        uint32_t loop = tr_gnfa_state(b);
        skip(b, from, loop);
        add(b, of, loop, loop);
        skip(b, loop, to);
        return;
    }
    for (uint32_t i = min; i < max && !b->failed; i++) {
        uint32_t next = tr_gnfa_state(b);
        skip(b, from, to);
        add(b, of, from, next);
        from = next;
    }
    skip(b, from, to);
}

static void add_rule(struct tr_gbuild *b, uint32_t rule, uint32_t from, uint32_t to)
{
    struct tr_gtree_rule *r = tr_grule_at(b, rule);

    if (r->copied) {
        add(b, r->def, from, to);
        return;
    }
    /* A rule's automaton has no empty text: it is a way round the call. */
    if (r->nullable)
        skip(b, from, to);
    tr_gnfa_edge(b, from, (struct tr_gnfa_edge){.kind = TR_GE_CALL, .x = r->number, .to = to});
}

static void add_fsm(struct tr_gbuild *b, uint32_t at, uint32_t from, uint32_t to)
{
    uint32_t n_states = tr_gwords(b)[at], n = tr_gwords(b)[at + 1], first = b->nfa.n;

    for (uint32_t i = 0; i < n_states && !b->failed; i++)
        tr_gnfa_state(b);
    if (n_states)
        skip(b, from, first);
    for (uint32_t i = 0; i < n && !b->failed; i++) {
        const uint32_t *w = tr_gwords(b) + at + 2 + 3 * (size_t)i;
        add(b, w[2], first + w[0], first + w[1]);
    }
    for (uint32_t i = 0; i < n_states && !b->failed; i++)
        if (tr_gwords(b)[at + 2 + 3 * n + i])
            skip(b, first + i, to);
}

/* Recursion is as deep as expressions are (TR_GBUILD_DEPTH) times the rules copied in one another, of
 * which each weighs at least 1 of TR_GBUILD_INLINE. */
static void add(struct tr_gbuild *b, tr_gnode n, uint32_t from, uint32_t to)
{
    struct tr_gtree_node v = *tr_gnode_at(b, n);
    uint32_t word[3];

    if (!tr_gwork(b, 1))
        return;
    switch ((enum tr_gkind)v.kind) {
    case TR_GK_EMPTY:
        skip(b, from, to);
        break;
    case TR_GK_NEVER:
        break;
    case TR_GK_BYTES:
        add_bytes(b, v.at, v.n, from, to);
        break;
    case TR_GK_CLASS:
        tr_gnfa_class(b, v.at, v.n, from, to);
        break;
    case TR_GK_SEQ:
        for (uint32_t i = 0; i < v.n && !b->failed; i++) {
            uint32_t next = i + 1 < v.n ? tr_gnfa_state(b) : to;
            add(b, tr_gwords(b)[v.at + i], from, next);
            from = next;
        }
        break;
    case TR_GK_ALT:
        for (uint32_t i = 0; i < v.n && !b->failed; i++)
            add(b, tr_gwords(b)[v.at + i], from, to);
        break;
    case TR_GK_REPEAT:
        for (uint32_t i = 0; i < 3; i++)
            word[i] = tr_gwords(b)[v.at + i];
        add_repeat(b, word, from, to);
        break;
    case TR_GK_FSM:
        add_fsm(b, v.at, from, to);
        break;
    case TR_GK_RULE:
        add_rule(b, v.at, from, to);
        break;
    case TR_GK_TOKEN:
        tr_gnfa_edge(b, from, (struct tr_gnfa_edge){.kind = TR_GE_TOKEN, .x = v.at, .to = to});
        break;
    case TR_GK_UNTIL:
    case TR_GK_WITHOUT:
        tr_gnfa_literals(b, v.at, v.n, v.kind == TR_GK_UNTIL, from, to);
        break;
    }
}

int tr_gnfa_make(struct tr_gbuild *b, tr_gnode node)
{
    b->nfa.n = b->nfa_edges.n = 0;
    tr_gnfa_state(b);
    tr_gnfa_state(b);
    add(b, node, 0, 1);
    return b->failed;
}
