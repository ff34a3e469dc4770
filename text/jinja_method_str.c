/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_method_str.c - methods of str. */
#include "text/jinja_priv.h"
#include "text/jinja_uni.h"

#include <string.h>

#define FN(name)                                                                                   \
    static struct tr_jv *name(struct tr_jctx *c, struct tr_jv *self, const struct tr_jargs *a)

static struct tr_jv *strip(struct tr_jctx *c, const struct tr_jv *self, const struct tr_jargs *a,
                           bool left, bool right)
{
    struct tr_jstr chars = {.p = ""};
    bool given = tr_jgiven(a->pos[0]);
    if (given && !tr_jwant_str(c, a->pos[0], &chars))
        return NULL;
    struct tr_jstr s = tr_jstr_strip(c, self->s, given ? &chars : NULL, left, right);
    return c->err ? NULL : tr_jnew_str(c, s);
}

FN(m_strip)
{
    return strip(c, self, a, true, true);
}

FN(m_lstrip)
{
    return strip(c, self, a, true, false);
}

FN(m_rstrip)
{
    return strip(c, self, a, false, true);
}

static struct tr_jv *split(struct tr_jctx *c, const struct tr_jv *self, const struct tr_jargs *a,
                           bool from_end)
{
    struct tr_jstr sep = {.p = ""};
    int64_t max = -1;
    bool given = tr_jgiven(a->pos[0]);
    if ((given && !tr_jwant_str(c, a->pos[0], &sep)) || !tr_jwant_int(c, a->pos[1], &max))
        return NULL;
    return tr_jstr_split(c, self->s, given ? &sep : NULL, max, from_end);
}

FN(m_split)
{
    return split(c, self, a, false);
}

FN(m_rsplit)
{
    return split(c, self, a, true);
}

/* [start, end) given in characters, as bytes.  false: an error, or start beyond the end. */
static bool byte_range(struct tr_jctx *c, struct tr_jstr s, const struct tr_jargs *a, size_t *from,
                       size_t *to)
{
    int64_t n = (int64_t)tr_jstr_chars(s);
    int64_t start = 0;
    int64_t end = n;
    if (!tr_jstep_bytes(c, s.len))
        return false;
    if (tr_jgiven(a->pos[1]) && !tr_jwant_int(c, a->pos[1], &start))
        return false;
    if (tr_jgiven(a->pos[2]) && !tr_jwant_int(c, a->pos[2], &end))
        return false;
    start = start < -n ? 0 : start < 0 ? start + n : start;
    end = end < -n ? 0 : end < 0 ? end + n : end > n ? n : end;
    if (start > end)
        return false;
    *from = tr_jstr_offset(s, (size_t)start);
    *to = tr_jstr_offset(s, (size_t)end);
    return true;
}

static struct tr_jv *affix(struct tr_jctx *c, struct tr_jstr s, const struct tr_jargs *a, bool end)
{
    size_t from;
    size_t to;
    struct tr_jlist one = {.v = a->pos, .n = 1, .cap = 1};
    const struct tr_jlist *l = a->pos[0]->type == TR_JV_TUPLE ? &a->pos[0]->l : &one;
    bool inside = byte_range(c, s, a, &from, &to);
    if (c->err)
        return NULL;
    for (size_t i = 0; i < l->n; i++) {
        struct tr_jstr x = {.p = ""};
        if (!tr_jwant_str(c, l->v[i], &x))
            return NULL;
        if (!inside || x.len > to - from)
            continue;
        if (!x.len || !memcmp(s.p + (end ? to - x.len : from), x.p, x.len))
            return tr_jbool(c, true);
    }
    return tr_jbool(c, false);
}

FN(m_startswith)
{
    return affix(c, self->s, a, false);
}

FN(m_endswith)
{
    return affix(c, self->s, a, true);
}

static struct tr_jv *find(struct tr_jctx *c, struct tr_jstr s, const struct tr_jargs *a,
                          bool from_end, bool must)
{
    size_t from;
    size_t to;
    struct tr_jstr x = {.p = ""};
    int64_t hit = -1;
    if (!tr_jwant_str(c, a->pos[0], &x))
        return NULL;
    if (byte_range(c, s, a, &from, &to))
        hit = from_end ? tr_jstr_rfind(s, x, from, to) : tr_jstr_find(s, x, from, to);
    if (c->err)
        return NULL;
    if (hit < 0 && must)
        return tr_jfail(c, TR_JERR_RUNTIME, "substring not found");
    if (hit < 0)
        return tr_jnew_int(c, -1);
    return tr_jnew_int(c, (int64_t)tr_jstr_chars((struct tr_jstr){.p = s.p, .len = (size_t)hit}));
}

