/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdio.h>

static const struct tr_err_info table[TR_ERR_COUNT] = {
#define X(symbol, status, type, code, sentence) [symbol] = {status, type, code, sentence},
#include "base/err.def"
#undef X
};

const struct tr_err_info *tr_err_info(enum tr_err e)
{
    if ((unsigned)e >= TR_ERR_COUNT)
        return &table[TR_ERR_INTERNAL];
    return &table[e];
}

void tr_sentence(char *out, size_t size, const char *fmt, va_list ap)
{
    int made = vsnprintf(out, size, fmt, ap);
    if (made < 0 || (size_t)made < size)
        return;
    size_t n = size - 1, back = 0;
    while (back < n && ((unsigned char)out[n - 1 - back] & 0xc0) == 0x80)
        back++;
    unsigned char lead = back < n ? (unsigned char)out[n - 1 - back] : 0;
    size_t whole = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    if (back + 1 < whole)
        n -= back + 1;
    out[n] = '\0';
}

int(tr_errf)(struct tr_errbuf *err, int ret, const char *fmt, ...)
{
    if (!err)
        return ret;
    va_list ap;
    va_start(ap, fmt);
    tr_sentence(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
    for (char *p = err->msg; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    return ret;
}
