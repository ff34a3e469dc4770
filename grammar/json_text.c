/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/json_text.h"

#include <string.h>

#define SEQ(b, ...)                                                                                \
    tr_g_seq((b), (const tr_gnode[]){__VA_ARGS__},                                                 \
             sizeof((const tr_gnode[]){__VA_ARGS__}) / sizeof(tr_gnode))
#define ALT(b, ...)                                                                                \
    tr_g_alt((b), (const tr_gnode[]){__VA_ARGS__},                                                 \
             sizeof((const tr_gnode[]){__VA_ARGS__}) / sizeof(tr_gnode))

static tr_gnode text(struct tr_gbuild *b, const char *s)
{
    return tr_g_bytes(b, s, strlen(s));
}

/* A character out of pairs of first and last: "09af". */
static tr_gnode one_of(struct tr_gbuild *b, const char *pairs)
{
    struct tr_grange r[8];
    size_t n = 0;
    for (; pairs[2 * n]; n++)
        r[n] = (struct tr_grange){(unsigned char)pairs[2 * n], (unsigned char)pairs[2 * n + 1]};
    return tr_g_class(b, r, n, false);
}

static tr_gnode maybe(struct tr_gbuild *b, tr_gnode n)
{
    return tr_g_repeat(b, n, 0, 1);
}

static tr_gnode rule(struct tr_gbuild *b, tr_gnode body)
{
    tr_gnode r = tr_g_rule(b);
    tr_g_define(b, r, body);
    return r;
}

/* ---- blanks and strings ---- */

tr_gnode tr_gj_blank(struct tr_gjson *j)
{
    struct tr_gbuild *b = j->b;
    if (!j->blank) {
        tr_gnode line =
            SEQ(b, text(b, "\n"), tr_g_repeat(b, one_of(b, "  \t\t"), 0, TR_JSON_INDENT));
        j->blank = rule(b, ALT(b, text(b, " "), line));
    }
    return maybe(b, j->blank);
}

/* \uXXXX: any character of the basic plane, or a surrogate pair. */
static tr_gnode unicode_escape(struct tr_gbuild *b)
{
    tr_gnode hex = one_of(b, "09afAF");
    tr_gnode two = SEQ(b, hex, hex);
    tr_gnode low =
        ALT(b, SEQ(b, one_of(b, "09acefACEF"), hex), SEQ(b, one_of(b, "ddDD"), one_of(b, "07")));
    tr_gnode single = SEQ(b, text(b, "u"), low, two);
    tr_gnode d = one_of(b, "ddDD");
    tr_gnode pair = SEQ(b, text(b, "u"), d, one_of(b, "89abAB"), two, text(b, "\\u"), d,
                        one_of(b, "cfCF"), two);
    return ALT(b, single, pair);
}

tr_gnode tr_gj_chars(struct tr_gjson *j)
{
    struct tr_gbuild *b = j->b;
    if (!j->chars) {
        static const struct tr_grange BARE[] = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
        tr_gnode bare = tr_g_class(b, BARE, 3, true);
        tr_gnode simple = one_of(b, "\"\"\\\\//bbffnnrrtt");
        tr_gnode escape = SEQ(b, text(b, "\\"), ALT(b, simple, unicode_escape(b)));
        j->chars = rule(b, ALT(b, bare, escape));
    }
    return j->chars;
}

tr_gnode tr_gj_string(struct tr_gjson *j)
{
    struct tr_gbuild *b = j->b;
    if (!j->string) {
        tr_gnode body = tr_g_repeat(b, tr_gj_chars(j), 0, TR_G_INF);
        j->string = rule(b, SEQ(b, text(b, "\""), body, text(b, "\"")));
    }
    return j->string;
}

/* ---- numbers ---- */

static tr_gnode whole(struct tr_gbuild *b)
{
    tr_gnode digits = tr_g_repeat(b, one_of(b, "09"), 0, TR_JSON_DIGITS - 1);
    return SEQ(b, maybe(b, text(b, "-")), ALT(b, text(b, "0"), SEQ(b, one_of(b, "19"), digits)));
}

tr_gnode tr_gj_integer(struct tr_gjson *j)
{
    if (!j->integer)
        j->integer = rule(j->b, whole(j->b));
    return j->integer;
}

tr_gnode tr_gj_number(struct tr_gjson *j)
{
    struct tr_gbuild *b = j->b;
    if (!j->number) {
        tr_gnode digit = one_of(b, "09");
        tr_gnode fraction = SEQ(b, text(b, "."), tr_g_repeat(b, digit, 1, TR_JSON_FRACTION));
        tr_gnode exponent =
            SEQ(b, one_of(b, "eeEE"), maybe(b, one_of(b, "++--")), tr_g_repeat(b, digit, 1, 2));
        j->number = rule(b, SEQ(b, whole(b), maybe(b, fraction), maybe(b, exponent)));
    }
    return j->number;
}

