/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_arith.c - + - * / // % ** with Python's meaning.  Integers have 64 bits; a result
 * beyond is refused, never rounded or wrapped. */
#include "text/jinja_lex.h"
#include "text/jinja_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *op_name(int op)
{
    switch (op) {
    case '+':
        return "+";
    case '-':
        return "-";
    case '*':
        return "*";
    case '/':
        return "/";
    case '%':
        return "%";
    case TR_JT_FLOORDIV:
        return "//";
    default:
        return "** or pow()";
    }
}

static struct tr_jv *fail_types(struct tr_jctx *c, int op, const struct tr_jv *a,
                                const struct tr_jv *b)
{
    return tr_jfail(c, TR_JERR_RUNTIME, "unsupported operand type(s) for %s: '%s' and '%s'",
                    op_name(op), tr_jtype_name(a), tr_jtype_name(b));
}

static struct tr_jv *too_big(struct tr_jctx *c)
{
    return tr_jfail(c, TR_JERR_UNSUPPORTED, "arithmetic beyond 64-bit integers is not supported");
}

static struct tr_jv *by_zero(struct tr_jctx *c)
{
    return tr_jfail(c, TR_JERR_RUNTIME, "division by zero");
}

static struct tr_jv *int_pow(struct tr_jctx *c, int64_t x, int64_t y)
{
    if (y < 0)
        return x ? tr_jnew_float(c, pow((double)x, (double)y)) : by_zero(c);
    int64_t r = 1;
    for (;;) {
        if ((y & 1) && __builtin_mul_overflow(r, x, &r))
            return too_big(c);
        y >>= 1;
        if (!y)
            return tr_jnew_int(c, r);
        if (__builtin_mul_overflow(x, x, &x))
            return too_big(c);
    }
}

static struct tr_jv *int_op(struct tr_jctx *c, int op, int64_t x, int64_t y)
{
    const int64_t exact = (int64_t)1 << 53;
    int64_t r;
    switch (op) {
    case '+':
        return __builtin_add_overflow(x, y, &r) ? too_big(c) : tr_jnew_int(c, r);
    case '-':
        return __builtin_sub_overflow(x, y, &r) ? too_big(c) : tr_jnew_int(c, r);
    case '*':
        return __builtin_mul_overflow(x, y, &r) ? too_big(c) : tr_jnew_int(c, r);
    case TR_JT_POW:
        return int_pow(c, x, y);
    default:
        break;
    }
    if (!y)
        return by_zero(c);
    if (op == '/') {
        /* Larger ones would be rounded twice. */
        if (x > exact || x < -exact || y > exact || y < -exact)
            return too_big(c);
        return tr_jnew_float(c, (double)x / (double)y);
    }
    if (y == -1) /* INT64_MIN / -1 */
        return op == '%' ? tr_jnew_int(c, 0) : int_op(c, '-', 0, x);
    int64_t rest = x % y;
    bool down = rest && (rest < 0) != (y < 0);
    if (op == '%')
        return tr_jnew_int(c, down ? rest + y : rest);
    return tr_jnew_int(c, down ? x / y - 1 : x / y);
}

static struct tr_jv *float_divmod(struct tr_jctx *c, int op, double x, double y)
{
    double rest = fmod(x, y);
    double div = (x - rest) / y;
    if (rest == 0) {
        rest = copysign(0.0, y);
    } else if ((y < 0) != (rest < 0)) {
        rest += y;
        div -= 1.0;
    }
    if (op == '%')
        return tr_jnew_float(c, rest);
    if (div == 0)
        return tr_jnew_float(c, copysign(0.0, x / y));
    double whole = floor(div);
    return tr_jnew_float(c, div - whole > 0.5 ? whole + 1.0 : whole);
}

static struct tr_jv *float_op(struct tr_jctx *c, int op, double x, double y)
{
    double r;
    switch (op) {
    case '+':
        return tr_jnew_float(c, x + y);
    case '-':
        return tr_jnew_float(c, x - y);
    case '*':
        return tr_jnew_float(c, x * y);
    case TR_JT_POW:
        if (x == 0 && y < 0)
            return by_zero(c);
        if (x < 0 && isfinite(x) && isfinite(y) && y != floor(y))
            return tr_jfail(c, TR_JERR_UNSUPPORTED, "complex numbers are not supported");
        r = pow(x, y);
        if (isinf(r) && isfinite(x) && isfinite(y))
            return tr_jfail(c, TR_JERR_RUNTIME, "Numerical result out of range");
        return tr_jnew_float(c, r);
    default:
        break;
    }
    if (y == 0)
        return by_zero(c);
    return op == '/' ? tr_jnew_float(c, x / y) : float_divmod(c, op, x, y);
}

static void add_html(struct tr_jbuf *b, struct tr_jstr s)
{
    for (size_t i = 0; i < s.len; i++) {
        const char *to = s.p[i] == '&'    ? "&amp;"
                         : s.p[i] == '<'  ? "&lt;"
                         : s.p[i] == '>'  ? "&gt;"
                         : s.p[i] == '\'' ? "&#39;"
                         : s.p[i] == '"'  ? "&#34;"
                                          : NULL;
        if (to)
            tr_jbuf_add(b, to, strlen(to), tr_jstr_user(s, i, i + 1));
        else
            tr_jbuf_add_part(b, s, i, i + 1);
    }
}

