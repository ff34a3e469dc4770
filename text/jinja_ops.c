/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_ops.c - truth, comparison, iteration; arithmetic is in jinja_arith.c. */
#include "text/jinja_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool tr_jtruth(const struct tr_jv *v)
{
    switch (v->type) {
    case TR_JV_UNDEF:
    case TR_JV_NONE:
        return false;
    case TR_JV_BOOL:
        return v->b;
    case TR_JV_INT:
        return v->i != 0;
    case TR_JV_FLOAT:
        return v->f != 0;
    case TR_JV_STR:
        return v->s.len != 0;
    case TR_JV_LIST:
    case TR_JV_TUPLE:
        return v->l.n != 0;
    case TR_JV_DICT:
        return v->d.n != 0;
    case TR_JV_VIEW:
        return v->view.d->n != 0;
    case TR_JV_RANGE:
        return v->range.n != 0;
    default:
        return true;
    }
}

int tr_jas_int(const struct tr_jv *v, int64_t *out)
{
    if (v->type == TR_JV_INT)
        *out = v->i;
    else if (v->type == TR_JV_BOOL)
        *out = v->b;
    else
        return 0;
    return 1;
}

bool tr_jis_number(const struct tr_jv *v)
{
    return v->type == TR_JV_BOOL || v->type == TR_JV_INT || v->type == TR_JV_FLOAT;
}

double tr_jas_float(const struct tr_jv *v)
{
    return v->type == TR_JV_FLOAT ? v->f : v->type == TR_JV_BOOL ? v->b : (double)v->i;
}

