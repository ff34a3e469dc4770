/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/schema.c - see schema.h and schema_priv.h.  Values inside objects and arrays wait in a queue,
 * so that a schema that contains itself ends, and nothing recurses but anyOf. */
#include "base/err.h"
#include "grammar/build_priv.h"
#include "grammar/schema_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bool tr_sc_refuse(struct tr_sc *c, const struct tr_json *at, const char *fmt, ...)
{
    if (c->ret)
        return false;
    va_list ap;
    va_start(ap, fmt);
    tr_sentence(c->f->why, sizeof c->f->why, fmt, ap);
    va_end(ap);
    c->f->at = at;
    c->ret = -EINVAL;
    return false;
}

bool tr_sc_full(struct tr_sc *c, const struct tr_json *at)
{
    if (c->ret)
        return false;
    (void)tr_sc_refuse(c, at, "the schema is too large");
    c->ret = tr_gbudget_why(&c->w);
    return false;
}

/* ---- demands ---- */

static bool same_part(const struct tr_sc_part *a, const struct tr_sc_part *b)
{
    return a->schema == b->schema && a->skip == b->skip;
}

static bool add_from(struct tr_sc *c, struct tr_draft *d, struct tr_sc_part part, uint32_t parent)
{
    const struct tr_json *s = part.schema;
    if (tr_json_is(s, TR_JSON_BOOL)) {
        d->never |= !s->u.b;
        return true;
    }
    if (!tr_json_is(s, TR_JSON_OBJECT))
        return tr_sc_refuse(c, s, "a schema is an object, true or false");
    for (uint32_t i = 0; i < d->n; i++)
        if (same_part(&d->part[i], &part)) {
            /* Twice is once; but one that brings itself says nothing. */
            for (uint32_t p = parent; p < d->n; p = d->parent[p]) {
                if (p == i)
                    return tr_sc_refuse(c, s, "the schema refers to itself and says nothing else");
                if (d->parent[p] == p)
                    break;
            }
            return true;
        }
    if (d->n == TR_SC_PARTS)
        return tr_sc_refuse(c, s, "too many schemas for one value (limit %d)", TR_SC_PARTS);
    d->parent[d->n] = (uint8_t)(parent < d->n ? parent : d->n);
    d->part[d->n++] = part;
    return true;
}

bool tr_sc_add_part(struct tr_sc *c, struct tr_draft *d, struct tr_sc_part part)
{
    return add_from(c, d, part, UINT32_MAX);
}

bool tr_sc_add(struct tr_sc *c, struct tr_draft *d, const struct tr_json *schema)
{
    return tr_sc_add_part(c, d, (struct tr_sc_part){schema, 0});
}

/* One step of a JSON pointer (RFC 6901) inside v: the token s[0, n) with its escapes. */
static const struct tr_json *step_into(const struct tr_json *v, const char *s, size_t n)
{
    char key[256];
    size_t k = 0;
    if (n > sizeof key)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        bool escape = s[i] == '~' && i + 1 < n && (s[i + 1] == '0' || s[i + 1] == '1');
        key[k++] = !escape ? s[i] : s[i + 1] == '0' ? '~' : '/';
        i += escape;
    }
    if (tr_json_is(v, TR_JSON_OBJECT))
        return tr_json_get(v, key, k);
    if (!tr_json_is(v, TR_JSON_ARRAY) || !k || k > 6)
        return NULL;
    uint32_t index = 0;
    for (size_t i = 0; i < k; i++) {
        if (key[i] < '0' || key[i] > '9')
            return NULL;
        index = index * 10 + (uint32_t)(key[i] - '0');
    }
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);)
        if (it.index == index)
            return it.val;
    return NULL;
}

/* What a $ref names; NULL at a fault. */
static const struct tr_json *resolve(struct tr_sc *c, const struct tr_json *ref)
{
    if (!tr_json_is(ref, TR_JSON_STRING))
        return tr_sc_refuse(c, ref, "$ref is a string"), NULL;
    const char *s = ref->u.s;
    size_t n = ref->len;
    if (!n || s[0] != '#' || (n > 1 && s[1] != '/'))
        return tr_sc_refuse(c, ref, "only references inside the schema are followed (#, #/...)"),
               NULL;
    if (memchr(s, '%', n))
        return tr_sc_refuse(c, ref, "a $ref with %% escapes is not supported"), NULL;
    const struct tr_json *v = c->root;
    for (size_t at = 1; at < n && v;) {
        const char *slash = memchr(s + at + 1, '/', n - at - 1);
        size_t end = slash ? (size_t)(slash - s) : n;
        if (!tr_gbudget_step(&c->w, 1 + (uint64_t)v->len))
            return tr_sc_full(c, ref), NULL;
        v = step_into(v, s + at + 1, end - at - 1);
        at = end;
    }
    if (!v)
        tr_sc_refuse(c, ref, "$ref names nothing in the schema");
    return v;
}

