/* SPDX-License-Identifier: Apache-2.0 */
/* replay/report.h - one run, or two side by side: tables for a person (report.c) and one JSON
 * object (report_json.c; its keys are listed in --help). */
#ifndef TR_REPLAY_REPORT_H
#define TR_REPLAY_REPORT_H

#include "replay/tally.h"

#include <stdio.h>

struct tr_replay_report {
    const struct tr_replay_opts *opts;
    const struct tr_trace *trace;
    const char *model;
    bool exact_prompts;             /* lengths are token ids */
    const struct tr_tally *runs[2]; /* [n_runs] */
    int n_runs;
};

void tr_replay_report_text(const struct tr_replay_report *r, FILE *out);
int tr_replay_report_json(const struct tr_replay_report *r, FILE *out); /* 0, -ENOMEM, -EIO */

#endif
