/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/tree.c - the expressions a program is made of; see build.h. */
#include "grammar/build_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int tr_gfail(struct tr_gbuild *b, int rc, const char *fmt, ...)
{
    if (!b->failed) {
        va_list ap;
        va_start(ap, fmt);
        tr_sentence(b->why.msg, sizeof(b->why.msg), fmt, ap);
        va_end(ap);
        b->failed = rc;
    }
    return b->failed;
}

void *tr_gvec_room(struct tr_gbuild *b, struct tr_gvec *v, size_t size, uint32_t more)
{
    if (b->failed)
        return NULL;
    if (more > v->max - v->n) {
        uint64_t max = 2 * (uint64_t)v->max + more + 64;
        size_t grown = (size_t)(max - v->max) * size;
        if (max > UINT32_MAX || grown > TR_GBUILD_BYTES - b->bytes_used) {
            tr_gfail(b, -E2BIG, "the grammar needs more than %zu MiB to compile",
                     TR_GBUILD_BYTES >> 20);
            return NULL;
        }
        void *p = realloc(v->p, (size_t)max * size);
        if (!p) {
            tr_gfail(b, -ENOMEM, "no memory");
            return NULL;
        }
        v->p = p;
        v->max = (uint32_t)max;
        b->bytes_used += grown;
    }
    return (char *)v->p + (size_t)v->n * size;
}

bool tr_gwork(struct tr_gbuild *b, uint32_t n)
{
    if (n > TR_GBUILD_WORK - b->work) {
        tr_gfail(b, -E2BIG, "the grammar takes too much work to compile");
        b->work = TR_GBUILD_WORK;
        return false;
    }
    b->work += n;
    return !b->failed;
}

struct tr_gbuild *tr_gbuild_new(void)
{
    struct tr_gbuild *b = calloc(1, sizeof(*b));

    /* Node 0 is TR_G_NONE. */
    if (b && !tr_gvec_room(b, &b->nodes, sizeof(struct tr_gtree_node), 1)) {
        tr_gbuild_free(b);
        return NULL;
    }
    if (b)
        memset((struct tr_gtree_node *)b->nodes.p + b->nodes.n++, 0, sizeof(struct tr_gtree_node));
    return b;
}

void tr_gbuild_free(struct tr_gbuild *b)
{
    if (!b)
        return;
    struct tr_gvec *all[] = {&b->nodes,     &b->words, &b->bytes,     &b->rules, &b->nfa,
                             &b->nfa_edges, &b->dfa,   &b->dfa_edges, &b->order, &b->dfa_rule};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]->p);
    free(b);
}

int tr_gbuild_failed(const struct tr_gbuild *b)
{
    return b->failed;
}

static tr_gnode node(struct tr_gbuild *b, uint8_t kind, uint32_t at, uint32_t n, uint64_t weight,
                     uint32_t depth)
{
    if (depth > TR_GBUILD_DEPTH) {
        tr_gfail(b, -E2BIG, "the grammar is nested more than %d deep", TR_GBUILD_DEPTH);
        return TR_G_NONE;
    }
    struct tr_gtree_node *v = tr_gvec_room(b, &b->nodes, sizeof(*v), 1);
    if (!v)
        return TR_G_NONE;
    *v = (struct tr_gtree_node){
        .kind = kind,
        .depth = (uint16_t)depth,
        .at = at,
        .n = n,
        .weight = weight > UINT32_MAX ? UINT32_MAX : (uint32_t)weight,
    };
    return b->nodes.n++;
}

static bool is_node(struct tr_gbuild *b, tr_gnode n)
{
    if (n == TR_G_NONE || n >= b->nodes.n) {
        tr_gfail(b, -EINVAL, "a part of the grammar is missing");
        return false;
    }
    return !b->failed;
}

static uint32_t *add_words(struct tr_gbuild *b, uint32_t n, uint32_t *at)
{
    uint32_t *w = tr_gvec_room(b, &b->words, sizeof(uint32_t), n);

    *at = b->words.n;
    if (w)
        b->words.n += n;
    return w;
}

