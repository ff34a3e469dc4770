/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hex.h"
#include "base/json.h"

#include "base/json_keys.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

struct tr_json_doc {
    const char *text;
    struct tr_json *node;
    uint32_t n, cap;
    char *strings; /* decoded strings that held escapes */
    size_t strings_len, strings_cap;
};

/* State of one parse. */
struct in {
    const unsigned char *s;
    size_t len, at;
    struct tr_json_doc *doc;
    struct tr_json_fault *fault;
    uint32_t open[TR_JSON_DEPTH]; /* the containers around us */
    unsigned depth;
    struct tr_json_seed seed;
};

static int fail(struct in *in, size_t off, const char *why)
{
    in->fault->off = off;
    in->fault->why = why;
    return -1;
}

static int no_memory(struct in *in)
{
    in->fault->no_memory = true;
    return fail(in, 0, "out of memory");
}

/* ---- scanning -------------------------------------------------------------------------- */

static void skip_space(struct in *in)
{
    size_t at = in->at;
    while (at < in->len &&
           (in->s[at] == ' ' || in->s[at] == '\n' || in->s[at] == '\r' || in->s[at] == '\t'))
        at++;
    in->at = at;
}

static uint64_t load8(const unsigned char *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof(w));
    return w;
}

#define ONES 0x0101010101010101ull
#define HIGH 0x8080808080808080ull

/* Whether one of eight bytes is a quote, a backslash, below 0x20 or above 0x7f.  May say yes for a
 * word without one (a borrow crosses bytes), never no for a word with one. */
static bool special8(uint64_t w)
{
    uint64_t quote = w ^ (ONES * '"');
    uint64_t slash = w ^ (ONES * '\\');
    uint64_t hit = (w - ONES * 0x20) | (quote - ONES) | (slash - ONES) | w;
    return (hit & HIGH) != 0;
}

/* Steps over plain characters of a string; stops at a quote, backslash, fault or the end. */
static int scan_plain(struct in *in)
{
    const unsigned char *s = in->s;
    size_t at = in->at;
    for (;;) {
        while (at + 8 <= in->len && !special8(load8(s + at)))
            at += 8;
        if (at >= in->len)
            return fail(in, at, "the text ends inside a string");
        unsigned char c = s[at];
        if (c == '"' || c == '\\') {
            in->at = at;
            return 0;
        }
        if (c < 0x20)
            return fail(in, at, "a control character in a string must be escaped");
        do { /* text outside ASCII comes in runs: stay here until they end */
            size_t n = tr_utf8_len(s + at, in->len - at);
            if (n == 0)
                return fail(in, at, "a string holds bytes that are not UTF-8");
            at += n;
        } while (at < in->len && s[at] >= 0x80);
    }
}

