/* SPDX-License-Identifier: Apache-2.0 */
/* probe/report.h - what a run amounts to, and the two ways to show it: a table for a person
 * (report.c) and one JSON object (report_json.c; its keys are listed in --help).
 *
 * Which streams a figure is over: connect, headers, ttft: all that got there; gap: all pairs of
 * neighbouring contents of one stream; e2e and per-stream rate: complete streams only. */
#ifndef TR_PROBE_REPORT_H
#define TR_PROBE_REPORT_H

#include "client/server_hist.h"
#include "probe/load.h"

#include <stdio.h>

#define TR_FINISH_NAMES 8

struct tr_report {
    const struct tr_probe_opts *opts;
    const struct tr_load *load;
    const char *model;
    double wall_s;
    uint64_t outcomes[TR_OUT_COUNT];
    struct {
        char name[32];
        uint64_t n;
    } finish[TR_FINISH_NAMES]; /* the last one gathers what found no room, as "other" */
    size_t n_finish;
    uint64_t usage_streams;
    struct tr_usage usage; /* sums */
    double tok_s;          /* completion tokens over the wall time; 0 without usage */
    struct tr_summary rate;
    struct tr_summary connect, headers, ttft, gap, e2e; /* ms */
    uint64_t gaps_zero;
    struct tr_record sums; /* only its counts of events */
    uint64_t late_cuts;
    uint64_t text_checked, text_mismatches;
    size_t first_mismatch;
    struct tr_server_hists server;
};

/* Sums up a run, without `server`.  Sorts the load's samples; borrows everything. */
void tr_report_make(struct tr_report *r, const struct tr_probe_opts *o, struct tr_load *load,
                    const char *model);

/* 0, 1 or 3, as in --help. */
int tr_report_exit(const struct tr_report *r);

void tr_report_text(const struct tr_report *r, FILE *out);
int tr_report_json(const struct tr_report *r, FILE *out); /* -ENOMEM, or 0 */

#endif
