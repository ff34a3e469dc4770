/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdarg.h>
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

int(tr_errf)(struct tr_errbuf *err, int ret, const char *fmt, ...)
{
    if (!err)
        return ret;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
    for (char *p = err->msg; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    return ret;
}
