/* SPDX-License-Identifier: Apache-2.0 */
#include "base/emit.h"

#include "base/assert.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEEP_BYTES = 64 << 10, FIRST_BYTES = 512, MAX_DEPTH = 63, COPY_DEPTH = 48 };

void tr_emit_init(struct tr_emit *e)
{
    *e = (struct tr_emit){0};
}

void tr_emit_fini(struct tr_emit *e)
{
    free(e->buf);
    tr_emit_init(e);
}

void tr_emit_reset(struct tr_emit *e)
{
    if (e->cap > KEEP_BYTES)
        tr_emit_fini(e);
    e->len = 0;
    e->comma = 0;
    e->depth = 0;
    e->failed = false;
}

/* Room for n more bytes, or NULL (and the emitter has failed). */
static char *room(struct tr_emit *e, size_t n)
{
    if (e->failed)
        return NULL;
    if (e->cap - e->len >= n)
        return e->buf + e->len;
    size_t cap = e->cap ? e->cap : FIRST_BYTES;
    while (cap - e->len < n && cap <= SIZE_MAX / 4)
        cap *= 2;
    char *buf = cap - e->len >= n ? realloc(e->buf, cap) : NULL;
    if (!buf) {
        e->failed = true;
        return NULL;
    }
    e->buf = buf;
    e->cap = cap;
    return buf + e->len;
}

void tr_emit_bytes(struct tr_emit *e, const char *s, size_t len)
{
    char *p = len ? room(e, len) : NULL; /* an empty emitter has no buffer to point into */
    if (p) {
        memcpy(p, s, len);
        e->len += len;
    }
}

void tr_emit_keep(const struct tr_emit *e, struct tr_emit_piece *p)
{
    char *buf = e->failed || e->len == 0 ? NULL : malloc(e->len);
    if (!buf)
        return;
    free(p->buf);
    memcpy(buf, e->buf, e->len);
    *p = (struct tr_emit_piece){buf, e->len, e->comma, e->depth};
}

void tr_emit_begin(struct tr_emit *e, const struct tr_emit_piece *p)
{
    tr_emit_reset(e);
    tr_emit_bytes(e, p->buf, p->len);
    e->comma = p->comma;
    e->depth = p->depth;
}

void tr_emit_piece_fini(struct tr_emit_piece *p)
{
    free(p->buf);
    *p = (struct tr_emit_piece){0};
}

/* The comma that is due, and one is due after the value that comes now. */
static void before_value(struct tr_emit *e)
{
    uint64_t bit = 1ull << e->depth;
    if (e->comma & bit)
        tr_emit_bytes(e, ",", 1);
    e->comma |= bit;
}

static void open_with(struct tr_emit *e, const char *c)
{
    before_value(e);
    tr_emit_bytes(e, c, 1);
    TR_ASSERT(e->depth < MAX_DEPTH);
    e->depth++;
    e->comma &= ~(1ull << e->depth);
}

static void close_with(struct tr_emit *e, const char *c)
{
    TR_ASSERT(e->depth > 0);
    e->depth--;
    tr_emit_bytes(e, c, 1);
}

void tr_emit_obj(struct tr_emit *e)
{
    open_with(e, "{");
}

void tr_emit_obj_end(struct tr_emit *e)
{
    close_with(e, "}");
}

void tr_emit_arr(struct tr_emit *e)
{
    open_with(e, "[");
}

void tr_emit_arr_end(struct tr_emit *e)
{
    close_with(e, "]");
}

void tr_emit_raw(struct tr_emit *e, const char *json, size_t len)
{
    before_value(e);
    tr_emit_bytes(e, json, len);
}

/* ---- strings --------------------------------------------------------------------------- */

/* The escape of an ASCII byte that must not stand for itself; its length. */
static size_t escape(unsigned char c, char out[6])
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt", hex[] = "0123456789abcdef";
    const char *p = c ? strchr(from, c) : NULL;
    if (p) {
        out[0] = '\\';
        out[1] = to[p - from];
        return 2;
    }
    const char code[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    memcpy(out, code, sizeof(code));
    return 6;
}

