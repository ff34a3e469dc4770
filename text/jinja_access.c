/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_access.c - attributes, subscripts and slices, as the immutable sandbox allows them:
 * an attribute is looked up on the object first, then as a key; a subscript the other way round.
 * What does not exist is an undefined value, what the sandbox hides an unsafe one. */
#include "text/jinja_priv.h"

#include <string.h>

static const struct tr_jbuiltin methods_none[] = {{0}};
static const struct tr_jbuiltin methods_number[] = {{"real", NULL, "", 0},
                                                    {"imag", NULL, "", 0},
                                                    {"numerator", NULL, "", 0},
                                                    {"denominator", NULL, "", 0},
                                                    {"bit_length", NULL, "", 0},
                                                    {"bit_count", NULL, "", 0},
                                                    {"conjugate", NULL, "", 0},
                                                    {"to_bytes", NULL, "", 0},
                                                    {"from_bytes", NULL, "", 0},
                                                    {"is_integer", NULL, "", 0},
                                                    {"hex", NULL, "", 0},
                                                    {"fromhex", NULL, "", 0},
                                                    {"as_integer_ratio", NULL, "", 0},
                                                    {0}};
static const struct tr_jbuiltin methods_range[] = {{"start", NULL, "", 0}, {"stop", NULL, "", 0},
                                                   {"step", NULL, "", 0},  {"count", NULL, "", 0},
                                                   {"index", NULL, "", 0}, {0}};
static const struct tr_jbuiltin methods_view[] = {
    {"mapping", NULL, "", 0}, {"isdisjoint", NULL, "", 0}, {0}};
static const struct tr_jbuiltin methods_macro[] = {
    {"name", NULL, "", 0},          {"arguments", NULL, "", 0}, {"catch_kwargs", NULL, "", 0},
    {"catch_varargs", NULL, "", 0}, {"caller", NULL, "", 0},    {0}};

static const struct tr_jbuiltin *methods_of(const struct tr_jv *o)
{
    switch (o->type) {
    case TR_JV_STR:
        return tr_jmethods_str;
    case TR_JV_LIST:
        return tr_jmethods_list;
    case TR_JV_TUPLE:
        return tr_jmethods_tuple;
    case TR_JV_DICT:
        return tr_jmethods_dict;
    case TR_JV_LOOP:
        return tr_jmethods_loop;
    case TR_JV_BOOL:
    case TR_JV_INT:
    case TR_JV_BIG:
    case TR_JV_FLOAT:
        return methods_number;
    case TR_JV_RANGE:
        return methods_range;
    case TR_JV_VIEW:
        return methods_view;
    case TR_JV_MACRO:
        return methods_macro;
    default:
        return methods_none;
    }
}

/* What every Python object has; the sandbox hides it. */
static bool is_internal(struct tr_jstr name)
{
    static const char *const names[] = {
        "__class__",    "__delattr__", "__dir__",           "__doc__",          "__eq__",
        "__format__",   "__ge__",      "__getattribute__",  "__getstate__",     "__gt__",
        "__hash__",     "__init__",    "__init_subclass__", "__le__",           "__lt__",
        "__ne__",       "__new__",     "__reduce__",        "__reduce_ex__",    "__repr__",
        "__setattr__",  "__sizeof__",  "__str__",           "__subclasshook__", "__add__",
        "__contains__", "__getitem__", "__iter__",          "__len__",          "__mul__",
        "__dict__",     "__globals__", "__call__",          "__code__",         "__closure__",
        "__module__",   "__mod__",     "__class_getitem__", "__getnewargs__",   "__rmul__"};
    if (name.len < 4 || memcmp(name.p, "__", 2) != 0)
        return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (tr_jstr_is(name, names[i]))
            return true;
    return false;
}

/* Methods that change their object. */
static bool is_mutator(const struct tr_jv *o, struct tr_jstr name)
{
    static const char *const list[] = {"append", "clear",  "extend",  "insert",
                                       "pop",    "remove", "reverse", "sort"};
    static const char *const dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
    for (size_t i = 0; o->type == TR_JV_LIST && i < sizeof list / sizeof list[0]; i++)
        if (tr_jstr_is(name, list[i]))
            return true;
    for (size_t i = 0; o->type == TR_JV_DICT && i < sizeof dict / sizeof dict[0]; i++)
        if (tr_jstr_is(name, dict[i]))
            return true;
    return false;
}

static struct tr_jv *missing(struct tr_jctx *c, struct tr_jv *o, struct tr_jv *key, bool unsafe)
{
    struct tr_jv *u = tr_jnew_missing(c, o, key);
    if (u)
        u->undef.unsafe = unsafe;
    return u;
}

