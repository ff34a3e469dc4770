/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/utf8_class.c - characters as ranges of bytes.  A range of code points is cut until each piece is a
 * product of byte ranges: at lengths, at the surrogates, and where a last byte is not all of 80-BF. */
#include "grammar/build_priv.h"

#include <string.h>

static uint32_t encode(uint32_t c, uint8_t out[4])
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    uint32_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (uint32_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)((0xf00u >> n) | c);
    return n;
}

/* lo..hi is such a product. */
static void chain(struct tr_gbuild *b, uint32_t lo, uint32_t hi, uint32_t from, uint32_t to)
{
    uint8_t x[4] = {0}, y[4] = {0};
    uint32_t n = encode(lo, x);

    encode(hi, y);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t next = i + 1 < n ? tr_gnfa_state(b) : to;
        tr_gnfa_edge(b, from,
                     (struct tr_gnfa_edge){.kind = TR_GE_BYTE, .lo = x[i], .hi = y[i], .to = next});
        from = next;
    }
}

static void split(struct tr_gbuild *b, uint32_t lo, uint32_t hi, uint32_t from, uint32_t to)
{
    static const uint32_t ends[] = {0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff};

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        if (lo <= ends[i] && ends[i] < hi) {
            split(b, lo, ends[i], from, to);
            split(b, ends[i] + 1, hi, from, to);
            return;
        }
    if (lo >= 0xd800 && hi <= 0xdfff)
        return;
    for (uint32_t i = 1; lo >= 0x80 && i < 4; i++) {
        uint32_t m = (1u << 6 * i) - 1; /* what the last i bytes say */
        if ((lo & ~m) == (hi & ~m))
            continue;
        if ((lo & m) != 0) {
            split(b, lo, lo | m, from, to);
            split(b, (lo | m) + 1, hi, from, to);
            return;
        }
        if ((hi & m) != m) {
            split(b, lo, (hi & ~m) - 1, from, to);
            split(b, hi & ~m, hi, from, to);
            return;
        }
    }
    chain(b, lo, hi, from, to);
}

void tr_gnfa_class(struct tr_gbuild *b, uint32_t at, uint32_t n, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < n && !b->failed; i++)
        split(b, tr_gwords(b)[at + 2 * i], tr_gwords(b)[at + 2 * i + 1], from, to);
}
