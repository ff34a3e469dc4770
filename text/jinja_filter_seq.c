/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_filter_seq.c - filters on sequences and mappings. */
#include "text/jinja_priv.h"

#include <string.h>

#define FN(name)                                                                                   \
    static struct tr_jv *name(struct tr_jctx *c, struct tr_jv *v, const struct tr_jargs *a)

struct tr_jv *tr_jlist_value(struct tr_jctx *c, struct tr_jlist l, bool user)
{
    struct tr_jv *out = tr_jnew(c, TR_JV_LIST);
    if (out) {
        out->l = l;
        out->user = user;
    }
    return out;
}

FN(f_length)
{
    (void)a;
    int64_t n = tr_jlength(c, v);
    return n < 0 ? NULL : tr_jnew_int(c, n);
}

FN(f_first)
{
    struct tr_jlist l;
    (void)a;
    if (v->type == TR_JV_GEN && v->gen.next < v->gen.l.n)
        return v->gen.l.v[v->gen.next++];
    if (!tr_jiterate(c, v, &l))
        return NULL;
    return l.n ? l.v[0] : tr_jnew_undef(c, "No first item, sequence was empty.");
}

FN(f_last)
{
    struct tr_jlist l;
    (void)a;
    if (v->type == TR_JV_GEN)
        return tr_jfail(c, TR_JERR_RUNTIME, "'%s' object is not reversible", tr_jtype_name(v));
    if (!tr_jiterate(c, v, &l))
        return NULL;
    return l.n ? l.v[l.n - 1] : tr_jnew_undef(c, "No last item, sequence was empty.");
}

FN(f_list)
{
    struct tr_jlist l;
    (void)a;
    return tr_jiterate(c, v, &l) ? tr_jlist_value(c, l, v->user) : NULL;
}

FN(f_items)
{
    struct tr_jlist l = {0};
    (void)a;
    if (v->type != TR_JV_UNDEF && v->type != TR_JV_DICT)
        return tr_jfail(c, TR_JERR_RUNTIME, "Can only get item pairs from a mapping.");
    struct tr_jv view = {.type = TR_JV_VIEW, .user = v->user};
    view.view.d = &v->d;
    view.view.kind = TR_JVIEW_ITEMS;
    if (v->type == TR_JV_DICT && !tr_jiterate(c, &view, &l))
        return NULL;
    return tr_jnew_gen(c, "generator", l);
}

FN(f_join)
{
    struct tr_jlist l;
    struct tr_jlist parts;
    struct tr_jv *sep = a->pos[0] ? tr_jto_str(c, a->pos[0]) : tr_jnew_cstr(c, "");
    if (!sep || !tr_jiterate(c, v, &l) || !tr_jkeys(c, &l, a->pos[1], true, &parts))
        return NULL;
    return tr_jstr_join(c, sep->s, &parts, true);
}

FN(f_reverse)
{
    struct tr_jlist l;
    (void)a;
    if (v->type == TR_JV_STR) {
        struct tr_jv step = {.type = TR_JV_INT, .i = -1};
        return tr_jslice(c, v, (struct tr_jv *const[3]){NULL, NULL, &step});
    }
    if (!tr_jiterate(c, v, &l))
        return NULL;
    struct tr_jv *out = tr_jnew_list(c, TR_JV_LIST, l.n);
    if (!out)
        return NULL;
    for (size_t i = 0; i < l.n; i++)
        out->l.v[i] = l.v[l.n - 1 - i];
    out->l.n = l.n;
    /* What cannot be reversed in place is turned into a list first. */
    bool list = v->type == TR_JV_GEN || v->type == TR_JV_UNDEF;
    return list ? out : tr_jnew_gen(c, "list_reverseiterator", out->l);
}

