/* SPDX-License-Identifier: Apache-2.0 */
/* replay/tally.h - what a run amounts to, per class of request and in all.
 *
 * Over which requests a figure is: ttft, ttft_sent: streams that had content; gap: neighbouring
 * contents of one stream, full-speed readers only; e2e and rate: complete ones.  ttft and e2e count
 * from the arrival, ttft_sent from the send. */
#ifndef TR_REPLAY_TALLY_H
#define TR_REPLAY_TALLY_H

#include "client/server_hist.h"
#include "replay/run.h"

#define TR_TALLY_CODES 12

struct tr_class_tally {
    const char *name;
    uint64_t n, fates[TR_FATES];
    uint64_t left_before_head, left_before_content, left_in_stream;
    uint64_t without_retry_after; /* of the refused ones */
    struct {
        char name[48]; /* status and code */
        uint64_t n;
    } codes[TR_TALLY_CODES]; /* the last one gathers what found no room, as "other" */
    size_t n_codes;
    uint64_t late;
    uint64_t usage_requests;
    struct tr_usage usage; /* sums */
    double tok_s;          /* completion tokens that usage told, over the wall time */
    uint64_t content_events;
    uint64_t prompts_off; /* the server counted other tokens than the trace asks for */
    uint64_t lengths_off; /* complete answers that are not max_tokens long */
    uint64_t late_cuts;
    struct tr_summary ttft, ttft_sent, gap, e2e; /* ms */
    struct tr_summary rate;                      /* tok/s */
};

enum tr_counter {
    TR_COUNTER_PROMPT,
    TR_COUNTER_COMPLETION,
    TR_COUNTER_AVOIDED,
    TR_COUNTER_AFTER_DISCONNECT,
    TR_COUNTER_DISCONNECTED,
    TR_COUNTER_SLOW,
    TR_COUNTER_PREEMPTIONS,
    TR_COUNTERS
};

const char *tr_counter_name(enum tr_counter c);

/* Columns of the timeline: what we had open, then the server's gauges. */
enum { TR_LEVEL_OPEN, TR_LEVEL_ADMITTED, TR_LEVEL_STREAMING, TR_LEVEL_GAUGES };
#define TR_LEVELS (TR_LEVEL_GAUGES + TR_GAUGES)

const char *tr_level_name(int level);
double tr_level_of(const struct tr_tick *t, int level); /* NAN: not known */

struct tr_level {
    size_t n; /* looks that knew it */
    double mean, max;
};

struct tr_tally {
    const struct tr_run *run;
    double wall_s;
    struct tr_class_tally all;
    struct tr_class_tally *classes;    /* [trace->n_classes] */
    struct tr_level levels[TR_LEVELS]; /* over the time in which requests arrived */
    struct tr_server_hists server;
    double counters[TR_COUNTERS]; /* NAN: not told */
};

/* Sums up; sorts the run's samples and borrows the run.  The pages are /metrics before and after,
 * or NULL.  0 or -ENOMEM; tr_tally_fini in any case. */
int tr_tally_make(struct tr_tally *t, struct tr_run *run, const char *before, size_t before_len,
                  const char *after, size_t after_len);
void tr_tally_fini(struct tr_tally *t);

/* 0, 1, 3 or 130, as in --help. */
int tr_tally_exit(const struct tr_tally *t);

#endif
