/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_wrap.c - the filter wordwrap, which is textwrap.wrap for each line.
 *
 * A line is cut into chunks: runs of blanks, words, which may end behind a hyphen between letters, and dashes
 * between words; then chunks are put on lines (docs.python.org, "textwrap"). */
#include "text/jinja_priv.h"
#include "text/jinja_uni.h"

#include <string.h>

/* One line as characters. */
struct line {
    struct tr_jstr s;
    int32_t *ch;  /* [n] */
    size_t *byte; /* [n + 1], where each begins */
    size_t n;
};

struct wrap {
    struct tr_jctx *c;
    int64_t width;
    bool break_words, break_hyphens;
    bool chunk_hyphens;  /* textwrap cuts chunks there for True alone, not for what is true */
    struct tr_jlist out; /* finished lines */
};

static bool is_blank(int32_t ch)
{
    return ch == ' ' || (ch >= '\t' && ch <= '\r');
}

static bool is_word(int32_t ch) /* \w */
{
    return ch == '_' || tr_juni_alnum(ch);
}

static bool is_word_or_mark(int32_t ch)
{
    return is_word(ch) || (ch > 0 && ch < 0x80 && strchr("!\"'&.,?", ch));
}

static bool is_letter(int32_t ch) /* [^\d\W] */
{
    return is_word(ch) && !tr_juni_decimal(ch);
}

static bool read_line(struct tr_jctx *c, struct tr_jstr s, struct line *l)
{
    size_t n;

    *l = (struct line){.s = s};
    l->ch = tr_jalloc_n(c, s.len + 1, sizeof *l->ch);
    l->byte = tr_jalloc_n(c, s.len + 1, sizeof *l->byte);
    if (!l->ch || !l->byte || !tr_jstep_bytes(c, s.len))
        return false;
    for (size_t i = 0; i < s.len; i += n) {
        l->ch[l->n] = tr_jchar(s, i, &n);
        l->byte[l->n++] = i;
    }
    l->byte[l->n] = s.len;
    return true;
}

/* Nothing but blanks as str.strip knows them, which are more than those that chunks are cut at. */
static bool is_space(const struct line *l, size_t from, size_t to)
{
    while (from < to && tr_juni_space(l->ch[from]))
        from++;
    return from == to;
}

/* At least two dashes at i, a word behind them: how many, else 0. */
static size_t dashes(const struct line *l, size_t i)
{
    size_t k = i;
    while (k < l->n && l->ch[k] == '-')
        k++;
    return k - i >= 2 && k < l->n && is_word(l->ch[k]) ? k - i : 0;
}

/* A hyphen at j at which a word may be broken: letters around it. */
static bool is_hyphen(const struct line *l, size_t j)
{
    if (l->ch[j] != '-')
        return false;
    bool before =
        (j >= 2 && is_letter(l->ch[j - 1]) && is_letter(l->ch[j - 2])) ||
        (j >= 3 && l->ch[j - 2] == '-' && is_letter(l->ch[j - 3]) && is_word_or_mark(l->ch[j - 1]));
    if (!before || j + 1 >= l->n || !is_letter(l->ch[j + 1]))
        return false;
    return j + 2 < l->n && (is_letter(l->ch[j + 2]) ||
                            (l->ch[j + 2] == '-' && j + 3 < l->n && is_letter(l->ch[j + 3])));
}

/* Where the chunk that begins at i ends. */
static size_t chunk_end(const struct wrap *w, const struct line *l, size_t i)
{
    size_t j = i;
    if (is_blank(l->ch[i])) {
        while (j < l->n && is_blank(l->ch[j]))
            j++;
        return j;
    }
    if (!w->chunk_hyphens) {
        while (j < l->n && !is_blank(l->ch[j]))
            j++;
        return j;
    }
    if (i && is_word_or_mark(l->ch[i - 1]) && (j = dashes(l, i)))
        return i + j;
    for (j = i + 1; j < l->n && !is_blank(l->ch[j]); j++) {
        if (is_hyphen(l, j))
            return j + 1;
        if (is_word_or_mark(l->ch[j - 1]) && dashes(l, j))
            return j;
    }
    return j;
}

