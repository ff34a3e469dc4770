/* SPDX-License-Identifier: Apache-2.0 */
/* tools/bench/limits.h - what this machine can do at most, to hold the kernels against.
 *
 * Each figure is the best of several turns, since others share the machine.  All threads of the
 * pool that the kernels use work at once. */
#ifndef TR_TOOLS_BENCH_LIMITS_H
#define TR_TOOLS_BENCH_LIMITS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct tr_limits {
    uint32_t threads;
    double read_gb_s;   /* 10^9 bytes/s, of memory that no cache holds */
    double reread_gb_s; /* the same of `reread` bytes over and over, as decode reads weights */
    double fma_gmac_s;  /* 10^9 multiply-adds/s of floats, without memory */
    double int8_gmac_s; /* of bytes: VNNI, else AVX2's maddubs; 0 without either */
    double region_ns;   /* what it costs the threads to meet for an operation that does nothing */
};

enum { TR_LIMITS_READ = 1, TR_LIMITS_ARITHMETIC = 2, TR_LIMITS_ALL = 3 };

/* Measures those of `what` for about turn_ms each.  0, or -Exxx and a sentence. */
int tr_limits_measure(uint32_t threads, size_t reread, uint32_t turn_ms, int what,
                      struct tr_limits *out, struct tr_errbuf *err);

/* How many bytes are too many for the caches of this machine: four times the last level's, but
 * 256 MiB at least and 1 GiB at most (inside a virtual machine the size that is told may be that of
 * caches it has no part in). */
size_t tr_limits_uncached(void);

#endif
