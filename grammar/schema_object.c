/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/schema_object.c - objects under their keywords; see schema_priv.h.
 *
 * Properties come in the order in which the schemas name them, then those that are only in `required`,
 * then others, if they are allowed.  The automaton counts members as far as minProperties and
 * maxProperties ask; of other properties one counts towards minProperties, for a model may write the
 * same key twice. */
#include "grammar/regex.h"
#include "base/assert.h"
#include "grammar/schema_priv.h"

#include <stdlib.h>
#include <string.h>

struct prop {
    const struct tr_json *key;
    struct tr_demand *value;
    bool required;
};

/* Other keys of one sort: what they are and what their value has to obey. */
struct extra {
    const struct tr_fa *key; /* NULL: any string */
    struct tr_demand *value;
};

struct object {
    struct tr_sc *c;
    const struct tr_demand *d;
    const struct tr_spec *s;
    struct prop *p;
    uint32_t n, cap;
    struct tr_fa_maker *seen; /* keys */
    struct extra extra[1 << TR_SC_PATTERNS];
    uint32_t n_extra;
    const struct tr_fa *names;                     /* NULL: any key */
    const struct tr_json *pattern[TR_SC_PATTERNS]; /* different patternProperties, by their keys */
    uint32_t n_patterns;
    bool never;
};

/* ---- which demand is on which key ---- */

bool tr_sc_requires(const struct tr_demand *d, const char *key, uint32_t len)
{
    for (uint32_t i = 0; i < d->n; i++)
        for (struct tr_json_it it = tr_json_iter(TR_JSON_GET(d->part[i].schema, "required"));
             tr_json_step(&it);)
            if (tr_json_eq(it.val, key, len))
                return true;
    return false;
}

/* Adds the schemas of the part's patternProperties whose pattern `takes`; *some: there was one. */
static bool add_patterns(struct tr_sc *c, struct tr_draft *x, const struct tr_json *schema,
                         bool (*takes)(struct tr_sc *c, const struct tr_json *pattern,
                                       const void *of),
                         const void *of, bool *some)
{
    for (struct tr_json_it it = tr_json_iter(TR_JSON_GET(schema, "patternProperties"));
         tr_json_step(&it);) {
        if (!tr_gbudget_step(&c->w, 4))
            return tr_sc_full(c, it.val);
        if (!takes(c, it.key, of))
            continue;
        *some = true;
        if (!tr_sc_add(c, x, it.val))
            return false;
    }
    return !c->ret;
}

struct text {
    const char *s;
    uint32_t len;
};

static bool takes_text(struct tr_sc *c, const struct tr_json *pattern, const void *of)
{
    const struct text *t = of;
    const struct tr_fa *a = tr_sc_pattern(c, pattern, pattern);
    return a && tr_fa_takes(a, t->s, t->len);
}

struct tr_demand *tr_sc_property(struct tr_sc *c, const struct tr_demand *d, const char *key,
                                 uint32_t len)
{
    struct tr_draft x = {.n = 0};
    const struct text t = {key, len};
    for (uint32_t i = 0; i < d->n; i++) {
        const struct tr_json *schema = d->part[i].schema;
        const struct tr_json *props = TR_JSON_GET(schema, "properties");
        const struct tr_json *v = tr_json_get(props, key, len);
        const struct tr_json *other = TR_JSON_GET(schema, "additionalProperties");
        bool some = v != NULL;
        if (!tr_gbudget_step(&c->w, 4 + (props ? props->len : 0)))
            return tr_sc_full(c, schema), NULL;
        if (v && !tr_sc_add(c, &x, v))
            return NULL;
        if (!add_patterns(c, &x, schema, takes_text, &t, &some))
            return NULL;
        if (!some && other && !tr_sc_add(c, &x, other))
            return NULL;
    }
    return tr_sc_demand(c, &x);
}

/* ---- the named properties ---- */

/* A demand that no value obeys. */
static struct tr_demand *nothing(struct tr_sc *c)
{
    struct tr_draft x = {.n = 0};
    x.never = true;
    return tr_sc_demand(c, &x);
}

static bool add_key(struct object *o, const struct tr_json *key)
{
    uint32_t known = tr_fa_count(o->seen);
    uint32_t id = tr_fa_state(o->seen, key->u.s, key->len);
    if (id == UINT32_MAX)
        return tr_sc_full(o->c, key);
    if (id < known)
        return true;
    if (o->n == o->cap) {
        uint32_t cap = o->cap ? o->cap * 2 : 16;
        struct prop *p = tr_gbudget_alloc(&o->c->w, cap * sizeof *p);
        if (!p)
            return tr_sc_full(o->c, key);
        if (o->n)
            memcpy(p, o->p, o->n * sizeof *p);
        o->p = p;
        o->cap = cap;
    }
    bool allowed = !o->names || tr_fa_takes(o->names, key->u.s, key->len);
    struct tr_demand *value =
        allowed ? tr_sc_property(o->c, o->d, key->u.s, key->len) : nothing(o->c);
    if (!value)
        return false;
    o->p[o->n++] = (struct prop){.key = key, .value = value};
    return true;
}