/* How much of a chunk that is wider than a line goes on this one, of which `left` is free. */
static size_t cut_long(const struct wrap *w, const struct line *l, size_t from, size_t to,
                       size_t left)
{
    if (w->break_hyphens && to - from > left) {
        size_t k = left;
        while (k > 0 && l->ch[from + k - 1] != '-')
            k--;
        for (size_t i = 0; k > 1 && i < k - 1; i++)
            if (l->ch[from + i] != '-')
                return k;
    }
    return left < to - from ? left : to - from;
}

static bool add_line(struct wrap *w, const struct line *l, size_t from, size_t to)
{
    struct tr_jstr s = tr_jstr_part(w->c, l->s, l->byte[from], l->byte[to]);
    return tr_jlist_add(w->c, &w->out, tr_jnew_str(w->c, s));
}

/* The chunk behind one that has been used up; nothing at the end. */
static size_t next_end(const struct wrap *w, const struct line *l, size_t i)
{
    return i < l->n ? chunk_end(w, l, i) : i;
}

/* Chunks stand one behind the other, so a line of output is a range of the line.  [i, end) is the present
 * chunk, or what is left of it. */
static bool wrap_line(struct wrap *w, const struct line *l)
{
    size_t i = 0, end = next_end(w, l, 0), first = w->out.n;
    size_t width = (size_t)w->width;

    while (i < l->n) {
        if (is_space(l, i, end) &&
            w->out.n > first) { /* no line begins with blanks but the first */
            i = end;
            end = next_end(w, l, i);
        }
        size_t start = i, last = i; /* [start, i) is on the line, its last chunk begins at `last` */
        while (i < l->n && end - start <= width) {
            last = i;
            i = end;
            end = next_end(w, l, i);
        }
        if (i < l->n && end - i > width) {
            if (w->break_words) {
                last = i; /* also if nothing of it fits: the blanks before it then stay */
                i += cut_long(w, l, i, end, width - (i - start));
            } else if (i == start) {
                i = end;
                end = next_end(w, l, i);
            }
        }
        size_t stop = last < i && is_space(l, last, i) ? last : i;
        if (stop > start && !add_line(w, l, start, stop))
            return false;
        if (!tr_jstep(w->c, 1))
            return false;
    }
    return true;
}

struct tr_jv *tr_jfilter_wordwrap(struct tr_jctx *c, struct tr_jv *v, const struct tr_jargs *a)
{
    struct wrap w = {
        .c = c, .width = 79, .break_words = true, .break_hyphens = true, .chunk_hyphens = true};
    struct tr_jlist lines = {0}, all = {0};
    struct tr_jstr sep = tr_jstr_of("\n");
    struct line l;

    if (v->type == TR_JV_UNDEF)
        return tr_jfail_undef(c, v);
    if (v->type != TR_JV_STR)
        return tr_jfail(c, TR_JERR_RUNTIME, "'%s' object has no attribute 'splitlines'",
                        tr_jtype_name(v));
    if (!tr_jwant_int(c, a->pos[0], &w.width) ||
        (tr_jgiven(a->pos[2]) && !tr_jwant_str(c, a->pos[2], &sep)))
        return NULL;
    w.break_words = !a->pos[1] || tr_jtruth(a->pos[1]);
    w.break_hyphens = !a->pos[3] || tr_jtruth(a->pos[3]);
    w.chunk_hyphens = w.break_hyphens && (!a->pos[3] || a->pos[3]->type == TR_JV_BOOL);
    if (sep.markup)
        return tr_jfail(c, TR_JERR_UNSUPPORTED, "wordwrap with Markup is not supported");
    if (!tr_jstr_splitlines(c, v->s, false, &lines))
        return NULL;
    for (size_t i = 0; i < lines.n; i++) {
        w.out = (struct tr_jlist){0};
        if (!read_line(c, lines.v[i]->s, &l))
            return NULL;
        if (w.width <= 0)
            return tr_jfail(c, TR_JERR_RUNTIME, "invalid width (must be > 0)");
        if (!wrap_line(&w, &l) || !tr_jlist_add(c, &all, tr_jstr_join(c, sep, &w.out, false)))
            return NULL;
    }
    return tr_jstr_join(c, sep, &all, false);
}
