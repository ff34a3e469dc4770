/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_filter_num.c - filters that make numbers, or texts of numbers. */
#include "text/jinja_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FN(name)                                                                                   \
    static struct tr_jv *name(struct tr_jctx *c, struct tr_jv *v, const struct tr_jargs *a)

/* A text as int() reads it: blanks around, a sign, digits with single underscores.  NULL without an
 * error noted if it is none. */
static struct tr_jv *int_of_text(struct tr_jctx *c, struct tr_jstr s)
{
    s = tr_jstr_strip(c, s, NULL, true, true);
    char *digits = tr_jalloc(c, s.len + 2);
    size_t n = 0;
    size_t i = 0;
    if (!digits || !s.len)
        return NULL;
    if (s.p[0] == '-' || s.p[0] == '+') {
        if (s.p[0] == '-')
            digits[n++] = '-';
        i = 1;
    }
    size_t start = n;
    for (bool digit = false; i < s.len; i++) {
        if (s.p[i] >= '0' && s.p[i] <= '9') {
            if (n > start || s.p[i] != '0' || i + 1 == s.len)
                digits[n++] = s.p[i];
            digit = true;
        } else if (s.p[i] == '_' && digit && i + 1 < s.len) {
            digit = false;
        } else {
            return NULL;
        }
    }
    if (n == start) { /* zeros only; or no digits at all */
        if (s.p[s.len - 1] != '0')
            return NULL;
        digits[n++] = '0';
    }
    return tr_jint_text(c, (struct tr_jstr){.p = digits, .len = n});
}

/* A text as float() reads it, or false. */
static bool float_of_text(struct tr_jctx *c, struct tr_jstr s, double *out)
{
    s = tr_jstr_strip(c, s, NULL, true, true);
    char *text = tr_jalloc(c, s.len + 1);
    size_t n = 0;
    if (!text || !s.len || s.len > 4096)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        bool digits_around = i && i + 1 < s.len && s.p[i - 1] >= '0' && s.p[i - 1] <= '9' &&
                             s.p[i + 1] >= '0' && s.p[i + 1] <= '9';
        if (s.p[i] == '_' && digits_around)
            continue;
        /* strtod also takes hexadecimal numbers and nan(...). */
        if (!s.p[i] || !strchr("0123456789+-.eEinftyaINFTYA", s.p[i]))
            return false;
        text[n++] = s.p[i];
    }
    char *end;
    *out = strtod(text, &end);
    return end == text + n;
}

/* int(text, base) for another base than 10; NULL without an error noted if it is none. */
static struct tr_jv *int_of_base(struct tr_jctx *c, struct tr_jstr s, int64_t base)
{
    static const char prefixes[] = "xob";
    static const int bases[] = {16, 8, 2};
    size_t i = 0;
    uint64_t n = 0;
    bool digit = false;

    s = tr_jstr_strip(c, s, NULL, true, true);
    bool minus = s.len && s.p[0] == '-';
    i += s.len && (s.p[0] == '-' || s.p[0] == '+');
    const char *kind = i + 1 < s.len && s.p[i] == '0' ? strchr(prefixes, s.p[i + 1] | 0x20) : NULL;
    if (kind && *kind && (base == 0 || base == bases[kind - prefixes])) {
        base = bases[kind - prefixes];
        i += 2;
        digit = true; /* an underscore may follow */
    } else if (base == 0) {
        base = 10;
        for (size_t k = i; s.len - i > 1 && s.p[i] == '0' && k < s.len; k++)
            if (s.p[k] != '0' && s.p[k] != '_')
                return NULL; /* 010 is no number */
    }
    for (; i < s.len; i++) {
        int ch = s.p[i] | 0x20, value = s.p[i] >= '0' && s.p[i] <= '9' ? s.p[i] - '0'
                                        : ch >= 'a' && ch <= 'z'       ? ch - 'a' + 10
                                                                       : 99;
        if (s.p[i] == '_' && digit && i + 1 < s.len) {
            digit = false;
            continue;
        }
        if (value >= base)
            return NULL;
        if (n > (INT64_MAX - (uint64_t)value) / (uint64_t)base)
            return tr_jfail(c, TR_JERR_UNSUPPORTED,
                            "integers beyond 64 bits in the filter int are not supported");
        n = n * (uint64_t)base + (uint64_t)value;
        digit = true;
    }
    return s.len && digit && s.p[s.len - 1] != 'x'
               ? tr_jnew_int(c, minus ? -(int64_t)n : (int64_t)n)
               : NULL;
}

static struct tr_jv *int_of_float(struct tr_jctx *c, double f)
{
    if (fabs(f) >= 9.2e18)
        return tr_jfail(c, TR_JERR_UNSUPPORTED,
                        "integers beyond 64 bits in the filter int are not supported");
    return tr_jnew_int(c, (int64_t)f);
}

