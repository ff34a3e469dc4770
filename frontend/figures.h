/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/figures.h - the sums of all statistics regions, for whoever tells them.
 *
 * Counters and histograms are added over all regions, also those of processes that have died, so they only
 * grow; gauges only over the living: without an engine nothing runs, waits or holds blocks.  What other
 * processes wrote is taken as it is: figures for people. */
#ifndef TR_FRONTEND_FIGURES_H
#define TR_FRONTEND_FIGURES_H

#include "frontend/exposition.h"
#include "frontend/fe.h"

struct tr_figures {
    bool engine; /* it lives and has said something */
    uint32_t frontends;
    uint64_t value[TR_STAT_N];
    struct tr_expo_hist hist[TR_HIST_N];
};

void tr_figures_take(struct tr_figures *f, const struct tr_fe *fe);

/* metrics_compat.c: the same by the names that vLLM has, for gateways, load tests and dashboards that know
 * only those. */
void tr_metrics_compat(struct tr_emit *e, bool open, const struct tr_figures *f,
                       const struct tr_frontend_config *c);

#endif
