/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/rules.c - which rules a program has: those that are needed, not copied into others, in order. */
#include "grammar/build_priv.h"

#include <errno.h>
#include <stdlib.h>

/* Calls of the rules that are needed, found by going through their expressions. */
struct calls {
    struct tr_gvec first, adj, todo; /* of rules in the order of `todo` */
};

/* Adds what `n` refers to.  A node that was looked at in this pass is done. */
static void find_calls(struct tr_gbuild *b, struct calls *c, tr_gnode n)
{
    struct tr_gtree_node *v = tr_gnode_at(b, n);
    uint32_t *to;

    if (v->stamp == b->stamp || !tr_gwork(b, 1))
        return;
    v->stamp = b->stamp;
    switch (v->kind) {
    case TR_GK_RULE:
        to = tr_gvec_room(b, &c->adj, sizeof(uint32_t), 1);
        if (to) {
            *to = v->at;
            c->adj.n++;
        }
        break;
    case TR_GK_SEQ:
    case TR_GK_ALT:
        for (uint32_t i = 0; i < v->n; i++)
            find_calls(b, c, tr_gwords(b)[v->at + i]);
        break;
    case TR_GK_REPEAT:
        find_calls(b, c, tr_gwords(b)[v->at]);
        break;
    case TR_GK_FSM:
        for (uint32_t i = 0; i < v->n; i++)
            find_calls(b, c, tr_gwords(b)[v->at + 4 + 3 * i]);
        break;
    default:
        break;
    }
}

static void push(struct tr_gbuild *b, struct tr_gvec *v, uint32_t x)
{
    uint32_t *to = tr_gvec_room(b, v, sizeof(uint32_t), 1);

    if (to) {
        *to = x;
        v->n++;
    }
}

static void need(struct tr_gbuild *b, struct calls *c, uint32_t rule)
{
    struct tr_gtree_rule *r = tr_grule_at(b, rule);

    if (r->looked)
        return;
    r->looked = true;
    if (r->def == TR_G_NONE)
        tr_gfail(b, -EINVAL, "the grammar uses a rule that it does not define");
    r->number = c->todo.n;
    push(b, &c->todo, rule);
}

/* Rules from the start on; adj then holds their numbers in todo. */
static void collect(struct tr_gbuild *b, struct calls *c, uint32_t start)
{
    need(b, c, start);
    for (uint32_t i = 0; i < c->todo.n && !b->failed; i++) {
        uint32_t rule = ((uint32_t *)c->todo.p)[i], from = c->adj.n;
        push(b, &c->first, from);
        b->stamp++;
        find_calls(b, c, tr_grule_at(b, rule)->def);
        for (uint32_t k = from; k < c->adj.n && !b->failed; k++) {
            uint32_t callee = ((uint32_t *)c->adj.p)[k];
            need(b, c, callee);
            ((uint32_t *)c->adj.p)[k] = tr_grule_at(b, callee)->number;
        }
    }
    push(b, &c->first, c->adj.n);
}

static bool nullable(struct tr_gbuild *b, tr_gnode n);

/* Whether an automaton, at words[at], can be gone through without taking anything. */
static bool nullable_fsm(struct tr_gbuild *b, uint32_t at)
{
    const uint32_t *w = tr_gwords(b) + at;
    uint32_t n_states = w[0], n = w[1];
    const uint32_t *arrow = w + 2, *final = arrow + 3 * (size_t)n;
    uint8_t *here = calloc((size_t)n_states + 1, 1);
    bool yes = false;

    if (!here) {
        tr_gfail(b, -ENOMEM, "no memory");
        return false;
    }
    here[0] = n_states > 0;
    /* Arrows mostly lead on, so few rounds do. */
    for (bool again = true; again && tr_gwork(b, n + 1);) {
        again = false;
        for (uint32_t i = 0; i < n; i++)
            if (here[arrow[3 * i]] && !here[arrow[3 * i + 1]] && nullable(b, arrow[3 * i + 2]))
                here[arrow[3 * i + 1]] = again = true;
    }
    for (uint32_t i = 0; i < n_states; i++)
        yes = yes || (here[i] && final[i]);
    free(here);
    return yes;
}

/* Whether a node has the empty text, as far as known of the rules. */
static bool nullable(struct tr_gbuild *b, tr_gnode n)
{
    struct tr_gtree_node *v = tr_gnode_at(b, n);
    const uint32_t *w = tr_gwords(b);
    bool yes = false;

    if (v->stamp == b->stamp || !tr_gwork(b, 1))
        return v->memo;
    switch (v->kind) {
    case TR_GK_EMPTY:
    case TR_GK_WITHOUT:
        yes = true;
        break;
    case TR_GK_SEQ:
        yes = true;
        for (uint32_t i = 0; i < v->n; i++)
            yes = nullable(b, w[v->at + i]) && yes;
        break;
    case TR_GK_ALT:
        for (uint32_t i = 0; i < v->n; i++)
            yes = nullable(b, w[v->at + i]) || yes;
        break;
    case TR_GK_REPEAT:
        yes = nullable(b, w[v->at]) || w[v->at + 1] == 0;
        break;
    case TR_GK_FSM:
        yes = nullable_fsm(b, v->at);
        break;
    case TR_GK_RULE:
        yes = tr_grule_at(b, v->at)->nullable;
        break;
    default:
        break;
    }
    v->stamp = b->stamp;
    v->memo = yes;
    return yes;
}

