/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox/filter.h - the seccomp part of a sandbox: calls.def as a filter. */
#ifndef TR_SANDBOX_FILTER_H
#define TR_SANDBOX_FILTER_H

#include "sandbox/sandbox.h"

#include <stdbool.h>

/* Whether the running kernel has filters. */
bool tr_filter_available(void);

/* All threads of the process, for good.  0 or -errno. */
int tr_filter_load(enum tr_sandbox who);

#endif
