/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/fault.c - see fault.h. */
#include "frontend/fault.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int tr_fault_set(struct tr_fault *f, enum tr_err e, const char *param, const char *fmt, ...)
{
    va_list ap;

    f->err = e;
    snprintf(f->param, sizeof(f->param), "%s", param ? param : "");
    va_start(ap, fmt);
    tr_sentence(f->message, sizeof(f->message), fmt, ap);
    va_end(ap);
    return -EINVAL;
}