static bool add_bytes(struct tr_gbuild *b, const void *p, size_t n, uint32_t *at)
{
    if (n > TR_GBUILD_BYTES) {
        tr_gfail(b, -E2BIG, "a literal of the grammar is too long");
        return false;
    }
    uint8_t *to = tr_gvec_room(b, &b->bytes, 1, (uint32_t)n);
    if (!to)
        return false;
    if (n)
        memcpy(to, p, n);
    *at = b->bytes.n;
    b->bytes.n += (uint32_t)n;
    return true;
}

tr_gnode tr_g_empty(struct tr_gbuild *b)
{
    return node(b, TR_GK_EMPTY, 0, 0, 1, 1);
}

tr_gnode tr_g_never(struct tr_gbuild *b)
{
    return node(b, TR_GK_NEVER, 0, 0, 1, 1);
}

tr_gnode tr_g_bytes(struct tr_gbuild *b, const void *p, size_t n)
{
    uint32_t at;

    if (n == 0)
        return tr_g_empty(b);
    if (!add_bytes(b, p, n, &at))
        return TR_G_NONE;
    return node(b, TR_GK_BYTES, at, (uint32_t)n, n, 1);
}

static int by_lo(const void *va, const void *vb)
{
    const uint32_t *a = va, *b = vb;
    return a[0] < b[0] ? -1 : a[0] > b[0];
}

/* Sorted pairs that may overlap become disjoint ones; how many. */
static uint32_t join_pairs(uint32_t *w, uint32_t n)
{
    uint32_t k = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (w[2 * i] > w[2 * i + 1])
            continue;
        if (k && w[2 * i] <= w[2 * k - 1] + 1) {
            if (w[2 * i + 1] > w[2 * k - 1])
                w[2 * k - 1] = w[2 * i + 1];
            continue;
        }
        w[2 * k] = w[2 * i];
        w[2 * k + 1] = w[2 * i + 1];
        k++;
    }
    return k;
}

/* What lies between n disjoint, sorted pairs, at `out`: at most n + 1 pairs; how many. */
static uint32_t gaps(const uint32_t *w, uint32_t n, uint32_t *out)
{
    uint32_t from = 0, k = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (w[2 * i] > from) {
            out[2 * k] = from;
            out[2 * k++ + 1] = w[2 * i] - 1;
        }
        from = w[2 * i + 1] + 1;
    }
    if (from <= 0x10ffff) {
        out[2 * k] = from;
        out[2 * k++ + 1] = 0x10ffff;
    }
    return k;
}

tr_gnode tr_g_class(struct tr_gbuild *b, const struct tr_grange *r, size_t n, bool negate)
{
    uint32_t at;

    if (n > 1u << 20) {
        tr_gfail(b, -E2BIG, "a class of characters of the grammar is too large");
        return TR_G_NONE;
    }
    uint32_t *w = add_words(b, 4 * (uint32_t)n + 2, &at);
    if (!w)
        return TR_G_NONE;
    for (size_t i = 0; i < n; i++) {
        w[2 * i] = r[i].lo;
        w[2 * i + 1] = r[i].hi < 0x10ffff ? r[i].hi : 0x10ffff;
    }
    qsort(w, n, 2 * sizeof(*w), by_lo);
    uint32_t k = join_pairs(w, (uint32_t)n);
    if (negate) {
        uint32_t m = gaps(w, k, w + 2 * (size_t)k);
        memmove(w, w + 2 * (size_t)k, 2 * (size_t)m * sizeof(*w));
        k = m;
    }
    b->words.n = at + 2 * k;
    if (k == 0)
        return tr_g_never(b);
    return node(b, TR_GK_CLASS, at, k, 4 * (uint64_t)k, 1);
}

