/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/schema_enum.c - enum and const: which of their values the other keywords leave, and how they are
 * written; see schema_priv.h. */
#include "grammar/schema_priv.h"
#include "grammar/utf8_char.h"

#include <string.h>

/* ---- sameness ---- */

static bool same_number(const struct tr_sc *c, const struct tr_json *a, const struct tr_json *b)
{
    size_t n;
    size_t m;
    const char *s = tr_json_number_text(c->doc, a, &n);
    const char *t = tr_json_number_text(c->doc, b, &m);
    struct tr_dec x;
    struct tr_dec y;
    if (!tr_dec_read(s, n, &x) && !tr_dec_read(t, m, &y) && !x.huge && !y.huge)
        return tr_dec_cmp(&x, &y) == 0;
    return n == m && memcmp(s, t, n) == 0;
}

bool tr_sc_same(const struct tr_sc *c, const struct tr_json *a, const struct tr_json *b)
{
    if (a->type != b->type)
        return false;
    switch (a->type) {
    case TR_JSON_NULL:
        return true;
    case TR_JSON_BOOL:
        return a->u.b == b->u.b;
    case TR_JSON_NUMBER:
        return same_number(c, a, b);
    case TR_JSON_STRING:
        return a->len == b->len && memcmp(a->u.s, b->u.s, a->len) == 0;
    default:
        break;
    }
    if (a->len != b->len)
        return false;
    struct tr_json_it y = tr_json_iter(b);
    for (struct tr_json_it x = tr_json_iter(a); tr_json_step(&x);) {
        const struct tr_json *other = x.key              ? tr_json_get(b, x.key->u.s, x.key->len)
                                      : tr_json_step(&y) ? y.val
                                                         : NULL;
        if (!other || !tr_sc_same(c, x.val, other))
            return false;
    }
    return true;
}

/* ---- what the other keywords leave ---- */

static uint32_t count_chars(const struct tr_json *v)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->len; i++)
        n += ((unsigned char)v->u.s[i] & 0xc0) != 0x80;
    return n;
}

static bool number_fits(struct tr_sc *c, const struct tr_spec *s, const struct tr_json *v)
{
    size_t len;
    struct tr_dec d;
    const char *text = tr_json_number_text(c->doc, v, &len);
    if (tr_dec_read(text, len, &d))
        return tr_sc_refuse(c, v, "more than %d digits behind the point are not supported",
                            TR_DEC_FRAC);
    if (d.n_frac && !(s->types & TR_SC_FRACTION))
        return false;
    if (!(s->types & TR_SC_NUMBER))
        return false;
    const struct tr_drange *r = &s->num;
    int lo = r->has_lo ? tr_dec_cmp(&d, &r->lo) : 1;
    int hi = r->has_hi ? tr_dec_cmp(&d, &r->hi) : -1;
    if (r->step)
        return tr_sc_refuse(c, v, "multipleOf beside enum or const is not supported");
    return lo >= r->lo_open && hi <= -(int)r->hi_open;
}

static bool string_fits(const struct tr_spec *s, const struct tr_json *v)
{
    uint32_t n = count_chars(v);
    return n >= s->min_len && n <= s->max_len && (!s->text || tr_fa_takes(s->text, v->u.s, v->len));
}

static bool fits(struct tr_sc *c, const struct tr_spec *s, const struct tr_json *v)
{
    switch (v->type) {
    case TR_JSON_NULL:
        return s->types & TR_SC_NULL;
    case TR_JSON_BOOL:
        return s->types & TR_SC_BOOL;
    case TR_JSON_NUMBER:
        return number_fits(c, s, v);
    case TR_JSON_STRING:
        return s->types & TR_SC_STRING && string_fits(s, v);
    case TR_JSON_ARRAY:
        if (s->array_words)
            return tr_sc_refuse(
                c, v, "an array in enum or const beside keywords for arrays is not supported");
        return s->types & TR_SC_ARRAY;
    default:
        if (s->object_words)
            return tr_sc_refuse(
                c, v, "an object in enum or const beside keywords for objects is not supported");
        return s->types & TR_SC_OBJECT;
    }
}