/* U+0085, U+2028 and U+2029 are legal in JSON, but readers that split a stream with their
 * language's idea of lines (Python's str.splitlines) would cut an event at them. */
static const char *line_break(const unsigned char *p, size_t n)
{
    if (n == 2 && p[0] == 0xc2 && p[1] == 0x85)
        return "\\u0085";
    if (n == 3 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9))
        return p[2] == 0xa8 ? "\\u2028" : "\\u2029";
    return NULL;
}

static bool plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

void tr_emit_str_piece(struct tr_emit *e, const char *s, size_t len)
{
    const unsigned char *p = (const unsigned char *)s, *end = p + len;
    while (p < end && !e->failed) {
        const unsigned char *run = p;
        while (p < end && plain(*p))
            p++;
        tr_emit_bytes(e, (const char *)run, (size_t)(p - run));
        if (p == end)
            break;
        char esc[6];
        size_t n = tr_utf8_len(p, (size_t)(end - p));
        const char *brk = line_break(p, n);
        if (brk) {
            tr_emit_bytes(e, brk, 6);
        } else if (n > 1) {
            tr_emit_bytes(e, (const char *)p, n);
        } else if (n == 0) {
            tr_emit_bytes(e, "\xef\xbf\xbd", 3);
            n = 1;
        } else {
            tr_emit_bytes(e, esc, escape(*p, esc));
        }
        p += n;
    }
}

void tr_emit_str_open(struct tr_emit *e)
{
    before_value(e);
    tr_emit_bytes(e, "\"", 1);
}

void tr_emit_str_close(struct tr_emit *e)
{
    tr_emit_bytes(e, "\"", 1);
}

void tr_emit_strn(struct tr_emit *e, const char *s, size_t len)
{
    tr_emit_str_open(e);
    tr_emit_str_piece(e, s, len);
    tr_emit_str_close(e);
}

void tr_emit_str(struct tr_emit *e, const char *s)
{
    if (s)
        tr_emit_strn(e, s, strlen(s));
    else
        tr_emit_null(e);
}

void tr_emit_keyn(struct tr_emit *e, const char *key, size_t len)
{
    tr_emit_strn(e, key, len);
    tr_emit_bytes(e, ":", 1);
    e->comma &= ~(1ull << e->depth); /* the value follows its colon */
}

void tr_emit_key(struct tr_emit *e, const char *key)
{
    tr_emit_keyn(e, key, strlen(key));
}

/* ---- other values ---------------------------------------------------------------------- */

void tr_emit_null(struct tr_emit *e)
{
    tr_emit_raw(e, "null", 4);
}

void tr_emit_bool(struct tr_emit *e, bool v)
{
    if (v)
        tr_emit_raw(e, "true", 4);
    else
        tr_emit_raw(e, "false", 5);
}

