/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_filter.c - filters on one value.  Those that make numbers are in jinja_filter_num.c, those on
 * sequences in jinja_filter_seq.c and jinja_filter_key.c. */
#include "text/jinja_priv.h"
#include "text/jinja_uni.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FN(name)                                                                                   \
    static struct tr_jv *name(struct tr_jctx *c, struct tr_jv *v, const struct tr_jargs *a)

FN(f_abs)
{
    (void)a;
    if (v->type == TR_JV_FLOAT)
        return tr_jnew_float(c, fabs(v->f));
    int64_t i;
    if (tr_jas_int(v, &i))
        return i < 0 ? tr_jnegate(c, v, true) : tr_jnew_int(c, i);
    if (v->type == TR_JV_UNDEF)
        return tr_jfail_undef(c, v);
    return tr_jfail(c, v->type == TR_JV_BIG ? TR_JERR_UNSUPPORTED : TR_JERR_RUNTIME,
                    "bad operand type for abs(): '%s'", tr_jtype_name(v));
}

static struct tr_jv *map_case(struct tr_jctx *c, struct tr_jv *v, enum tr_juni_case how)
{
    struct tr_jv *s = tr_jto_str(c, v);
    struct tr_jv *out = s ? tr_juni_map(c, s->s, how) : NULL;
    if (out)
        out->s.markup = s->s.markup;
    return out;
}

FN(f_upper)
{
    (void)a;
    return map_case(c, v, TR_JUNI_UPPER);
}

FN(f_lower)
{
    (void)a;
    return map_case(c, v, TR_JUNI_LOWER);
}

FN(f_capitalize)
{
    (void)a;
    return map_case(c, v, TR_JUNI_CAPITAL);
}

static bool starts_word(int32_t ch)
{
    return tr_juni_space(ch) || (ch > 0 && ch < 0x80 && strchr("-({[<", ch));
}

/* Words begin behind blanks, hyphens and opening brackets only, unlike str.title. */
FN(f_title)
{
    struct tr_jbuf b;
    size_t n;
    bool inside = false;
    (void)a;
    struct tr_jv *s = tr_jto_str(c, v);
    if (!s)
        return NULL;
    tr_jbuf_init(&b, c);
    for (size_t i = 0; i < s->s.len && !b.bad; i += n) {
        int32_t ch = tr_jchar(s->s, i, &n);
        bool user = tr_jstr_user(s->s, i, i + n);
        if (ch == 0x3A3 && inside)
            return tr_jfail(c, TR_JERR_UNSUPPORTED, "title of a word with a capital sigma");
        tr_juni_add(&b, ch, s->s.p + i, n, inside ? TR_JUNI_LOWER : TR_JUNI_UPPER, user);
        inside = !starts_word(ch);
    }
    return tr_jbuf_value(&b);
}

FN(f_center)
{
    int64_t width = 80;
    struct tr_jv *s = tr_jto_str(c, v);
    if (!s || !tr_jwant_int(c, a->pos[0], &width))
        return NULL;
    return tr_jstr_center(c, s->s, width, tr_jstr_of(" "));
}

FN(f_default)
{
    bool empty = a->pos[1] && tr_jtruth(a->pos[1]) && !tr_jtruth(v);
    if (v->type != TR_JV_UNDEF && !empty)
        return v;
    return a->pos[0] ? a->pos[0] : tr_jnew_cstr(c, "");
}

FN(f_escape)
{
    (void)a;
    return tr_jescape(c, v);
}

FN(f_forceescape)
{
    (void)a;
    struct tr_jv *s = tr_jto_str(c, v);
    struct tr_jv *out = s ? tr_jnew_str(c, s->s) : NULL;
    if (out)
        out->s.markup = false;
    return out ? tr_jescape(c, out) : NULL;
}

/* getattr alone: an item of that name does not count. */
FN(f_attr)
{
    struct tr_jv *name = tr_jto_str(c, a->pos[0]);
    if (!name || v->type == TR_JV_UNDEF)
        return name ? tr_jfail_undef(c, v) : NULL;
    return tr_jgetattr_own(c, v, name->s);
}

FN(f_safe)
{
    (void)a;
    struct tr_jv *s = tr_jto_str(c, v);
    struct tr_jv *out = s ? tr_jnew_str(c, s->s) : NULL;
    if (out)
        out->s.markup = true;
    return out;
}

