/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/schema_oneof.c - whether no value obeys two demands at once; see schema_priv.h.  Kinds, numbers
 * and constants are compared, and in objects one property that both demand. */
#include "grammar/schema_priv.h"

enum { DEPTH = 4 };

/* No value of a's list is allowed by b. */
static bool list_apart(struct tr_sc *c, const struct tr_spec *a, const struct tr_demand *da,
                       const struct tr_spec *b, const struct tr_demand *db)
{
    if (a->only_const)
        return !tr_sc_allows(c, da, a, a->only) || !tr_sc_allows(c, db, b, a->only);
    for (struct tr_json_it it = tr_json_iter(a->only); tr_json_step(&it);)
        if (tr_sc_allows(c, da, a, it.val) && tr_sc_allows(c, db, b, it.val))
            return false;
    return true;
}

static bool numbers_apart(const struct tr_drange *a, const struct tr_drange *b)
{
    int x = a->has_lo && b->has_hi ? tr_dec_cmp(&a->lo, &b->hi) : -1;
    int y = b->has_lo && a->has_hi ? tr_dec_cmp(&b->lo, &a->hi) : -1;
    return x > 0 || y > 0 || (x == 0 && (a->lo_open || b->hi_open)) ||
           (y == 0 && (b->lo_open || a->hi_open));
}

static bool strings_apart(struct tr_sc *c, const struct tr_spec *a, const struct tr_spec *b)
{
    if (a->min_len > b->max_len || b->min_len > a->max_len)
        return true;
    if (!a->text || !b->text)
        return false;
    const struct tr_fa *both = tr_fa_and(&c->w, a->text, b->text);
    return both && !both->n;
}

/* Some part says that the key may not be there. */
static bool forbids(struct tr_sc *c, const struct tr_demand *d, const struct tr_json *key)
{
    struct tr_demand *v = tr_sc_property(c, d, key->u.s, key->len);
    return v && v->never;
}

/* A property that a demands and b forbids, or that both demand with values that are apart. */
static bool objects_apart(struct tr_sc *c, struct tr_demand *a, struct tr_demand *b, unsigned depth)
{
    for (uint32_t i = 0; i < a->n; i++)
        for (struct tr_json_it it = tr_json_iter(TR_JSON_GET(a->part[i].schema, "required"));
             tr_json_step(&it);) {
            const char *key = it.val->u.s;
            if (!tr_gbudget_step(&c->w, 16))
                return tr_sc_full(c, it.val);
            if (!tr_json_is(it.val, TR_JSON_STRING))
                return false;
            if (forbids(c, b, it.val))
                return true;
            if (!tr_sc_requires(b, key, it.val->len))
                continue;
            struct tr_demand *x = tr_sc_property(c, a, key, it.val->len);
            struct tr_demand *y = x ? tr_sc_property(c, b, key, it.val->len) : NULL;
            if (!y)
                return false;
            if (tr_sc_apart(c, x, y, depth + 1))
                return true;
        }
    return false;
}

bool tr_sc_apart(struct tr_sc *c, struct tr_demand *a, struct tr_demand *b, unsigned depth)
{
    if (a->never || b->never)
        return true;
    const struct tr_spec *x = tr_sc_spec(c, a);
    const struct tr_spec *y = x ? tr_sc_spec(c, b) : NULL;
    if (!y || depth > DEPTH)
        return false;
    unsigned both = x->types & y->types;
    if (!both)
        return true;
    if (x->anyof || x->oneof || y->anyof || y->oneof)
        return false;
    if (x->only && list_apart(c, x, a, y, b))
        return true;
    if (y->only && list_apart(c, y, b, x, a))
        return true;
    if (both & (TR_SC_NULL | TR_SC_BOOL | TR_SC_ARRAY))
        return false;
    if (both & TR_SC_NUMBER && !numbers_apart(&x->num, &y->num))
        return false;
    if (both & TR_SC_STRING && !strings_apart(c, x, y))
        return false;
    return !(both & TR_SC_OBJECT) || objects_apart(c, a, b, depth) || objects_apart(c, b, a, depth);
}
