/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/stat.h"

const struct tr_stat_row tr_stat_rows[TR_STAT_N] = {
#define C(symbol, metric, labels, help)                                                            \
    [TR_STAT_##symbol] = {TR_KIND_COUNTER, metric, labels, help},
#define G(symbol, metric, labels, help) [TR_STAT_##symbol] = {TR_KIND_GAUGE, metric, labels, help},
#define H(symbol, metric, scale, help)
#include "shm/stat.def"
#undef C
#undef G
#undef H
};

const struct tr_hist_row tr_hist_rows[TR_HIST_N] = {
#define C(symbol, metric, labels, help)
#define G(symbol, metric, labels, help)
#define H(symbol, metric, scale, help) [TR_HIST_##symbol] = {metric, help, TR_SCALE_##scale},
#include "shm/stat.def"
#undef C
#undef G
#undef H
};

/* Objectives that people set (100 ms between tokens, 1 s to the first) are bounds, so that the part
 * within them can be told exactly. */
const double tr_hist_bounds[TR_SCALE_N][TR_HIST_BUCKETS] = {
    [TR_SCALE_SHORT] = {1e-6,  2e-6,  3e-6,   5e-6, 7.5e-6, 1e-5, 1.5e-5, 2e-5,
                        3e-5,  5e-5,  7.5e-5, 1e-4, 1.5e-4, 2e-4, 3e-4,   5e-4,
                        0.001, 0.002, 0.005,  0.01, 0.02,   0.05, 0.1,    1},
    [TR_SCALE_GAP] = {0.0001, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01,
                      0.015,  0.02,   0.03,  0.05,  0.075, 0.1,   0.15,   0.2,
                      0.3,    0.5,    1,     2,     5,     15,    60,     240},
    [TR_SCALE_LONG] = {0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 0.75, 1,
                       1.5,   2.5,   4,    6,     10,   15,    25,  40,   60,   120, 300,  600},
    [TR_SCALE_TOKENS] = {1,    2,    4,    8,     16,    32,    64,     96,
                         128,  192,  256,  384,   512,   768,   1024,   1536,
                         2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144}};

static void bump(_Atomic uint64_t *p, uint64_t n)
{
    /* One writer: no read-modify-write is needed.  Relaxed: nothing is published by a figure. */
    atomic_store_explicit(p, atomic_load_explicit(p, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

void tr_stat_beat(struct tr_stat *s, uint64_t now_ns)
{
    atomic_store_explicit(&s->heartbeat_ns, now_ns, memory_order_relaxed);
}

void tr_stat_add(struct tr_stat *s, enum tr_stat_id id, uint64_t n)
{
    bump(&s->value[id], n);
}

void tr_stat_set(struct tr_stat *s, enum tr_stat_id id, uint64_t value)
{
    atomic_store_explicit(&s->value[id], value, memory_order_relaxed);
}

void tr_hist_add_n(struct tr_stat *s, enum tr_hist_id id, uint64_t value, uint64_t n)
{
    enum tr_hist_scale scale = tr_hist_rows[id].scale;
    const double *bounds = tr_hist_bounds[scale];
    double v = scale == TR_SCALE_TOKENS ? (double)value : (double)value / 1e9;
    uint32_t i = 0;
    while (i < TR_HIST_BUCKETS && v > bounds[i])
        i++;
    struct tr_hist *h = &s->hist[id];
    bump(&h->bucket[i], n);
    bump(&h->sum, value * n);
    bump(&h->count, n);
}

void tr_hist_add(struct tr_stat *s, enum tr_hist_id id, uint64_t value)
{
    tr_hist_add_n(s, id, value, 1);
}
