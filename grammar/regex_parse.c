/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/regex_parse.c - the text of a regular expression into a tree; see regex.h. */
#include "grammar/regex_tree.h"
#include "base/hex.h"
#include "grammar/utf8_char.h"

#include <errno.h>
#include <string.h>

enum { CLASS_RANGES = 512 }; /* ranges of one [...] */

struct parser {
    struct tr_gbudget *w;
    const char *s;
    size_t len, at;
    unsigned depth;
    int ret;
    struct tr_errbuf *err;
};

static const struct tr_grange DIGIT[] = {{'0', '9'}};
static const struct tr_grange WORD[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
/* ECMA-262 22.2.2.9, CharacterClassEscape :: s: WhiteSpace and LineTerminator. */
static const struct tr_grange SPACE[] = {
    {0x09, 0x0d},     {0x20, 0x20},     {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
    {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
static const struct tr_grange LINE_END[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

static void *refuse(struct parser *p, const char *why)
{
    if (!p->ret)
        p->ret = tr_errf(p->err, -EINVAL, "at byte %zu of the pattern: %s", p->at, why);
    return NULL;
}

static void *full(struct parser *p)
{
    if (!p->ret)
        p->ret = tr_errf(p->err, tr_gbudget_why(p->w), "the pattern is too large");
    return NULL;
}

static struct tr_re *node(struct parser *p, enum tr_re_kind kind)
{
    struct tr_re *t = tr_gbudget_alloc(p->w, sizeof *t);
    if (!t)
        return full(p);
    t->kind = kind;
    return t;
}

static struct tr_re *set_node(struct parser *p, const struct tr_grange *r, size_t n, bool negate)
{
    struct tr_re *t = node(p, TR_RE_SET);
    if (!t)
        return NULL;
    t->set = tr_cset_make(&p->w->arena, r, n, negate);
    return t->set ? t : full(p);
}

static int peek(const struct parser *p, size_t ahead)
{
    return p->at + ahead < p->len ? (unsigned char)p->s[p->at + ahead] : -1;
}

static bool looking_at(const struct parser *p, const char *what)
{
    size_t n = strlen(what);
    return p->len - p->at >= n && memcmp(p->s + p->at, what, n) == 0;
}

/* ---- escapes ---- */

/* Exactly n hex digits at `at`. */
static bool hex(struct parser *p, unsigned n, uint32_t *c)
{
    uint32_t v = 0;
    for (unsigned i = 0; i < n; i++) {
        int d = tr_hex_digit(peek(p, i));
        if (d < 0)
            return false;
        v = v << 4 | (uint32_t)d;
    }
    p->at += n;
    *c = v;
    return true;
}

/* After \u: HHHH, perhaps two halves of a surrogate pair, or {H...}. */
static bool unicode(struct parser *p, uint32_t *c)
{
    if (peek(p, 0) == '{') {
        uint32_t v = 0;
        unsigned n = 0;
        for (p->at++; tr_hex_digit(peek(p, 0)) >= 0 && n < 7; n++, p->at++)
            v = v << 4 | (uint32_t)tr_hex_digit(peek(p, 0));
        if (!n || v > TR_CHAR_MAX || peek(p, 0) != '}')
            return refuse(p, "\\u{...} is no character"), false;
        p->at++;
        *c = v;
    } else if (!hex(p, 4, c)) {
        return refuse(p, "\\u needs four hexadecimal digits"), false;
    }
    if (*c >= 0xd800 && *c < 0xdc00 && looking_at(p, "\\u")) {
        uint32_t low;
        p->at += 2;
        if (!hex(p, 4, &low) || low < 0xdc00 || low > 0xdfff)
            return refuse(p, "half a surrogate pair"), false;
        *c = 0x10000 + ((*c - 0xd800) << 10) + (low - 0xdc00);
    }
    if (*c >= 0xd800 && *c <= 0xdfff)
        return refuse(p, "half a surrogate pair"), false;
    return true;
}

/* The character of an escape that stands for one; `at` is behind the backslash.  */
static bool char_escape(struct parser *p, uint32_t *c)
{
    int e = peek(p, 0);
    if (e < 0)
        return refuse(p, "a backslash at the end"), false;
    static const char FROM[] = "tnrfv";
    static const char TO[] = "\t\n\r\f\v";
    const char *known = strchr(FROM, e);
    if (e && known) {
        p->at++;
        *c = (unsigned char)TO[known - FROM];
        return true;
    }
    if (e == 'x') {
        p->at++;
        return hex(p, 2, c) || (refuse(p, "\\x needs two hexadecimal digits"), false);
    }
    if (e == 'u') {
        p->at++;
        return unicode(p, c);
    }
    if (e == 'c') {
        int l = peek(p, 1) | 0x20;
        if (l < 'a' || l > 'z')
            return refuse(p, "\\c needs a letter"), false;
        p->at += 2;
        *c = (uint32_t)(l - 'a' + 1);
        return true;
    }
    if (e == '0' && (peek(p, 1) < '0' || peek(p, 1) > '9')) {
        p->at++;
        *c = 0;
        return true;
    }
    if (e >= '0' && e <= '9')
        return refuse(p, "back references are not supported"), false;
    if (e == 'k')
        return refuse(p, "back references are not supported"), false;
    if (e == 'p' || e == 'P')
        return refuse(p, "\\p{...} is not supported"), false;
    if (e == 'b' || e == 'B')
        return refuse(p, "word boundaries (\\b, \\B) are not supported"), false;
    if ((e >= 'a' && e <= 'z') || (e >= 'A' && e <= 'Z'))
        return refuse(p, "an escape that ECMA-262 does not know"), false;
    size_t n = tr_utf8_char(p->s + p->at, p->len - p->at, c);
    if (!n)
        return refuse(p, "not UTF-8"), false;
    p->at += n;
    return true;
}

/* \d and its like at `at`, behind the backslash: the ranges, or NULL if it is none. */
static const struct tr_grange *class_escape(struct parser *p, size_t *n, bool *negate)
{
    int e = peek(p, 0);
    *negate = e == 'D' || e == 'W' || e == 'S';
    const struct tr_grange *r = NULL;
    if (e == 'd' || e == 'D') {
        r = DIGIT;
        *n = sizeof DIGIT / sizeof *r;
    } else if (e == 'w' || e == 'W') {
        r = WORD;
        *n = sizeof WORD / sizeof *r;
    } else if (e == 's' || e == 'S') {
        r = SPACE;
        *n = sizeof SPACE / sizeof *r;
    }
    p->at += r != NULL;
    return r;
}

/* ---- [...] ---- */

struct ranges {
    struct tr_grange r[CLASS_RANGES];
    size_t n;
};

static bool add(struct parser *p, struct ranges *v, const struct tr_grange *r, size_t n)
{
    if (n > CLASS_RANGES - v->n)
        return refuse(p, "a class of too many characters"), false;
    memcpy(v->r + v->n, r, n * sizeof *r);
    v->n += n;
    return true;
}

/* One member of a class: *single with its character, or a class escape, which is added. */
static bool class_atom(struct parser *p, struct ranges *v, bool *single, uint32_t *c)
{
    *single = true;
    if (peek(p, 0) != '\\') {
        if (looking_at(p, "[:") || looking_at(p, "[.") || looking_at(p, "[="))
            return refuse(p, "POSIX classes are not supported"), false;
        size_t n = tr_utf8_char(p->s + p->at, p->len - p->at, c);
        if (!n)
            return refuse(p, "not UTF-8"), false;
        p->at += n;
        return true;
    }
    p->at++;
    size_t n = 0;
    bool negate;
    const struct tr_grange *r = class_escape(p, &n, &negate);
    if (r) {
        *single = false;
        const struct tr_cset *s = tr_cset_make(&p->w->arena, r, n, negate);
        return s ? add(p, v, s->r, s->n) : (full(p), false);
    }
    if (peek(p, 0) == 'b') {
        p->at++;
        *c = '\b';
        return true;
    }
    if (peek(p, 0) == '-') {
        p->at++;
        *c = '-';
        return true;
    }
    return char_escape(p, c);
}

/* At the character behind [. */
static struct tr_re *char_class(struct parser *p)
{
    struct ranges v = {.n = 0};
    bool negate = peek(p, 0) == '^';
    p->at += negate;
    if (peek(p, 0) == ']' && !negate)
        return refuse(p, "an empty class; write \\] for the bracket");
    while (peek(p, 0) != ']') {
        bool single;
        bool last_single;
        struct tr_grange r = {0, 0};
        if (p->at >= p->len)
            return refuse(p, "a class without its ]");
        if (!class_atom(p, &v, &single, &r.lo))
            return NULL;
        if (peek(p, 0) != '-' || peek(p, 1) == ']' || peek(p, 1) < 0) {
            r.hi = r.lo;
            if (single && !add(p, &v, &r, 1))
                return NULL;
            continue;
        }
        p->at++;
        if (!class_atom(p, &v, &last_single, &r.hi))
            return NULL;
        if (!single || !last_single || r.lo > r.hi)
            return refuse(p, "a range that is none");
        if (!add(p, &v, &r, 1))
            return NULL;
    }
    p->at++;
    return set_node(p, v.r, v.n, negate);
}

/* ---- atoms, quantifiers, sequences ---- */

static struct tr_re *alternatives(struct parser *p);

/* At the character behind (. */
static struct tr_re *group(struct parser *p)
{
    if (looking_at(p, "?=") || looking_at(p, "?!"))
        return refuse(p, "lookahead is not supported");
    if (looking_at(p, "?<=") || looking_at(p, "?<!"))
        return refuse(p, "lookbehind is not supported");
    if (looking_at(p, "?>"))
        return refuse(p, "atomic groups are not supported");
    if (looking_at(p, "?:")) {
        p->at += 2;
    } else if (looking_at(p, "?<") || looking_at(p, "?P<")) {
        const char *end = memchr(p->s + p->at, '>', p->len - p->at);
        if (!end)
            return refuse(p, "the name of a group has no end");
        p->at = (size_t)(end - p->s) + 1;
    } else if (peek(p, 0) == '?') {
        return refuse(p, "flags and other extensions of groups are not supported");
    }
    if (p->depth == TR_RE_DEPTH)
        return refuse(p, "groups are nested too deep");
    p->depth++;
    struct tr_re *t = alternatives(p);
    p->depth--;
    if (!t)
        return NULL;
    if (peek(p, 0) != ')')
        return refuse(p, "a group without its )");
    p->at++;
    return t;
}

static struct tr_re *escaped(struct parser *p)
{
    size_t n = 0;
    bool negate;
    const struct tr_grange *r = class_escape(p, &n, &negate);
    if (r)
        return set_node(p, r, n, negate);
    struct tr_grange one;
    if (!char_escape(p, &one.lo))
        return NULL;
    one.hi = one.lo;
    return set_node(p, &one, 1, false);
}

/* {m}, {m,} or {m,n} at `at`: its length, or 0, and then the brace is a character. */
static size_t counts(const struct parser *p, uint32_t *min, uint32_t *max)
{
    size_t i = 1;
    uint64_t v[2] = {0, 0};
    int n = 0;
    bool digits = false;
    for (;; i++) {
        int c = peek(p, i);
        if (c >= '0' && c <= '9') {
            v[n] = v[n] > UINT32_MAX ? v[n] : v[n] * 10 + (uint64_t)(c - '0');
            digits = true;
        } else if (c == ',' && n == 0 && digits) {
            n = 1;
            digits = false;
        } else if (c == '}' && (digits || n)) {
            break;
        } else {
            return 0;
        }
    }
    *min = v[0] > TR_RE_COUNT ? TR_RE_COUNT + 1 : (uint32_t)v[0];
    *max = n == 0               ? *min
           : !digits            ? UINT32_MAX
           : v[1] > TR_RE_COUNT ? TR_RE_COUNT + 1
                                : (uint32_t)v[1];
    return i + 1;
}

/* The quantifier at `at`, if there is one: its length, or 0. */
static size_t quantifier(const struct parser *p, uint32_t *min, uint32_t *max)
{
    int c = peek(p, 0);
    *min = c == '+';
    *max = c == '?' ? 1 : UINT32_MAX;
    if (c == '?' || c == '*' || c == '+')
        return 1;
    return c == '{' ? counts(p, min, max) : 0;
}

static struct tr_re *atom(struct parser *p)
{
    uint32_t min;
    uint32_t max;
    int c = peek(p, 0);
    if (quantifier(p, &min, &max))
        return refuse(p, "nothing to repeat");
    switch (c) {
    case '(':
        p->at++;
        return group(p);
    case '[':
        p->at++;
        return char_class(p);
    case '.':
        p->at++;
        return set_node(p, LINE_END, sizeof LINE_END / sizeof *LINE_END, true);
    case '^':
        p->at++;
        return node(p, TR_RE_BEGIN);
    case '$':
        p->at++;
        return node(p, TR_RE_END);
    case '\\':
        p->at++;
        return escaped(p);
    default:
        break;
    }
    struct tr_grange one;
    size_t n = tr_utf8_char(p->s + p->at, p->len - p->at, &one.lo);
    if (!n)
        return refuse(p, "not UTF-8");
    p->at += n;
    one.hi = one.lo;
    return set_node(p, &one, 1, false);
}

/* An atom and the quantifier behind it. */
static struct tr_re *term(struct parser *p)
{
    struct tr_re *t = atom(p);
    uint32_t min;
    uint32_t max;
    size_t n = t ? quantifier(p, &min, &max) : 0;
    if (!n)
        return t;
    if (t->kind == TR_RE_BEGIN || t->kind == TR_RE_END)
        return refuse(p, "nothing to repeat");
    if (min > TR_RE_COUNT || (max > TR_RE_COUNT && max != UINT32_MAX))
        return refuse(p, "a count above 10000");
    if (min > max)
        return refuse(p, "a count that ends before it begins");
    p->at += n;
    if (peek(p, 0) == '?')
        p->at++;
    else if (peek(p, 0) == '+')
        return refuse(p, "possessive quantifiers are not supported");
    struct tr_re *r = node(p, TR_RE_REPEAT);
    if (!r)
        return NULL;
    r->min = min;
    r->max = max;
    r->child = t;
    return r;
}

static struct tr_re *sequence(struct parser *p)
{
    struct tr_re *seq = node(p, TR_RE_SEQ);
    struct tr_re **end = seq ? &seq->child : NULL;
    while (seq && p->at < p->len && peek(p, 0) != '|' && peek(p, 0) != ')') {
        *end = term(p);
        if (!*end)
            return NULL;
        end = &(*end)->next;
    }
    return seq;
}

static struct tr_re *alternatives(struct parser *p)
{
    struct tr_re *first = sequence(p);
    if (!first || peek(p, 0) != '|')
        return first;
    struct tr_re *alt = node(p, TR_RE_ALT);
    if (!alt)
        return NULL;
    alt->child = first;
    for (struct tr_re *last = first; peek(p, 0) == '|'; last = last->next) {
        p->at++;
        last->next = sequence(p);
        if (!last->next)
            return NULL;
    }
    return alt;
}

/* Lookaheads at the beginning: what follows obeys them as well as the rest of the pattern. */
static bool looks(struct parser *p, struct tr_re_pattern *out)
{
    while (looking_at(p, "(?=") || looking_at(p, "(?!")) {
        if (out->n_looks == TR_RE_LOOKS)
            return refuse(p, "too many lookaheads"), false;
        struct tr_re_look *l = &out->look[out->n_looks++];
        l->absent = peek(p, 2) == '!';
        p->at += 3;
        p->depth++;
        l->tree = alternatives(p);
        p->depth--;
        if (!l->tree)
            return false;
        if (peek(p, 0) != ')')
            return refuse(p, "a group without its )"), false;
        p->at++;
    }
    return true;
}

int tr_re_parse(struct tr_gbudget *w, const char *text, size_t len, enum tr_re_place place,
                struct tr_re_pattern *out, struct tr_errbuf *err)
{
    struct parser p = {.w = w, .s = text, .len = len, .err = err};
    *out = (struct tr_re_pattern){.n_looks = 0};
    bool begins = peek(&p, 0) == '^';
    p.at += begins && (looking_at(&p, "^(?=") || looking_at(&p, "^(?!"));
    begins = p.at > 0;
    if ((begins || place == TR_RE_WHOLE) && !looks(&p, out))
        return p.ret;
    out->tree = alternatives(&p);
    if (out->tree && p.at < len)
        return refuse(&p, "a ) without its ("), p.ret;
    if (out->tree && out->n_looks && out->tree->kind == TR_RE_ALT)
        return refuse(&p, "lookahead before alternatives is not supported"), p.ret;
    if (!out->tree || !begins)
        return p.ret;
    struct tr_re *begin = node(&p, TR_RE_BEGIN);
    struct tr_re *seq = node(&p, TR_RE_SEQ);
    if (!begin || !seq)
        return p.ret;
    begin->next = out->tree;
    seq->child = begin;
    out->tree = seq;
    return 0;
}