FN(f_string)
{
    (void)a;
    return tr_jto_str(c, v);
}

FN(f_trim)
{
    struct tr_jv *s = tr_jto_str(c, v);
    if (!s)
        return NULL;
    if (tr_jgiven(a->pos[0]) && a->pos[0]->type != TR_JV_STR)
        return tr_jfail(c, TR_JERR_RUNTIME, "strip arg must be None or str");
    struct tr_jstr out =
        tr_jstr_strip(c, s->s, tr_jgiven(a->pos[0]) ? &a->pos[0]->s : NULL, true, true);
    return c->err ? NULL : tr_jnew_str(c, out);
}

FN(f_replace)
{
    int64_t count = -1;
    struct tr_jv *s = tr_jto_str(c, v);
    struct tr_jv *old = tr_jto_str(c, a->pos[0]);
    struct tr_jv *with = tr_jto_str(c, a->pos[1]);
    if (!s || !old || !with || (tr_jgiven(a->pos[2]) && !tr_jwant_int(c, a->pos[2], &count)))
        return NULL;
    return tr_jstr_replace(c, s->s, old->s, with->s, count);
}

FN(f_format)
{
    struct tr_jv *s = tr_jto_str(c, v);
    struct tr_jv *arg = tr_jnew(c, a->n_kw ? TR_JV_DICT : TR_JV_TUPLE);
    if (!s || !arg)
        return NULL;
    if (a->n && a->n_kw)
        return tr_jfail(c, TR_JERR_RUNTIME,
                        "can't handle positional and keyword arguments at the "
                        "same time");
    for (size_t i = 0; i < a->n_kw; i++)
        if (!tr_jdict_set(c, &arg->d, tr_jnew_str(c, a->kw[i]), a->kwv[i]))
            return NULL;
    if (!a->n_kw)
        arg->l = (struct tr_jlist){.v = a->pos, .n = a->n, .cap = a->n};
    return tr_jpercent(c, s->s, arg);
}

FN(f_indent)
{
    struct tr_jlist lines;
    struct tr_jbuf b;
    int64_t width = 4;
    bool first = a->pos[1] && tr_jtruth(a->pos[1]);
    bool blank = a->pos[2] && tr_jtruth(a->pos[2]);
    bool text = a->pos[0] && a->pos[0]->type == TR_JV_STR;
    if (v->type != TR_JV_STR)
        return tr_jfail(c, TR_JERR_RUNTIME, "indent wants a string, not %s", tr_jtype_name(v));
    if ((!text && !tr_jwant_int(c, a->pos[0], &width)) ||
        !tr_jstr_splitlines(c, v->s, false, &lines))
        return NULL;
    /* Jinja adds a newline first: a text that ends in one has an empty last line. */
    struct tr_jstr s = v->s;
    size_t n;
    bool ends = s.len && tr_jstr_strip(c, s,
                                       &(struct tr_jstr){.p = "\n\r\v\f\x1c\x1d\x1e\xc2\x85"
                                                              "\xe2\x80\xa8\xe2\x80\xa9",
                                                         .len = 15},
                                       false, true)
                                 .len != s.len;
    if (s.len && tr_jchar_before(s, s.len, &n) == '\r')
        ends = false; /* the added newline completes it */
    if ((!s.len || ends) && !tr_jlist_add(c, &lines, tr_jnew_cstr(c, "")))
        return NULL;
    tr_jbuf_init(&b, c);
    for (size_t i = 0; i < lines.n && !b.bad; i++) {
        bool indent = i ? blank || lines.v[i]->s.len : first;
        if (i)
            tr_jbuf_puts(&b, "\n");
        if (indent && text)
            tr_jbuf_add_str(&b, a->pos[0]->s);
        else if (indent)
            tr_jbuf_fill(&b, tr_jstr_of(" "), width);
        tr_jbuf_add_str(&b, lines.v[i]->s);
    }
    return tr_jbuf_value(&b);
}