static bool find_properties(struct object *o)
{
    struct tr_sc *c = o->c;
    o->seen = tr_fa_new(&c->w);
    if (!o->seen)
        return tr_sc_full(c, NULL);
    for (uint32_t i = 0; i < o->d->n; i++)
        for (struct tr_json_it it = tr_json_iter(TR_JSON_GET(o->d->part[i].schema, "properties"));
             tr_json_step(&it);)
            if (!add_key(o, it.key))
                return false;
    for (uint32_t i = 0; i < o->d->n; i++)
        for (struct tr_json_it it = tr_json_iter(TR_JSON_GET(o->d->part[i].schema, "required"));
             tr_json_step(&it);) {
            if (!add_key(o, it.val))
                return false;
            TR_ASSERT(o->p);
            o->p[tr_fa_state(o->seen, it.val->u.s, it.val->len)].required = true;
        }
    return true;
}

/* ---- the others ---- */

/* Whether there may be others: said by a keyword, or nothing was named. */
static bool is_open(const struct object *o)
{
    bool named = false;
    for (uint32_t i = 0; i < o->d->n; i++) {
        const struct tr_json *s = o->d->part[i].schema;
        if (TR_JSON_GET(s, "additionalProperties") || TR_JSON_GET(s, "patternProperties"))
            return true;
        named |= TR_JSON_GET(s, "properties") != NULL;
    }
    return !named;
}

static bool find_patterns(struct object *o)
{
    for (uint32_t i = 0; i < o->d->n; i++)
        for (struct tr_json_it it =
                 tr_json_iter(TR_JSON_GET(o->d->part[i].schema, "patternProperties"));
             tr_json_step(&it);) {
            uint32_t k = 0;
            while (k < o->n_patterns && !tr_json_eq(o->pattern[k], it.key->u.s, it.key->len))
                k++;
            if (k < o->n_patterns)
                continue;
            if (k == TR_SC_PATTERNS)
                return tr_sc_refuse(o->c, it.val, "too many patternProperties (limit %d)",
                                    TR_SC_PATTERNS);
            o->pattern[o->n_patterns++] = it.key;
        }
    return true;
}

/* A choice of the object's patterns: those that a key obeys, by bit. */
struct choice {
    const struct object *o;
    uint32_t bits;
};

static bool is_chosen(struct tr_sc *c, const struct tr_json *pattern, const void *of)
{
    const struct choice *x = of;
    (void)c;
    for (uint32_t k = 0; k < x->o->n_patterns; k++)
        if (tr_json_eq(x->o->pattern[k], pattern->u.s, pattern->len))
            return x->bits >> k & 1;
    return false;
}

static struct tr_demand *extra_value(struct object *o, uint32_t bits)
{
    struct tr_sc *c = o->c;
    struct tr_draft x = {.n = 0};
    const struct choice chosen = {o, bits};
    for (uint32_t i = 0; i < o->d->n; i++) {
        const struct tr_json *schema = o->d->part[i].schema;
        const struct tr_json *other = TR_JSON_GET(schema, "additionalProperties");
        bool some = false;
        if (!add_patterns(c, &x, schema, is_chosen, &chosen, &some))
            return NULL;
        if (!some && other && !tr_sc_add(c, &x, other))
            return NULL;
    }
    return tr_sc_demand(c, &x);
}

/* Keys that obey exactly these patterns and are not among the words. */
static const struct tr_fa *extra_key(struct object *o, uint32_t bits, const struct tr_fa *words)
{
    struct tr_gbudget *w = &o->c->w;
    const struct tr_fa *a = tr_fa_minus(w, tr_fa_length(w, 0, UINT32_MAX), words);
    if (a && o->names)
        a = tr_fa_and(w, a, o->names);
    for (uint32_t k = 0; k < o->n_patterns && a; k++) {
        const struct tr_fa *p = tr_sc_pattern(o->c, o->pattern[k], o->pattern[k]);
        a = bits >> k & 1 ? tr_fa_and(w, a, p) : tr_fa_minus(w, a, p);
    }
    if (!a)
        tr_sc_full(o->c, NULL);
    return a;
}