FN(m_find)
{
    return find(c, self->s, a, false, false);
}

FN(m_rfind)
{
    return find(c, self->s, a, true, false);
}

FN(m_index)
{
    return find(c, self->s, a, false, true);
}

FN(m_rindex)
{
    return find(c, self->s, a, true, true);
}

FN(m_count)
{
    size_t from;
    size_t to;
    struct tr_jstr x = {.p = ""};
    int64_t n = 0;
    if (!tr_jwant_str(c, a->pos[0], &x))
        return NULL;
    if (!byte_range(c, self->s, a, &from, &to))
        return c->err ? NULL : tr_jnew_int(c, 0);
    if (!x.len)
        return tr_jnew_int(
            c,
            (int64_t)tr_jstr_chars((struct tr_jstr){.p = self->s.p + from, .len = to - from}) + 1);
    for (int64_t hit; (hit = tr_jstr_find(self->s, x, from, to)) >= 0; n++)
        from = (size_t)hit + x.len;
    return tr_jnew_int(c, n);
}

FN(m_replace)
{
    struct tr_jstr old = {.p = ""};
    struct tr_jstr with = {.p = ""};
    int64_t count = -1;
    if (!tr_jwant_str(c, a->pos[0], &old) || !tr_jwant_str(c, a->pos[1], &with) ||
        !tr_jwant_int(c, a->pos[2], &count))
        return NULL;
    return tr_jstr_replace(c, self->s, old, with, count);
}

FN(m_upper)
{
    (void)a;
    return tr_juni_map(c, self->s, TR_JUNI_UPPER);
}

FN(m_lower)
{
    (void)a;
    return tr_juni_map(c, self->s, TR_JUNI_LOWER);
}

FN(m_title)
{
    (void)a;
    return tr_juni_map(c, self->s, TR_JUNI_TITLE);
}

FN(m_capitalize)
{
    (void)a;
    return tr_juni_map(c, self->s, TR_JUNI_CAPITAL);
}

FN(m_swapcase)
{
    (void)a;
    return tr_juni_map(c, self->s, TR_JUNI_SWAP);
}

FN(m_join)
{
    struct tr_jlist l;
    return tr_jiterate(c, a->pos[0], &l) ? tr_jstr_join(c, self->s, &l, false) : NULL;
}

FN(m_splitlines)
{
    struct tr_jv *out = tr_jnew_list(c, TR_JV_LIST, 0);
    int64_t keep = 0;
    if (!tr_jwant_int(c, a->pos[0], &keep))
        return NULL;
    return out && tr_jstr_splitlines(c, self->s, keep, &out->l) ? out : NULL;
}

/* str.partition: three strings around the separator. */
static struct tr_jv *partition(struct tr_jctx *c, struct tr_jstr s, const struct tr_jargs *a,
                               bool from_end)
{
    struct tr_jstr sep = {.p = ""};
    struct tr_jv *out = tr_jnew_list(c, TR_JV_TUPLE, 3);
    if (!out || !tr_jwant_str(c, a->pos[0], &sep) || !tr_jstep_bytes(c, s.len))
        return NULL;
    if (!sep.len)
        return tr_jfail(c, TR_JERR_RUNTIME, "empty separator");
    int64_t hit = from_end ? tr_jstr_rfind(s, sep, 0, s.len) : tr_jstr_find(s, sep, 0, s.len);
    size_t cut[4] = {0, s.len, s.len, s.len};
    if (hit >= 0) {
        cut[1] = (size_t)hit;
        cut[2] = (size_t)hit + sep.len;
    } else if (from_end) {
        cut[1] = cut[2] = 0;
    }
    for (int i = 0; i < 3; i++)
        if (!tr_jlist_add(c, &out->l, tr_jnew_str(c, tr_jstr_part(c, s, cut[i], cut[i + 1]))))
            return NULL;
    return c->err ? NULL : out;
}

FN(m_partition)
{
    return partition(c, self->s, a, false);
}

FN(m_rpartition)
{
    return partition(c, self->s, a, true);
}

