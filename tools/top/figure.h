/* SPDX-License-Identifier: Apache-2.0 */
/* tools/top/figure.h - what two looks say: rates, quantiles, the live slots in order. */
#ifndef TR_TOP_FIGURE_H
#define TR_TOP_FIGURE_H

#include "top/snap.h"

enum tr_top_sort { TR_TOP_BY_FILL, TR_TOP_BY_RATE, TR_TOP_BY_AGE };

/* The histograms that are shown. */
enum tr_top_latency {
    TR_TOP_FIRST_TOKEN, /* in the ring */
    TR_TOP_FIRST_BYTE,  /* at the socket */
    TR_TOP_TOKEN_GAP,
    TR_TOP_DELIVERED_GAP,
    TR_TOP_LATENCIES
};
extern const char *const tr_top_latency_names[TR_TOP_LATENCIES];

struct tr_top_spread {
    uint64_t n;
    double p50, p90, p99; /* seconds; NAN when n is 0 */
};

struct tr_top_live {
    uint32_t slot;
    double age_s, tokens_s;
    double fill;  /* published - sent, of the window: 0..; 0 once it has ended */
    uint32_t lag; /* published - scanned, likewise */
};

struct tr_top_figures {
    const struct tr_observe *hello;
    const struct tr_top_snap *snap; /* the later look */
    double interval_s;
    uint64_t total[TR_STAT_N]; /* counters of all, gauges of the living */
    double rate[TR_STAT_N];    /* counters, per second */
    double step_s;             /* steps per second */
    double busy;               /* part of the time the engine was in a step, 0..1 */
    struct tr_top_spread last[TR_TOP_LATENCIES], all[TR_TOP_LATENCIES];
    uint32_t by_state[TR_TOP_STATES];
    uint32_t n_live;
    struct tr_top_live *live; /* [n_slots], the first n_live in order */
};

/* `f->live` has room for all slots; the caller's. */
void tr_top_figure(struct tr_top_figures *f, const struct tr_observe *hello,
                   const struct tr_top_snap *then, const struct tr_top_snap *now,
                   enum tr_top_sort sort);

/* Requests a second of one process's counter. */
double tr_top_rate(const struct tr_top_snap *then, const struct tr_top_snap *now, uint32_t index,
                   enum tr_stat_id id);

static inline bool tr_top_lives(const struct tr_top_process *p)
{
    return p->state >= TR_PROCESS_STARTING && p->state <= TR_PROCESS_RETIRED;
}

/* A row worth showing: it lives, or it is dead and no living process has its number. */
bool tr_top_shown(const struct tr_top_snap *s, uint32_t index);

const char *tr_top_role(uint32_t index);       /* engine, ledger, supervisor, frontend */
const char *tr_top_state_name(uint32_t state); /* of a slot */
const char *tr_top_health(const struct tr_top_snap *s, uint32_t index); /* of a process */
const char *tr_top_phase(const struct tr_top_snap *s);                  /* of the service */

/* "name="value"" -> value, for the rows of one metric; its length in *n. */
const char *tr_top_label(enum tr_stat_id id, int *n);

#endif