static bool find_extras(struct object *o)
{
    struct tr_gbudget *w = &o->c->w;
    if (!is_open(o))
        return true;
    if (!find_patterns(o))
        return false;
    struct tr_fa_word *v = tr_gbudget_alloc(w, o->n * sizeof *v);
    for (uint32_t i = 0; v && i < o->n; i++)
        v[i] = (struct tr_fa_word){o->p[i].key->u.s, o->p[i].key->len};
    const struct tr_fa *words = v ? tr_fa_words(w, v, o->n) : NULL;
    if (!words)
        return tr_sc_full(o->c, NULL);
    for (uint32_t bits = 0; bits < 1u << o->n_patterns; bits++) {
        struct extra e = {.value = extra_value(o, bits)};
        if (!e.value || !tr_sc_spec(o->c, e.value))
            return false;
        if (e.value->never)
            continue;
        if (o->n || o->n_patterns || o->names) {
            e.key = extra_key(o, bits, words);
            if (!e.key)
                return false;
            if (!e.key->n)
                continue;
        }
        o->extra[o->n_extra++] = e;
    }
    return true;
}

/* ---- the automaton ---- */

/* "key": value, or the demand's value behind a key that the node writes with its quotes. */
static tr_gnode member(struct tr_sc *c, tr_gnode key, struct tr_demand *value)
{
    tr_gnode v = tr_sc_value(c, value);
    if (v == TR_G_NONE)
        return TR_G_NONE;
    return TR_SC_SEQ(c, key, tr_sc_text(c, ":", 1), tr_g_repeat(c->b, tr_sc_text(c, " ", 1), 0, 1),
                     v);
}

static tr_gnode extra_members(struct object *o)
{
    struct tr_sc *c = o->c;
    tr_gnode v[1 << TR_SC_PATTERNS];
    for (uint32_t i = 0; i < o->n_extra; i++) {
        const struct extra *e = &o->extra[i];
        tr_gnode key = tr_gj_string(&c->j);
        if (e->key)
            key = TR_SC_SEQ(c, tr_sc_text(c, "\"", 1), tr_fa_node(&c->w, c->b, e->key, tr_gj_set),
                            tr_sc_text(c, "\"", 1));
        v[i] = member(c, key, e->value);
    }
    return tr_g_alt(c->b, v, o->n_extra);
}

/* States: behind the first i properties with k members written (k saturates at `most` when there is no
 * upper bound), in three forms:
 *   S(i,k)  a member has ended, or { was written
 *   U(i,k)  the comma and blanks before the next member have been written; one must follow
 *   M(i,k)  property i is the next member, the k-th
 * then X(k): other properties have begun; and the end. */
struct drawing {
    struct object *o;
    struct tr_garrow *e;
    size_t n_edges, cap;
    uint8_t *final;
    uint32_t most; /* k is 0..most */
    bool bounded;  /* not more than `most` members */
};

static uint32_t state(const struct drawing *g, unsigned form, uint32_t i, uint32_t k)
{
    uint32_t row = (g->o->n + 1) * (g->most + 1);
    return 1 + form * row + i * (g->most + 1) + k;
}

enum { S, U, M };

static uint32_t others(const struct drawing *g, unsigned form, uint32_t k)
{
    return state(g, 3, 0, 0) + form * (g->most + 1) + k;
}

static void edge(struct drawing *g, uint32_t from, uint32_t to, tr_gnode on)
{
    TR_ASSERT(g->n_edges < g->cap);
    g->e[g->n_edges++] = (struct tr_garrow){from, to, on};
}

/* The count after one more member; false: there may be none. */
static bool count_up(const struct drawing *g, uint32_t k, uint32_t *up)
{
    if (k == g->most && g->bounded)
        return false;
    *up = k < g->most ? k + 1 : k;
    return true;
}

struct words {
    tr_gnode empty, blank, comma, close;
};

static void draw_others(struct drawing *g, const struct words *w, uint32_t end)
{
    struct object *o = g->o;
    uint32_t up;
    tr_gnode member = extra_members(o);
    tr_gnode rule = tr_g_rule(o->c->b);
    tr_g_define(o->c->b, rule, member);
    for (uint32_t k = 0; k <= g->most; k++) {
        /* One other property counts towards the least number, whatever its key. */
        if (k + 1 >= o->s->min_props && count_up(g, k, &up))
            edge(g, state(g, U, o->n, k), others(g, S, up), rule);
        edge(g, others(g, S, k), end, w->close);
        if (count_up(g, k, &up))
            edge(g, others(g, S, k), others(g, S, up),
                 tr_g_seq(o->c->b, (const tr_gnode[]){w->comma, rule}, 2));
    }
}