/* Adds what part i of the draft brings. */
static bool follow(struct tr_sc *c, struct tr_draft *d, uint32_t i)
{
    const struct tr_json *s = d->part[i].schema;
    const struct tr_json *ref = TR_JSON_GET(s, "$ref");
    const struct tr_json *all = TR_JSON_GET(s, "allOf");
    if (ref) {
        const struct tr_json *v = resolve(c, ref);
        if (!v || !add_from(c, d, (struct tr_sc_part){v, 0}, i))
            return false;
    }
    if (!all)
        return true;
    if (!tr_json_is(all, TR_JSON_ARRAY) || !all->len)
        return tr_sc_refuse(c, all, "allOf is a list of schemas");
    for (struct tr_json_it it = tr_json_iter(all); tr_json_step(&it);)
        if (!add_from(c, d, (struct tr_sc_part){it.val, 0}, i))
            return false;
    return true;
}

static int by_place(const void *a, const void *b)
{
    const struct tr_sc_part *x = a;
    const struct tr_sc_part *y = b;
    if (x->schema != y->schema)
        return x->schema < y->schema ? -1 : 1;
    return (x->skip > y->skip) - (x->skip < y->skip);
}

struct tr_demand *tr_sc_demand(struct tr_sc *c, struct tr_draft *d)
{
    for (uint32_t i = d->followed; i < d->n; i++)
        if (!tr_gbudget_step(&c->w, 1 + d->n) || !follow(c, d, i))
            return tr_sc_full(c, NULL), NULL;
    /* What only brought others is not needed: all that refer to one schema have one demand. */
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n; i++)
        if (tr_sc_says(&d->part[i]))
            d->part[n++] = d->part[i];
    d->n = n;
    /* Sorted, so that the same parts have one number; their order in the text is kept by that. */
    qsort(d->part, d->n, sizeof *d->part, by_place);
    struct tr_sc_part key[TR_SC_PARTS + 1];
    memcpy(key, d->part, d->n * sizeof *key);
    key[d->n] = (struct tr_sc_part){NULL, d->never};
    uint32_t known = tr_fa_count(c->names);
    uint32_t id = tr_fa_state(c->names, key, (d->n + 1) * sizeof *key);
    if (id == UINT32_MAX)
        return tr_sc_full(c, NULL), NULL;
    if (id < known)
        return c->demand[id];
    struct tr_demand *new = tr_gbudget_alloc(&c->w, sizeof *new);
    struct tr_sc_part *part = tr_gbudget_alloc(&c->w, d->n * sizeof *part);
    if (!new || !part)
        return tr_sc_full(c, NULL), NULL;
    memcpy(part, d->part, d->n * sizeof *part);
    new->part = part;
    new->n = d->n;
    new->never = d->never;
    c->demand[id] = new;
    return new;
}

/* ---- nodes ---- */

static tr_gnode compile(struct tr_sc *c, struct tr_demand *d);

/* The demand of d with branch instead of the anyOf or oneOf that part `at` has. */
static struct tr_demand *branch_of(struct tr_sc *c, const struct tr_demand *d, uint32_t at,
                                   uint64_t skip, const struct tr_json *branch)
{
    struct tr_draft x = {.n = 0};
    x.never = d->never;
    for (uint32_t i = 0; i < d->n; i++) {
        struct tr_sc_part p = d->part[i];
        p.skip |= i == at ? skip : 0;
        if (!tr_sc_add_part(c, &x, p))
            return NULL;
    }
    x.followed = x.n;
    return tr_sc_add(c, &x, branch) ? tr_sc_demand(c, &x) : NULL;
}

