/* SPDX-License-Identifier: Apache-2.0 */
/* base/hex.h - hexadecimal digits, read in either case and written in the lower one.  Pure.
 *
 * Formats that take lower-case digits alone (traceparent, stream ids) read them by themselves. */
#ifndef TR_BASE_HEX_H
#define TR_BASE_HEX_H

#include <stddef.h>
#include <stdint.h>

/* What a digit stands for; -1: it is none. */
static inline int tr_hex_digit(int c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* `n` bytes as digits, NUL-ended: 2 n + 1 characters. */
static inline void tr_hex_format(const uint8_t *bytes, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

#endif
