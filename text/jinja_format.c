/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_format.c - '...' % args and '...'.format(args). */
#include "text/jinja_priv.h"
#include "text/jinja_uni.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_MAX 200 /* widest number that is formatted */

struct percent {
    struct tr_jctx *c;
    struct tr_jstr fmt;
    size_t i;
    struct tr_jbuf b;
    struct tr_jv *arg;
    size_t next; /* of a tuple; 1 once a single value was used */
};

struct spec {
    char flags[8];
    bool left;
    int64_t width;
    int64_t precision; /* -1: none */
    char conv;
};

static struct tr_jv *next_arg(struct percent *f)
{
    bool tuple = f->arg->type == TR_JV_TUPLE;
    if (f->next >= (tuple ? f->arg->l.n : 1))
        return tr_jfail(f->c, TR_JERR_RUNTIME, "not enough arguments for format string");
    f->next++;
    return tuple ? f->arg->l.v[f->next - 1] : f->arg;
}

static bool read_size(struct percent *f, int64_t *out)
{
    if (f->i < f->fmt.len && f->fmt.p[f->i] == '*') {
        struct tr_jv *v = next_arg(f);
        f->i++;
        if (v && !tr_jas_int(v, out))
            tr_jfail(f->c, TR_JERR_RUNTIME, "* wants int");
        return !f->c->err;
    }
    while (f->i < f->fmt.len && f->fmt.p[f->i] >= '0' && f->fmt.p[f->i] <= '9') {
        *out = *out * 10 + (f->fmt.p[f->i++] - '0');
        if (*out > 1000000) {
            tr_jfail(f->c, TR_JERR_LIMIT, "a format asks for too wide a field");
            return false;
        }
    }
    return true;
}

/* (name): the value from the mapping; NULL with nothing noted if there is no name. */
static struct tr_jv *named_arg(struct percent *f)
{
    if (f->i >= f->fmt.len || f->fmt.p[f->i] != '(')
        return NULL;
    if (f->arg->type != TR_JV_DICT)
        return tr_jfail(f->c, TR_JERR_RUNTIME, "format requires a mapping");
    const char *end = memchr(f->fmt.p + f->i, ')', f->fmt.len - f->i);
    if (!end)
        return tr_jfail(f->c, TR_JERR_RUNTIME, "incomplete format key");
    const char *name = f->fmt.p + f->i + 1;
    f->i = (size_t)(end - f->fmt.p) + 1;
    struct tr_jv *v = tr_jdict_get_str(f->c, &f->arg->d, name, (size_t)(end - name));
    return v ? v : tr_jfail(f->c, TR_JERR_RUNTIME, "a key of the format is missing");
}

static bool read_spec(struct percent *f, struct spec *s)
{
    size_t n = 0;
    *s = (struct spec){.precision = -1};
    for (; f->i < f->fmt.len && strchr("#0- +", f->fmt.p[f->i]) && f->fmt.p[f->i]; f->i++) {
        s->left = s->left || f->fmt.p[f->i] == '-';
        if (n + 1 < sizeof s->flags && !strchr(s->flags, f->fmt.p[f->i]))
            s->flags[n++] = f->fmt.p[f->i];
    }
    if (!read_size(f, &s->width))
        return false;
    if (f->i < f->fmt.len && f->fmt.p[f->i] == '.') {
        f->i++;
        s->precision = 0;
        if (!read_size(f, &s->precision))
            return false;
    }
    if (s->width < 0) {
        s->left = true;
        s->width = s->width < -1000000 ? 1000001 : -s->width;
    }
    if (s->width > 1000000) {
        tr_jfail(f->c, TR_JERR_LIMIT, "a format asks for too wide a field");
        return false;
    }
    while (f->i < f->fmt.len && f->fmt.p[f->i] && strchr("hlL", f->fmt.p[f->i]))
        f->i++;
    if (f->i >= f->fmt.len) {
        tr_jfail(f->c, TR_JERR_RUNTIME, "incomplete format");
        return false;
    }
    s->conv = f->fmt.p[f->i++];
    return true;
}

static void add_padded(struct tr_jbuf *b, struct tr_jstr s, const struct spec *spec)
{
    int64_t pad = spec->width - (int64_t)tr_jstr_chars(s);
    if (!spec->left)
        tr_jbuf_fill(b, tr_jstr_of(" "), pad);
    tr_jbuf_add_str(b, s);
    if (spec->left)
        tr_jbuf_fill(b, tr_jstr_of(" "), pad);
}

