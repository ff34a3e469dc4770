/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_filter_key.c - filters that order, group or choose items by a key. */
#include "text/jinja_priv.h"
#include "text/jinja_uni.h"

#define FN(name)                                                                                   \
    static struct tr_jv *name(struct tr_jctx *c, struct tr_jv *v, const struct tr_jargs *a)

static bool truth(const struct tr_jv *v)
{
    return v && tr_jtruth(v);
}

/* What was not found is `none` if that is given. */
static struct tr_jv *item_or(struct tr_jctx *c, struct tr_jv *item, struct tr_jv *key,
                             struct tr_jv *none)
{
    struct tr_jv *v = tr_jgetitem(c, item, key);
    return v && v->type == TR_JV_UNDEF && tr_jgiven(none) ? none : v;
}

/* item.a.b of an attribute "a.b"; digits are indices.  attribute NULL or none: the item. */
static struct tr_jv *attribute_or(struct tr_jctx *c, struct tr_jv *item, struct tr_jv *attribute,
                                  struct tr_jv *none)
{
    if (!tr_jgiven(attribute))
        return item;
    if (attribute->type != TR_JV_STR)
        return item_or(c, item, attribute, none);
    struct tr_jstr dot = tr_jstr_of(".");
    struct tr_jv *parts = tr_jstr_split(c, attribute->s, &dot, -1, false);
    for (size_t i = 0; parts && item && i < parts->l.n; i++) {
        struct tr_jv *key = parts->l.v[i];
        bool digits = key->s.len != 0;
        for (size_t k = 0; k < key->s.len; k++)
            digits = digits && key->s.p[k] >= '0' && key->s.p[k] <= '9';
        if (digits)
            key = tr_jint_text(c, key->s);
        item = key ? item_or(c, item, key, none) : NULL;
    }
    return parts ? item : NULL;
}

struct tr_jv *tr_jattribute(struct tr_jctx *c, struct tr_jv *item, struct tr_jv *attribute)
{
    return attribute_or(c, item, attribute, NULL);
}

/* What an item is sorted by: its attribute, and that without case unless `exact`. */
static struct tr_jv *key_of(struct tr_jctx *c, struct tr_jv *item, struct tr_jv *attribute,
                            bool exact)
{
    struct tr_jv *k = tr_jattribute(c, item, attribute);
    return k && !exact && k->type == TR_JV_STR ? tr_juni_map(c, k->s, TR_JUNI_LOWER) : k;
}

bool tr_jkeys(struct tr_jctx *c, const struct tr_jlist *l, struct tr_jv *attribute, bool exact,
              struct tr_jlist *keys)
{
    *keys = (struct tr_jlist){0};
    for (size_t i = 0; i < l->n; i++)
        if (!tr_jlist_add(c, keys, key_of(c, l->v[i], attribute, exact)))
            return false;
    return true;
}

/* The items of `l` in the order of `keys`. */
static bool sorted(struct tr_jctx *c, const struct tr_jlist *l, const struct tr_jlist *keys,
                   bool reverse, struct tr_jlist *out)
{
    size_t *order = tr_jalloc_n(c, l->n, sizeof *order);
    *out = (struct tr_jlist){0};
    for (size_t i = 0; order && i < l->n; i++)
        order[i] = i;
    if (!order || !tr_jsort(c, order, keys->v, l->n, reverse))
        return false;
    for (size_t i = 0; i < l->n; i++)
        if (!tr_jlist_add(c, out, l->v[order[i]]))
            return false;
    return true;
}

/* The sort filter's keys are lists, one item for each of the attributes "a,b": equal items are never
 * asked which is less. */
static bool sort_keys(struct tr_jctx *c, const struct tr_jlist *l, struct tr_jv *attribute,
                      bool exact, struct tr_jlist *keys)
{
    struct tr_jstr comma = tr_jstr_of(",");
    struct tr_jv *parts = NULL;

    if (tr_jgiven(attribute) && attribute->type == TR_JV_STR &&
        !(parts = tr_jstr_split(c, attribute->s, &comma, -1, false)))
        return false;
    *keys = (struct tr_jlist){0};
    for (size_t i = 0; i < l->n; i++) {
        struct tr_jv *key = tr_jnew_list(c, TR_JV_TUPLE, 1);
        for (size_t k = 0; key && k < (parts ? parts->l.n : 1); k++)
            if (!tr_jlist_add(c, &key->l,
                              key_of(c, l->v[i], parts ? parts->l.v[k] : attribute, exact)))
                return false;
        if (!tr_jlist_add(c, keys, key))
            return false;
    }
    return true;
}

/* sorted() wants an integer there. */
static bool want_reverse(struct tr_jctx *c, const struct tr_jv *v, bool *out)
{
    int64_t i = 0;
    if (v && !tr_jas_int(v, &i)) {
        tr_jfail(c, TR_JERR_RUNTIME, "'%s' object cannot be interpreted as an integer",
                 tr_jtype_name(v));
        return false;
    }
    *out = i != 0;
    return true;
}

FN(f_sort)
{
    bool reverse;
    struct tr_jlist l;
    struct tr_jlist keys;
    struct tr_jlist out;
    if (!tr_jiterate(c, v, &l) || !sort_keys(c, &l, a->pos[2], truth(a->pos[1]), &keys) ||
        !want_reverse(c, a->pos[0], &reverse) || !sorted(c, &l, &keys, reverse, &out))
        return NULL;
    return tr_jlist_value(c, out, v->user);
}

