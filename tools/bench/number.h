/* SPDX-License-Identifier: Apache-2.0 */
/* tools/bench/number.h - a number among the arguments of a bench. */
#ifndef TR_TOOLS_BENCH_NUMBER_H
#define TR_TOOLS_BENCH_NUMBER_H

#include <stdint.h>
#include <stdlib.h>

/* A number from 1 to max, or 0. */
static inline uint32_t tr_bench_number(const char *s, uint32_t max)
{
    char *end;
    unsigned long v = strtoul(s, &end, 10);
    return *s < '0' || *s > '9' || *end || v > max ? 0 : (uint32_t)v;
}

#endif
