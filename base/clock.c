/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <time.h>

enum { TRIES = 8, CLOSE_NS = 2000 };

uint64_t tr_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + 1;
}

double tr_wall_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The wall clock is read between two looks at the other; a process that lost its turn in between is seen
 * by their distance, and looks again. */
static double difference(void)
{
    uint64_t closest = UINT64_MAX;
    double found = 0;
    for (int i = 0; i < TRIES && closest > CLOSE_NS; i++) {
        uint64_t before = tr_now_ns();
        double wall = tr_wall_s();
        uint64_t apart = tr_now_ns() - before;
        if (apart < closest) {
            closest = apart;
            found = wall - ((double)before + (double)apart / 2) * 1e-9;
        }
    }
    return found;
}

double tr_wall_of_ns(uint64_t mono_ns)
{
    return difference() + (double)mono_ns * 1e-9;
}