/* loop.index and so on; NULL without an error noted if there is no such attribute. */
static struct tr_jv *loop_attr(struct tr_jctx *c, struct tr_jloop *l, struct tr_jstr name)
{
    size_t n = l->items.n;
    if (tr_jstr_is(name, "index"))
        return tr_jnew_int(c, (int64_t)l->i + 1);
    if (tr_jstr_is(name, "index0"))
        return tr_jnew_int(c, (int64_t)l->i);
    if (tr_jstr_is(name, "revindex"))
        return tr_jnew_int(c, (int64_t)(n - l->i));
    if (tr_jstr_is(name, "revindex0"))
        return tr_jnew_int(c, (int64_t)(n - l->i) - 1);
    if (tr_jstr_is(name, "first"))
        return tr_jbool(c, l->i == 0);
    if (tr_jstr_is(name, "last"))
        return tr_jbool(c, l->i + 1 == n);
    if (tr_jstr_is(name, "length"))
        return tr_jnew_int(c, (int64_t)n);
    if (tr_jstr_is(name, "depth"))
        return tr_jnew_int(c, (int64_t)l->depth0 + 1);
    if (tr_jstr_is(name, "depth0"))
        return tr_jnew_int(c, (int64_t)l->depth0);
    if (tr_jstr_is(name, "previtem"))
        return l->i ? l->items.v[l->i - 1] : tr_jnew_undef(c, "there is no previous item");
    if (tr_jstr_is(name, "nextitem"))
        return l->i + 1 < n ? l->items.v[l->i + 1] : tr_jnew_undef(c, "there is no next item");
    return NULL;
}

/* An attribute of the object itself; NULL without an error noted if it has none of that name. */
static struct tr_jv *own_attr(struct tr_jctx *c, struct tr_jv *o, struct tr_jstr name)
{
    if (o->type == TR_JV_NS)
        return tr_jdict_get_str(c, &o->d, name.p, name.len);
    if (o->type == TR_JV_LOOP) {
        struct tr_jv *v = loop_attr(c, o->loop, name);
        if (v || c->err)
            return v;
    }
    if (o->group && tr_jstr_is(name, "grouper"))
        return o->l.v[0];
    if (o->group && tr_jstr_is(name, "list"))
        return o->l.v[1];
    if (is_internal(name) || is_mutator(o, name))
        return missing(c, o, tr_jnew_str(c, name), true);
    const struct tr_jbuiltin *row = tr_jbuiltin_find(methods_of(o), name);
    if (!row)
        return NULL;
    if (!row->fn)
        return tr_jfail(c, TR_JERR_UNSUPPORTED, "the attribute '%s' of a %s is not supported",
                        row->name, tr_jtype_name(o));
    struct tr_jv *f = tr_jnew(c, TR_JV_FUNC);
    if (f) {
        f->func.row = row;
        f->func.self = o;
    }
    return f;
}

struct tr_jv *tr_jgetattr(struct tr_jctx *c, struct tr_jv *o, struct tr_jstr name)
{
    if (o->type == TR_JV_UNDEF)
        return tr_jfail_undef(c, o);
    struct tr_jv *v = own_attr(c, o, name);
    if (v || c->err)
        return v;
    if (o->type == TR_JV_DICT) {
        v = tr_jdict_get_str(c, &o->d, name.p, name.len);
        if (v || c->err)
            return v;
    }
    return missing(c, o, tr_jnew_str(c, name), false);
}

struct tr_jv *tr_jgetattr_own(struct tr_jctx *c, struct tr_jv *o, struct tr_jstr name)
{
    struct tr_jv *v = own_attr(c, o, name);
    return v || c->err ? v : missing(c, o, tr_jnew_str(c, name), false);
}

/* Item `i` of a sequence, NULL without an error noted if there is none. */
static struct tr_jv *seq_item(struct tr_jctx *c, const struct tr_jv *o, int64_t i)
{
    int64_t n = tr_jlength(c, o);
    if (n < 0)
        return NULL;
    if (i < 0)
        i += n;
    if (i < 0 || i >= n)
        return NULL;
    if (o->type == TR_JV_RANGE)
        return tr_jnew_int(c, o->range.start + i * o->range.step);
    if (o->type != TR_JV_STR)
        return o->l.v[i];
    size_t len;
    size_t at = tr_jstr_offset(o->s, (size_t)i);
    (void)tr_jchar(o->s, at, &len);
    return tr_jnew_str(c, tr_jstr_part(c, o->s, at, at + len));
}