/* ---- values ---- */

/* open item , item close, or nothing between them. */
static tr_gnode list(struct tr_gjson *j, const char *open, tr_gnode item, const char *close)
{
    struct tr_gbuild *b = j->b;
    tr_gnode blank = tr_gj_blank(j);
    tr_gnode more = tr_g_repeat(b, SEQ(b, text(b, ","), blank, item), 0, TR_G_INF);
    tr_gnode items = SEQ(b, blank, item, more, blank);
    return SEQ(b, text(b, open), ALT(b, items, blank), text(b, close));
}

/* The three call each other, so they are made together. */
static void make_values(struct tr_gjson *j)
{
    struct tr_gbuild *b = j->b;
    if (j->value)
        return;
    j->value = tr_g_rule(b);
    j->object = tr_g_rule(b);
    j->array = tr_g_rule(b);
    tr_g_define(b, j->value,
                ALT(b, tr_gj_string(j), tr_gj_number(j), j->object, j->array, text(b, "true"),
                    text(b, "false"), text(b, "null")));
    tr_gnode member = SEQ(b, tr_gj_string(j), text(b, ":"), maybe(b, text(b, " ")), j->value);
    tr_g_define(b, j->object, list(j, "{", member, "}"));
    tr_g_define(b, j->array, list(j, "[", j->value, "]"));
}

tr_gnode tr_gj_value(struct tr_gjson *j)
{
    make_values(j);
    return j->value;
}

tr_gnode tr_gj_object(struct tr_gjson *j)
{
    make_values(j);
    return j->object;
}

tr_gnode tr_gj_array(struct tr_gjson *j)
{
    make_values(j);
    return j->array;
}

tr_gnode tr_gjson_object(struct tr_gbuild *b)
{
    struct tr_gjson j = {.b = b};
    return tr_gj_object(&j);
}

/* ---- strings with one way to be written ---- */

/* The letter behind the backslash, 0 if the character has none. */
static char short_escape(uint32_t c)
{
    switch (c) {
    case '"':
        return '"';
    case '\\':
        return '\\';
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    default:
        return 0;
    }
}

/* c < 0x20, or one that has a short escape. */
static size_t write_escape(uint32_t c, char out[6])
{
    char e = short_escape(c);
    out[0] = '\\';
    if (e) {
        out[1] = e;
        return 2;
    }
    out[1] = 'u';
    out[2] = out[3] = '0';
    out[4] = (char)('0' + (c >> 4));
    out[5] = "0123456789abcdef"[c & 15];
    return 6;
}

tr_gnode tr_gj_set(struct tr_gbuild *b, const struct tr_cset *set)
{
    struct tr_grange bare[64];
    tr_gnode v[64];
    size_t n = 0;
    size_t n_bare = 0;
    /* What is written with a backslash, character by character... */
    for (uint32_t c = 0; c <= '\\'; c++)
        if ((c < 0x20 || short_escape(c)) && tr_cset_has(set, c)) {
            char e[6];
            v[n++] = tr_g_bytes(b, e, write_escape(c, e));
        }
    /* ... and what is not: ranges far beyond ASCII are the set's own. */
    static const struct tr_grange PLAIN[] = {
        {0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, TR_CHAR_MAX}};
    for (uint32_t i = 0; i < set->n; i++)
        for (int k = 0; k < 3; k++) {
            struct tr_grange r = set->r[i];
            r.lo = r.lo > PLAIN[k].lo ? r.lo : PLAIN[k].lo;
            r.hi = r.hi < PLAIN[k].hi ? r.hi : PLAIN[k].hi;
            if (r.lo > r.hi)
                continue;
            bare[n_bare++] = r;
            if (n_bare == sizeof bare / sizeof *bare) {
                v[n++] = tr_g_class(b, bare, n_bare, false);
                n_bare = 0;
                if (n == sizeof v / sizeof *v) {
                    v[0] = tr_g_alt(b, v, n);
                    n = 1;
                }
            }
        }
    if (n_bare)
        v[n++] = tr_g_class(b, bare, n_bare, false);
    return n == 1 ? v[0] : tr_g_alt(b, v, n);
}

tr_gnode tr_gj_literal(struct tr_gbudget *w, struct tr_gbuild *b, const char *s, size_t n)
{
    char *out = tr_gbudget_alloc(w, 6 * n + 2);
    if (!out)
        return TR_G_NONE;
    size_t k = 0;
    out[k++] = '"';
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c < 0x20 || short_escape(c))
            k += write_escape(c, out + k);
        else
            out[k++] = s[i];
    }
    out[k++] = '"';
    return tr_g_bytes(b, out, k);
}
