/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_format_spec.c - what stands behind the colon of a replacement field of str.format:
 *
 *     [[fill]align][sign][#][0][width][grouping][.precision][type]
 *
 * for strings and numbers (docs.python.org, "Format Specification Mini-Language"). */
#include "text/jinja_priv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WIDTH_MAX 1000000
#define PRECISION_MAX 60
#define DIGITS_MAX 480 /* of a double with so many digits behind the point */

struct spec {
    struct tr_jstr fill; /* one character */
    char align;          /* '\0': not given */
    char sign, group, type;
    bool alternate, zero, has_precision;
    int64_t width, precision;
};

/* A number without its padding: sign and prefix, and what is behind them. */
struct number {
    char head[8];
    char body[DIGITS_MAX * 2];
};

static bool is_align(char ch)
{
    return ch && strchr("<>=^", ch);
}

static bool read_number(struct tr_jctx *c, struct tr_jstr s, size_t *i, int64_t *out)
{
    *out = 0;
    for (; *i < s.len && s.p[*i] >= '0' && s.p[*i] <= '9'; ++*i)
        if ((*out = *out * 10 + (s.p[*i] - '0')) > WIDTH_MAX)
            return tr_jfail(c, TR_JERR_LIMIT, "a format asks for too wide a field") != NULL;
    return true;
}

static bool take(struct tr_jstr s, size_t *i, const char *of, char *out)
{
    if (*i >= s.len || !s.p[*i] || !strchr(of, s.p[*i]))
        return false;
    *out = s.p[(*i)++];
    return true;
}

static bool read_spec(struct tr_jctx *c, struct tr_jstr s, struct spec *f)
{
    size_t i = 0, n = 0;
    char ignored;

    *f = (struct spec){.fill = tr_jstr_of(" ")};
    (void)tr_jchar(s, 0, &n);
    if (n < s.len && is_align(s.p[n])) {
        f->fill = tr_jstr_part(c, s, 0, n);
        f->align = s.p[n];
        i = n + 1;
    } else {
        (void)take(s, &i, "<>=^", &f->align);
    }
    (void)take(s, &i, "+- ", &f->sign);
    f->alternate = take(s, &i, "#", &ignored);
    f->zero = take(s, &i, "0", &ignored);
    if (f->zero && !f->align)
        f->fill = tr_jstr_of("0");
    if (!read_number(c, s, &i, &f->width))
        return false;
    (void)take(s, &i, ",_", &f->group);
    if (take(s, &i, ".", &ignored)) {
        size_t before = i;
        f->has_precision = true;
        if (!read_number(c, s, &i, &f->precision))
            return false;
        if (i == before)
            return tr_jfail(c, TR_JERR_RUNTIME, "Format specifier missing precision") != NULL;
    }
    if (i < s.len)
        f->type = s.p[i++];
    return i == s.len || tr_jfail(c, TR_JERR_RUNTIME, "Invalid format specifier") != NULL;
}

static void add_aligned(struct tr_jbuf *b, struct tr_jstr head, struct tr_jstr body,
                        const struct spec *f, char align)
{
    int64_t pad = f->width - (int64_t)(tr_jstr_chars(head) + tr_jstr_chars(body));
    int64_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;

    if (pad < 0)
        pad = left = 0;
    tr_jbuf_fill(b, f->fill, left);
    tr_jbuf_add_str(b, head);
    if (align == '=') {
        tr_jbuf_fill(b, f->fill, pad);
        left = pad;
    }
    tr_jbuf_add_str(b, body);
    tr_jbuf_fill(b, f->fill, pad - left);
}

static void add_text(struct tr_jbuf *b, struct tr_jstr s, const struct spec *f)
{
    if ((f->type && f->type != 's') || f->sign || f->alternate || f->group || f->align == '=') {
        tr_jfail(b->c, TR_JERR_RUNTIME, "this format specifier is not allowed for a str");
        return;
    }
    if (f->has_precision)
        s = tr_jstr_part(b->c, s, 0, tr_jstr_offset(s, (size_t)f->precision));
    add_aligned(b, tr_jstr_of(""), s, f, f->align ? f->align : '<');
}

/* Separators between groups of `each` digits of body[0, n). */
static void group_digits(char *body, size_t n, char mark, size_t each)
{
    char out[DIGITS_MAX * 2];
    size_t to = 0;

    for (size_t i = 0; i < n; i++) {
        if (i && (n - i) % each == 0)
            out[to++] = mark;
        out[to++] = body[i];
    }
    size_t rest = strlen(body + n);
    memmove(body + to, body + n, rest + 1);
    memcpy(body, out, to);
}

static void add_number(struct tr_jbuf *b, struct number *m, bool minus, const struct spec *f,
                       bool user)
{
    char head[12];
    struct tr_jbuf text;

    (void)snprintf(head, sizeof(head), "%s%s",
                   minus            ? "-"
                   : f->sign == '+' ? "+"
                   : f->sign == ' ' ? " "
                                    : "",
                   m->head);
    tr_jbuf_init(&text, b->c);
    tr_jbuf_add(&text, m->body, strlen(m->body), user);
    add_aligned(b, tr_jstr_of(head), tr_jbuf_str(&text), f,
                f->align  ? f->align
                : f->zero ? '='
                          : '>');
}

static void add_int(struct tr_jbuf *b, int64_t v, const struct spec *f, bool user)
{
    struct number m = {.head = ""};
    uint64_t n = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    size_t i = sizeof(m.body) - 1;
    unsigned base = f->type == 'b'                     ? 2
                    : f->type == 'o'                   ? 8
                    : f->type == 'x' || f->type == 'X' ? 16
                                                       : 10;
    const char *digits = f->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";

    if (f->has_precision || (f->group == ',' && base != 10)) {
        tr_jfail(b->c, TR_JERR_RUNTIME, "this is not allowed in an integer format specifier");
        return;
    }
    if (f->alternate && base != 10)
        (void)snprintf(m.head, sizeof(m.head), "0%c", f->type);
    m.body[i] = '\0';
    do
        m.body[--i] = digits[n % base];
    while (n /= base);
    memmove(m.body, m.body + i, sizeof(m.body) - i);
    if (f->group)
        group_digits(m.body, strlen(m.body), f->group, base == 10 ? 3 : 4);
    add_number(b, &m, v < 0, f, user);
}

static void add_float(struct tr_jbuf *b, double v, const struct spec *f, bool user)
{
    struct number m = {.head = ""};
    char how[8];
    char type = f->type == '%' ? 'f' : f->type;
    bool minus = signbit(v) && !isnan(v);

    if (!f->type && !f->has_precision) {
        tr_jfloat_repr(fabs(v), m.body);
    } else {
        (void)snprintf(how, sizeof how, "%%.*%c", type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        (void)snprintf(m.body, DIGITS_MAX, how, f->has_precision ? (int)f->precision : 6,
                       fabs(f->type == '%' ? v * 100 : v));
#pragma GCC diagnostic pop
    }
    size_t whole = strspn(m.body, "0123456789");
    if (f->group && whole)
        group_digits(m.body, whole, f->group, 3);
    if (f->type == '%')
        memcpy(m.body + strlen(m.body), "%", sizeof("%"));
    add_number(b, &m, minus, f, user);
}

void tr_jformat_spec(struct tr_jbuf *b, struct tr_jv *v, struct tr_jstr spec)
{
    struct spec f;
    int64_t i = 0;

    if (!read_spec(b->c, spec, &f))
        return;
    bool whole = tr_jas_int(v, &i);
    if (v->type == TR_JV_STR) {
        add_text(b, v->s, &f);
        return;
    }
    if (!tr_jis_number(v)) {
        tr_jfail(b->c, v->type == TR_JV_BIG ? TR_JERR_UNSUPPORTED : TR_JERR_RUNTIME,
                 "unsupported format string passed to %s.__format__", tr_jtype_name(v));
        return;
    }
    bool integral = whole && (!f.type || strchr("dboxX", f.type));
    if (!integral && (!f.type ? whole : !strchr("eEfFgG%", f.type))) {
        tr_jfail(b->c, f.type == 'n' || f.type == 'c' ? TR_JERR_UNSUPPORTED : TR_JERR_RUNTIME,
                 "Unknown format code '%c' for object of type '%s'", f.type, tr_jtype_name(v));
        return;
    }
    /* Grouping within zeros that pad, and the shortest form with a precision, have rules of their own. */
    bool odd =
        (f.zero && f.group) || (f.align == '=' && f.group) ||
        (!integral && (f.alternate || (!f.type && f.has_precision) || f.precision > PRECISION_MAX));
    if (odd)
        tr_jfail(b->c, TR_JERR_UNSUPPORTED, "format: this format specification is not supported");
    else if (integral)
        add_int(b, i, &f, v->user);
    else
        add_float(b, tr_jas_float(v), &f, v->user);
}