static tr_gnode of_several(struct tr_gbuild *b, uint8_t kind, const tr_gnode *nodes, size_t n)
{
    uint32_t at, depth = 0;
    uint64_t weight = 1;

    if (n > TR_GBUILD_BYTES / sizeof(*nodes)) {
        tr_gfail(b, -E2BIG, "the grammar is too large");
        return TR_G_NONE;
    }
    for (size_t i = 0; i < n; i++) {
        if (!is_node(b, nodes[i]))
            return TR_G_NONE;
        const struct tr_gtree_node *v = tr_gnode_at(b, nodes[i]);
        weight += v->weight;
        depth = v->depth > depth ? v->depth : depth;
    }
    uint32_t *w = add_words(b, (uint32_t)n, &at);
    if (!w)
        return TR_G_NONE;
    memcpy(w, nodes, n * sizeof(*nodes));
    return node(b, kind, at, (uint32_t)n, weight, depth + 1);
}

tr_gnode tr_g_seq(struct tr_gbuild *b, const tr_gnode *nodes, size_t n)
{
    if (n == 0)
        return tr_g_empty(b);
    if (n == 1)
        return is_node(b, nodes[0]) ? nodes[0] : TR_G_NONE;
    return of_several(b, TR_GK_SEQ, nodes, n);
}

tr_gnode tr_g_alt(struct tr_gbuild *b, const tr_gnode *nodes, size_t n)
{
    if (n == 0)
        return tr_g_never(b);
    if (n == 1)
        return is_node(b, nodes[0]) ? nodes[0] : TR_G_NONE;
    return of_several(b, TR_GK_ALT, nodes, n);
}

tr_gnode tr_g_repeat(struct tr_gbuild *b, tr_gnode of, uint32_t min, uint32_t max)
{
    uint32_t at;

    if (!is_node(b, of))
        return TR_G_NONE;
    if (min > max) {
        tr_gfail(b, -EINVAL, "a repetition's minimum of %u is above its maximum of %u", min, max);
        return TR_G_NONE;
    }
    if (max == 0)
        return tr_g_empty(b);
    struct tr_gtree_node v = *tr_gnode_at(b, of);
    uint64_t weight = ((uint64_t)(max == TR_G_INF ? min + UINT64_C(1) : max)) * v.weight + 1;
    if (weight > TR_GBUILD_NFA_STATES) {
        tr_gfail(b, -E2BIG, "a repetition up to %llu times makes the grammar too large",
                 max == TR_G_INF ? (unsigned long long)min : (unsigned long long)max);
        return TR_G_NONE;
    }
    uint32_t *w = add_words(b, 3, &at);
    if (!w)
        return TR_G_NONE;
    w[0] = of;
    w[1] = min;
    w[2] = max;
    return node(b, TR_GK_REPEAT, at, 3, weight, v.depth + 1u);
}

tr_gnode tr_g_fsm(struct tr_gbuild *b, uint32_t n_states, const struct tr_garrow *arrows, size_t n,
                  const uint8_t *final)
{
    uint32_t at, depth = 0;
    uint64_t weight = n_states;

    if (n_states > TR_GBUILD_NFA_STATES || n > TR_GBUILD_NFA_STATES) {
        tr_gfail(b, -E2BIG, "the grammar is too large");
        return TR_G_NONE;
    }
    for (size_t i = 0; i < n; i++) {
        if (!is_node(b, arrows[i].on))
            return TR_G_NONE;
        const struct tr_gtree_node *v = tr_gnode_at(b, arrows[i].on);
        weight += v->weight;
        depth = v->depth > depth ? v->depth : depth;
        if (arrows[i].from >= n_states || arrows[i].to >= n_states) {
            tr_gfail(b, -EINVAL, "an arrow of an automaton leads nowhere");
            return TR_G_NONE;
        }
    }
    uint32_t *w = add_words(b, 2 + 3 * (uint32_t)n + n_states, &at);
    if (!w)
        return TR_G_NONE;
    *w++ = n_states;
    *w++ = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        *w++ = arrows[i].from;
        *w++ = arrows[i].to;
        *w++ = arrows[i].on;
    }
    for (uint32_t i = 0; i < n_states; i++)
        *w++ = final[i] != 0;
    return node(b, TR_GK_FSM, at, (uint32_t)n, weight, depth + 1);
}

