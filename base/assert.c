/* SPDX-License-Identifier: Apache-2.0 */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void tr_assert_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr, "tokenring: assertion failed: %s (%s:%d)\n", cond, file, line);
    abort();
}
