/* SPDX-License-Identifier: Apache-2.0 */
/* tools/top/snap.h - one look at the regions: a copy whose every field is in bounds. */
#ifndef TR_TOP_SNAP_H
#define TR_TOP_SNAP_H

#include "top/attach.h"
#include "top/quantile.h"

#define TR_TOP_NOBODY UINT32_MAX
enum { TR_TOP_UNKNOWN = TR_ERROR + 1, TR_TOP_STATES }; /* a state that there is not */

struct tr_top_slot {
    uint32_t gen, state; /* enum tr_state or TR_TOP_UNKNOWN */
    uint32_t area;       /* < n_areas, or TR_TOP_NOBODY */
    uint32_t prompt_len, max_tokens, prefilled, published,
        preemptions;        /* <= n_ctx, apart from the last */
    uint32_t scanned, sent; /* <= published */
    uint64_t arrival_ns;    /* <= the time of the look */
};

struct tr_top_process {
    uint32_t state; /* enum tr_process_state */
    uint32_t pid, number;
    uint64_t started_ns, heartbeat_ns; /* <= the time of the look */
};

struct tr_top_snap {
    uint64_t now_ns;
    uint32_t n_stats, n_slots;
    uint32_t drain; /* as in the process table; anything */
    struct tr_top_process process[TR_MAX_STATS];
    uint64_t value[TR_MAX_STATS][TR_STAT_N];
    struct tr_top_hist hist[TR_HIST_N]; /* of all processes together */
    uint64_t step_ns;                   /* spent in steps */
    struct tr_top_slot slot[];          /* [n_slots] */
};

/* NULL without memory. */
struct tr_top_snap *tr_top_snap_new(const struct tr_shm_config *c);

void tr_top_snap_take(struct tr_top_snap *s, const struct tr_top_view *v, uint64_t now_ns);

#endif
