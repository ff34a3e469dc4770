/* SPDX-License-Identifier: Apache-2.0 */
/* base/utf8.c - see utf8.h.  Well-formed sequences: The Unicode Standard, table 3-7. */
#include "base/utf8.h"

#include <string.h>

static const char REPLACEMENT[3] = {'\xef', '\xbf', '\xbd'};

/* Bytes in the character that starts with b, 0 if none does. */
static unsigned char_len(uint8_t b)
{
    if (b < 0x80)
        return 1;
    if (b < 0xc2)
        return 0;
    if (b < 0xe0)
        return 2;
    if (b < 0xf0)
        return 3;
    return b < 0xf5 ? 4 : 0;
}

/* Whether b may follow as byte number `at` (1..3) of the character that starts with `first`. */
static bool continues(uint8_t first, unsigned at, uint8_t b)
{
    uint8_t lo = 0x80;
    uint8_t hi = 0xbf;

    if (at == 1) {
        switch (first) {
        case 0xe0:
            lo = 0xa0;
            break;
        case 0xed:
            hi = 0x9f;
            break;
        case 0xf0:
            lo = 0x90;
            break;
        case 0xf4:
            hi = 0x8f;
            break;
        default:
            break;
        }
    }
    return b >= lo && b <= hi;
}

size_t tr_utf8_valid_prefix(const char *text, size_t len)
{
    const uint8_t *p = (const uint8_t *)text;
    size_t i = 0;

    while (i < len) {
        uint64_t word;
        while (i + sizeof(word) <= len) {
            memcpy(&word, p + i, sizeof(word));
            if (word & 0x8080808080808080ULL)
                break;
            i += sizeof(word);
        }
        if (i == len)
            break;
        size_t n = tr_utf8_len(p + i, len - i);
        if (n == 0)
            break;
        i += n;
    }
    return i;
}

size_t tr_utf8_bad_len(const char *text, size_t len)
{
    const uint8_t *p = (const uint8_t *)text;
    unsigned need = char_len(p[0]);
    unsigned n = 1;

    while (n < need && n < len && continues(p[0], n, p[n]))
        n++;
    return n;
}

static size_t replace(char *out)
{
    memcpy(out, REPLACEMENT, sizeof(REPLACEMENT));
    return sizeof(REPLACEMENT);
}

/* The beginning of a surrogate: no character, but held (utf8.h). */
static bool holds_surrogate(const struct tr_utf8 *u)
{
    return u->n == 2 && u->held[0] == 0xed && u->held[1] >= 0xa0;
}

size_t tr_utf8_push(struct tr_utf8 *u, const char *in, size_t n, char *out)
{
    size_t i = 0;
    size_t o = 0;

    while (i < n) {
        uint8_t b = (uint8_t)in[i];
        if (u->n == 0) {
            size_t whole = tr_utf8_valid_prefix(in + i, n - i);
            memcpy(out + o, in + i, whole);
            o += whole;
            i += whole;
            if (i == n)
                break;
            b = (uint8_t)in[i++];
            if (char_len(b) == 0)
                o += replace(out + o);
            else
                u->held[u->n++] = b;
            continue;
        }
        if (u->n == 1 && u->held[0] == 0xed && b >= 0xa0 && b <= 0xbf) {
            u->held[u->n++] = b;
            i++;
            continue;
        }
        if (holds_surrogate(u) || !continues(u->held[0], u->n, b)) {
            /* b itself is looked at again: it may begin a character. */
            o += tr_utf8_flush(u, out + o);
            continue;
        }
        i++;
        if (u->n + 1U < char_len(u->held[0])) {
            u->held[u->n++] = b;
            continue;
        }
        memcpy(out + o, u->held, u->n);
        o += u->n;
        out[o++] = (char)b;
        u->n = 0;
    }
    return o;
}

size_t tr_utf8_flush(struct tr_utf8 *u, char out[TR_UTF8_FLUSH_MAX])
{
    size_t o = 0;

    if (u->n > 0)
        o += replace(out);
    if (holds_surrogate(u))
        o += replace(out + o);
    u->n = 0;
    return o;
}
