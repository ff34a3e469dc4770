/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_str.c - strings that remember which bytes came from the user.
 *
 * Every new string is put together in a buffer from parts of other strings; the parts bring their
 * spans along, so no operation has to think about origin by itself. */
#include "text/jinja_priv.h"

#include <string.h>

void tr_jbuf_init(struct tr_jbuf *b, struct tr_jctx *c)
{
    *b = (struct tr_jbuf){.c = c};
}

static bool reserve(struct tr_jbuf *b, size_t more)
{
    if (b->bad || b->c->err || !tr_jstep_bytes(b->c, more)) {
        b->bad = true;
        return false;
    }
    size_t need = b->len + more + 1; /* a NUL always fits behind the text */
    if (need <= b->cap)
        return true;
    size_t cap = b->cap ? b->cap * 2 : 32;
    while (cap < need)
        cap *= 2;
    char *p = tr_jalloc(b->c, cap);
    if (!p) {
        b->bad = true;
        return false;
    }
    if (b->len)
        memcpy(p, b->p, b->len);
    b->p = p;
    b->cap = cap;
    return true;
}

static void add_span(struct tr_jbuf *b, size_t start, size_t end)
{
    if (b->bad || start >= end)
        return;
    if (b->n_user && b->user[b->n_user - 1].end >= start) {
        if (b->user[b->n_user - 1].end < end)
            b->user[b->n_user - 1].end = end;
        return;
    }
    if (b->n_user == b->cap_user) {
        size_t cap = b->cap_user ? b->cap_user * 2 : 2;
        struct tr_span *grown = tr_jalloc_n(b->c, cap, sizeof *grown);
        if (!grown) {
            b->bad = true;
            return;
        }
        if (b->n_user)
            memcpy(grown, b->user, b->n_user * sizeof *grown);
        b->user = grown;
        b->cap_user = cap;
    }
    b->user[b->n_user++] = (struct tr_span){start, end};
}

void tr_jbuf_add(struct tr_jbuf *b, const char *p, size_t len, bool user)
{
    if (!len || !reserve(b, len))
        return;
    memcpy(b->p + b->len, p, len);
    if (user)
        add_span(b, b->len, b->len + len);
    b->len += len;
}

void tr_jbuf_puts(struct tr_jbuf *b, const char *s)
{
    tr_jbuf_add(b, s, strlen(s), false);
}

void tr_jbuf_fill(struct tr_jbuf *b, struct tr_jstr fill, int64_t times)
{
    size_t all;
    if (times <= 0 || !fill.len || b->bad)
        return;
    if (__builtin_mul_overflow((size_t)times, fill.len, &all) || all > b->c->lim.memory) {
        tr_jfail(b->c, TR_JERR_LIMIT, "the template takes too much memory");
        b->bad = true;
        return;
    }
    for (int64_t i = 0; i < times && !b->bad; i++)
        tr_jbuf_add_str(b, fill);
}

