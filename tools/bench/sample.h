/* SPDX-License-Identifier: Apache-2.0 */
/* tools/bench/sample.h - processor time of other processes, and gaps between events. */
#ifndef TR_TOOLS_BENCH_SAMPLE_H
#define TR_TOOLS_BENCH_SAMPLE_H

#include <stdint.h>

enum { TR_WATCH_MAX = 40, TR_GAP_BUCKETS = 2048 };

/* Processor time that the main threads of some processes used in the window, and how often they
 * gave the processor away (a sleep) or lost it. */
struct tr_watch {
    int n;
    int pid[TR_WATCH_MAX];
    uint64_t ns[TR_WATCH_MAX];
};
int tr_watch_add(struct tr_watch *w, int pid); /* -1: too many, or no such process */
void tr_watch_begin(struct tr_watch *w);
void tr_watch_end(struct tr_watch *w);
void tr_watch_print(const struct tr_watch *w); /* "cpu_s":[...] in the order of tr_watch_add */

/* A histogram with steps of 1.6 %. */
struct tr_gaps {
    uint64_t n, max_ns;
    uint64_t bucket[TR_GAP_BUCKETS];
};
void tr_gaps_add(struct tr_gaps *g, uint64_t ns);
void tr_gaps_print(
    const struct tr_gaps *g); /* "gaps":N,"gap_ms_p50":X,"gap_ms_p99":X,... and a comma */

#endif