static void digits(struct tr_emit *e, uint64_t v, bool negative)
{
    char buf[24], *p = buf + sizeof(buf);
    do {
        *--p = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    if (negative)
        *--p = '-';
    tr_emit_raw(e, p, (size_t)(buf + sizeof(buf) - p));
}

void tr_emit_u64(struct tr_emit *e, uint64_t v)
{
    digits(e, v, false);
}

void tr_emit_i64(struct tr_emit *e, int64_t v)
{
    digits(e, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, v < 0);
}

/* Whether v is no number JSON can say; then its stand-in has been written. */
static bool not_finite(struct tr_emit *e, double v)
{
    if (isnan(v))
        tr_emit_null(e);
    else if (isinf(v))
        tr_emit_raw(e, v < 0 ? "-9999.0" : "9999.0", v < 0 ? 7 : 6);
    return !isfinite(v);
}

/* "5" is made "5.0", so that readers that keep the kinds apart see a real number. */
static void put_real(struct tr_emit *e, char *buf, size_t n)
{
    if (strcspn(buf, ".e") == n) {
        buf[n++] = '.';
        buf[n++] = '0';
    }
    tr_emit_raw(e, buf, n);
}

void tr_emit_f64(struct tr_emit *e, double v)
{
    if (not_finite(e, v))
        return;
    char buf[40];
    int n = 0;
    for (int prec = 15; prec <= 17; prec++) {
        n = snprintf(buf, sizeof(buf) - 2, "%.*g", prec, v);
        if (strtod(buf, NULL) == v)
            break;
    }
    put_real(e, buf, (size_t)n);
}

void tr_emit_f32(struct tr_emit *e, float v)
{
    if (not_finite(e, (double)v))
        return;
    char buf[40];
    int n = 0;
    for (int prec = 6; prec <= 9; prec++) {
        n = snprintf(buf, sizeof(buf) - 2, "%.*g", prec, (double)v);
        if (strtof(buf, NULL) == v)
            break;
    }
    put_real(e, buf, (size_t)n);
}

static void scalar(struct tr_emit *e, const struct tr_json_doc *doc, const struct tr_json *v)
{
    size_t len;
    switch (v->type) {
    case TR_JSON_BOOL:
        tr_emit_bool(e, v->u.b);
        return;
    case TR_JSON_STRING:
        tr_emit_strn(e, v->u.s, v->len);
        return;
    case TR_JSON_NUMBER: {
        const char *text = tr_json_number_text(doc, v, &len);
        tr_emit_raw(e, text, len);
        return;
    }
    default:
        tr_emit_null(e);
    }
}

bool tr_emit_may_copy(const struct tr_json *v)
{
    struct tr_json_it open[COPY_DEPTH];
    unsigned n = 0;
    for (;;) {
        if (v->type == TR_JSON_ARRAY || v->type == TR_JSON_OBJECT) {
            if (n == COPY_DEPTH)
                return false;
            open[n++] = tr_json_iter(v);
        }
        while (n && !tr_json_step(&open[n - 1]))
            n--;
        if (!n)
            return true;
        v = open[n - 1].val;
    }
}

/* Values stand in the order of the text, so a walk along them needs only to know where the open
 * containers end. */
void tr_emit_json(struct tr_emit *e, const struct tr_json_doc *doc, const struct tr_json *v)
{
    struct tr_json_it open[TR_JSON_DEPTH];
    unsigned depth = 0, floor_depth = e->depth;
    for (;;) {
        if (v->type == TR_JSON_ARRAY || v->type == TR_JSON_OBJECT) {
            if (e->depth >= MAX_DEPTH) { /* deeper than the emitter goes */
                tr_emit_null(e);
            } else {
                open_with(e, v->type == TR_JSON_ARRAY ? "[" : "{");
                open[depth++] = tr_json_iter(v);
            }
        } else {
            scalar(e, doc, v);
        }
        while (depth > 0 && !tr_json_step(&open[depth - 1]))
            close_with(e, open[--depth].object ? "}" : "]");
        if (depth == 0)
            break;
        if (open[depth - 1].key)
            tr_emit_keyn(e, open[depth - 1].key->u.s, open[depth - 1].key->len);
        v = open[depth - 1].val;
    }
    TR_ASSERT(e->depth == floor_depth);
}

void tr_emit_kstr(struct tr_emit *e, const char *key, const char *s)
{
    tr_emit_key(e, key);
    tr_emit_str(e, s);
}

void tr_emit_kstrn(struct tr_emit *e, const char *key, const char *s, size_t len)
{
    tr_emit_key(e, key);
    tr_emit_strn(e, s, len);
}

void tr_emit_ki64(struct tr_emit *e, const char *key, int64_t v)
{
    tr_emit_key(e, key);
    tr_emit_i64(e, v);
}

void tr_emit_ku64(struct tr_emit *e, const char *key, uint64_t v)
{
    tr_emit_key(e, key);
    tr_emit_u64(e, v);
}

void tr_emit_kbool(struct tr_emit *e, const char *key, bool v)
{
    tr_emit_key(e, key);
    tr_emit_bool(e, v);
}

void tr_emit_knull(struct tr_emit *e, const char *key)
{
    tr_emit_key(e, key);
    tr_emit_null(e);
}
