/* SPDX-License-Identifier: Apache-2.0 */
/* tests/golden/check.h - claims of one program, counted: how it ends is its own business.  Included once. */
#ifndef TR_TESTS_GOLDEN_CHECK_H
#define TR_TESTS_GOLDEN_CHECK_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static int passed, failed;

static void check(bool ok, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void check(bool ok, const char *fmt, ...)
{
    if (ok) {
        passed++;
        return;
    }
    failed++;
    va_list ap;
    va_start(ap, fmt);
    printf("FAILED ");
    vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
}

#endif