FN(f_sum)
{
    struct tr_jlist l;
    struct tr_jlist parts;
    struct tr_jv *sum = a->pos[1] ? a->pos[1] : tr_jnew_int(c, 0);
    if (!tr_jiterate(c, v, &l) || !tr_jkeys(c, &l, a->pos[0], true, &parts))
        return NULL;
    if (sum && sum->type == TR_JV_STR)
        return tr_jfail(c, TR_JERR_RUNTIME, "sum() can't sum strings");
    for (size_t i = 0; sum && i < parts.n; i++)
        sum = tr_jarith(c, '+', sum, parts.v[i]);
    return sum;
}

FN(f_batch)
{
    struct tr_jlist l;
    struct tr_jlist out = {0};
    int64_t size;
    if (!tr_jas_int(a->pos[0], &size))
        return tr_jfail(c, TR_JERR_RUNTIME, "batch wants a number");
    if (!tr_jiterate(c, v, &l))
        return NULL;
    /* Below one nothing is ever full, but what is empty is full at 0. */
    if (size == 0 && l.n && !tr_jlist_add(c, &out, tr_jnew_list(c, TR_JV_LIST, 0)))
        return NULL;
    if (size < 1)
        size = INT64_MAX;
    for (size_t i = 0; i < l.n;) {
        struct tr_jv *part = tr_jnew_list(c, TR_JV_LIST, 0);
        for (int64_t k = 0; part && k < size && i < l.n; k++, i++)
            if (!tr_jlist_add(c, &part->l, l.v[i]))
                return NULL;
        while (part && tr_jgiven(a->pos[1]) && size != INT64_MAX && (int64_t)part->l.n < size)
            if (!tr_jstep(c, 1) || !tr_jlist_add(c, &part->l, a->pos[1]))
                return NULL;
        if (!tr_jlist_add(c, &out, part))
            return NULL;
        if (part)
            part->user = v->user;
    }
    return tr_jnew_gen(c, "generator", out);
}

FN(f_slice)
{
    struct tr_jlist l;
    struct tr_jlist out = {0};
    int64_t slices;
    if (!tr_jas_int(a->pos[0], &slices) || slices < 1)
        return tr_jfail(c, TR_JERR_RUNTIME, "slice wants a positive number");
    if (!tr_jiterate(c, v, &l))
        return NULL;
    size_t each = l.n / (size_t)slices;
    size_t extra = l.n % (size_t)slices;
    size_t at = 0;
    for (int64_t s = 0; s < slices; s++) {
        struct tr_jv *part = tr_jnew_list(c, TR_JV_LIST, 0);
        size_t n = each + ((size_t)s < extra);
        for (size_t k = 0; part && k < n; k++)
            if (!tr_jlist_add(c, &part->l, l.v[at++]))
                return NULL;
        if (part && tr_jgiven(a->pos[1]) && (size_t)s >= extra &&
            !tr_jlist_add(c, &part->l, a->pos[1]))
            return NULL;
        if (!tr_jstep(c, 1) || !tr_jlist_add(c, &out, part))
            return NULL;
        if (part)
            part->user = v->user;
    }
    return tr_jnew_gen(c, "generator", out);
}

/* The arguments behind the first `n`. */
static struct tr_jargs args_from(const struct tr_jargs *a, size_t n)
{
    struct tr_jargs rest = *a;
    if (n) { /* without arguments pos is NULL */
        rest.pos += n;
        rest.n -= n;
    }
    return rest;
}

static const struct tr_jbuiltin *named(struct tr_jctx *c, const struct tr_jv *name, bool test)
{
    if (name->type != TR_JV_STR)
        return tr_jfail(c, TR_JERR_RUNTIME, "the name of a filter or test must be a string");
    const struct tr_jbuiltin *row = test ? tr_jtest_find(name->s) : tr_jfilter_find(name->s);
    return row ? row
               : tr_jfail(c, TR_JERR_RUNTIME, "No %s named '%.*s'.", test ? "test" : "filter",
                          (int)(name->s.len > 100 ? 100 : name->s.len), name->s.p);
}