static bool is_listed(struct tr_sc *c, const struct tr_json *list, const struct tr_json *v)
{
    for (struct tr_json_it it = tr_json_iter(list); tr_json_step(&it);) {
        if (!tr_gbudget_step(&c->w, 1))
            return tr_sc_full(c, list);
        if (tr_sc_same(c, it.val, v))
            return true;
    }
    return false;
}

bool tr_sc_allows(struct tr_sc *c, const struct tr_demand *d, const struct tr_spec *s,
                  const struct tr_json *v)
{
    for (uint32_t i = 0; i < d->n; i++) {
        const struct tr_json *one = TR_JSON_GET(d->part[i].schema, "const");
        const struct tr_json *list = TR_JSON_GET(d->part[i].schema, "enum");
        if (one && !tr_sc_same(c, one, v))
            return false;
        /* The list that v comes from needs no search. */
        if (list && list != s->only && !is_listed(c, list, v))
            return false;
    }
    return fits(c, s, v);
}

/* ---- writing ---- */

static tr_gnode write(struct tr_sc *c, const struct tr_json *v);

static tr_gnode write_list(struct tr_sc *c, const struct tr_json *v)
{
    bool object = v->type == TR_JSON_OBJECT;
    tr_gnode blank = tr_gj_blank(&c->j);
    tr_gnode *part = tr_gbudget_alloc(&c->w, (6 * (size_t)v->len + 4) * sizeof *part);
    size_t n = 0;
    if (!part)
        return tr_sc_full(c, v), TR_G_NONE;
    part[n++] = tr_sc_text(c, object ? "{" : "[", 1);
    for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);) {
        if (n > 1)
            part[n++] = tr_sc_text(c, ",", 1);
        part[n++] = blank;
        if (object) {
            part[n++] = tr_gj_literal(&c->w, c->b, it.key->u.s, it.key->len);
            part[n++] = tr_sc_text(c, ":", 1);
            part[n++] = tr_g_repeat(c->b, tr_sc_text(c, " ", 1), 0, 1);
        }
        part[n++] = write(c, it.val);
    }
    part[n++] = blank;
    part[n++] = tr_sc_text(c, object ? "}" : "]", 1);
    return tr_g_seq(c->b, part, n);
}

/* As deep as the document that v stands in, which the reader of JSON bounds. */
static tr_gnode write(struct tr_sc *c, const struct tr_json *v)
{
    size_t len;
    const char *text;
    switch (v->type) {
    case TR_JSON_NULL:
        return tr_sc_text(c, "null", 4);
    case TR_JSON_BOOL:
        return v->u.b ? tr_sc_text(c, "true", 4) : tr_sc_text(c, "false", 5);
    case TR_JSON_NUMBER:
        text = tr_json_number_text(c->doc, v, &len);
        return tr_sc_text(c, text, len);
    case TR_JSON_STRING:
        return tr_gj_literal(&c->w, c->b, v->u.s, v->len);
    default:
        return write_list(c, v);
    }
}

tr_gnode tr_sc_enum(struct tr_sc *c, const struct tr_demand *d, const struct tr_spec *s,
                    bool *never)
{
    *never = false;
    if (s->only_const) {
        *never = !tr_sc_allows(c, d, s, s->only);
        return *never ? tr_g_never(c->b) : write(c, s->only);
    }
    tr_gnode *v = tr_gbudget_alloc(&c->w, s->only->len * sizeof *v);
    if (!v)
        return tr_sc_full(c, s->only), TR_G_NONE;
    size_t n = 0;
    for (struct tr_json_it it = tr_json_iter(s->only); tr_json_step(&it) && !c->ret;) {
        if (!tr_gbudget_step(&c->w, 1 + it.val->len / 16))
            return tr_sc_full(c, s->only), TR_G_NONE;
        if (tr_sc_allows(c, d, s, it.val))
            v[n++] = write(c, it.val);
    }
    *never = !n;
    return tr_g_alt(c->b, v, n);
}
