/* SPDX-License-Identifier: Apache-2.0 */
#include "text/jinja_lex.h"

#include "text/jinja_uni.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BRACKETS_MAX 256

struct lexer {
    struct tr_jctx *c;
    struct tr_jstr src; /* normalised */
    size_t pos;
    uint32_t line;
    size_t line_pos; /* up to where lines were counted */
    struct tr_jtok *tok;
    size_t n;
    size_t cap;
    char open[BRACKETS_MAX]; /* closing bracket that each open one waits for */
    size_t n_open;
};

static bool lex_root(struct lexer *l);
static bool lex_tag(struct lexer *l, bool variable);

/* One newline style, and without the one newline at the end. */
static bool normalise(struct tr_jctx *c, const char *src, size_t len, struct tr_jstr *out)
{
    char *p = tr_jalloc(c, len + 1);
    size_t n = 0;
    if (!p)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (src[i] != '\r') {
            p[n++] = src[i];
            continue;
        }
        p[n++] = '\n';
        if (i + 1 < len && src[i + 1] == '\n')
            i++;
    }
    if (n && p[n - 1] == '\n')
        n--;
    *out = (struct tr_jstr){.p = p, .len = n};
    return true;
}

const struct tr_jtok *tr_jlex(struct tr_jctx *c, const char *src, size_t len)
{
    struct lexer l = {.c = c, .line = 1};
    if (!normalise(c, src, len, &l.src) || !lex_root(&l))
        return NULL;
    return l.tok;
}

static bool fail(struct lexer *l, const char *what)
{
    tr_jfail(l->c, TR_JERR_SYNTAX, "line %u: %s", l->line, what);
    return false;
}

static void count_lines(struct lexer *l, size_t to)
{
    for (; l->line_pos < to; l->line_pos++)
        l->line += l->src.p[l->line_pos] == '\n';
}

static struct tr_jtok *push(struct lexer *l, int kind)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        struct tr_jtok *grown = tr_jalloc_n(l->c, cap, sizeof *grown);
        if (!grown)
            return NULL;
        if (l->n)
            memcpy(grown, l->tok, l->n * sizeof *grown);
        l->tok = grown;
        l->cap = cap;
    }
    l->tok[l->n] = (struct tr_jtok){.kind = kind, .line = l->line};
    return &l->tok[l->n++];
}

static bool push_data(struct lexer *l, size_t start, size_t end)
{
    if (start >= end)
        return true;
    struct tr_jtok *t = push(l, TR_JT_DATA);
    if (!t)
        return false;
    t->s = (struct tr_jstr){.p = l->src.p + start, .len = end - start};
    return true;
}

static char at(const struct lexer *l, size_t i)
{
    return i < l->src.len ? l->src.p[i] : '\0';
}

static bool starts(const struct lexer *l, size_t i, const char *s)
{
    size_t n = strlen(s);
    return i <= l->src.len && n <= l->src.len - i && !memcmp(l->src.p + i, s, n);
}

static size_t skip_space(const struct lexer *l, size_t i)
{
    size_t n;
    while (i < l->src.len && tr_juni_space(tr_jchar(l->src, i, &n)))
        i += n;
    return i;
}

/* Where the text [start, end) ends after the strip that the tag behind it asks for. */
static size_t strip_before(const struct lexer *l, size_t start, size_t end, char sign,
                           bool variable)
{
    size_t n;
    size_t to = end;
    if (sign == '+' || (variable && sign != '-'))
        return end;
    while (to > start && (sign == '-' || l->src.p[to - 1] != '\n')) {
        struct tr_jstr text = {.p = l->src.p + start, .len = to - start};
        if (!tr_juni_space(tr_jchar_before(text, to - start, &n)))
            return sign == '-' ? to : end;
        to -= n;
    }
    if (sign == '-')
        return to;
    /* Only blanks back to a newline, or to the start: then it must be the start of a line. */
    if (to > start || start == 0 || l->src.p[start - 1] == '\n')
        return to;
    return end;
}

/* Behind the end of a tag whose closing delimiter (two characters) is at `i`; `sign` before it. */
static size_t skip_after(const struct lexer *l, size_t i, char sign, bool variable)
{
    if (sign == '-')
        return skip_space(l, i + 2);
    if (sign != '+' && !variable && at(l, i + 2) == '\n')
        return i + 3;
    return i + 2;
}

/* Finds the end of a tag name in raw blocks: \s* name \s* at i.  Returns the position behind, or
 * 0. */