static bool all_apart(struct tr_sc *c, struct tr_demand **v, uint32_t n, const struct tr_json *at)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = i + 1; k < n; k++) {
            if (!tr_gbudget_step(&c->w, 16))
                return tr_sc_full(c, at);
            if (!tr_sc_apart(c, v[i], v[k], 0))
                return tr_sc_refuse(c, at,
                                    "oneOf is supported where the schemas exclude each other by "
                                    "their types or by different constants; %u and %u do not: use "
                                    "anyOf",
                                    i, k);
        }
    return true;
}

/* d has an anyOf or oneOf: one of its branches. */
static tr_gnode choice(struct tr_sc *c, const struct tr_demand *d, const struct tr_json *list,
                       uint32_t part, bool one, bool *never)
{
    const char *name = one ? "oneOf" : "anyOf";
    if (!tr_json_is(list, TR_JSON_ARRAY) || !list->len)
        return tr_sc_refuse(c, list, "%s is a list of schemas", name), TR_G_NONE;
    if (list->len > TR_SC_BRANCHES)
        return tr_sc_refuse(c, list, "%s has too many schemas (limit %d)", name, TR_SC_BRANCHES),
               TR_G_NONE;
    struct tr_demand **v = tr_gbudget_alloc(&c->w, list->len * sizeof(struct tr_demand *));
    tr_gnode *node = tr_gbudget_alloc(&c->w, list->len * sizeof *node);
    if (!v || !node)
        return tr_sc_full(c, list), TR_G_NONE;
    for (struct tr_json_it it = tr_json_iter(list); tr_json_step(&it);) {
        v[it.index] = branch_of(c, d, part, one ? TR_SC_NO_ONEOF : TR_SC_NO_ANYOF, it.val);
        if (!v[it.index])
            return TR_G_NONE;
    }
    if (one && !all_apart(c, v, list->len, list))
        return TR_G_NONE;
    uint32_t n = 0;
    uint32_t calls = 0;
    for (uint32_t i = 0; i < list->len; i++) {
        tr_gnode x = compile(c, v[i]);
        if (x == TR_G_NONE)
            return TR_G_NONE;
        if (!v[i]->never)
            node[n++] = x;
        calls += x == v[i]->rule;
    }
    /* A matcher follows each call that may be meant, and no more than TR_GRAM_HEADS; written in place, what
     * begins alike is one. */
    for (uint32_t i = 0, k = 0; i < list->len && calls > TR_SC_CALLS; i++)
        if (!v[i]->never)
            node[k++] = v[i]->body;
    *never = !n;
    return tr_g_alt(c->b, node, n);
}

/* The values of the kinds that s allows, one alternative each. */
static tr_gnode kinds(struct tr_sc *c, const struct tr_demand *d, const struct tr_spec *s,
                      bool *none)
{
    tr_gnode v[8];
    uint32_t n = 0;
    bool never = false;
    if (!d->n) /* no demand at all */
        return tr_gj_value(&c->j);
    if (s->types & TR_SC_OBJECT) {
        v[n] = tr_sc_object(c, d, s, &never);
        n += !never;
    }
    if (s->types & TR_SC_ARRAY && !c->ret) {
        never = false;
        v[n] = tr_sc_array(c, d, s, &never);
        n += !never;
    }
    if (s->types & TR_SC_STRING && !c->ret) {
        never = false;
        v[n] = tr_sc_string(c, s, &never);
        n += !never;
    }
    if (s->types & TR_SC_NUMBER && !c->ret) {
        never = false;
        v[n] = tr_sc_number(c, s, &never);
        n += !never;
    }
    if (s->types & TR_SC_BOOL) {
        v[n++] = tr_sc_text(c, "true", 4);
        v[n++] = tr_sc_text(c, "false", 5);
    }
    if (s->types & TR_SC_NULL)
        v[n++] = tr_sc_text(c, "null", 4);
    *none = !n;
    return tr_g_alt(c->b, v, n);
}

/* The node of a demand, *never if nothing obeys it. */
static tr_gnode body(struct tr_sc *c, const struct tr_demand *d, const struct tr_spec *s,
                     bool *never)
{
    if (s->anyof)
        return choice(c, d, s->anyof, s->anyof_part, false, never);
    if (s->oneof)
        return choice(c, d, s->oneof, s->oneof_part, true, never);
    if (s->only)
        return tr_sc_enum(c, d, s, never);
    return kinds(c, d, s, never);
}