static int hex4(const unsigned char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int d = tr_hex_digit(p[i]);
        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

static size_t put_utf8(char *out, uint32_t cp)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

/* \uXXXX at in->at (which is the backslash): the code point, or -1. */
static int32_t unicode_escape(struct in *in)
{
    const unsigned char *s = in->s;
    size_t at = in->at;
    int v = in->len - at >= 6 ? hex4(s + at + 2) : -1;
    if (v < 0)
        return fail(in, at, "\\u must be followed by four hex digits");
    in->at = at + 6;
    if (v < 0xd800 || v > 0xdfff)
        return v;
    int low = -1;
    if (v < 0xdc00 && in->len - in->at >= 6 && s[in->at] == '\\' && s[in->at + 1] == 'u')
        low = hex4(s + in->at + 2);
    if (low < 0xdc00 || low > 0xdfff)
        return fail(in, at, "a \\u surrogate without its other half is not a character");
    in->at += 6;
    return 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
}

/* The escape at in->at, written to out; its bytes, or 0 for a fault. */
static size_t escape(struct in *in, char *out)
{
    if (in->len - in->at < 2) {
        fail(in, in->at, "the text ends inside a string");
        return 0;
    }
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    unsigned char c = in->s[in->at + 1];
    if (c == 'u') {
        int32_t cp = unicode_escape(in);
        return cp < 0 ? 0 : put_utf8(out, (uint32_t)cp);
    }
    const char *p = c ? strchr(from, c) : NULL;
    if (!p) {
        fail(in, in->at, "unknown escape in a string");
        return 0;
    }
    out[0] = to[p - from];
    in->at += 2;
    return 1;
}

/* Room for what is still to be decoded.  A decoded string is never longer than its text, so one
 * allocation at the first escape, of what is left of the text, lasts to the end and never moves. */
static bool strings_room(struct in *in)
{
    struct tr_json_doc *d = in->doc;
    if (!d->strings) {
        d->strings_cap = in->len - in->at + 8;
        d->strings = malloc(d->strings_cap);
    }
    return d->strings != NULL;
}

/* The string whose opening quote is at in->at. */
static int string(struct in *in, struct tr_json *v)
{
    size_t begin = ++in->at;
    if (scan_plain(in) < 0)
        return -1;
    v->type = TR_JSON_STRING;
    if (in->s[in->at] == '"') {
        v->u.s = (const char *)in->s + begin;
        v->len = (uint32_t)(in->at++ - begin);
        return 0;
    }
    in->at = begin; /* the first escape's room is counted from the string's begin */
    if (!strings_room(in))
        return no_memory(in);
    struct tr_json_doc *d = in->doc;
    char *out = d->strings + d->strings_len, *o = out;
    for (;;) {
        size_t piece = in->at;
        if (scan_plain(in) < 0)
            return -1;
        memcpy(o, in->s + piece, in->at - piece);
        o += in->at - piece;
        if (in->s[in->at] == '"')
            break;
        size_t n = escape(in, o);
        if (n == 0)
            return -1;
        o += n;
    }
    in->at++;
    v->u.s = out;
    v->len = (uint32_t)(o - out);
    d->strings_len += v->len;
    return 0;
}

static bool digit(const struct in *in, size_t at)
{
    return at < in->len && in->s[at] >= '0' && in->s[at] <= '9';
}

/* Up to 15 digits and a power of ten up to 22 are exact in a double, and one division of the two
 * rounds once: the same as strtod, without its cost.  Only for -123.456, without exponent. */
static bool short_real(const struct in *in, size_t begin, double *out)
{
    static const double ten[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    uint64_t mantissa = 0;
    size_t at = begin + (in->s[begin] == '-'), dot = in->at;
    if (in->at - at > 16)
        return false;
    for (; at < in->at; at++) {
        unsigned char c = in->s[at];
        if (c == '.')
            dot = at + 1;
        else if (c >= '0' && c <= '9')
            mantissa = mantissa * 10 + (uint64_t)(c - '0');
        else
            return false;
    }
    double d = (double)mantissa / ten[in->at - dot];
    *out = in->s[begin] == '-' ? -d : d;
    return true;
}

/* strtod reads on until something that cannot be part of a number, so a number that ends the
 * text needs a copy with an end. */
static int real_value(struct in *in, size_t begin, struct tr_json *v)
{
    v->num = TR_JSON_REAL;
    if (short_real(in, begin, &v->u.d))
        return 0;
    if (in->at < in->len) {
        v->u.d = strtod((const char *)in->s + begin, NULL);
        return 0;
    }
    char *copy = strndup((const char *)in->s + begin, in->at - begin);
    if (!copy)
        return no_memory(in);
    v->u.d = strtod(copy, NULL);
    free(copy);
    return 0;
}

/* Integers that fit are kept exactly, others become a real. */
static int integer_value(struct in *in, size_t begin, size_t digits, struct tr_json *v)
{
    bool neg = in->s[begin] == '-';
    uint64_t u = 0;
    for (size_t i = digits; i < in->at; i++) {
        unsigned d = in->s[i] - '0';
        if (u > (UINT64_MAX - d) / 10)
            return real_value(in, begin, v);
        u = u * 10 + d;
    }
    if (neg && u > (uint64_t)INT64_MAX + 1)
        return real_value(in, begin, v);
    if (!neg && u > INT64_MAX) {
        v->num = TR_JSON_UINT;
        v->u.u = u;
    } else {
        v->num = TR_JSON_INT;
        v->u.i = neg ? (int64_t)(0 - u) : (int64_t)u;
    }
    return 0;
}

static int number(struct in *in, struct tr_json *v)
{
    size_t begin = in->at, at = begin;
    bool real = false;
    if (in->s[at] == '-')
        at++;
    size_t digits = at;
    if (!digit(in, at))
        return fail(in, at, "a number needs a digit here");
    if (in->s[at] == '0' && digit(in, at + 1))
        return fail(in, at, "a number must not begin with 0");
    while (digit(in, at))
        at++;
    if (at < in->len && in->s[at] == '.') {
        real = true;
        if (!digit(in, ++at))
            return fail(in, at, "a number needs a digit here");
        while (digit(in, at))
            at++;
    }
    if (at < in->len && (in->s[at] | 0x20) == 'e') {
        real = true;
        at++;
        if (at < in->len && (in->s[at] == '+' || in->s[at] == '-'))
            at++;
        if (!digit(in, at))
            return fail(in, at, "a number needs a digit here");
        while (digit(in, at))
            at++;
    }
    in->at = at;
    v->type = TR_JSON_NUMBER;
    v->len = (uint32_t)(at - begin);
    return real ? real_value(in, begin, v) : integer_value(in, begin, digits, v);
}

static int literal(struct in *in, struct tr_json *v)
{
    static const struct {
        const char *word;
        size_t len;
        uint8_t type;
        bool b;
    } words[] = {
        {"true", 4, TR_JSON_BOOL, true},
        {"false", 5, TR_JSON_BOOL, false},
        {"null", 4, TR_JSON_NULL, false},
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (in->len - in->at < words[i].len ||
            memcmp(in->s + in->at, words[i].word, words[i].len) != 0)
            continue;
        v->type = words[i].type;
        v->u.b = words[i].b;
        in->at += words[i].len;
        return 0;
    }
    return fail(in, in->at, "a value is expected here");
}

/* ---- the tree -------------------------------------------------------------------------- */

static struct tr_json *new_node(struct in *in)
{
    struct tr_json_doc *d = in->doc;
    if (d->n == d->cap) {
        if (d->cap >= TR_JSON_NODES) {
            fail(in, in->at, "the text holds too many values");
            return NULL;
        }
        uint32_t cap = d->cap ? d->cap * 2 : 64;
        struct tr_json *p = realloc(d->node, cap * sizeof(*p));
        if (!p) {
            no_memory(in);
            return NULL;
        }
        d->node = p;
        d->cap = cap;
    }
    struct tr_json *v = &d->node[d->n++];
    *v = (struct tr_json){.off = (uint32_t)in->at, .skip = 1};
    return v;
}

static int open_container(struct in *in, struct tr_json *v, uint8_t type)
{
    if (in->depth == TR_JSON_DEPTH)
        return fail(in, in->at, "the text is nested too deeply");
    v->type = type;
    in->open[in->depth++] = (uint32_t)(v - in->doc->node);
    in->at++;
    return 0;
}

static int close_container(struct in *in)
{
    struct tr_json *v = &in->doc->node[in->open[--in->depth]];
    v->skip = in->doc->n - (uint32_t)(v - in->doc->node);
    in->at++;
    if (v->type != TR_JSON_OBJECT)
        return 0;
    const struct tr_json *twice = NULL;
    int ret = tr_json_twice(v, &in->seed, &twice);
    return ret < 0 ? no_memory(in)
           : twice ? fail(in, twice->off, "this key stands twice in its object")
                   : 0;
}

static int key_and_colon(struct in *in)
{
    skip_space(in);
    if (in->at >= in->len || in->s[in->at] != '"')
        return fail(in, in->at, "a key in quotes is expected here");
    struct tr_json *key = new_node(in);
    if (!key || string(in, key) < 0)
        return -1;
    skip_space(in);
    if (in->at >= in->len || in->s[in->at] != ':')
        return fail(in, in->at, "a colon is expected here");
    in->at++;
    return 0;
}

/* One value begins here; a container is left open. */
static int value(struct in *in)
{
    skip_space(in);
    if (in->at >= in->len)
        return fail(in, in->at, "the text ends where a value is expected");
    struct tr_json *v = new_node(in);
    if (!v)
        return -1;
    unsigned char c = in->s[in->at];
    switch (c) {
    case '{':
        return open_container(in, v, TR_JSON_OBJECT);
    case '[':
        return open_container(in, v, TR_JSON_ARRAY);
    case '"':
        return string(in, v);
    default:
        return c == '-' || (c >= '0' && c <= '9') ? number(in, v) : literal(in, v);
    }
}

/* The member or element that begins here is counted and its value begun. */
static int child(struct in *in, struct tr_json *parent)
{
    parent->len++;
    if (parent->type == TR_JSON_OBJECT && key_and_colon(in) < 0) /* may move the nodes */
        return -1;
    return value(in);
}

/* After a value, or after an opening bracket: what may come inside the innermost container. */
static int step(struct in *in, bool fresh)
{
    struct tr_json *parent = &in->doc->node[in->open[in->depth - 1]];
    unsigned char end = parent->type == TR_JSON_OBJECT ? '}' : ']';
    skip_space(in);
    if (in->at >= in->len)
        return fail(in, in->at, "the text ends inside an array or object");
    if (in->s[in->at] == end)
        return close_container(in);
    if (fresh)
        return child(in, parent);
    if (in->s[in->at] != ',')
        return fail(in, in->at, "a comma or the end of the array or object is expected here");
    in->at++;
    return child(in, parent);
}

static int parse(struct in *in)
{
    if (in->len >= 3 && memcmp(in->s, "\xef\xbb\xbf", 3) == 0)
        return fail(in, 0, "the text begins with a byte order mark; send UTF-8 without one");
    if (in->len >= 2 && (memcmp(in->s, "\xff\xfe", 2) == 0 || memcmp(in->s, "\xfe\xff", 2) == 0))
        return fail(in, 0, "the text looks like UTF-16; send UTF-8");
    if (value(in) < 0)
        return -1;
    /* A container was just opened iff the last node is the innermost open one. */
    while (in->depth > 0)
        if (step(in, in->open[in->depth - 1] == in->doc->n - 1 &&
                         in->doc->node[in->doc->n - 1].len == 0) < 0)
            return -1;
    skip_space(in);
    if (in->at < in->len)
        return fail(in, in->at, "something follows after the value");
    return 0;
}

struct tr_json_doc *tr_json_parse(const char *text, size_t len, struct tr_json_fault *fault)
{
    struct tr_json_doc *d = calloc(1, sizeof(*d));
    struct in in = {.s = (const unsigned char *)text, .len = len, .doc = d, .fault = fault};
    fault->no_memory = false;
    if (!d) {
        no_memory(&in);
        return NULL;
    }
    d->text = text;
    int ret = len < UINT32_MAX ? parse(&in) : fail(&in, 0, "the text is too long");
    if (ret == 0)
        return d;
    tr_json_free(d);
    return NULL;
}

void tr_json_free(struct tr_json_doc *d)
{
    if (!d)
        return;
    free(d->node);
    free(d->strings);
    free(d);
}

const struct tr_json *tr_json_root(const struct tr_json_doc *d)
{
    return d->node;
}

const char *tr_json_number_text(const struct tr_json_doc *d, const struct tr_json *v, size_t *len)
{
    *len = v->len;
    return d->text + v->off;
}

size_t tr_json_bytes(const struct tr_json_doc *d)
{
    return sizeof(*d) + d->cap * sizeof(*d->node) + d->strings_cap;
}
