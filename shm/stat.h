/* SPDX-License-Identifier: Apache-2.0 */
/* shm/stat.h - counters, gauges and histograms of one process, in a region of its own.
 *
 * One writer each, so an increment is a relaxed load and store; readers load relaxed and may see
 * the figures of one event apart.  A frontend that gets a used area goes on counting where the
 * last one stopped: sums over the regions only grow.
 *
 * Read inside the service for /metrics, and outside of it by `tokenring top` (shm/observe.h), which
 * takes every figure as input. */
#ifndef TR_SHM_STAT_H
#define TR_SHM_STAT_H

#include "shm/layout.h"

enum tr_stat_id {
#define C(symbol, metric, labels, help) TR_STAT_##symbol,
#define G(symbol, metric, labels, help) TR_STAT_##symbol,
#define H(symbol, metric, scale, help)
#include "shm/stat.def"
#undef C
#undef G
#undef H
    TR_STAT_N
};

enum tr_hist_id {
#define C(symbol, metric, labels, help)
#define G(symbol, metric, labels, help)
#define H(symbol, metric, scale, help) TR_HIST_##symbol,
#include "shm/stat.def"
#undef C
#undef G
#undef H
    TR_HIST_N
};

enum { TR_HIST_BUCKETS = 24 };

struct tr_hist {
    _Atomic uint64_t bucket[TR_HIST_BUCKETS + 1]; /* not cumulative; the last is +Inf */
    _Atomic uint64_t sum;                         /* nanoseconds, or tokens: as the scale is */
    _Atomic uint64_t count;
};

struct tr_stat {
    struct tr_region_head head;
    TR_LINE _Atomic uint64_t pid;
    _Atomic uint64_t heartbeat_ns; /* the writer's last sign of life */
    _Atomic uint64_t load;         /* frontends: connections + streams, or one of the two below */
    _Atomic uint64_t taken;        /* frontends: connections ever accepted by the present one */
    _Atomic uint64_t value[TR_STAT_N];
    struct tr_hist hist[TR_HIST_N];
};

/* Of a frontend that is at --max-connections, and of one that accepts nothing. */
#define TR_LOAD_FULL (UINT64_MAX - 1)
#define TR_LOAD_CLOSED UINT64_MAX

enum tr_stat_kind { TR_KIND_COUNTER, TR_KIND_GAUGE };
struct tr_stat_row {
    enum tr_stat_kind kind;
    const char *metric, *labels, *help;
};
extern const struct tr_stat_row tr_stat_rows[TR_STAT_N];

/* What a histogram counts, and how finely.  Values are added in nanoseconds, or in tokens. */
enum tr_hist_scale {
    TR_SCALE_SHORT, /* work for one event: 1 us to 1 s */
    TR_SCALE_GAP, /* what a reader sees between tokens: 0.1 ms to 4 minutes, finest at 1 to 100 ms */
    TR_SCALE_LONG, /* first tokens, whole requests: 1 ms to 10 minutes */
    TR_SCALE_TOKENS,
    TR_SCALE_N
};
struct tr_hist_row {
    const char *metric, *help;
    enum tr_hist_scale scale;
};
extern const struct tr_hist_row tr_hist_rows[TR_HIST_N];
/* Upper bounds, rising; seconds or tokens. */
extern const double tr_hist_bounds[TR_SCALE_N][TR_HIST_BUCKETS];

/* The writer of the region. */
void tr_stat_beat(struct tr_stat *s, uint64_t now_ns);
void tr_stat_add(struct tr_stat *s, enum tr_stat_id id, uint64_t n);
void tr_stat_set(struct tr_stat *s, enum tr_stat_id id, uint64_t value);
void tr_hist_add(struct tr_stat *s, enum tr_hist_id id, uint64_t value);
void tr_hist_add_n(struct tr_stat *s, enum tr_hist_id id, uint64_t value, uint64_t n); /* n times */

#endif