static size_t match_word(const struct lexer *l, size_t i, const char *word)
{
    i = skip_space(l, i);
    if (!starts(l, i, word))
        return 0;
    return skip_space(l, i + strlen(word));
}

static bool lex_raw(struct lexer *l, size_t from)
{
    for (size_t i = from; i + 1 < l->src.len; i++) {
        if (!starts(l, i, "{%"))
            continue;
        char sign = at(l, i + 2);
        bool signed_tag = sign == '-' || sign == '+';
        size_t end = match_word(l, i + 2 + signed_tag, "endraw");
        if (!end)
            continue;
        char end_sign = at(l, end);
        bool signed_end = end_sign == '-' || end_sign == '+';
        if (!starts(l, end + signed_end, "%}"))
            continue;
        if (!push_data(l, from, strip_before(l, from, i, signed_tag ? sign : 0, false)))
            return false;
        l->pos = skip_after(l, end + signed_end, signed_end ? end_sign : 0, false);
        return true;
    }
    return fail(l, "Missing end of raw directive");
}

static bool lex_comment(struct lexer *l, size_t from)
{
    for (size_t i = from; i + 1 < l->src.len; i++) {
        if (!starts(l, i, "#}"))
            continue;
        l->pos = skip_after(l, i, i > from ? at(l, i - 1) : 0, false);
        return true;
    }
    return fail(l, "Missing end of comment tag");
}

/* `{% raw %}` at i: position of its content, or 0. */
static size_t match_raw(const struct lexer *l, size_t i)
{
    size_t end = match_word(l, i, "raw");
    if (!end)
        return 0;
    if (starts(l, end, "-%}"))
        return skip_space(l, end + 3);
    return starts(l, end, "%}") ? end + 2 : 0;
}

static bool lex_one(struct lexer *l, size_t begin)
{
    char kind = l->src.p[begin + 1];
    char sign = at(l, begin + 2);
    bool has_sign = sign == '-' || sign == '+';
    size_t inside = begin + 2 + has_sign;
    bool variable = kind == '{';

    if (!push_data(l, l->pos, strip_before(l, l->pos, begin, has_sign ? sign : 0, variable)))
        return false;
    count_lines(l, begin);
    if (kind == '#')
        return lex_comment(l, inside);
    if (kind == '%') {
        size_t raw = match_raw(l, inside);
        if (raw)
            return lex_raw(l, raw);
    }
    if (!push(l, variable ? TR_JT_VAR_BEGIN : TR_JT_BLOCK_BEGIN))
        return false;
    l->pos = inside;
    return lex_tag(l, variable);
}

static bool lex_root(struct lexer *l)
{
    while (l->pos < l->src.len) {
        size_t i = l->pos;
        while (i < l->src.len && !starts(l, i, "{%") && !starts(l, i, "{{") && !starts(l, i, "{#"))
            i++;
        if (i == l->src.len) {
            if (!push_data(l, l->pos, i))
                return false;
            break;
        }
        if (!lex_one(l, i))
            return false;
    }
    count_lines(l, l->src.len);
    return push(l, TR_JT_EOF) != NULL;
}

/* ---- inside a tag ---- */

/* (\d+_)*\d+ at i: position behind, or i. */
static size_t match_digits(const struct lexer *l, size_t i)
{
    size_t end = i;
    for (size_t k = i;; k++) {
        if (at(l, k) >= '0' && at(l, k) <= '9')
            end = k + 1;
        else if (at(l, k) != '_' || k != end || k == i)
            return end;
    }
}

/* Position behind a float literal at i, or i. */
static size_t match_float(const struct lexer *l, size_t i)
{
    size_t whole = match_digits(l, i);
    if (whole == i || (i && l->src.p[i - 1] == '.'))
        return i;
    size_t end = whole;
    if (at(l, end) == '.') {
        size_t frac = match_digits(l, end + 1);
        end = frac > end + 1 ? frac : whole;
    }
    if (at(l, end) == 'e' || at(l, end) == 'E') {
        size_t exp = end + 1;
        exp += at(l, exp) == '+' || at(l, exp) == '-';
        size_t behind = match_digits(l, exp);
        if (behind > exp)
            return behind;
    }
    return end > whole ? end : i;
}

