/* SPDX-License-Identifier: Apache-2.0 */
/* base/clock.h - the two clocks.
 *
 * Stages are timed with CLOCK_MONOTONIC, which is the same in all processes of a machine, so times
 * written into shared memory by one process can be compared by another.  Only what people read
 * (ledger rows, logs, `created`) is converted to wall-clock time. */
#ifndef TR_BASE_CLOCK_H
#define TR_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC; never 0, so 0 can mean "has not happened". */
uint64_t tr_now_ns(void);

/* Wall clock, seconds since 1970 with fraction. */
double tr_wall_s(void);

/* The wall-clock time of a monotonic instant, by the present difference of the two clocks. */
double tr_wall_of_ns(uint64_t mono_ns);

#endif
