/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_strop.c - string operations that filters and methods share. */
#include "text/jinja_priv.h"
#include "text/jinja_uni.h"

#include <string.h>

static bool in_set(int32_t ch, const struct tr_jstr *chars)
{
    size_t n;
    if (!chars)
        return tr_juni_space(ch);
    for (size_t i = 0; i < chars->len; i += n)
        if (tr_jchar(*chars, i, &n) == ch)
            return true;
    return false;
}

struct tr_jstr tr_jstr_strip(struct tr_jctx *c, struct tr_jstr s, const struct tr_jstr *chars,
                             bool left, bool right)
{
    size_t start = 0;
    size_t end = s.len;
    size_t n;
    uint64_t cost = chars ? chars->len / 16 + 1 : 1;
    while (left && start < end && in_set(tr_jchar(s, start, &n), chars)) {
        start += n;
        if (!tr_jstep(c, cost))
            break;
    }
    while (right && end > start) {
        struct tr_jstr rest = {.p = s.p + start, .len = end - start};
        if (!in_set(tr_jchar_before(rest, rest.len, &n), chars) || !tr_jstep(c, cost))
            break;
        end -= n;
    }
    return tr_jstr_part(c, s, start, end);
}

/* An empty `old` stands before every character and at the end. */
static void insert_everywhere(struct tr_jbuf *b, struct tr_jstr s, struct tr_jstr with,
                              int64_t count)
{
    size_t n;
    for (size_t i = 0; i < s.len && !b->bad; i += n) {
        (void)tr_jchar(s, i, &n);
        if (count) {
            tr_jbuf_add_str(b, with);
            count--;
        }
        tr_jbuf_add_part(b, s, i, i + n);
    }
    if (count)
        tr_jbuf_add_str(b, with);
}

struct tr_jv *tr_jstr_replace(struct tr_jctx *c, struct tr_jstr s, struct tr_jstr old,
                              struct tr_jstr with, int64_t count)
{
    struct tr_jbuf b;
    size_t at = 0;
    tr_jbuf_init(&b, c);
    if (!tr_jstep_bytes(c, s.len))
        return NULL;
    if (!old.len) {
        insert_everywhere(&b, s, with, count);
        return tr_jbuf_value(&b);
    }
    while (count && !b.bad) {
        int64_t hit = tr_jstr_find(s, old, at, s.len);
        if (hit < 0)
            break;
        tr_jbuf_add_part(&b, s, at, (size_t)hit);
        tr_jbuf_add_str(&b, with);
        at = (size_t)hit + old.len;
        count -= count > 0;
    }
    tr_jbuf_add_part(&b, s, at, s.len);
    return tr_jbuf_value(&b);
}

static bool is_line_end(int32_t ch)
{
    return (ch >= 0x0A && ch <= 0x0D) || (ch >= 0x1C && ch <= 0x1E) || ch == 0x85 || ch == 0x2028 ||
           ch == 0x2029;
}

bool tr_jstr_splitlines(struct tr_jctx *c, struct tr_jstr s, bool keep_ends, struct tr_jlist *out)
{
    size_t start = 0;
    size_t n;
    *out = (struct tr_jlist){0};
    if (!tr_jstep_bytes(c, s.len))
        return false;
    for (size_t i = 0; i < s.len; i += n) {
        int32_t ch = tr_jchar(s, i, &n);
        if (!is_line_end(ch))
            continue;
        size_t end = i;
        if (ch == '\r' && i + 1 < s.len && s.p[i + 1] == '\n')
            n = 2;
        struct tr_jstr line = tr_jstr_part(c, s, start, keep_ends ? i + n : end);
        if (!tr_jlist_add(c, out, tr_jnew_str(c, line)))
            return false;
        start = i + n;
    }
    if (start < s.len)
        return tr_jlist_add(c, out, tr_jnew_str(c, tr_jstr_part(c, s, start, s.len)));
    return !c->err;
}

struct tr_jv *tr_jstr_pad(struct tr_jctx *c, struct tr_jstr s, int64_t left, int64_t right,
                          struct tr_jstr fill)
{
    struct tr_jbuf b;
    tr_jbuf_init(&b, c);
    tr_jbuf_fill(&b, fill, left);
    tr_jbuf_add_str(&b, s);
    tr_jbuf_fill(&b, fill, right);
    return tr_jbuf_value(&b);
}

/* An odd blank goes to the left if the width is odd, else to the right, as in Python. */
struct tr_jv *tr_jstr_center(struct tr_jctx *c, struct tr_jstr s, int64_t width,
                             struct tr_jstr fill)
{
    int64_t n = (int64_t)tr_jstr_chars(s);
    if (width <= n)
        return tr_jnew_str(c, s);
    int64_t pad = width - n;
    int64_t left = pad / 2 + (pad & width & 1);
    return tr_jstr_pad(c, s, left, pad - left, fill);
}