FN(f_truncate)
{
    int64_t length = 255;
    int64_t leeway = 5;
    struct tr_jstr end = tr_jstr_of("...");
    bool kill = a->pos[1] && tr_jtruth(a->pos[1]);
    if (a->pos[2] && a->pos[2]->type != TR_JV_STR)
        return tr_jfail(c, TR_JERR_RUNTIME, "truncate: end must be a string");
    if (!tr_jwant_int(c, a->pos[0], &length) ||
        (tr_jgiven(a->pos[3]) && !tr_jwant_int(c, a->pos[3], &leeway)))
        return NULL;
    end = a->pos[2] ? a->pos[2]->s : end;
    int64_t tail = (int64_t)tr_jstr_chars(end);
    if (length < tail || leeway < 0)
        return tr_jfail(c, TR_JERR_RUNTIME, "truncate: expected length >= %d, got %d", (int)tail,
                        (int)length);
    int64_t n = tr_jlength(c, v);
    if (n < 0 || n - leeway <= length)
        return n < 0 ? NULL : v;
    if (v->type != TR_JV_STR)
        return tr_jfail(c, TR_JERR_RUNTIME, "truncate wants a string, not %s", tr_jtype_name(v));
    size_t cut = tr_jstr_offset(v->s, (size_t)(length - tail));
    if (!kill) {
        int64_t blank = tr_jstr_rfind(v->s, tr_jstr_of(" "), 0, cut);
        cut = blank >= 0 ? (size_t)blank : cut;
    }
    struct tr_jbuf b;
    tr_jbuf_init(&b, c);
    tr_jbuf_add_part(&b, v->s, 0, cut);
    tr_jbuf_add_str(&b, end);
    return tr_jbuf_value(&b);
}

FN(f_urlencode)
{
    struct tr_jbuf b;
    (void)a;
    if (v->type != TR_JV_STR && !tr_jis_number(v) && v->type != TR_JV_NONE)
        return tr_jfail(c, TR_JERR_UNSUPPORTED, "urlencode of a %s is not supported",
                        tr_jtype_name(v));
    struct tr_jv *s = tr_jto_str(c, v);
    if (!s)
        return NULL;
    tr_jbuf_init(&b, c);
    for (size_t i = 0; i < s->s.len && !b.bad; i++) {
        unsigned char ch = (unsigned char)s->s.p[i];
        char text[4];
        if ((ch >= '0' && ch <= '9') || (ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z') ||
            (ch && strchr("_.-~/", ch))) {
            tr_jbuf_add_part(&b, s->s, i, i + 1);
            continue;
        }
        (void)snprintf(text, sizeof text, "%%%02X", ch);
        tr_jbuf_add(&b, text, 3, tr_jstr_user(s->s, i, i + 1));
    }
    return tr_jbuf_value(&b);
}

FN(f_wordcount)
{
    int64_t words = 0;
    bool inside = false;
    size_t n;
    (void)a;
    struct tr_jv *s = tr_jto_str(c, v);
    if (!s || !tr_jstep_bytes(c, s->s.len))
        return NULL;
    for (size_t i = 0; i < s->s.len; i += n) {
        int32_t ch = tr_jchar(s->s, i, &n);
        bool word = ch == '_' || tr_juni_alnum(ch);
        words += word && !inside;
        inside = word;
    }
    return tr_jnew_int(c, words);
}

const struct tr_jbuiltin tr_jfilters[] = {
    {"abs", f_abs, "", 0},
    {"attr", f_attr, "name", 1},
    {"capitalize", f_capitalize, "", 0},
    {"center", f_center, "width", 0},
    {"d", f_default, "default_value boolean", 0},
    {"default", f_default, "default_value boolean", 0},
    {"e", f_escape, "", 0},
    {"escape", f_escape, "", 0},
    {"forceescape", f_forceescape, "", 0},
    {"format", f_format, "*", 0},
    {"indent", f_indent, "width first blank", 0},
    {"lower", f_lower, "", 0},
    {"replace", f_replace, "old new count", 2},
    {"safe", f_safe, "", 0},
    {"string", f_string, "", 0},
    {"title", f_title, "", 0},
    {"tojson", tr_jfilter_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"trim", f_trim, "chars", 0},
    {"truncate", f_truncate, "length killwords end leeway", 0},
    {"upper", f_upper, "", 0},
    {"urlencode", f_urlencode, "", 0},
    {"wordcount", f_wordcount, "", 0},
    {"wordwrap", tr_jfilter_wordwrap, "width break_long_words wrapstring break_on_hyphens", 0},
    {"pprint", NULL, "", 0},
    {"random", NULL, "", 0},
    {"striptags", NULL, "", 0},
    {"urlize", NULL, "", 0},
    {"xmlattr", NULL, "", 0},
    {0},
};