static void format_text(struct percent *f, const struct spec *s, struct tr_jv *v)
{
    struct tr_jbuf b;
    tr_jbuf_init(&b, f->c);
    if (s->conv == 'r')
        tr_jbuf_add_repr(&b, v);
    else
        tr_jbuf_add_value(&b, v);
    struct tr_jstr text = tr_jbuf_str(&b);
    if (s->precision >= 0)
        text = tr_jstr_part(f->c, text, 0, tr_jstr_offset(text, (size_t)s->precision));
    add_padded(&f->b, text, s);
}

static void format_number(struct percent *f, const struct spec *s, struct tr_jv *v)
{
    char how[32];
    char text[NUMBER_MAX + 400];
    bool whole = strchr("diuoxX", s->conv) != NULL;
    int64_t i = 0;
    if (s->width > NUMBER_MAX || s->precision > NUMBER_MAX / 2 || v->type == TR_JV_BIG) {
        tr_jfail(f->c, TR_JERR_UNSUPPORTED, "a format of so many digits is not supported");
        return;
    }
    bool decimal = strchr("diu", s->conv) != NULL;
    if (whole && decimal && v->type == TR_JV_FLOAT && fabs(v->f) < 9e18)
        i = (int64_t)v->f;
    else if (v->type == TR_JV_UNDEF) {
        tr_jfail_undef(f->c, v);
        return;
    } else if (whole ? !tr_jas_int(v, &i) : !tr_jis_number(v)) {
        tr_jfail(f->c, TR_JERR_RUNTIME, "%%%c format: %s is required, not %s", s->conv,
                 whole && !decimal ? "an integer" : "a real number", tr_jtype_name(v));
        return;
    }
    bool octal_hex = whole && !decimal;
    if (octal_hex && (i < 0 || (strchr(s->flags, '#') && (i == 0 || s->conv == 'o')))) {
        tr_jfail(f->c, TR_JERR_UNSUPPORTED, "this form of %%%c is not supported", s->conv);
        return;
    }
    char prec[16] = "";
    if (s->precision >= 0)
        (void)snprintf(prec, sizeof prec, ".%d", (int)s->precision);
    (void)snprintf(how, sizeof how, "%%%s%s*%s%s%c", s->flags,
                   s->left && !strchr(s->flags, '-') ? "-" : "", prec, whole ? "l" : "",
                   decimal ? 'd' : s->conv);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int n = whole ? snprintf(text, sizeof text, how, (int)s->width, (long)i)
                  : snprintf(text, sizeof text, how, (int)s->width, tr_jas_float(v));
#pragma GCC diagnostic pop
    tr_jbuf_add(&f->b, text, (size_t)n, v->user);
}

static void format_char(struct percent *f, const struct spec *s, struct tr_jv *v)
{
    int64_t code;
    if (v->type == TR_JV_STR && tr_jstr_chars(v->s) == 1) {
        add_padded(&f->b, v->s, s);
    } else if (tr_jas_int(v, &code) && code >= 0 && code <= 0x10FFFF &&
               !(code >= 0xD800 && code <= 0xDFFF)) {
        char utf8[4];
        struct tr_jbuf b;
        tr_jbuf_init(&b, f->c);
        /* Numbers carry no origin through arithmetic, so a character made of one is the user's. */
        tr_jbuf_add(&b, utf8, tr_juni_encode((int32_t)code, utf8), true);
        add_padded(&f->b, tr_jbuf_str(&b), s);
    } else {
        tr_jfail(f->c, TR_JERR_RUNTIME, "%%c requires int or char");
    }
}

static void format_one(struct percent *f)
{
    struct spec s;
    struct tr_jv *v = named_arg(f);
    if (f->c->err || !read_spec(f, &s))
        return;
    if (s.conv == '%') {
        tr_jbuf_puts(&f->b, "%");
        return;
    }
    if (!v)
        v = next_arg(f);
    if (!v)
        return;
    if (s.conv == 's' || s.conv == 'r')
        format_text(f, &s, v);
    else if (s.conv == 'c')
        format_char(f, &s, v);
    else if (s.conv && strchr("diuoxXeEfFgG", s.conv))
        format_number(f, &s, v);
    else if (s.conv == 'a')
        tr_jfail(f->c, TR_JERR_UNSUPPORTED, "%%a is not supported");
    else
        tr_jfail(f->c, TR_JERR_RUNTIME, "unsupported format character");
}

struct tr_jv *tr_jpercent(struct tr_jctx *c, struct tr_jstr fmt, struct tr_jv *arg)
{
    struct percent f = {.c = c, .fmt = fmt, .arg = arg};
    if (fmt.markup)
        return tr_jfail(c, TR_JERR_UNSUPPORTED, "formatting a Markup is not supported");
    tr_jbuf_init(&f.b, c);
    while (f.i < fmt.len && !c->err) {
        const char *hit = memchr(fmt.p + f.i, '%', fmt.len - f.i);
        size_t to = hit ? (size_t)(hit - fmt.p) : fmt.len;
        tr_jbuf_add_part(&f.b, fmt, f.i, to);
        f.i = to + (hit != NULL);
        if (hit)
            format_one(&f);
    }
    bool tuple = arg->type == TR_JV_TUPLE;
    bool mapping = arg->type == TR_JV_DICT || arg->type == TR_JV_LIST;
    if (!c->err && !mapping && f.next < (tuple ? arg->l.n : 1))
        return tr_jfail(c, TR_JERR_RUNTIME, "not all arguments converted during string formatting");
    return tr_jbuf_value(&f.b);
}