/* The weight of a node with copies of the rules that are copied. */
static uint32_t weigh(struct tr_gbuild *b, tr_gnode n)
{
    struct tr_gtree_node *v = tr_gnode_at(b, n);
    const uint32_t *w = tr_gwords(b);
    uint64_t sum = v->weight;

    if (v->stamp == b->stamp || !tr_gwork(b, 1))
        return v->memo;
    if (v->kind == TR_GK_SEQ || v->kind == TR_GK_ALT) {
        sum = 1;
        for (uint32_t i = 0; i < v->n; i++)
            sum += weigh(b, w[v->at + i]);
    } else if (v->kind == TR_GK_FSM) {
        sum = w[v->at];
        for (uint32_t i = 0; i < v->n; i++)
            sum += weigh(b, w[v->at + 4 + 3 * i]);
    } else if (v->kind == TR_GK_REPEAT) {
        uint64_t times = w[v->at + 2] == TR_G_INF ? w[v->at + 1] + UINT64_C(1) : w[v->at + 2];
        sum = times * weigh(b, w[v->at]) + 1;
    } else if (v->kind == TR_GK_RULE && tr_grule_at(b, v->at)->copied) {
        sum = tr_grule_at(b, v->at)->weight;
    }
    v->stamp = b->stamp;
    v->memo = sum > UINT32_MAX ? UINT32_MAX : (uint32_t)sum;
    return v->memo;
}

static bool calls_itself(const struct calls *c, uint32_t i)
{
    const uint32_t *first = c->first.p, *adj = c->adj.p;

    for (uint32_t k = first[i]; k < first[i + 1]; k++)
        if (adj[k] == i)
            return true;
    return false;
}

/* Rules [0, n) in `order`, of one component: nullable or not. */
static void settle_nullable(struct tr_gbuild *b, const uint32_t *order, uint32_t n)
{
    for (bool again = true; again && !b->failed;) {
        again = false;
        for (uint32_t i = 0; i < n; i++) {
            struct tr_gtree_rule *r = tr_grule_at(b, order[i]);
            b->stamp++;
            if (!r->nullable && nullable(b, r->def))
                r->nullable = again = true;
        }
    }
}

/* Rules by component, those called first; a component's rules as they were found. */
static int sort_by_comp(struct tr_gbuild *b, const struct calls *c, const uint32_t *comp,
                        uint32_t n_comp, uint32_t *sorted)
{
    uint32_t n = c->todo.n;
    const uint32_t *todo = c->todo.p;
    uint32_t *at = calloc((size_t)n_comp + 1, sizeof(*at));

    if (!at)
        return tr_gfail(b, -ENOMEM, "no memory");
    for (uint32_t i = 0; i < n; i++)
        at[comp[i] + 1]++;
    for (uint32_t i = 0; i < n_comp; i++)
        at[i + 1] += at[i];
    for (uint32_t i = 0; i < n; i++) {
        tr_grule_at(b, todo[i])->comp = comp[i];
        sorted[at[comp[i]]++] = todo[i];
    }
    free(at);
    return 0;
}

/* Numbers in the program.  The start is the only rule nobody calls, so it comes last. */
static void choose(struct tr_gbuild *b, const struct calls *c, const uint32_t *sorted)
{
    uint32_t n = c->todo.n, start = ((const uint32_t *)c->todo.p)[0];

    for (uint32_t i = 0, end; i < n && !b->failed; i = end) {
        uint32_t comp = tr_grule_at(b, sorted[i])->comp;
        for (end = i + 1; end < n && tr_grule_at(b, sorted[end])->comp == comp;)
            end++;
        settle_nullable(b, sorted + i, end - i);
        for (uint32_t k = i; k < end; k++) {
            struct tr_gtree_rule *r = tr_grule_at(b, sorted[k]);
            bool loops = end - i > 1 || calls_itself(c, r->number);
            b->stamp++;
            r->weight = weigh(b, r->def);
            r->copied = !loops && r->weight <= TR_GBUILD_INLINE && sorted[k] != start;
        }
    }
    for (uint32_t i = 0; i < n && !b->failed; i++) {
        struct tr_gtree_rule *r = tr_grule_at(b, sorted[i]);
        if (!r->copied) {
            r->number = b->order.n;
            push(b, &b->order, sorted[i]);
        }
    }
}

int tr_grules_settle(struct tr_gbuild *b, uint32_t start)
{
    struct calls c = {0};
    uint32_t *space = NULL;

    collect(b, &c, start);
    if (b->failed)
        goto out;
    uint32_t n = c.todo.n;
    space = calloc(6 * (size_t)n, sizeof(*space));
    if (!space) {
        tr_gfail(b, -ENOMEM, "no memory");
        goto out;
    }
    uint32_t n_comp = tr_gscc(n, c.first.p, c.adj.p, space, space + 2 * (size_t)n);
    if (sort_by_comp(b, &c, space, n_comp, space + n) == 0)
        choose(b, &c, space + n);
out:
    free(space);
    free(c.first.p);
    free(c.adj.p);
    free(c.todo.p);
    return b->failed;
}
