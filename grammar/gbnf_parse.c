/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/gbnf_parse.c - the text of a grammar into trees; see gbnf.h. */
#include "grammar/gbnf_tree.h"
#include "base/hex.h"
#include "grammar/utf8_char.h"

#include <errno.h>
#include <string.h>

enum { CLASS_RANGES = 512 };

struct parser {
    struct tr_gb_rules *g;
    struct tr_gbudget *w;
    const char *s;
    size_t len, at;
    uint32_t line;
    unsigned depth;
    int ret;
    struct tr_errbuf *err;
};

static void *refuse(struct parser *p, const char *why)
{
    if (!p->ret)
        p->ret = tr_errf(p->err, -EINVAL, "line %u of the grammar: %s", p->line, why);
    return NULL;
}

static void *full(struct parser *p)
{
    if (!p->ret)
        p->ret = tr_errf(p->err, tr_gbudget_why(p->w), "the grammar is too large");
    return NULL;
}

static int peek(const struct parser *p, size_t ahead)
{
    return p->at + ahead < p->len ? (unsigned char)p->s[p->at + ahead] : -1;
}

static struct tr_gb *node(struct parser *p, enum tr_gb_kind kind)
{
    struct tr_gb *t = tr_gbudget_step(p->w, 4) ? tr_gbudget_alloc(p->w, sizeof *t) : NULL;
    if (!t)
        return full(p);
    t->kind = kind;
    t->line = p->line;
    return t;
}

/* Blanks and comments; line ends, too, with `lines`. */
static void space(struct parser *p, bool lines)
{
    for (;; p->at++) {
        int c = peek(p, 0);
        if (c == '#')
            while (peek(p, 0) >= 0 && peek(p, 0) != '\n' && peek(p, 0) != '\r')
                p->at++;
        c = peek(p, 0);
        if (c == '\n' && lines)
            p->line++;
        if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r')))
            return;
    }
}