FN(f_int)
{
    struct tr_jv *none = a->pos[0] ? a->pos[0] : tr_jnew_int(c, 0);
    int64_t base = 10;
    double f;
    if (!tr_jwant_int(c, a->pos[1], &base))
        return NULL;
    switch (v->type) {
    case TR_JV_UNDEF:
        return tr_jfail_undef(c, v);
    case TR_JV_BOOL:
        return tr_jnew_int(c, v->b);
    case TR_JV_INT:
    case TR_JV_BIG:
        return v;
    case TR_JV_FLOAT:
        return isfinite(v->f) ? int_of_float(c, v->f) : none;
    case TR_JV_STR:
        break;
    default:
        return none;
    }
    struct tr_jv *i = NULL;
    if (base == 10)
        i = int_of_text(c, v->s);
    else if (base == 0 || (base >= 2 && base <= 36))
        i = int_of_base(c, v->s, base);
    if (i || c->err)
        return i;
    return float_of_text(c, v->s, &f) && isfinite(f) ? int_of_float(c, f) : none;
}

FN(f_float)
{
    struct tr_jv *none = a->pos[0] ? a->pos[0] : tr_jnew_float(c, 0);
    double f;
    if (v->type == TR_JV_UNDEF)
        return tr_jfail_undef(c, v);
    if (tr_jis_number(v))
        return tr_jnew_float(c, tr_jas_float(v));
    if (v->type == TR_JV_BIG)
        return float_of_text(c, v->s, &f) && isfinite(f) ? tr_jnew_float(c, f) : none;
    if (v->type == TR_JV_STR && float_of_text(c, v->s, &f))
        return tr_jnew_float(c, f);
    return none;
}

/* round(): correctly rounded, halves to even. */
static struct tr_jv *round_common(struct tr_jctx *c, struct tr_jv *v, int64_t digits)
{
    char text[420];
    int64_t i;
    if (tr_jas_int(v, &i) && digits >= 0)
        return tr_jnew_int(c, i);
    if (v->type != TR_JV_FLOAT || digits < 0)
        return tr_jfail(c, TR_JERR_UNSUPPORTED, "this form of the filter round is not supported");
    if (!isfinite(v->f) || digits > 60)
        return tr_jnew_float(c, v->f);
    (void)snprintf(text, sizeof text, "%.*f", (int)digits, v->f);
    return tr_jnew_float(c, strtod(text, NULL));
}

FN(f_round)
{
    int64_t digits = 0;
    const struct tr_jv *how = a->pos[1];
    if (!tr_jwant_int(c, a->pos[0], &digits))
        return NULL;
    if (v->type == TR_JV_UNDEF)
        return tr_jfail_undef(c, v);
    if (!tr_jis_number(v) && v->type != TR_JV_BIG)
        return tr_jfail(c, TR_JERR_RUNTIME, "type %s doesn't define __round__ method",
                        tr_jtype_name(v));
    if (!how || (how->type == TR_JV_STR && tr_jstr_is(how->s, "common")))
        return round_common(c, v, digits);
    bool up = how->type == TR_JV_STR && tr_jstr_is(how->s, "ceil");
    if (!up && (how->type != TR_JV_STR || !tr_jstr_is(how->s, "floor")))
        return tr_jfail(c, TR_JERR_RUNTIME, "method must be common, ceil or floor");
    if (digits < 0 || digits > 15 || v->type == TR_JV_BIG)
        return tr_jfail(c, TR_JERR_UNSUPPORTED, "this form of the filter round is not supported");
    double scale = pow(10, (double)digits);
    double x = tr_jas_float(v) * scale;
    if (!(fabs(x) < 9e15))
        return tr_jfail(c, TR_JERR_UNSUPPORTED, "rounding so large a number is not supported");
    x = up ? ceil(x) : floor(x);
    return tr_jnew_float(c, (x == 0 ? 0.0 : x) / scale);
}

FN(f_filesizeformat)
{
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
                             *const binary[] = {"KiB", "MiB", "GiB", "TiB",
                                                "PiB", "EiB", "ZiB", "YiB"};
    bool two = a->pos[0] && tr_jtruth(a->pos[0]);
    double base = two ? 1024 : 1000, unit = base * base, bytes = 0;
    char text[64];
    int i = 0;

    if (v->type == TR_JV_UNDEF)
        return tr_jfail_undef(c, v);
    if (!tr_jis_number(v) && (v->type != TR_JV_STR || !float_of_text(c, v->s, &bytes)))
        return c->err ? NULL
                      : tr_jfail(c, TR_JERR_RUNTIME, "could not convert this to float: a %s",
                                 tr_jtype_name(v));
    if (tr_jis_number(v))
        bytes = tr_jas_float(v);
    if (!isfinite(bytes) || fabs(bytes) > 1e30)
        return tr_jfail(c, TR_JERR_UNSUPPORTED, "a size of so many bytes is not supported");
    while (bytes >= unit && i < 7) {
        unit *= base;
        i++;
    }
    if (bytes == 1)
        (void)snprintf(text, sizeof text, "1 Byte");
    else if (bytes < base)
        (void)snprintf(text, sizeof text, "%lld Bytes", (long long)bytes);
    else
        (void)snprintf(text, sizeof text, "%.1f %s", base * bytes / unit,
                       two ? binary[i] : units[i]);
    struct tr_jbuf b;
    tr_jbuf_init(&b, c);
    tr_jbuf_add(&b, text, strlen(text), v->type == TR_JV_STR || v->user);
    return tr_jbuf_value(&b);
}

const struct tr_jbuiltin tr_jfilters_num[] = {
    {"filesizeformat", f_filesizeformat, "binary", 0},
    {"float", f_float, "default", 0},
    {"int", f_int, "default base", 0},
    {"round", f_round, "precision method", 0},
    {0},
};