/* The value that a replacement field names. */
static struct tr_jv *field_value(struct tr_jctx *c, struct tr_jstr name, const struct tr_jargs *a,
                                 size_t *next)
{
    if (!name.len)
        return *next < a->n ? a->pos[(*next)++]
                            : tr_jfail(c, TR_JERR_RUNTIME, "Replacement index out of range");
    if (name.p[0] >= '0' && name.p[0] <= '9') {
        size_t i = 0;
        for (size_t k = 0; k < name.len && i < 1000000; k++) {
            if (name.p[k] < '0' || name.p[k] > '9')
                return tr_jfail(c, TR_JERR_UNSUPPORTED, "format: this field is not supported");
            i = i * 10 + (size_t)(name.p[k] - '0');
        }
        return i < a->n ? a->pos[i]
                        : tr_jfail(c, TR_JERR_RUNTIME, "Replacement index out of range");
    }
    if (memchr(name.p, '.', name.len) || memchr(name.p, '[', name.len))
        return tr_jfail(c, TR_JERR_UNSUPPORTED,
                        "format: attributes and subscripts in a field are not supported");
    for (size_t k = 0; k < a->n_kw; k++)
        if (tr_jstr_eq(a->kw[k], name))
            return a->kwv[k];
    return tr_jfail(c, TR_JERR_RUNTIME, "format: a named argument is missing");
}

static void add_field(struct tr_jbuf *b, struct tr_jstr field, const struct tr_jargs *a,
                      size_t *next)
{
    const char *colon = field.len ? memchr(field.p, ':', field.len) : NULL;
    const char *bang = field.len ? memchr(field.p, '!', field.len) : NULL;
    bool repr = false, plain = false;
    struct tr_jstr spec = {.p = ""};
    if (colon) {
        size_t at = (size_t)(colon - field.p);
        spec = tr_jstr_part(b->c, field, at + 1, field.len);
        field.len = at;
    }
    if (bang && (!colon || bang < colon)) {
        size_t at = (size_t)(bang - field.p);
        if (at + 2 != field.len || (bang[1] != 'r' && bang[1] != 's')) {
            tr_jfail(b->c, TR_JERR_UNSUPPORTED, "format: this conversion is not supported");
            return;
        }
        repr = bang[1] == 'r';
        plain = !repr;
        field.len = at;
    }
    struct tr_jv *v = field_value(b->c, field, a, next);
    if (!v)
        return;
    if (spec.len && (repr || plain)) {
        struct tr_jbuf text;
        tr_jbuf_init(&text, b->c);
        if (repr)
            tr_jbuf_add_repr(&text, v);
        else
            tr_jbuf_add_value(&text, v);
        v = tr_jbuf_value(&text);
    }
    if (spec.len && v)
        tr_jformat_spec(b, v, spec);
    else if (repr && v)
        tr_jbuf_add_repr(b, v);
    else
        tr_jbuf_add_value(b, v);
}

struct tr_jv *tr_jformat(struct tr_jctx *c, struct tr_jstr fmt, const struct tr_jargs *a)
{
    struct tr_jbuf b;
    size_t next = 0;
    tr_jbuf_init(&b, c);
    for (size_t i = 0; i < fmt.len && !c->err;) {
        char ch = fmt.p[i];
        if ((ch == '{' || ch == '}') && i + 1 < fmt.len && fmt.p[i + 1] == ch) {
            tr_jbuf_add_part(&b, fmt, i, i + 1);
            i += 2;
        } else if (ch == '}') {
            return tr_jfail(c, TR_JERR_RUNTIME, "Single '}' encountered in format string");
        } else if (ch == '{') {
            const char *end = memchr(fmt.p + i, '}', fmt.len - i);
            if (!end)
                return tr_jfail(c, TR_JERR_RUNTIME, "expected '}' before end of string");
            struct tr_jstr field = tr_jstr_part(c, fmt, i + 1, (size_t)(end - fmt.p));
            add_field(&b, field, a, &next);
            i = (size_t)(end - fmt.p) + 1;
        } else {
            tr_jbuf_add_part(&b, fmt, i, i + 1);
            i++;
        }
    }
    return tr_jbuf_value(&b);
}