struct tr_jv *tr_jescape(struct tr_jctx *c, struct tr_jv *v)
{
    struct tr_jbuf b;
    if (v->type == TR_JV_STR && v->s.markup)
        return v;
    struct tr_jv *s = tr_jto_str(c, v);
    if (!s)
        return NULL;
    tr_jbuf_init(&b, c);
    add_html(&b, s->s);
    struct tr_jv *out = tr_jbuf_value(&b);
    if (out)
        out->s.markup = true;
    return out;
}

static struct tr_jv *add_str(struct tr_jctx *c, struct tr_jv *a, struct tr_jv *b)
{
    bool markup = a->s.markup || b->s.markup;
    struct tr_jbuf buf;
    if (markup) {
        a = tr_jescape(c, a);
        b = tr_jescape(c, b);
        if (!a || !b)
            return NULL;
    }
    tr_jbuf_init(&buf, c);
    tr_jbuf_add_str(&buf, a->s);
    tr_jbuf_add_str(&buf, b->s);
    struct tr_jv *out = tr_jbuf_value(&buf);
    if (out)
        out->s.markup = markup;
    return out;
}

static struct tr_jv *add_list(struct tr_jctx *c, const struct tr_jv *a, const struct tr_jv *b)
{
    struct tr_jv *out = tr_jnew_list(c, a->type, a->l.n + b->l.n);
    if (!out || !tr_jstep(c, a->l.n + b->l.n))
        return NULL;
    if (a->l.n)
        memcpy(out->l.v, a->l.v, a->l.n * sizeof(void *));
    if (b->l.n)
        memcpy(out->l.v + a->l.n, b->l.v, b->l.n * sizeof(void *));
    out->l.n = a->l.n + b->l.n;
    out->user = a->user || b->user;
    return out;
}

static struct tr_jv *repeat(struct tr_jctx *c, struct tr_jv *v, int64_t times)
{
    if (times < 0)
        times = 0;
    if (v->type == TR_JV_STR) {
        struct tr_jbuf b;
        tr_jbuf_init(&b, c);
        tr_jbuf_fill(&b, v->s, times);
        struct tr_jv *out = tr_jbuf_value(&b);
        if (out)
            out->s.markup = v->s.markup;
        return out;
    }
    struct tr_jv *out = tr_jnew_list(c, v->type, 0);
    if (!out)
        return NULL;
    out->user = v->user;
    for (int64_t i = 0; v->l.n && i < times; i++)
        for (size_t k = 0; k < v->l.n; k++)
            if (!tr_jstep(c, 1) || !tr_jlist_add(c, &out->l, v->l.v[k]))
                return NULL;
    return out;
}

static bool is_seq(const struct tr_jv *v)
{
    return v->type == TR_JV_STR || v->type == TR_JV_LIST || v->type == TR_JV_TUPLE;
}

static struct tr_jv *add_seq(struct tr_jctx *c, struct tr_jv *a, struct tr_jv *b)
{
    if (a->type == b->type)
        return a->type == TR_JV_STR ? add_str(c, a, b) : add_list(c, a, b);
    return tr_jfail(c, TR_JERR_RUNTIME, "can only concatenate %s (not \"%s\") to %s",
                    tr_jtype_name(a), tr_jtype_name(b), tr_jtype_name(a));
}

struct tr_jv *tr_jarith(struct tr_jctx *c, int op, struct tr_jv *a, struct tr_jv *b)
{
    int64_t x;
    int64_t y;
    if (op == '%' && a->type == TR_JV_STR)
        return tr_jpercent(c, a->s, b);
    if (a->type == TR_JV_UNDEF)
        return tr_jfail_undef(c, a);
    if (b->type == TR_JV_UNDEF)
        return tr_jfail_undef(c, b);
    if (op == '+' && is_seq(a))
        return add_seq(c, a, b);
    if (op == '*' && is_seq(a) && tr_jas_int(b, &y))
        return repeat(c, a, y);
    if (op == '*' && is_seq(b) && tr_jas_int(a, &x))
        return repeat(c, b, x);
    bool big = a->type == TR_JV_BIG || b->type == TR_JV_BIG;
    if (big && (a->type == TR_JV_BIG || tr_jis_number(a)) &&
        (b->type == TR_JV_BIG || tr_jis_number(b)))
        return too_big(c);
    if (!tr_jis_number(a) || !tr_jis_number(b))
        return fail_types(c, op, a, b);
    if (tr_jas_int(a, &x) && tr_jas_int(b, &y))
        return int_op(c, op, x, y);
    return float_op(c, op, tr_jas_float(a), tr_jas_float(b));
}

struct tr_jv *tr_jnegate(struct tr_jctx *c, struct tr_jv *a, bool minus)
{
    int64_t x;
    if (a->type == TR_JV_UNDEF)
        return tr_jfail_undef(c, a);
    if (a->type == TR_JV_BIG)
        return too_big(c);
    if (a->type == TR_JV_FLOAT)
        return minus ? tr_jnew_float(c, -a->f) : a;
    if (!tr_jas_int(a, &x))
        return tr_jfail(c, TR_JERR_RUNTIME, "bad operand type for unary %c: '%s'",
                        minus ? '-' : '+', tr_jtype_name(a));
    return minus ? int_op(c, '-', 0, x) : tr_jnew_int(c, x);
}