FN(m_removeprefix)
{
    struct tr_jstr x = {.p = ""};
    struct tr_jstr s = self->s;
    if (!tr_jwant_str(c, a->pos[0], &x))
        return NULL;
    bool has = x.len && x.len <= s.len && !memcmp(s.p, x.p, x.len);
    return tr_jnew_str(c, has ? tr_jstr_part(c, s, x.len, s.len) : s);
}

FN(m_removesuffix)
{
    struct tr_jstr x = {.p = ""};
    struct tr_jstr s = self->s;
    if (!tr_jwant_str(c, a->pos[0], &x))
        return NULL;
    bool has = x.len && x.len <= s.len && !memcmp(s.p + s.len - x.len, x.p, x.len);
    return tr_jnew_str(c, has ? tr_jstr_part(c, s, 0, s.len - x.len) : s);
}

/* Width and fill character of center, ljust, rjust; *pad is what is missing. */
static bool padding(struct tr_jctx *c, struct tr_jstr s, const struct tr_jargs *a, int64_t *width,
                    struct tr_jstr *fill)
{
    *fill = tr_jstr_of(" ");
    if (!tr_jwant_int(c, a->pos[0], width) || !tr_jwant_str(c, a->pos[1], fill))
        return false;
    if (tr_jstr_chars(*fill) != 1) {
        tr_jfail(c, TR_JERR_RUNTIME, "The fill character must be exactly one character long");
        return false;
    }
    return tr_jstep_bytes(c, s.len);
}

FN(m_center)
{
    int64_t width = 0;
    struct tr_jstr fill;
    return padding(c, self->s, a, &width, &fill) ? tr_jstr_center(c, self->s, width, fill) : NULL;
}

FN(m_ljust)
{
    int64_t width = 0;
    struct tr_jstr fill;
    if (!padding(c, self->s, a, &width, &fill))
        return NULL;
    int64_t n = (int64_t)tr_jstr_chars(self->s);
    return tr_jstr_pad(c, self->s, 0, width > n ? width - n : 0, fill);
}

FN(m_rjust)
{
    int64_t width = 0;
    struct tr_jstr fill;
    if (!padding(c, self->s, a, &width, &fill))
        return NULL;
    int64_t n = (int64_t)tr_jstr_chars(self->s);
    return tr_jstr_pad(c, self->s, width > n ? width - n : 0, 0, fill);
}

FN(m_zfill)
{
    int64_t width = 0;
    struct tr_jbuf b;
    struct tr_jstr s = self->s;
    if (!tr_jwant_int(c, a->pos[0], &width))
        return NULL;
    int64_t n = (int64_t)tr_jstr_chars(s);
    bool sign = s.len && (s.p[0] == '+' || s.p[0] == '-');
    tr_jbuf_init(&b, c);
    tr_jbuf_add_part(&b, s, 0, sign);
    tr_jbuf_fill(&b, tr_jstr_of("0"), width > n ? width - n : 0);
    tr_jbuf_add_part(&b, s, sign, s.len);
    return tr_jbuf_value(&b);
}

FN(m_format)
{
    return tr_jformat(c, self->s, a);
}

/* Every character satisfies `is`; `empty` is the answer for the empty string. */
static struct tr_jv *all(struct tr_jctx *c, struct tr_jstr s, bool (*is)(int32_t), bool empty)
{
    size_t n;
    if (!tr_jstep_bytes(c, s.len))
        return NULL;
    for (size_t i = 0; i < s.len; i += n)
        if (!is(tr_jchar(s, i, &n)))
            return tr_jbool(c, false);
    return tr_jbool(c, s.len || empty);
}

FN(m_isalpha)
{
    (void)a;
    return all(c, self->s, tr_juni_alpha, false);
}

FN(m_isdigit)
{
    (void)a;
    return all(c, self->s, tr_juni_digit, false);
}

FN(m_isdecimal)
{
    (void)a;
    return all(c, self->s, tr_juni_decimal, false);
}

FN(m_isspace)
{
    (void)a;
    return all(c, self->s, tr_juni_space, false);
}

FN(m_isprintable)
{
    (void)a;
    return all(c, self->s, tr_juni_printable, true);
}

static bool is_ascii(int32_t ch)
{
    return ch >= 0 && ch < 0x80;
}

FN(m_isascii)
{
    (void)a;
    return all(c, self->s, is_ascii, true);
}

static struct tr_jv *by_test(struct tr_jctx *c, struct tr_jv *self, const char *name)
{
    const struct tr_jbuiltin *row = tr_jtest_find(tr_jstr_of(name));
    return tr_jcall_row(c, row, self, &(struct tr_jargs){0});
}

