/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/stat.h"

const struct tr_stat_row tr_stat_rows[TR_STAT_N] = {
#define C(symbol, metric, labels, help)                                                            \
    [TR_STAT_##symbol] = {TR_KIND_COUNTER, metric, labels, help},
#define G(symbol, metric, labels, help) [TR_STAT_##symbol] = {TR_KIND_GAUGE, metric, labels, help},
#define H(symbol, metric, help)
#include "shm/stat.def"
#undef C
#undef G
#undef H
};

const struct tr_hist_row tr_hist_rows[TR_HIST_N] = {
#define C(symbol, metric, labels, help)
#define G(symbol, metric, labels, help)
#define H(symbol, metric, help) [TR_HIST_##symbol] = {metric, help},
#include "shm/stat.def"
#undef C
#undef G
#undef H
};

/* One set for all: from a microsecond of framing to minutes of an answer, near a factor of two
 * where streams live (1 ms to 1 s). */
const double tr_hist_bounds[TR_HIST_BUCKETS] = {
    0.00001, 0.0001, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03,
    0.05,    0.075,  0.1,    0.2,   0.4,   0.8,   1.6,   3.2,    6.4,  15.0,  60.0, 240.0};

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

void tr_hist_add_n(struct tr_stat *s, enum tr_hist_id id, uint64_t ns, uint64_t n)
{
    double sec = (double)ns * 1e-9;
    uint32_t i = 0;
    while (i < TR_HIST_BUCKETS && sec > tr_hist_bounds[i])
        i++;
    struct tr_hist *h = &s->hist[id];
    bump(&h->bucket[i], n);
    bump(&h->sum_ns, ns * n);
    bump(&h->count, n);
}

void tr_hist_add(struct tr_stat *s, enum tr_hist_id id, uint64_t ns)
{
    tr_hist_add_n(s, id, ns, 1);
}