static bool is_name(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* The number of the rule whose name is at `at`; UINT32_MAX at a fault. */
static uint32_t name(struct parser *p)
{
    size_t from = p->at;
    while (is_name(peek(p, 0)))
        p->at++;
    if (p->at == from)
        return refuse(p, "the name of a rule is expected"), UINT32_MAX;
    uint32_t known = p->g->n;
    uint32_t id = tr_fa_state(p->g->names, p->s + from, p->at - from);
    if (id == UINT32_MAX)
        return full(p), UINT32_MAX;
    if (id == known)
        p->g->rule[p->g->n++] =
            (struct tr_gb_rule){.name = p->s + from, .len = p->at - from, .line = p->line};
    return id;
}

/* ---- characters ---- */

/* One character of a literal or class at `at`. */
static bool character(struct parser *p, uint32_t *c)
{
    if (peek(p, 0) != '\\') {
        size_t n = tr_utf8_char(p->s + p->at, p->len - p->at, c);
        if (!n)
            return refuse(p, "not UTF-8"), false;
        p->at += n;
        p->line += *c == '\n';
        return true;
    }
    static const char FROM[] = "nrt\\\"[]";
    static const char TO[] = "\n\r\t\\\"[]";
    int e = peek(p, 1);
    const char *known = e > 0 ? strchr(FROM, e) : NULL;
    p->at += 2;
    if (known) {
        *c = (unsigned char)TO[known - FROM];
        return true;
    }
    unsigned digits = e == 'x' ? 2 : e == 'u' ? 4 : e == 'U' ? 8 : 0;
    if (!digits)
        return refuse(p, "an escape that is not known"), false;
    uint32_t v = 0;
    for (; digits; digits--, p->at++) {
        int d = tr_hex_digit(peek(p, 0));
        if (d < 0)
            return refuse(p, "too few hexadecimal digits"), false;
        v = v << 4 | (uint32_t)d;
    }
    if (v > TR_CHAR_MAX || (v >= 0xd800 && v <= 0xdfff))
        return refuse(p, "the escape is no character"), false;
    *c = v;
    return true;
}

static size_t put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    unsigned n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t FIRST[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (unsigned i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(FIRST[n] | c);
    return n;
}

/* Behind the opening quote. */
static struct tr_gb *literal(struct parser *p)
{
    struct tr_gb *t = node(p, TR_GB_TEXT);
    const char *end = p->s + p->at;
    /* An escape is at least as long as what it stands for: the source bounds the text. */
    while (end < p->s + p->len && *end != '"')
        end += 1 + (*end == '\\');
    char *out = t ? tr_gbudget_alloc(p->w, (size_t)(end - p->s) - p->at + 4) : NULL;
    if (!out)
        return full(p);
    t->text = out;
    while (peek(p, 0) != '"') {
        uint32_t c;
        if (p->at >= p->len)
            return refuse(p, "a literal without its closing quote");
        if (!character(p, &c))
            return NULL;
        t->len += put_utf8(out + t->len, c);
    }
    p->at++;
    return t;
}

/* Behind [. */
static struct tr_gb *char_class(struct parser *p)
{
    struct tr_grange r[CLASS_RANGES];
    size_t n = 0;
    bool negate = peek(p, 0) == '^';
    p->at += negate;
    while (peek(p, 0) != ']') {
        if (p->at >= p->len)
            return refuse(p, "a class without its ]");
        if (n == CLASS_RANGES)
            return refuse(p, "a class of too many characters");
        if (!character(p, &r[n].lo))
            return NULL;
        r[n].hi = r[n].lo;
        if (peek(p, 0) == '-' && peek(p, 1) != ']' && peek(p, 1) >= 0) {
            p->at++;
            if (!character(p, &r[n].hi))
                return NULL;
            if (r[n].hi < r[n].lo)
                return refuse(p, "a range that ends before it begins");
        }
        n++;
    }
    p->at++;
    struct tr_gb *t = node(p, TR_GB_SET);
    if (!t)
        return NULL;
    t->set = tr_cset_make(&p->w->arena, r, n, negate);
    if (t->set && !t->set->n)
        return refuse(p, "a class without characters");
    return t->set ? t : full(p);
}

/* ---- expressions ---- */

static struct tr_gb *alternatives(struct parser *p);

static struct tr_gb *atom(struct parser *p)
{
    int c = peek(p, 0);
    if (c == '"') {
        p->at++;
        return literal(p);
    }
    if (c == '[') {
        p->at++;
        return char_class(p);
    }
    if (c == '.') {
        p->at++;
        struct tr_gb *t = node(p, TR_GB_SET);
        if (t)
            t->set = tr_cset_make(&p->w->arena, NULL, 0, true);
        return t && t->set ? t : full(p);
    }
    if (c == '(') {
        if (p->depth == TR_GBNF_DEPTH)
            return refuse(p, "groups are nested too deep");
        p->at++;
        p->depth++;
        struct tr_gb *t = alternatives(p);
        p->depth--;
        if (t && peek(p, 0) != ')')
            return refuse(p, "a group without its )");
        p->at++;
        return t;
    }
    if (c == '<' || (c == '!' && peek(p, 1) == '<'))
        return refuse(p, "names of tokens are not supported");
    if (c == '*' || c == '+' || c == '?' || c == '{')
        return refuse(p, "nothing to repeat");
    struct tr_gb *t = node(p, TR_GB_REF);
    if (!t)
        return NULL;
    t->rule = name(p);
    return t->rule == UINT32_MAX ? NULL : t;
}

static bool number(struct parser *p, uint32_t *n)
{
    if (peek(p, 0) < '0' || peek(p, 0) > '9')
        return false;
    uint64_t v = 0;
    for (; peek(p, 0) >= '0' && peek(p, 0) <= '9'; p->at++)
        v = v > TR_GBNF_COUNT ? v : v * 10 + (uint64_t)(peek(p, 0) - '0');
    *n = v > TR_GBNF_COUNT ? TR_GBNF_COUNT + 1 : (uint32_t)v;
    return true;
}

/* Behind {: the counts and the closing brace. */
static bool counts(struct parser *p, uint32_t *min, uint32_t *max)
{
    space(p, false);
    if (!number(p, min))
        return refuse(p, "a count is expected"), false;
    *max = *min;
    space(p, false);
    if (peek(p, 0) == ',') {
        p->at++;
        space(p, false);
        if (!number(p, max))
            *max = UINT32_MAX;
        space(p, false);
    }
    if (peek(p, 0) != '}')
        return refuse(p, "a } is expected"), false;
    p->at++;
    if (*min > TR_GBNF_COUNT || (*max != UINT32_MAX && *max > TR_GBNF_COUNT))
        return refuse(p, "a count above 10000"), false;
    return *min <= *max || (refuse(p, "a count that ends before it begins"), false);
}

/* An atom with all quantifiers behind it. */
static struct tr_gb *term(struct parser *p)
{
    struct tr_gb *t = atom(p);
    for (unsigned n = 0; t; n++) {
        space(p, p->depth > 0);
        int c = peek(p, 0);
        uint32_t min = c == '+';
        uint32_t max = c == '?' ? 1 : UINT32_MAX;
        if (c != '*' && c != '+' && c != '?' && c != '{')
            return t;
        p->at++;
        if (c == '{' && !counts(p, &min, &max))
            return NULL;
        if (n == TR_GBNF_DEPTH)
            return refuse(p, "too many quantifiers");
        struct tr_gb *r = node(p, TR_GB_REPEAT);
        if (!r)
            return NULL;
        r->min = min;
        r->max = max;
        r->child = t;
        t = r;
    }
    return NULL;
}

/* A line that begins with | goes on with the rule: moves to the bar if there is one. */
static bool bar_follows(struct parser *p)
{
    size_t at = p->at;
    uint32_t line = p->line;
    space(p, true);
    if (peek(p, 0) == '|')
        return true;
    p->at = at;
    p->line = line;
    return false;
}

static struct tr_gb *sequence(struct parser *p)
{
    struct tr_gb *seq = node(p, TR_GB_SEQ);
    struct tr_gb **end = seq ? &seq->child : NULL;
    while (seq) {
        space(p, p->depth > 0);
        int c = peek(p, 0);
        if (c < 0 || c == '|' || c == ')' || c == '\n' || c == '\r')
            return seq;
        *end = term(p);
        if (!*end)
            return NULL;
        end = &(*end)->next;
    }
    return NULL;
}

static struct tr_gb *alternatives(struct parser *p)
{
    space(p, true);
    struct tr_gb *first = sequence(p);
    if (!first || !bar_follows(p))
        return first;
    struct tr_gb *alt = node(p, TR_GB_ALT);
    if (!alt)
        return NULL;
    alt->child = first;
    for (struct tr_gb *last = first; bar_follows(p); last = last->next) {
        p->at++;
        space(p, true);
        last->next = sequence(p);
        if (!last->next)
            return NULL;
    }
    return alt;
}

static bool rule(struct parser *p)
{
    uint32_t line = p->line;
    uint32_t id = name(p);
    if (id == UINT32_MAX)
        return false;
    space(p, false);
    if (p->len - p->at < 3 || memcmp(p->s + p->at, "::=", 3) != 0)
        return refuse(p, "::= is expected"), false;
    if (p->g->rule[id].body)
        return refuse(p, "the rule is defined twice"), false;
    p->at += 3;
    struct tr_gb *t = alternatives(p);
    if (!t)
        return false;
    p->g->rule[id].body = t;
    p->g->rule[id].line = line;
    int c = peek(p, 0);
    return c < 0 || c == '\n' || c == '\r' || (refuse(p, "the end of the line is expected"), false);
}

int tr_gb_parse(struct tr_gb_rules *g, const char *text, size_t len, struct tr_errbuf *err)
{
    struct parser p = {.g = g, .w = g->w, .s = text, .len = len, .line = 1, .err = err};
    g->names = tr_fa_new(g->w);
    g->rule = tr_gbudget_alloc(g->w, TR_FA_STATES * sizeof *g->rule);
    if (!g->names || !g->rule)
        return full(&p), p.ret;
    for (space(&p, true); p.at < len && !p.ret; space(&p, true))
        (void)rule(&p);
    return p.ret;
}
