/* SPDX-License-Identifier: Apache-2.0 */
/* The service with a sim backend that works like a device (late_backend.h): system tests find there what a
 * launch that comes back at once does to processes and to faults at named points.  The linker puts
 * tr_backend_late in the place of tr_backend_sim (tests/cmake/system.cmake). */
#include "enginerig/late_backend.h"

/* NOLINTNEXTLINE(bugprone-reserved-identifier): the linker's name */
extern const struct tr_backend_ops __real_tr_backend_sim;

__attribute__((constructor)) static void put_over_sim(void)
{
    tr_late.over = &__real_tr_backend_sim;
}