/* Values that cannot contain others; small enough to be written in place. */
static bool is_plain(const struct tr_spec *s)
{
    return !s->anyof && !s->oneof && !(s->types & (TR_SC_OBJECT | TR_SC_ARRAY)) && !s->text &&
           !s->only;
}

static const struct tr_json *place(const struct tr_demand *d)
{
    return d->n ? d->part[0].schema : NULL;
}

static tr_gnode compile(struct tr_sc *c, struct tr_demand *d)
{
    if (d->done)
        return d->node;
    if (d->busy)
        return tr_sc_refuse(c, place(d), "the schema refers to itself and says nothing else"),
               TR_G_NONE;
    const struct tr_spec *s = tr_sc_spec(c, d);
    if (!s)
        return TR_G_NONE;
    if (c->depth == TR_SC_DEPTH)
        return tr_sc_refuse(c, place(d), "anyOf is nested too deep"), TR_G_NONE;
    c->depth++;
    d->busy = true;
    bool never = d->never;
    tr_gnode node = never ? tr_g_never(c->b) : body(c, d, s, &never);
    d->busy = false;
    c->depth--;
    if (c->ret)
        return TR_G_NONE;
    if (node == TR_G_NONE)
        return tr_sc_full(c, place(d)), TR_G_NONE;
    d->never = never;
    if (!d->rule && !is_plain(s))
        d->rule = tr_g_rule(c->b);
    if (d->rule)
        tr_g_define(c->b, d->rule, node);
    d->body = node;
    d->node = d->rule ? d->rule : node;
    d->done = true;
    return d->node;
}

tr_gnode tr_sc_value(struct tr_sc *c, struct tr_demand *d)
{
    if (d->done)
        return d->node;
    const struct tr_spec *s = tr_sc_spec(c, d);
    if (!s)
        return TR_G_NONE;
    if (d->never)
        return tr_g_never(c->b);
    if (is_plain(s) && !d->busy && !d->queued)
        return compile(c, d);
    if (!d->n)
        return tr_gj_value(&c->j);
    if (!d->rule)
        d->rule = tr_g_rule(c->b);
    if (!d->queued && !d->busy)
        c->queue[c->n_queue++] = d;
    d->queued = true;
    return d->rule;
}

static tr_gnode compile_all(struct tr_sc *c, const struct tr_json *schema)
{
    struct tr_draft x = {.n = 0};
    if (!tr_sc_add(c, &x, schema))
        return TR_G_NONE;
    struct tr_demand *root = tr_sc_demand(c, &x);
    tr_gnode node = root ? compile(c, root) : TR_G_NONE;
    if (node != TR_G_NONE && root->never)
        return tr_sc_refuse(c, schema, "no value obeys the schema"), TR_G_NONE;
    for (uint32_t i = 0; i < c->n_queue && !c->ret; i++)
        (void)compile(c, c->queue[i]);
    return c->ret ? TR_G_NONE : node;
}

int tr_gschema(struct tr_gbuild *b, const struct tr_json_doc *doc, const struct tr_json *schema,
               tr_gnode *out, struct tr_gfault *f)
{
    struct tr_sc c = {.b = b, .j = {.b = b}, .doc = doc, .root = schema, .f = f};
    tr_gbudget_init(&c.w);
    uint64_t left = TR_GSCHEMA_STEPS - b->schema_steps;
    if (c.w.steps_left > left)
        c.w.steps_left = left;
    left = c.w.steps_left;
    c.names = tr_fa_new(&c.w);
    c.demand = tr_gbudget_alloc(&c.w, TR_FA_STATES * sizeof(struct tr_demand *));
    c.queue = tr_gbudget_alloc(&c.w, TR_FA_STATES * sizeof(struct tr_demand *));
    if (!c.names || !c.demand || !c.queue)
        (void)tr_sc_full(&c, NULL);
    tr_gnode node = c.ret ? TR_G_NONE : compile_all(&c, schema);
    if (!c.ret && tr_gbuild_failed(b)) {
        (void)tr_sc_full(&c, NULL);
        c.ret = tr_gbuild_failed(b);
    }
    if (!c.ret && node == TR_G_NONE)
        (void)tr_sc_full(&c, schema);
    if (!c.ret)
        *out = node;
    b->schema_steps += c.w.too_large ? left : left - c.w.steps_left;
    tr_gbudget_fini(&c.w);
    return c.ret;
}
