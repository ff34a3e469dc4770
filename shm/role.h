/* SPDX-License-Identifier: Apache-2.0 */
/* shm/role.h - which process this thread speaks for.
 *
 * Every field of shared memory has one writing role.  Functions that write open with
 * TR_ASSERT_ROLE, so that a call from the wrong process stops at once and not as a race.
 * Thread-local, so that a stress test can play two roles in one process. */
#ifndef TR_SHM_ROLE_H
#define TR_SHM_ROLE_H

#include "base/assert.h"

enum tr_role { TR_ROLE_NONE, TR_ROLE_SUPERVISOR, TR_ROLE_ENGINE, TR_ROLE_FRONTEND, TR_ROLE_LEDGER };

extern _Thread_local enum tr_role tr_role;

#define TR_ASSERT_ROLE(r) TR_ASSERT(tr_role == (r))

#endif