/* map(attribute=..., default=...) */
static struct tr_jv *map_attribute(struct tr_jctx *c, const struct tr_jlist *l,
                                   const struct tr_jargs *a)
{
    struct tr_jlist out = {0};
    struct tr_jv *attribute = NULL;
    struct tr_jv *otherwise = NULL;
    for (size_t i = 0; i < a->n_kw; i++) {
        if (tr_jstr_is(a->kw[i], "attribute"))
            attribute = a->kwv[i];
        else if (tr_jstr_is(a->kw[i], "default"))
            otherwise = a->kwv[i];
        else
            return tr_jfail(c, TR_JERR_RUNTIME, "map got an unexpected keyword argument");
    }
    if (!attribute)
        return tr_jfail(c, TR_JERR_RUNTIME, "map requires a filter argument");
    for (size_t i = 0; i < l->n; i++) {
        struct tr_jv *item = tr_jattribute(c, l->v[i], attribute);
        if (item && item->type == TR_JV_UNDEF && tr_jgiven(otherwise))
            item = otherwise;
        if (!tr_jlist_add(c, &out, item))
            return NULL;
    }
    return tr_jnew_gen(c, "generator", out);
}

FN(f_map)
{
    struct tr_jlist l = {0};
    struct tr_jlist out = {0};
    if (tr_jtruth(v) && !tr_jiterate(c, v, &l))
        return NULL;
    if (!a->n)
        return map_attribute(c, &l, a);
    const struct tr_jbuiltin *row = named(c, a->pos[0], false);
    struct tr_jargs rest = args_from(a, 1);
    for (size_t i = 0; row && i < l.n; i++)
        if (!tr_jlist_add(c, &out, tr_jcall_row(c, row, l.v[i], &rest)))
            return NULL;
    return row ? tr_jnew_gen(c, "generator", out) : NULL;
}

/* select, reject, selectattr, rejectattr */
static struct tr_jv *choose(struct tr_jctx *c, struct tr_jv *v, const struct tr_jargs *a, bool attr,
                            bool keep)
{
    struct tr_jlist l = {0};
    struct tr_jlist out = {0};
    const struct tr_jbuiltin *row = NULL;
    if (tr_jtruth(v) && !tr_jiterate(c, v, &l))
        return NULL;
    if (attr && !a->n)
        return tr_jfail(c, TR_JERR_RUNTIME, "Missing parameter for attribute name");
    struct tr_jargs rest = args_from(a, attr);
    if (rest.n) {
        row = named(c, rest.pos[0], true);
        if (!row)
            return NULL;
        rest = args_from(&rest, 1);
    }
    for (size_t i = 0; i < l.n; i++) {
        struct tr_jv *x = tr_jattribute(c, l.v[i], attr ? a->pos[0] : NULL);
        struct tr_jv *r = x && row ? tr_jcall_row(c, row, x, &rest) : x;
        if (!r || !tr_jstep(c, 1))
            return NULL;
        if (tr_jtruth(r) == keep && !tr_jlist_add(c, &out, l.v[i]))
            return NULL;
    }
    return tr_jnew_gen(c, "generator", out);
}

FN(f_select)
{
    return choose(c, v, a, false, true);
}

FN(f_reject)
{
    return choose(c, v, a, false, false);
}

FN(f_selectattr)
{
    return choose(c, v, a, true, true);
}

FN(f_rejectattr)
{
    return choose(c, v, a, true, false);
}

const struct tr_jbuiltin tr_jfilters_seq[] = {
    {"batch", f_batch, "linecount fill_with", 1},
    {"count", f_length, "", 0},
    {"first", f_first, "", 0},
    {"items", f_items, "", 0},
    {"join", f_join, "d attribute", 0},
    {"last", f_last, "", 0},
    {"length", f_length, "", 0},
    {"list", f_list, "", 0},
    {"map", f_map, "*", 0},
    {"reject", f_reject, "*", 0},
    {"rejectattr", f_rejectattr, "*", 0},
    {"reverse", f_reverse, "", 0},
    {"select", f_select, "*", 0},
    {"selectattr", f_selectattr, "*", 0},
    {"slice", f_slice, "slices fill_with", 1},
    {"sum", f_sum, "attribute start", 0},
    {0},
};