FN(f_dictsort)
{
    bool reverse;
    struct tr_jlist l;
    struct tr_jlist out;
    struct tr_jlist keys;
    struct tr_jv pos = {.type = TR_JV_INT, .i = 0};
    if (v->type != TR_JV_DICT)
        return tr_jfail(c, TR_JERR_RUNTIME, "'%s' object has no attribute 'items'",
                        tr_jtype_name(v));
    if (a->pos[1]) {
        bool value = a->pos[1]->type == TR_JV_STR && tr_jstr_is(a->pos[1]->s, "value");
        if (!value && (a->pos[1]->type != TR_JV_STR || !tr_jstr_is(a->pos[1]->s, "key")))
            return tr_jfail(c, TR_JERR_RUNTIME, "You can only sort by either \"key\" or \"value\"");
        pos.i = value;
    }
    struct tr_jv view = {.type = TR_JV_VIEW, .user = v->user};
    view.view.d = &v->d;
    view.view.kind = TR_JVIEW_ITEMS;
    if (!tr_jiterate(c, &view, &l) || !tr_jkeys(c, &l, &pos, truth(a->pos[0]), &keys) ||
        !want_reverse(c, a->pos[2], &reverse) || !sorted(c, &l, &keys, reverse, &out))
        return NULL;
    return tr_jlist_value(c, out, v->user);
}

static struct tr_jv *extreme(struct tr_jctx *c, struct tr_jv *v, const struct tr_jargs *a, bool max)
{
    struct tr_jlist l;
    struct tr_jlist keys;
    size_t best = 0;
    if (!tr_jiterate(c, v, &l) || !tr_jkeys(c, &l, a->pos[1], truth(a->pos[0]), &keys))
        return NULL;
    if (!l.n)
        return tr_jnew_undef(c, "No aggregated item, sequence was empty.");
    for (size_t i = 1; i < l.n; i++) {
        int better = tr_jless(c, max ? ">" : "<", keys.v[i], keys.v[best]);
        if (better < 0)
            return NULL;
        best = better ? i : best;
    }
    return l.v[best];
}

FN(f_max)
{
    return extreme(c, v, a, true);
}

FN(f_min)
{
    return extreme(c, v, a, false);
}

FN(f_unique)
{
    struct tr_jlist l;
    struct tr_jlist keys;
    struct tr_jlist out = {0};
    struct tr_jdict seen = {0};
    if (!tr_jiterate(c, v, &l) || !tr_jkeys(c, &l, a->pos[1], truth(a->pos[0]), &keys))
        return NULL;
    for (size_t i = 0; i < l.n; i++) {
        size_t before = seen.n;
        if (!tr_jdict_set(c, &seen, keys.v[i], &c->none))
            return NULL;
        if (seen.n > before && !tr_jlist_add(c, &out, l.v[i]))
            return NULL;
    }
    return tr_jnew_gen(c, "generator", out);
}

/* What groupby sorts an item by, and compares. */
static struct tr_jv *group_key(struct tr_jctx *c, struct tr_jv *item, const struct tr_jargs *a)
{
    struct tr_jv *k = attribute_or(c, item, a->pos[0], a->pos[1]);
    return k && !truth(a->pos[2]) && k->type == TR_JV_STR ? tr_juni_map(c, k->s, TR_JUNI_LOWER) : k;
}

FN(f_groupby)
{
    struct tr_jlist l;
    struct tr_jlist keys = {0};
    struct tr_jlist items;
    if (!tr_jiterate(c, v, &l))
        return NULL;
    for (size_t i = 0; i < l.n; i++)
        if (!tr_jlist_add(c, &keys, group_key(c, l.v[i], a)))
            return NULL;
    if (!sorted(c, &l, &keys, false, &items))
        return NULL;
    struct tr_jv *out = tr_jnew_list(c, TR_JV_LIST, 0);
    struct tr_jv *last = NULL;
    struct tr_jv *members = NULL;
    for (size_t i = 0; out && i < items.n; i++) {
        struct tr_jv *key = group_key(c, items.v[i], a);
        int same = key && last ? tr_jequal(c, last, key) : 0;
        if (!key || same < 0)
            return NULL;
        if (!same) {
            struct tr_jv *pair = tr_jnew_list(c, TR_JV_TUPLE, 2);
            members = tr_jnew_list(c, TR_JV_LIST, 0);
            struct tr_jv *shown = attribute_or(c, items.v[i], a->pos[0], a->pos[1]);
            if (!pair || !members || !shown || !tr_jlist_add(c, &out->l, pair))
                return NULL;
            pair->group = true;
            pair->user = members->user = v->user;
            pair->l.v[0] = shown;
            pair->l.v[1] = members;
            pair->l.n = 2;
        }
        last = key;
        if (!tr_jlist_add(c, &members->l, items.v[i]))
            return NULL;
    }
    return out;
}

const struct tr_jbuiltin tr_jfilters_key[] = {
    {"dictsort", f_dictsort, "case_sensitive by reverse", 0},
    {"groupby", f_groupby, "attribute default case_sensitive", 1},
    {"max", f_max, "case_sensitive attribute", 0},
    {"min", f_min, "case_sensitive attribute", 0},
    {"sort", f_sort, "reverse case_sensitive attribute", 0},
    {"unique", f_unique, "case_sensitive attribute", 0},
    {0},
};