/* Exact comparison of a 64-bit integer with a double: -1, 0, 1; 2 if not comparable. */
static int cmp_int_float(int64_t i, double f)
{
    if (isnan(f))
        return 2;
    if (f >= 9223372036854775808.0)
        return -1;
    if (f < -9223372036854775808.0)
        return 1;
    int64_t whole = (int64_t)f;
    if (i != whole)
        return i < whole ? -1 : 1;
    double rest = f - (double)whole;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

static int cmp_numbers(const struct tr_jv *a, const struct tr_jv *b)
{
    int64_t x = 0;
    int64_t y = 0;
    int ai = tr_jas_int(a, &x);
    int bi = tr_jas_int(b, &y);
    if (ai && bi)
        return (x > y) - (x < y);
    if (ai)
        return cmp_int_float(x, b->f);
    if (bi) {
        int r = cmp_int_float(y, a->f);
        return r == 2 ? 2 : -r;
    }
    if (isnan(a->f) || isnan(b->f))
        return 2;
    return (a->f > b->f) - (a->f < b->f);
}

/* At least one of the two is beyond 64 bits; the other is that or a 64-bit integer. */
static int cmp_big(const struct tr_jv *a, const struct tr_jv *b)
{
    bool a_minus = a->type == TR_JV_BIG && a->s.p[0] == '-';
    bool b_minus = b->type == TR_JV_BIG && b->s.p[0] == '-';
    if (a->type != TR_JV_BIG)
        return b_minus ? 1 : -1;
    if (b->type != TR_JV_BIG)
        return a_minus ? -1 : 1;
    if (a_minus != b_minus)
        return a_minus ? -1 : 1;
    int r = a->s.len != b->s.len ? (a->s.len < b->s.len ? -1 : 1) : tr_jstr_cmp(a->s, b->s);
    r = (r > 0) - (r < 0);
    return a_minus ? -r : r;
}

static bool is_int(const struct tr_jv *v)
{
    return v->type == TR_JV_INT || v->type == TR_JV_BOOL || v->type == TR_JV_BIG;
}

static int equal_lists(struct tr_jctx *c, const struct tr_jlist *a, const struct tr_jlist *b)
{
    if (a->n != b->n)
        return 0;
    if (!tr_jenter(c))
        return -1;
    int r = 1;
    for (size_t i = 0; i < a->n && r == 1; i++)
        r = a->v[i] == b->v[i] ? 1 : tr_jequal(c, a->v[i], b->v[i]);
    tr_jleave(c);
    return r;
}

static int equal_dicts(struct tr_jctx *c, const struct tr_jdict *a, const struct tr_jdict *b)
{
    if (a->n != b->n)
        return 0;
    if (!tr_jenter(c))
        return -1;
    int r = 1;
    for (size_t i = 0; i < a->n && r == 1; i++) {
        const struct tr_jv *v = tr_jdict_get(c, b, a->k[i]);
        r = c->err ? -1 : v ? tr_jequal(c, a->v[i], v) : 0;
    }
    tr_jleave(c);
    return r;
}

int tr_jequal(struct tr_jctx *c, const struct tr_jv *a, const struct tr_jv *b)
{
    if (!tr_jstep(c, 1))
        return -1;
    if (tr_jis_number(a) && tr_jis_number(b))
        return cmp_numbers(a, b) == 0;
    if (a->type == TR_JV_BIG || b->type == TR_JV_BIG) {
        if (is_int(a) && is_int(b))
            return cmp_big(a, b) == 0;
        if (a->type == TR_JV_FLOAT || b->type == TR_JV_FLOAT) {
            tr_jfail(c, TR_JERR_UNSUPPORTED,
                     "comparing an integer beyond 64 bits with a float is not supported");
            return -1;
        }
        return 0;
    }
    if (a->type != b->type)
        return 0;
    switch (a->type) {
    case TR_JV_UNDEF:
    case TR_JV_NONE:
        return 1;
    case TR_JV_STR:
        return tr_jstep_bytes(c, a->s.len == b->s.len ? a->s.len : 0) ? tr_jstr_eq(a->s, b->s) : -1;
    case TR_JV_LIST:
    case TR_JV_TUPLE:
        return equal_lists(c, &a->l, &b->l);
    case TR_JV_DICT:
        return equal_dicts(c, &a->d, &b->d);
    case TR_JV_VIEW:
    case TR_JV_RANGE:
        tr_jfail(c, TR_JERR_UNSUPPORTED, "comparing two %s is not supported", tr_jtype_name(a));
        return -1;
    default:
        return a == b;
    }
}

/* -1, 0, 1; 2: not comparable (NaN); -2 with an error noted. */
static int order(struct tr_jctx *c, const char *op, const struct tr_jv *a, const struct tr_jv *b)
{
    if (a->type == TR_JV_UNDEF || b->type == TR_JV_UNDEF) {
        tr_jfail_undef(c, a->type == TR_JV_UNDEF ? a : b);
        return -2;
    }
    if (!tr_jstep(c, 1))
        return -2;
    if (tr_jis_number(a) && tr_jis_number(b))
        return cmp_numbers(a, b);
    if (is_int(a) && is_int(b))
        return cmp_big(a, b);
    if (a->type == TR_JV_STR && b->type == TR_JV_STR) {
        int r = tr_jstr_cmp(a->s, b->s);
        return (r > 0) - (r < 0);
    }
    if (a->type == b->type && (a->type == TR_JV_LIST || a->type == TR_JV_TUPLE)) {
        size_t n = a->l.n < b->l.n ? a->l.n : b->l.n;
        int r = 0;
        if (!tr_jenter(c))
            return -2;
        for (size_t i = 0; i < n && r == 0; i++) {
            int eq = tr_jequal(c, a->l.v[i], b->l.v[i]);
            r = eq < 0 ? -2 : eq ? 0 : order(c, op, a->l.v[i], b->l.v[i]);
        }
        tr_jleave(c);
        return r ? r : (a->l.n > b->l.n) - (a->l.n < b->l.n);
    }
    tr_jfail(c, TR_JERR_RUNTIME, "'%s' not supported between instances of '%s' and '%s'", op,
             tr_jtype_name(a), tr_jtype_name(b));
    return -2;
}

int tr_jless(struct tr_jctx *c, const char *op, const struct tr_jv *a, const struct tr_jv *b)
{
    int r = order(c, op, a, b);
    if (r == -2)
        return -1;
    if (r == 2)
        return 0;
    if (op[0] == '<')
        return op[1] ? r <= 0 : r < 0;
    return op[1] ? r >= 0 : r > 0;
}

static int contains_item(struct tr_jctx *c, struct tr_jv *box, struct tr_jv *item)
{
    struct tr_jlist l;
    if (box->type == TR_JV_GEN) { /* used up to the hit */
        while (box->gen.next < box->gen.l.n) {
            int r = tr_jequal(c, box->gen.l.v[box->gen.next++], item);
            if (r)
                return r;
        }
        return 0;
    }
    if (!tr_jiterate(c, box, &l))
        return -1;
    for (size_t i = 0; i < l.n; i++) {
        int r = l.v[i] == item ? 1 : tr_jequal(c, l.v[i], item);
        if (r)
            return r;
    }
    return 0;
}

int tr_jcontains(struct tr_jctx *c, struct tr_jv *box, struct tr_jv *item)
{
    switch (box->type) {
    case TR_JV_STR:
        if (item->type != TR_JV_STR) {
            tr_jfail(c, TR_JERR_RUNTIME, "'in <string>' requires string as left operand, not %s",
                     tr_jtype_name(item));
            return -1;
        }
        if (!tr_jstep_bytes(c, box->s.len))
            return -1;
        return tr_jstr_find(box->s, item->s, 0, box->s.len) >= 0;
    case TR_JV_DICT: {
        const struct tr_jv *hit = tr_jdict_get(c, &box->d, item);
        return c->err ? -1 : hit != NULL;
    }
    case TR_JV_NONE:
    case TR_JV_BOOL:
    case TR_JV_INT:
    case TR_JV_BIG:
    case TR_JV_FLOAT:
    case TR_JV_NS:
        tr_jfail(c, TR_JERR_RUNTIME, "argument of type '%s' is not iterable", tr_jtype_name(box));
        return -1;
    default:
        return contains_item(c, box, item);
    }
}

int64_t tr_jlength(struct tr_jctx *c, const struct tr_jv *v)
{
    switch (v->type) {
    case TR_JV_UNDEF:
        return 0;
    case TR_JV_STR:
        return tr_jstep_bytes(c, v->s.len) ? (int64_t)tr_jstr_chars(v->s) : -1;
    case TR_JV_LIST:
    case TR_JV_TUPLE:
        return (int64_t)v->l.n;
    case TR_JV_DICT:
        return (int64_t)v->d.n;
    case TR_JV_VIEW:
        return (int64_t)v->view.d->n;
    case TR_JV_RANGE:
        return v->range.n;
    case TR_JV_LOOP:
        return (int64_t)v->loop->items.n;
    default:
        tr_jfail(c, TR_JERR_RUNTIME, "object of type '%s' has no len()", tr_jtype_name(v));
        return -1;
    }
}

static bool iterate_chars(struct tr_jctx *c, struct tr_jstr s, struct tr_jlist *out)
{
    size_t n;
    for (size_t i = 0; i < s.len; i += n) {
        (void)tr_jchar(s, i, &n);
        struct tr_jstr one = tr_jstr_part(c, s, i, i + n);
        one.markup = false;
        if (!tr_jstep(c, 1) || c->err || !tr_jlist_add(c, out, tr_jnew_str(c, one)))
            return false;
    }
    return true;
}

static bool iterate_view(struct tr_jctx *c, const struct tr_jv *v, struct tr_jlist *out)
{
    const struct tr_jdict *d = v->view.d;
    if (v->view.kind != TR_JVIEW_ITEMS) {
        *out = (struct tr_jlist){
            .v = v->view.kind == TR_JVIEW_KEYS ? d->k : d->v, .n = d->n, .cap = d->n};
        return true;
    }
    for (size_t i = 0; i < d->n; i++) {
        struct tr_jv *pair = tr_jnew_list(c, TR_JV_TUPLE, 2);
        if (!pair || !tr_jstep(c, 1) || !tr_jlist_add(c, out, pair))
            return false;
        pair->l.v[0] = d->k[i];
        pair->l.v[1] = d->v[i];
        pair->l.n = 2;
        pair->user = v->user;
    }
    return true;
}

bool tr_jiterate(struct tr_jctx *c, struct tr_jv *v, struct tr_jlist *out)
{
    *out = (struct tr_jlist){0};
    switch (v->type) {
    case TR_JV_UNDEF:
        return true;
    case TR_JV_STR:
        return iterate_chars(c, v->s, out);
    case TR_JV_LIST:
    case TR_JV_TUPLE:
        *out = v->l;
        return tr_jstep(c, v->l.n);
    case TR_JV_DICT:
        *out = (struct tr_jlist){.v = v->d.k, .n = v->d.n, .cap = v->d.n};
        return tr_jstep(c, v->d.n);
    case TR_JV_VIEW:
        return iterate_view(c, v, out);
    case TR_JV_RANGE:
        for (int64_t i = 0; i < v->range.n; i++)
            if (!tr_jstep(c, 1) ||
                !tr_jlist_add(c, out, tr_jnew_int(c, v->range.start + i * v->range.step)))
                return false;
        return true;
    case TR_JV_GEN:
        *out = v->gen.l;
        if (v->gen.next) {
            out->v += v->gen.next;
            out->n -= v->gen.next;
        }
        v->gen.next = v->gen.l.n;
        return tr_jstep(c, out->n);
    case TR_JV_LOOP:
        tr_jfail(c, TR_JERR_UNSUPPORTED, "iterating over a LoopContext is not supported");
        return false;
    default:
        tr_jfail(c, TR_JERR_RUNTIME, "'%s' object is not iterable", tr_jtype_name(v));
        return false;
    }
}
