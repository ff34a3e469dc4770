/* SPDX-License-Identifier: Apache-2.0 */
/* text/nfc.c - see nfc.h. */
#include "text/nfc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Characters beyond are in NFC whatever stands around them (test_nfc.c looks at all). */
#define TABLE_END 0x30000

/* One bit for each character: it is not in NFC, or may be joined with one before it, or is a mark.  Text
 * without such characters is in NFC, and before any other character a text may be cut. */
struct tr_nfc {
    uint8_t looks[TABLE_END / 8];
};

/* Most characters that one is made of, in every version of Unicode so far: 4. */
enum { PARTS = 8 };

static bool looks(const struct tr_nfc *n, int32_t c)
{
    return c < TABLE_END && (n->looks[c / 8] >> (c % 8) & 1);
}

static void mark(struct tr_nfc *n, int32_t c)
{
    n->looks[c / 8] |= (uint8_t)(1U << (c % 8));
}

static int ccc(int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

static size_t parts(int32_t c, int32_t out[PARTS])
{
    int last = UTF8PROC_BOUNDCLASS_START;
    ptrdiff_t n = utf8proc_decompose_char(c, out, PARTS, UTF8PROC_DECOMPOSE, &last);

    return n > 0 && n <= PARTS ? (size_t)n : 0;
}

static size_t join(int32_t *chars, size_t n)
{
    return (size_t)utf8proc_normalize_utf32(chars, (ptrdiff_t)n,
                                            UTF8PROC_STABLE | UTF8PROC_COMPOSE);
}

struct tr_nfc *tr_nfc_open(void)
{
    struct tr_nfc *n = calloc(1, sizeof(*n));

    if (!n)
        return NULL;
    for (int32_t c = 0x80; c < TABLE_END; c++) {
        int32_t part[PARTS];
        if (ccc(c) != 0)
            mark(n, c);
        size_t k = parts(c, part);
        if (k == 0 || (k == 1 && part[0] == c))
            continue;
        mark(n, part[k - 1]);
        if (join(part, k) != 1 || part[0] != c)
            mark(n, c);
    }
    return n;
}

void tr_nfc_close(struct tr_nfc *n)
{
    free(n);
}

void tr_nfc_run_fini(struct tr_nfc_run *r)
{
    free(r->text);
    free(r->chars);
    *r = (struct tr_nfc_run){0};
}

/* The character at p, which is valid, and its length. */
static int32_t char_at(const char *p, size_t *len)
{
    const unsigned char *u = (const unsigned char *)p;

    if (u[0] < 0x80) {
        *len = 1;
        return u[0];
    }
    if (u[0] < 0xe0) {
        *len = 2;
        return (u[0] & 0x1f) << 6 | (u[1] & 0x3f);
    }
    if (u[0] < 0xf0) {
        *len = 3;
        return (u[0] & 0x0f) << 12 | (u[1] & 0x3f) << 6 | (u[2] & 0x3f);
    }
    *len = 4;
    return (u[0] & 0x07) << 18 | (u[1] & 0x3f) << 12 | (u[2] & 0x3f) << 6 | (u[3] & 0x3f);
}

/* How far text[at, len) needs no look. */
static size_t plain_until(const struct tr_nfc *n, const char *text, size_t len, size_t at)
{
    while (at < len) {
        size_t k = 1;
        if ((unsigned char)text[at] >= 0x80 && looks(n, char_at(text + at, &k)))
            break;
        at += k;
    }
    return at;
}

/* Sorts marks by their class, equal ones as they came; `spare` has room for as many. */
static void sort_marks(int32_t *chars, size_t n, int32_t *spare)
{
    size_t first[257] = {0};

    if (n < 2)
        return;
    for (size_t i = 0; i < n; i++)
        first[ccc(chars[i]) + 1]++;
    for (size_t c = 0; c < 256; c++)
        first[c + 1] += first[c];
    for (size_t i = 0; i < n; i++)
        spare[first[ccc(chars[i])]++] = chars[i];
    memcpy(chars, spare, n * sizeof(*chars));
}

/* Room in the run for the parts of a text of so many bytes, twice. */
static int reserve(struct tr_nfc_run *r, size_t bytes)
{
    size_t need = 2 * (2 * bytes + PARTS); /* two bytes make at most four characters */

    if (need <= r->chars_cap)
        return 0;
    int32_t *bigger = malloc(need * sizeof(*bigger));
    if (!bigger)
        return -ENOMEM;
    free(r->chars);
    r->chars = bigger;
    r->chars_cap = need;
    return 0;
}

/* Appends the NFC of text[0, len) to out, where there is room, and returns its length, or -ENOMEM. */
static ptrdiff_t normalise(struct tr_nfc_run *r, const char *text, size_t len, char *out)
{
    size_t n = 0;
    size_t o = 0;

    if (reserve(r, len) < 0)
        return -ENOMEM;
    int32_t *spare = r->chars + r->chars_cap / 2;
    for (size_t at = 0, k; at < len; at += k)
        n += parts(char_at(text + at, &k), r->chars + n);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && ccc(r->chars[end]) != 0; end++)
            ;
        sort_marks(r->chars + i, end - i, spare);
        if (end < n)
            end++;
    }
    n = join(r->chars, n);
    for (size_t i = 0; i < n; i++)
        o += (size_t)utf8proc_encode_char(r->chars[i], (utf8proc_uint8_t *)out + o);
    return (ptrdiff_t)o;
}

static int room(struct tr_nfc_run *r, size_t need)
{
    if (need <= r->text_cap)
        return 0;
    size_t cap = need + need / 2;
    char *bigger = realloc(r->text, cap);
    if (!bigger)
        return -ENOMEM;
    r->text = bigger;
    r->text_cap = cap;
    return 0;
}

const char *tr_nfc_text(const struct tr_nfc *n, struct tr_nfc_run *r, const char *text, size_t *len)
{
    size_t from = 0; /* of what has not been copied */
    size_t o = 0;

    for (size_t at; (at = plain_until(n, text, *len, from)) < *len; from = at) {
        size_t begin = at; /* the character before may be joined with it */
        while (begin > from && ((unsigned char)text[--begin] & 0xc0) == 0x80)
            ;
        for (size_t k; at < *len && looks(n, char_at(text + at, &k)); at += k)
            ;
        if (room(r, o + (begin - from) + TR_NFC_GROWTH * (at - begin) + 4) < 0)
            return NULL;
        memcpy(r->text + o, text + from, begin - from);
        o += begin - from;
        ptrdiff_t k = normalise(r, text + begin, at - begin, r->text + o);
        if (k < 0)
            return NULL;
        o += (size_t)k;
    }
    if (from == 0)
        return text;
    if (room(r, o + (*len - from)) < 0)
        return NULL;
    memcpy(r->text + o, text + from, *len - from);
    *len = o + (*len - from);
    return r->text;
}
