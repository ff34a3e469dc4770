/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_repr.c - values as text, the way Python's str() and repr() write them. */
#include "text/jinja_priv.h"
#include "text/jinja_uni.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shortest digits that read back as the same number; exponents from 1e16 up and below 1e-4. */
void tr_jfloat_repr(double f, char out[40])
{
    char sci[40];
    if (isnan(f) || isinf(f)) {
        (void)snprintf(out, 40, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    int digits = 1;
    do {
        (void)snprintf(sci, sizeof sci, "%.*e", digits - 1, f);
    } while (strtod(sci, NULL) != f && digits++ < 17);
    int exp = atoi(strchr(sci, 'e') + 1);
    if (exp < -4 || exp >= 16) {
        (void)snprintf(out, 40, "%s", sci);
        return;
    }
    int decimals = digits - 1 - exp;
    (void)snprintf(out, 40, "%.*f", decimals < 1 ? 1 : decimals, f);
}

struct tr_jv *tr_jto_str(struct tr_jctx *c, struct tr_jv *v)
{
    struct tr_jbuf b;
    if (v->type == TR_JV_STR)
        return v;
    tr_jbuf_init(&b, c);
    tr_jbuf_add_value(&b, v);
    return tr_jbuf_value(&b);
}

static void add_escaped(struct tr_jbuf *b, char kind, unsigned v, bool user)
{
    char text[16];
    int width = kind == 'x' ? 2 : kind == 'u' ? 4 : 8;
    int n = snprintf(text, sizeof text, "\\%c%0*x", kind, width, v);
    tr_jbuf_add(b, text, (size_t)n, user);
}

static void add_repr_char(struct tr_jbuf *b, struct tr_jstr s, size_t i, size_t n, int32_t ch,
                          char quote)
{
    bool user = tr_jstr_user(s, i, i + n);
    if (ch == quote || ch == '\\') {
        tr_jbuf_add(b, "\\", 1, user);
        tr_jbuf_add(b, s.p + i, 1, user);
    } else if (ch == '\n' || ch == '\r' || ch == '\t') {
        tr_jbuf_add(b, ch == '\n' ? "\\n" : ch == '\r' ? "\\r" : "\\t", 2, user);
    } else if (ch < 0) {
        add_escaped(b, 'x', (unsigned)(-1 - ch), user);
    } else if (tr_juni_printable(ch)) {
        tr_jbuf_add(b, s.p + i, n, user);
    } else {
        add_escaped(b, ch <= 0xFF ? 'x' : ch <= 0xFFFF ? 'u' : 'U', (unsigned)ch, user);
    }
}

static void add_repr_str(struct tr_jbuf *b, struct tr_jstr s)
{
    bool single = s.len && memchr(s.p, '\'', s.len);
    bool twofold = s.len && memchr(s.p, '"', s.len);
    char quote = single && !twofold ? '"' : '\'';
    size_t n;
    tr_jbuf_puts(b, s.markup ? "Markup(" : "");
    tr_jbuf_add(b, &quote, 1, false);
    for (size_t i = 0; i < s.len && !b->bad; i += n) {
        int32_t ch = tr_jchar(s, i, &n);
        add_repr_char(b, s, i, n, ch, quote);
    }
    tr_jbuf_add(b, &quote, 1, false);
    tr_jbuf_puts(b, s.markup ? ")" : "");
}

static void add_items(struct tr_jbuf *b, struct tr_jv *const *v, size_t n)
{
    for (size_t i = 0; i < n && !b->bad; i++) {
        tr_jbuf_puts(b, i ? ", " : "");
        tr_jbuf_add_repr(b, v[i]);
    }
}

static void add_dict(struct tr_jbuf *b, const struct tr_jdict *d)
{
    tr_jbuf_puts(b, "{");
    for (size_t i = 0; i < d->n && !b->bad; i++) {
        tr_jbuf_puts(b, i ? ", " : "");
        tr_jbuf_add_repr(b, d->k[i]);
        tr_jbuf_puts(b, ": ");
        tr_jbuf_add_repr(b, d->v[i]);
    }
    tr_jbuf_puts(b, "}");
}

static void add_view(struct tr_jbuf *b, const struct tr_jv *v)
{
    const struct tr_jdict *d = v->view.d;
    tr_jbuf_puts(b, tr_jtype_name(v));
    tr_jbuf_puts(b, "([");
    for (size_t i = 0; i < d->n && !b->bad; i++) {
        bool items = v->view.kind == TR_JVIEW_ITEMS;
        tr_jbuf_puts(b, i ? ", " : "");
        tr_jbuf_puts(b, items ? "(" : "");
        if (v->view.kind != TR_JVIEW_VALUES)
            tr_jbuf_add_repr(b, d->k[i]);
        tr_jbuf_puts(b, items ? ", " : "");
        if (v->view.kind != TR_JVIEW_KEYS)
            tr_jbuf_add_repr(b, d->v[i]);
        tr_jbuf_puts(b, items ? ")" : "");
    }
    tr_jbuf_puts(b, "])");
}

static void add_container(struct tr_jbuf *b, const struct tr_jv *v)
{
    if (!tr_jenter(b->c)) {
        b->bad = true;
        return;
    }
    if (v->type == TR_JV_DICT) {
        add_dict(b, &v->d);
    } else if (v->type == TR_JV_VIEW) {
        add_view(b, v);
    } else if (v->type == TR_JV_LIST) {
        tr_jbuf_puts(b, "[");
        add_items(b, v->l.v, v->l.n);
        tr_jbuf_puts(b, "]");
    } else {
        tr_jbuf_puts(b, "(");
        add_items(b, v->l.v, v->l.n);
        tr_jbuf_puts(b, v->l.n == 1 ? ",)" : ")");
    }
    tr_jleave(b->c);
}

static void add_scalar(struct tr_jbuf *b, const struct tr_jv *v)
{
    char text[96] = "";
    switch (v->type) {
    case TR_JV_NONE:
        tr_jbuf_puts(b, "None");
        break;
    case TR_JV_BOOL:
        tr_jbuf_puts(b, v->b ? "True" : "False");
        break;
    case TR_JV_INT:
        (void)snprintf(text, sizeof text, "%" PRId64, v->i);
        tr_jbuf_puts(b, text);
        break;
    case TR_JV_BIG:
        tr_jbuf_add_str(b, v->s);
        break;
    case TR_JV_FLOAT:
        tr_jfloat_repr(v->f, text);
        tr_jbuf_puts(b, text);
        break;
    case TR_JV_RANGE:
        (void)snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64, v->range.start,
                       v->range.stop);
        tr_jbuf_puts(b, text);
        (void)snprintf(text, sizeof text, ", %" PRId64, v->range.step);
        tr_jbuf_puts(b, v->range.step == 1 ? "" : text);
        tr_jbuf_puts(b, ")");
        break;
    default:
        tr_jfail(b->c, TR_JERR_UNSUPPORTED, "printing a %s is not supported", tr_jtype_name(v));
        b->bad = true;
    }
}

void tr_jbuf_add_repr(struct tr_jbuf *b, const struct tr_jv *v)
{
    size_t from = b->len;
    switch (v->type) {
    case TR_JV_UNDEF:
        tr_jbuf_puts(b, "Undefined");
        return;
    case TR_JV_STR:
        add_repr_str(b, v->s);
        return;
    case TR_JV_LIST:
    case TR_JV_TUPLE:
    case TR_JV_DICT:
    case TR_JV_VIEW:
        add_container(b, v);
        break;
    default:
        add_scalar(b, v);
    }
    if (v->user)
        tr_jbuf_mark(b, from);
}

void tr_jbuf_add_value(struct tr_jbuf *b, const struct tr_jv *v)
{
    if (v->type == TR_JV_STR)
        tr_jbuf_add_str(b, v->s);
    else if (v->type != TR_JV_UNDEF)
        tr_jbuf_add_repr(b, v);
}
