/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/utf8_char.h - one character out of UTF-8, as a number.  Pure. */
#ifndef TR_GRAMMAR_UTF8_CHAR_H
#define TR_GRAMMAR_UTF8_CHAR_H

#include "base/utf8.h"

/* The character at s[0, len): its bytes (1..4) and *c; 0 if there is none. */
static inline size_t tr_utf8_char(const char *s, size_t len, uint32_t *c)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t n = len ? tr_utf8_len(p, len) : 0;
    if (n == 1)
        *c = p[0];
    else if (n == 2)
        *c = (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    else if (n == 3)
        *c = (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    else if (n == 4)
        *c = (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
    return n;
}

#endif