static size_t match_radix(const struct lexer *l, size_t i, int *radix)
{
    char x = (char)(at(l, i + 1) | 0x20);
    *radix = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 10;
    if (at(l, i) != '0' || *radix == 10)
        return i;
    size_t k = i + 2;
    for (;;) {
        size_t d = k + (at(l, k) == '_');
        char ch = at(l, d);
        int v = ch >= '0' && ch <= '9'                     ? ch - '0'
                : (ch | 0x20) >= 'a' && (ch | 0x20) <= 'f' ? (ch | 0x20) - 'a' + 10
                                                           : 99;
        if (v >= *radix)
            return k == i + 2 ? i : k;
        k = d + 1;
    }
}

static size_t match_int(const struct lexer *l, size_t i, int *radix)
{
    size_t end = match_radix(l, i, radix);
    if (end > i)
        return end;
    *radix = 10;
    if (at(l, i) != '0')
        return match_digits(l, i);
    for (end = i + 1;;) {
        size_t d = end + (at(l, end) == '_');
        if (at(l, d) != '0')
            return end;
        end = d + 1;
    }
}

static bool lex_number(struct lexer *l)
{
    int radix = 10;
    size_t end = match_float(l, l->pos);
    bool is_float = end > l->pos;
    if (!is_float)
        end = match_int(l, l->pos, &radix);
    char *text = tr_jalloc(l->c, end - l->pos + 1);
    struct tr_jtok *t = push(l, is_float ? TR_JT_FLOAT : TR_JT_INT);
    if (!text || !t)
        return false;
    size_t n = 0;
    for (size_t i = l->pos; i < end; i++)
        if (l->src.p[i] != '_')
            text[n++] = l->src.p[i];
    l->pos = end;
    if (is_float) {
        t->num = tr_jnew_float(l->c, strtod(text, NULL));
    } else if (radix == 10) {
        t->num = tr_jint_text(l->c, (struct tr_jstr){.p = text, .len = n});
    } else {
        errno = 0;
        long long v = strtoll(text + 2, NULL, radix);
        if (errno)
            return fail(l, "integer literals beyond 64 bits are supported in decimal only");
        t->num = tr_jnew_int(l->c, v);
    }
    return t->num != NULL;
}

static bool lex_name(struct lexer *l)
{
    size_t n;
    size_t i = l->pos;
    while (i < l->src.len) {
        int32_t ch = tr_jchar(l->src, i, &n);
        if (ch != '_' && !tr_juni_alnum(ch))
            break;
        i += n;
    }
    struct tr_jtok *t = push(l, TR_JT_NAME);
    if (!t)
        return false;
    t->s = (struct tr_jstr){.p = l->src.p + l->pos, .len = i - l->pos};
    l->pos = i;
    return true;
}

/* Reads `n` hex digits at i; -1 if they are not there. */
static int32_t hex(const struct lexer *l, size_t i, size_t n, size_t end)
{
    int32_t v = 0;
    if (i + n > end)
        return -1;
    for (size_t k = i; k < i + n; k++) {
        char ch = l->src.p[k];
        char low = (char)(ch | 0x20);
        if (ch >= '0' && ch <= '9')
            v = v << 4 | (ch - '0');
        else if (low >= 'a' && low <= 'f')
            v = v << 4 | (low - 'a' + 10);
        else
            return -1;
        if (v > 0x10FFFF)
            return -1;
    }
    return v;
}

static bool add_code(struct lexer *l, struct tr_jbuf *b, int32_t cp)
{
    char utf8[4];
    if (cp < 0)
        return fail(l, "bad escape in a string");
    if (cp >= 0xD800 && cp <= 0xDFFF)
        return fail(l, "a surrogate escape in a string is not supported");
    tr_jbuf_add(b, utf8, tr_juni_encode(cp, utf8), false);
    return true;
}

/* The escape at i (behind the backslash); moves i behind it. */
static bool add_escape(struct lexer *l, struct tr_jbuf *b, size_t *i, size_t end)
{
    static const char from[] = "\\'\"abfnrtv";
    static const char to[] = "\\'\"\a\b\f\n\r\t\v";
    char ch = l->src.p[*i];
    const char *simple = ch ? strchr(from, ch) : NULL;
    if (ch == '\n') {
        *i += 1;
        return true;
    }
    if (simple) {
        tr_jbuf_add(b, &to[simple - from], 1, false);
        *i += 1;
        return true;
    }
    if (ch == 'x' || ch == 'u' || ch == 'U') {
        size_t n = ch == 'x' ? 2 : ch == 'u' ? 4 : 8;
        int32_t cp = hex(l, *i + 1, n, end);
        *i += 1 + n;
        return add_code(l, b, cp);
    }
    if (ch >= '0' && ch <= '7') {
        int32_t cp = 0;
        for (int k = 0; k < 3 && *i < end && l->src.p[*i] >= '0' && l->src.p[*i] <= '7'; k++)
            cp = cp * 8 + (l->src.p[(*i)++] - '0');
        return add_code(l, b, cp);
    }
    if (ch == 'N' || (unsigned char)ch >= 0x80)
        return fail(l, "this escape in a string is not supported");
    tr_jbuf_puts(b, "\\"); /* an unknown escape stays as it is */
    return true;
}