FN(m_isupper)
{
    (void)a;
    return by_test(c, self, "upper");
}

FN(m_islower)
{
    (void)a;
    return by_test(c, self, "lower");
}

FN(m_isalnum)
{
    (void)a;
    return all(c, self->s, tr_juni_alnum, false);
}

/* Words that begin with a capital and go on with small letters, at least one. */
FN(m_istitle)
{
    struct tr_jstr s = self->s;
    bool inside = false, seen = false;
    size_t n;
    (void)a;
    if (!tr_jstep_bytes(c, s.len))
        return NULL;
    for (size_t i = 0; i < s.len; i += n) {
        int32_t ch = tr_jchar(s, i, &n);
        bool big = tr_juni_upper(ch) || tr_juni_title(ch), small = tr_juni_lower(ch);
        if ((big && inside) || (small && !inside))
            return tr_jbool(c, false);
        inside = big || small;
        seen = seen || inside;
    }
    return tr_jbool(c, seen);
}

FN(m_casefold)
{
    (void)a;
    return tr_juni_map(c, self->s, TR_JUNI_FOLD);
}

FN(m_expandtabs)
{
    struct tr_jstr s = self->s;
    int64_t size = 8, column = 0;
    struct tr_jbuf b;
    size_t n;
    if (!tr_jwant_int(c, a->pos[0], &size))
        return NULL;
    tr_jbuf_init(&b, c);
    for (size_t i = 0; i < s.len && !b.bad; i += n) {
        int32_t ch = tr_jchar(s, i, &n);
        if (ch == '\t') {
            int64_t blanks = size > 0 ? size - column % size : 0;
            tr_jbuf_fill(&b, tr_jstr_of(" "), blanks);
            column += blanks;
            continue;
        }
        column = ch == '\n' || ch == '\r' ? 0 : column + 1;
        tr_jbuf_add_part(&b, s, i, i + n);
    }
    return tr_jbuf_value(&b);
}

const struct tr_jbuiltin tr_jmethods_str[] = {
    {"strip", m_strip, "chars", 0},
    {"lstrip", m_lstrip, "chars", 0},
    {"rstrip", m_rstrip, "chars", 0},
    {"split", m_split, "sep maxsplit", 0},
    {"rsplit", m_rsplit, "sep maxsplit", 0},
    {"startswith", m_startswith, "prefix start end", 1},
    {"endswith", m_endswith, "suffix start end", 1},
    {"find", m_find, "sub start end", 1},
    {"rfind", m_rfind, "sub start end", 1},
    {"index", m_index, "sub start end", 1},
    {"rindex", m_rindex, "sub start end", 1},
    {"count", m_count, "sub start end", 1},
    {"replace", m_replace, "old new count", 2},
    {"upper", m_upper, "", 0},
    {"lower", m_lower, "", 0},
    {"title", m_title, "", 0},
    {"capitalize", m_capitalize, "", 0},
    {"swapcase", m_swapcase, "", 0},
    {"join", m_join, "iterable", 1},
    {"splitlines", m_splitlines, "keepends", 0},
    {"partition", m_partition, "sep", 1},
    {"rpartition", m_rpartition, "sep", 1},
    {"removeprefix", m_removeprefix, "prefix", 1},
    {"removesuffix", m_removesuffix, "suffix", 1},
    {"center", m_center, "width fillchar", 1},
    {"ljust", m_ljust, "width fillchar", 1},
    {"rjust", m_rjust, "width fillchar", 1},
    {"zfill", m_zfill, "width", 1},
    {"format", m_format, "*", 0},
    {"isalpha", m_isalpha, "", 0},
    {"isdigit", m_isdigit, "", 0},
    {"isdecimal", m_isdecimal, "", 0},
    {"isspace", m_isspace, "", 0},
    {"isprintable", m_isprintable, "", 0},
    {"isascii", m_isascii, "", 0},
    {"isupper", m_isupper, "", 0},
    {"islower", m_islower, "", 0},
    {"isalnum", m_isalnum, "", 0},
    {"istitle", m_istitle, "", 0},
    {"casefold", m_casefold, "", 0},
    {"expandtabs", m_expandtabs, "tabsize", 0},
    {"isidentifier", NULL, "", 0},
    {"isnumeric", NULL, "", 0},
    {"encode", NULL, "", 0},
    {"format_map", NULL, "", 0},
    {"maketrans", NULL, "", 0},
    {"translate", NULL, "", 0},
    {0},
};