struct tr_jv *tr_jstr_join(struct tr_jctx *c, struct tr_jstr sep, const struct tr_jlist *l,
                           bool convert)
{
    struct tr_jbuf b;
    tr_jbuf_init(&b, c);
    for (size_t i = 0; i < l->n && !b.bad; i++) {
        if (!convert && l->v[i]->type != TR_JV_STR)
            return tr_jfail(c, TR_JERR_RUNTIME,
                            "sequence item %zu: expected str instance, %s found", i,
                            tr_jtype_name(l->v[i]));
        if (i)
            tr_jbuf_add_str(&b, sep);
        tr_jbuf_add_value(&b, l->v[i]);
    }
    return tr_jbuf_value(&b);
}

static bool add_part(struct tr_jctx *c, struct tr_jlist *l, struct tr_jstr s, size_t start,
                     size_t end)
{
    return tr_jlist_add(c, l, tr_jnew_str(c, tr_jstr_part(c, s, start, end)));
}

static void reverse(struct tr_jlist *l)
{
    for (size_t i = 0; i < l->n / 2; i++) {
        struct tr_jv *v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
}

static bool split_at(struct tr_jctx *c, struct tr_jstr s, struct tr_jstr sep, int64_t max,
                     struct tr_jlist *l)
{
    size_t start = 0;
    for (; max; max -= max > 0) {
        int64_t hit = tr_jstr_find(s, sep, start, s.len);
        if (hit < 0)
            break;
        if (!tr_jstep(c, 1) || !add_part(c, l, s, start, (size_t)hit))
            return false;
        start = (size_t)hit + sep.len;
    }
    return add_part(c, l, s, start, s.len);
}

static bool rsplit_at(struct tr_jctx *c, struct tr_jstr s, struct tr_jstr sep, int64_t max,
                      struct tr_jlist *l)
{
    size_t end = s.len;
    for (; max; max -= max > 0) {
        int64_t hit = tr_jstr_rfind(s, sep, 0, end);
        if (hit < 0)
            break;
        if (!tr_jstep(c, 1) || !add_part(c, l, s, (size_t)hit + sep.len, end))
            return false;
        end = (size_t)hit;
    }
    if (!add_part(c, l, s, 0, end))
        return false;
    reverse(l);
    return true;
}

static size_t skip(struct tr_jstr s, size_t i, bool space)
{
    size_t n;
    while (i < s.len && tr_juni_space(tr_jchar(s, i, &n)) == space)
        i += n;
    return i;
}

static size_t skip_back(struct tr_jstr s, size_t i, bool space)
{
    size_t n;
    while (i && tr_juni_space(tr_jchar_before(s, i, &n)) == space)
        i -= n;
    return i;
}

static bool split_words(struct tr_jctx *c, struct tr_jstr s, int64_t max, struct tr_jlist *l)
{
    for (size_t i = skip(s, 0, true); i < s.len;) {
        if (max == 0)
            return add_part(c, l, s, i, s.len); /* blanks at its end included */
        size_t end = skip(s, i, false);
        if (!add_part(c, l, s, i, end))
            return false;
        max -= max > 0;
        i = skip(s, end, true);
    }
    return true;
}

static bool rsplit_words(struct tr_jctx *c, struct tr_jstr s, int64_t max, struct tr_jlist *l)
{
    for (size_t i = skip_back(s, s.len, true); i > 0;) {
        if (max == 0) {
            if (!add_part(c, l, s, 0, i))
                return false;
            break;
        }
        size_t start = skip_back(s, i, false);
        if (!add_part(c, l, s, start, i))
            return false;
        max -= max > 0;
        i = skip_back(s, start, true);
    }
    reverse(l);
    return true;
}

struct tr_jv *tr_jstr_split(struct tr_jctx *c, struct tr_jstr s, const struct tr_jstr *sep,
                            int64_t max, bool from_end)
{
    struct tr_jv *out = tr_jnew_list(c, TR_JV_LIST, 0);
    bool good;
    if (!out || !tr_jstep_bytes(c, s.len))
        return NULL;
    if (sep && !sep->len)
        return tr_jfail(c, TR_JERR_RUNTIME, "empty separator");
    if (sep)
        good = from_end ? rsplit_at(c, s, *sep, max, &out->l) : split_at(c, s, *sep, max, &out->l);
    else
        good = from_end ? rsplit_words(c, s, max, &out->l) : split_words(c, s, max, &out->l);
    return good && !c->err ? out : NULL;
}
