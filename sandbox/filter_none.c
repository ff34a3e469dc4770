/* SPDX-License-Identifier: Apache-2.0 */
/* In filter.c's place where there is no libseccomp: for tools/gpu_check, never for what serves. */
#include "sandbox/filter.h"

#include <errno.h>

bool tr_filter_available(void)
{
    return false;
}

int tr_filter_load(enum tr_sandbox who)
{
    (void)who;
    return -ENOSYS;
}