struct tr_jv *tr_jgetitem(struct tr_jctx *c, struct tr_jv *o, struct tr_jv *key)
{
    struct tr_jv *v = NULL;
    int64_t i;
    switch (o->type) {
    case TR_JV_UNDEF:
        return tr_jfail_undef(c, o);
    case TR_JV_STR:
    case TR_JV_LIST:
    case TR_JV_TUPLE:
    case TR_JV_RANGE:
        if (tr_jas_int(key, &i))
            v = seq_item(c, o, i);
        break;
    case TR_JV_DICT:
        if (key->type != TR_JV_LIST && key->type != TR_JV_DICT)
            v = tr_jdict_get(c, &o->d, key);
        break;
    default:
        break;
    }
    if (v || c->err)
        return v;
    if (key->type == TR_JV_STR) {
        v = own_attr(c, o, key->s);
        if (v || c->err)
            return v;
    }
    return missing(c, o, key, false);
}

/* A bound of a slice: false if it is neither absent, none nor an integer. */
static bool bound(const struct tr_jv *v, int64_t absent, int64_t n, int64_t low, int64_t high,
                  int64_t *out)
{
    *out = absent;
    if (!v || v->type == TR_JV_NONE)
        return true;
    if (!tr_jas_int(v, out))
        return false;
    if (*out < 0)
        *out = *out < -n ? low : *out + n;
    if (*out < low)
        *out = low;
    if (*out > high)
        *out = high;
    return true;
}

static struct tr_jv *slice_str(struct tr_jctx *c, struct tr_jstr s, int64_t start, int64_t step,
                               int64_t count)
{
    if (step == 1) {
        size_t from = tr_jstr_offset(s, (size_t)start);
        struct tr_jstr rest = {.p = s.p + from, .len = s.len - from};
        size_t len = tr_jstr_offset(rest, (size_t)count);
        return tr_jnew_str(c, tr_jstr_part(c, s, from, from + len));
    }
    struct tr_jlist chars = {0};
    struct tr_jv whole = {.type = TR_JV_STR, .s = s};
    struct tr_jbuf b;
    if (!tr_jiterate(c, &whole, &chars))
        return NULL;
    tr_jbuf_init(&b, c);
    for (int64_t k = 0; k < count; k++)
        tr_jbuf_add_str(&b, chars.v[start + k * step]->s);
    struct tr_jv *out = tr_jbuf_value(&b);
    if (out)
        out->s.markup = s.markup;
    return out;
}

static struct tr_jv *slice_range(struct tr_jctx *c, const struct tr_jv *o, int64_t start,
                                 int64_t stop, int64_t step, int64_t count)
{
    struct tr_jv *v = tr_jnew(c, TR_JV_RANGE);
    if (v) {
        v->range.start = o->range.start + start * o->range.step;
        v->range.stop = o->range.start + stop * o->range.step;
        v->range.step = o->range.step * step;
        v->range.n = count;
    }
    return v;
}

static struct tr_jv *bad_bound(struct tr_jctx *c)
{
    return tr_jfail(c, TR_JERR_RUNTIME, "slice indices must be integers or None");
}

struct tr_jv *tr_jslice(struct tr_jctx *c, struct tr_jv *o, struct tr_jv *const part[3])
{
    int64_t start;
    int64_t stop;
    int64_t step = 1;
    if (o->type == TR_JV_UNDEF)
        return tr_jfail_undef(c, o);
    if (o->type != TR_JV_STR && o->type != TR_JV_LIST && o->type != TR_JV_TUPLE &&
        o->type != TR_JV_RANGE)
        return tr_jfail(c, TR_JERR_RUNTIME, "'%s' object cannot be sliced", tr_jtype_name(o));
    int64_t n = tr_jlength(c, o);
    if (n < 0)
        return NULL;
    if (part[2] && part[2]->type != TR_JV_NONE && !tr_jas_int(part[2], &step))
        return bad_bound(c);
    if (step == 0)
        return tr_jfail(c, TR_JERR_RUNTIME, "slice step cannot be zero");
    bool back = step < 0;
    if (!bound(part[0], back ? n - 1 : 0, n, back ? -1 : 0, back ? n - 1 : n, &start) ||
        !bound(part[1], back ? -1 : n, n, back ? -1 : 0, back ? n - 1 : n, &stop))
        return bad_bound(c);
    if (step < -n - 1) /* one item at most; keeps the arithmetic below in range */
        step = -n - 1;
    if (step > n + 1)
        step = n + 1;
    int64_t span = back ? start - stop : stop - start;
    int64_t stride = back ? -step : step;
    int64_t count = span > 0 ? (span - 1) / stride + 1 : 0;
    if (o->type == TR_JV_STR)
        return slice_str(c, o->s, start, step, count);
    if (o->type == TR_JV_RANGE)
        return slice_range(c, o, start, stop, step, count);
    struct tr_jv *out = tr_jnew_list(c, o->type, (size_t)count);
    if (!out || !tr_jstep(c, (uint64_t)count))
        return NULL;
    for (int64_t k = 0; k < count; k++)
        out->l.v[k] = o->l.v[start + k * step];
    out->l.n = (size_t)count;
    out->user = o->user;
    return out;
}