static bool lex_string(struct lexer *l)
{
    char quote = l->src.p[l->pos];
    size_t end = l->pos + 1;
    bool plain = true;
    while (end < l->src.len && l->src.p[end] != quote) {
        plain = plain && l->src.p[end] != '\\';
        end += l->src.p[end] == '\\' ? 2 : 1;
    }
    if (end >= l->src.len)
        return fail(l, "a string is not closed");
    struct tr_jtok *t = push(l, TR_JT_STRING);
    if (!t)
        return false;
    size_t i = l->pos + 1;
    t->s = (struct tr_jstr){.p = l->src.p + i, .len = end - i};
    l->pos = end + 1;
    if (plain)
        return true;
    struct tr_jbuf b;
    tr_jbuf_init(&b, l->c);
    while (i < end) {
        if (l->src.p[i] == '\\') {
            i++;
            if (!add_escape(l, &b, &i, end))
                return false;
            continue;
        }
        tr_jbuf_add(&b, &l->src.p[i++], 1, false);
    }
    l->tok[l->n - 1].s = tr_jbuf_str(&b);
    return !b.bad;
}

static bool bracket(struct lexer *l, char ch)
{
    if (ch == '(' || ch == '[' || ch == '{') {
        if (l->n_open == BRACKETS_MAX)
            return fail(l, "brackets are nested too deeply");
        l->open[l->n_open++] = ch == '(' ? ')' : ch == '[' ? ']' : '}';
    } else if (ch == ')' || ch == ']' || ch == '}') {
        if (!l->n_open || l->open[--l->n_open] != ch)
            return fail(l, "a closing bracket does not fit");
    }
    return true;
}

static bool lex_operator(struct lexer *l)
{
    static const struct {
        const char *s;
        int kind;
    } two[] = {{"**", TR_JT_POW}, {"//", TR_JT_FLOORDIV}, {"==", TR_JT_EQ},
               {"!=", TR_JT_NE},  {"<=", TR_JT_LE},       {">=", TR_JT_GE}};
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++) {
        if (starts(l, l->pos, two[i].s)) {
            l->pos += 2;
            return push(l, two[i].kind) != NULL;
        }
    }
    char ch = l->src.p[l->pos];
    if (!ch || !strchr("+-/*%~[](){}><=.:|,;", ch)) {
        tr_jfail(l->c, TR_JERR_SYNTAX, "line %u: unexpected char at %zu", l->line, l->pos);
        return false;
    }
    l->pos++;
    return bracket(l, ch) && push(l, ch);
}

static bool lex_token(struct lexer *l)
{
    size_t n;
    char ch = l->src.p[l->pos];
    if (ch == '\'' || ch == '"')
        return lex_string(l);
    if (ch >= '0' && ch <= '9')
        return lex_number(l);
    int32_t cp = tr_jchar(l->src, l->pos, &n);
    if (cp == '_' || tr_juni_alpha(cp))
        return lex_name(l);
    return lex_operator(l);
}

/* From behind `{{` or `{%` to behind its end. */
static bool lex_tag(struct lexer *l, bool variable)
{
    const char *end = variable ? "}}" : "%}";
    l->n_open = 0;
    for (;;) {
        count_lines(l, l->pos);
        l->pos = skip_space(l, l->pos);
        if (l->pos >= l->src.len)
            return fail(l, "unexpected end of template inside a tag");
        char sign = l->src.p[l->pos];
        bool has_sign = sign == '-' || (sign == '+' && !variable);
        if (!l->n_open && starts(l, l->pos + has_sign, end)) {
            l->pos = skip_after(l, l->pos + has_sign, has_sign ? sign : 0, variable);
            return push(l, variable ? TR_JT_VAR_END : TR_JT_BLOCK_END) != NULL;
        }
        if (!lex_token(l))
            return false;
    }
}