/* First span that ends after `at`. */
static size_t span_after(struct tr_jstr s, size_t at)
{
    size_t lo = 0;
    size_t hi = s.n_user;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (s.user[mid].end <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void tr_jbuf_add_part(struct tr_jbuf *b, struct tr_jstr s, size_t start, size_t end)
{
    if (start >= end || !reserve(b, end - start))
        return;
    memcpy(b->p + b->len, s.p + start, end - start);
    for (size_t i = span_after(s, start); i < s.n_user && s.user[i].start < end; i++) {
        size_t from = s.user[i].start > start ? s.user[i].start : start;
        size_t to = s.user[i].end < end ? s.user[i].end : end;
        add_span(b, b->len + from - start, b->len + to - start);
    }
    b->len += end - start;
}

void tr_jbuf_add_str(struct tr_jbuf *b, struct tr_jstr s)
{
    tr_jbuf_add_part(b, s, 0, s.len);
}

void tr_jbuf_mark(struct tr_jbuf *b, size_t from)
{
    while (b->n_user && b->user[b->n_user - 1].start >= from)
        b->n_user--;
    add_span(b, from, b->len);
}

struct tr_jstr tr_jbuf_str(struct tr_jbuf *b)
{
    if (b->bad)
        return (struct tr_jstr){.p = ""};
    return (struct tr_jstr){
        .p = b->p ? b->p : "", .len = b->len, .user = b->user, .n_user = b->n_user};
}

struct tr_jv *tr_jbuf_value(struct tr_jbuf *b)
{
    if (b->bad || b->c->err)
        return NULL;
    return tr_jnew_str(b->c, tr_jbuf_str(b));
}

struct tr_jstr tr_jstr_of(const char *s)
{
    return (struct tr_jstr){.p = s, .len = strlen(s)};
}

struct tr_jstr tr_jstr_part(struct tr_jctx *c, struct tr_jstr s, size_t start, size_t end)
{
    if (start >= end)
        return (struct tr_jstr){.p = "", .markup = s.markup};
    struct tr_jstr out = {.p = s.p + start, .len = end - start, .markup = s.markup};
    if (!s.n_user || (start == 0 && end == s.len)) {
        out.user = s.user;
        out.n_user = s.n_user;
        return out;
    }
    size_t first = span_after(s, start);
    size_t last = first;
    while (last < s.n_user && s.user[last].start < end)
        last++;
    if (first == last)
        return out;
    struct tr_span *span = tr_jalloc_n(c, last - first, sizeof *span);
    if (!span)
        return (struct tr_jstr){.p = ""};
    for (size_t i = first; i < last; i++) {
        size_t from = s.user[i].start > start ? s.user[i].start : start;
        size_t to = s.user[i].end < end ? s.user[i].end : end;
        span[i - first] = (struct tr_span){from - start, to - start};
    }
    out.user = span;
    out.n_user = last - first;
    return out;
}

bool tr_jstr_eq(struct tr_jstr a, struct tr_jstr b)
{
    return a.len == b.len && (!a.len || !memcmp(a.p, b.p, a.len));
}

bool tr_jstr_is(struct tr_jstr a, const char *s)
{
    return tr_jstr_eq(a, tr_jstr_of(s));
}

/* UTF-8 sorts by bytes as it sorts by code points. */
int tr_jstr_cmp(struct tr_jstr a, struct tr_jstr b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int r = n ? memcmp(a.p, b.p, n) : 0;
    return r ? r : (a.len > b.len) - (a.len < b.len);
}

bool tr_jstr_user(struct tr_jstr s, size_t start, size_t end)
{
    size_t i = span_after(s, start);
    return i < s.n_user && s.user[i].start < end;
}

int64_t tr_jstr_find(struct tr_jstr s, struct tr_jstr needle, size_t from, size_t to)
{
    if (to > s.len)
        to = s.len;
    if (from > to || needle.len > to - from)
        return -1;
    if (!needle.len)
        return (int64_t)from;
    const char *hit = memmem(s.p + from, to - from, needle.p, needle.len);
    return hit ? hit - s.p : -1;
}

int64_t tr_jstr_rfind(struct tr_jstr s, struct tr_jstr needle, size_t from, size_t to)
{
    if (to > s.len)
        to = s.len;
    if (from > to || needle.len > to - from)
        return -1;
    for (size_t i = to - needle.len + 1; i-- > from;)
        if (!needle.len || !memcmp(s.p + i, needle.p, needle.len))
            return (int64_t)i;
    return -1;
}

int32_t tr_jchar(struct tr_jstr s, size_t i, size_t *n)
{
    const unsigned char *p = (const unsigned char *)s.p + i;
    size_t left = s.len - i;
    *n = 1;
    if (p[0] < 0x80)
        return p[0];
    size_t want = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || left < want)
        return -1 - p[0];
    int32_t cp = p[0] & (0xFF >> (want + 1));
    for (size_t k = 1; k < want; k++) {
        if ((p[k] & 0xC0) != 0x80)
            return -1 - p[0];
        cp = cp << 6 | (p[k] & 0x3F);
    }
    if ((want == 3 && cp < 0x800) || (want == 4 && (cp < 0x10000 || cp > 0x10FFFF)) ||
        (cp >= 0xD800 && cp <= 0xDFFF))
        return -1 - p[0];
    *n = want;
    return cp;
}

int32_t tr_jchar_before(struct tr_jstr s, size_t i, size_t *n)
{
    for (size_t back = 1; back <= 4 && back <= i; back++) {
        int32_t cp = tr_jchar(s, i - back, n);
        if (cp >= 0 && *n == back)
            return cp;
    }
    *n = 1;
    return -1 - (unsigned char)s.p[i - 1];
}

size_t tr_jstr_chars(struct tr_jstr s)
{
    size_t chars = 0;
    size_t n;
    for (size_t i = 0; i < s.len; i += n) {
        (void)tr_jchar(s, i, &n);
        chars++;
    }
    return chars;
}

size_t tr_jstr_offset(struct tr_jstr s, size_t chars)
{
    size_t i = 0;
    size_t n;
    for (; chars && i < s.len; chars--) {
        (void)tr_jchar(s, i, &n);
        i += n;
    }
    return i;
}
