/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/role.h"

_Thread_local enum tr_role tr_role = TR_ROLE_NONE;