tr_gnode tr_g_rule(struct tr_gbuild *b)
{
    if (b->rules.n == TR_GBUILD_RULES) {
        tr_gfail(b, -E2BIG, "the grammar has more than %d rules", TR_GBUILD_RULES);
        return TR_G_NONE;
    }
    struct tr_gtree_rule *r = tr_gvec_room(b, &b->rules, sizeof(*r), 1);
    if (!r)
        return TR_G_NONE;
    *r = (struct tr_gtree_rule){.number = UINT32_MAX};
    return node(b, TR_GK_RULE, b->rules.n++, 0, 2, 1);
}

void tr_g_define(struct tr_gbuild *b, tr_gnode rule, tr_gnode def)
{
    if (!is_node(b, rule) || !is_node(b, def))
        return;
    struct tr_gtree_node *v = tr_gnode_at(b, rule);
    if (v->kind != TR_GK_RULE || tr_grule_at(b, v->at)->def != TR_G_NONE)
        tr_gfail(b, -EINVAL, "a rule of the grammar is defined twice");
    else
        tr_grule_at(b, v->at)->def = def;
}

tr_gnode tr_g_token(struct tr_gbuild *b, uint32_t id)
{
    return node(b, TR_GK_TOKEN, id, 0, 1, 1);
}

static tr_gnode literals(struct tr_gbuild *b, uint8_t kind, const struct tr_gliteral *l, size_t n)
{
    uint32_t at, at_bytes;
    uint64_t weight = 1;

    if (n > 4096) {
        tr_gfail(b, -E2BIG, "the grammar has too many literals that a text ends with");
        return TR_G_NONE;
    }
    uint32_t *w = add_words(b, 2 * (uint32_t)n, &at);
    for (size_t i = 0; w && i < n; i++) {
        if (l[i].n == 0) {
            tr_gfail(b, -EINVAL, "an empty literal that a text ends with");
            return TR_G_NONE;
        }
        if (!add_bytes(b, l[i].p, l[i].n, &at_bytes))
            return TR_G_NONE;
        w[2 * i] = at_bytes;
        w[2 * i + 1] = (uint32_t)l[i].n;
        weight += l[i].n;
    }
    return w ? node(b, kind, at, (uint32_t)n, weight, 1) : TR_G_NONE;
}

tr_gnode tr_g_until(struct tr_gbuild *b, const void *literal, size_t n)
{
    return literals(b, TR_GK_UNTIL, &(struct tr_gliteral){literal, n}, 1);
}

tr_gnode tr_g_text_without(struct tr_gbuild *b, const struct tr_gliteral *l, size_t n)
{
    return literals(b, TR_GK_WITHOUT, l, n);
}

int tr_gbuild_finish(struct tr_gbuild *b, tr_gnode start, uint8_t *out, size_t cap, size_t *len,
                     struct tr_errbuf *err)
{
    bool empty = false;
    tr_gnode root = tr_g_rule(b);

    tr_g_define(b, root, start);
    if (b->failed || tr_grules_settle(b, tr_gnode_at(b, root)->at) < 0)
        goto out;
    const uint32_t *order = b->order.p;
    for (uint32_t i = 0; i < b->order.n; i++) /* the last one is root */
        if (tr_gnfa_make(b, tr_grule_at(b, order[i])->def) < 0 || tr_gdfa_make(b, &empty) < 0)
            goto out;
    if (tr_gdfa_trim(b, empty) == 0)
        tr_gemit(b, empty, out, cap, len);
out:
    return b->failed ? tr_errf(err, b->failed, "%s", b->why.msg) : 0;
}