static bool draw_property(struct drawing *g, uint32_t i, const struct words *w)
{
    struct object *o = g->o;
    struct tr_sc *c = o->c;
    const struct prop *p = &o->p[i];
    uint32_t up;
    tr_gnode node = TR_G_NONE;
    if (!p->value->never) {
        node = member(c, tr_gj_literal(&c->w, c->b, p->key->u.s, p->key->len), p->value);
        if (node == TR_G_NONE)
            return tr_sc_full(c, p->key);
    }
    for (uint32_t k = 0; k <= g->most; k++) {
        if (!p->required)
            edge(g, state(g, U, i, k), state(g, U, i + 1, k), w->empty);
        if (p->value->never || !count_up(g, k, &up))
            continue;
        edge(g, state(g, U, i, k), state(g, M, i, up), w->empty);
    }
    for (uint32_t k = 0; k <= g->most && !p->value->never; k++)
        edge(g, state(g, M, i, k), state(g, S, i + 1, k), node);
    return true;
}

static bool draw(struct drawing *g)
{
    struct object *o = g->o;
    struct tr_sc *c = o->c;
    uint32_t end = others(g, S, g->most) + 1;
    struct words w = {.empty = tr_g_empty(c->b), .blank = tr_gj_blank(&c->j)};
    w.comma = TR_SC_SEQ(c, tr_sc_text(c, ",", 1), w.blank);
    w.close = TR_SC_SEQ(c, w.blank, tr_sc_text(c, "}", 1));
    g->final[end] = 1;
    edge(g, 0, state(g, S, 0, 0), tr_sc_text(c, "{", 1));
    bool needed = false; /* a required property is still to come */
    for (uint32_t i = o->n + 1; i-- > 0;) {
        needed |= i < o->n && o->p[i].required;
        for (uint32_t k = 0; k <= g->most; k++) {
            if (!needed && k >= o->s->min_props)
                edge(g, state(g, S, i, k), end, w.close);
            edge(g, state(g, S, i, k), state(g, U, i, k), k ? w.comma : w.blank);
        }
    }
    for (uint32_t i = 0; i < o->n; i++)
        if (!draw_property(g, i, &w))
            return false;
    if (o->n_extra)
        draw_others(g, &w, end);
    return !c->ret;
}

static tr_gnode automaton(struct object *o)
{
    struct tr_sc *c = o->c;
    const struct tr_spec *s = o->s;
    struct drawing g = {.o = o, .bounded = s->max_props != UINT32_MAX};
    g.most = g.bounded ? s->max_props : s->min_props ? s->min_props : 1;
    uint64_t n = 3 * (uint64_t)(o->n + 1) * (g.most + 1) + 3 * (g.most + 1) + 2;
    if (n > 8 * TR_FA_STATES)
        return tr_sc_refuse(c, o->d->part[0].schema,
                            "too many properties to be counted for minProperties or maxProperties"),
               TR_G_NONE;
    g.cap = 3 * n;
    g.e = tr_gbudget_alloc(&c->w, g.cap * sizeof *g.e);
    g.final = tr_gbudget_alloc(&c->w, n);
    if (!g.e || !g.final)
        return tr_sc_full(c, NULL), TR_G_NONE;
    return draw(&g) ? tr_g_fsm(c->b, (uint32_t)n, g.e, g.n_edges, g.final) : TR_G_NONE;
}

/* Whether enough members can be written at all. */
static bool can_be(struct object *o)
{
    uint32_t least = 0;
    uint32_t most = o->n_extra ? 1 : 0;
    for (uint32_t i = 0; i < o->n; i++) {
        if (!tr_sc_spec(o->c, o->p[i].value))
            return false;
        if (o->p[i].value->never && o->p[i].required)
            return false;
        least += o->p[i].required;
        most += !o->p[i].value->never;
    }
    if (most < o->s->min_props && o->n_extra)
        return tr_sc_refuse(o->c, o->d->part[0].schema,
                            "minProperties is supported as far as named properties can meet it, "
                            "and one other");
    return least <= o->s->max_props && most >= o->s->min_props;
}

tr_gnode tr_sc_object(struct tr_sc *c, const struct tr_demand *d, const struct tr_spec *s,
                      bool *never)
{
    *never = s->min_props > s->max_props;
    if (*never)
        return tr_g_never(c->b);
    if (!s->object_words)
        return tr_gj_object(&c->j);
    struct object *o = tr_gbudget_alloc(&c->w, sizeof *o);
    if (!o)
        return tr_sc_full(c, NULL), TR_G_NONE;
    *o = (struct object){.c = c, .d = d, .s = s};
    if (!tr_sc_names(c, d, &o->names) || !find_properties(o) || !find_extras(o))
        return TR_G_NONE;
    *never = !can_be(o);
    return *never ? tr_g_never(c->b) : automaton(o);
}
