/* SPDX-License-Identifier: Apache-2.0 */
/* base/utf8.h - incremental UTF-8: bytes in, valid UTF-8 out.
 *
 * Bytes that are not UTF-8 become U+FFFD, one for each maximal subpart of an ill-formed sequence
 * (The Unicode Standard, 3.9, "U+FFFD Substitution of Maximal Subparts"): F0 9F 98 followed by
 * 'x' is one U+FFFD, ED A0 80 is three.  A byte that can never become part of a character is
 * replaced at once; only the beginning of a possible character (at most three bytes) is held.
 * One exception, to agree with the common incremental decoders: the first two bytes of a
 * surrogate (ED A0 to ED BF) are two U+FFFD only when the next byte comes, whatever it is.
 *
 * Any process, any thread; no allocation. */
#ifndef TR_BASE_UTF8_H
#define TR_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The beginning of a character that is not complete yet.  All zero is the start.  Copyable by
 * assignment. */
struct tr_utf8 {
    uint8_t held[3];
    uint8_t n; /* 0..3 bytes in held */
};

/* Most bytes that held bytes can become when they turn out wrong: two U+FFFD. */
#define TR_UTF8_FLUSH_MAX 6

/* What tr_utf8_push may write for n bytes of input, each of which makes at most one U+FFFD. */
#define TR_UTF8_OUT_MAX(n) (3 * (n) + TR_UTF8_FLUSH_MAX)

/* Takes n bytes, writes the text that is certain to `out` (room for TR_UTF8_OUT_MAX(n)) and
 * returns its length.  `out` is always whole characters. */
size_t tr_utf8_push(struct tr_utf8 *u, const char *in, size_t n, char *out);

/* The input has ended: what is held becomes U+FFFD.  Returns the number of bytes written. */
size_t tr_utf8_flush(struct tr_utf8 *u, char out[TR_UTF8_FLUSH_MAX]);

/* Bytes of the character at p[0, left), 0 if there is no whole one (RFC 3629).  left > 0.  Inline:
 * the JSON reader and writer call it for each character outside ASCII. */
static inline size_t tr_utf8_len(const unsigned char *p, size_t left)
{
    unsigned char c = p[0];
    if (c < 0x80)
        return 1;
    if (c < 0xc2 || c > 0xf4)
        return 0;
    size_t n = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (left < n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f) || (c == 0xf0 && p[1] < 0x90) ||
        (c == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

/* Length of the longest prefix of p[0, len) that is valid UTF-8 in whole characters. */
size_t tr_utf8_valid_prefix(const char *p, size_t len);

/* How many bytes at p[0, len), which do not start with a valid character, one U+FFFD stands for
 * (1..3).  len > 0. */
size_t tr_utf8_bad_len(const char *p, size_t len);

static inline bool tr_utf8_is_valid(const char *p, size_t len)
{
    return tr_utf8_valid_prefix(p, len) == len;
}

#endif
