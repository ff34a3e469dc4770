/* SPDX-License-Identifier: Apache-2.0 */
/* replay/run.h - one pass over a trace: every request at its time, in one epoll loop of one thread.
 *
 * Open loop: a request is sent when its arrival has come, whatever the earlier ones do.  A send that
 * is more than TR_RUN_LATE_NS behind counts as late; times are measured from the arrival, so what
 * the replay itself was late is not hidden in them. */
#ifndef TR_REPLAY_RUN_H
#define TR_REPLAY_RUN_H

#include "client/samples.h"
#include "client/stream.h"
#include "replay/options.h"
#include "replay/progress.h"
#include "replay/prompt.h"
#include "replay/trace.h"
#include "replay/lookout.h"

#define TR_RUN_LATE_NS 10000000u

enum tr_fate {
    TR_FATE_COMPLETE,
    TR_FATE_ABANDONED, /* left, as the trace says */
    TR_FATE_REFUSED,   /* 503 or 429 instead of an answer */
    TR_FATE_UNREAD,    /* a slow reader that did not see the end: cut, or our time was up */
    TR_FATE_ERROR,     /* any other error */
    TR_FATE_TRUNCATED, /* as in client/stream.h */
    TR_FATE_MALFORMED,
    TR_FATE_TIMEOUT,
    TR_FATE_UNREACHABLE, /* no connection */
    TR_FATE_INTERRUPTED, /* open when the replay was stopped */
    TR_FATE_UNSENT,      /* not yet sent then */
    TR_FATES
};

const char *tr_fate_name(enum tr_fate f);

struct tr_run_record {
    struct tr_record rec;
    enum tr_fate fate;
    uint64_t due_ns; /* the arrival; rec.start_ns is the send */
};

/* A look at what is open. */
struct tr_tick {
    double t_s;
    unsigned open, admitted, streaming; /* sockets; heads of 200 seen; content seen */
    double gauges[TR_GAUGES];           /* NAN: not known */
};

struct tr_run {
    const struct tr_replay_opts *opts;
    const struct tr_trace *trace;
    const char *tag; /* in the request ids */
    bool abandon;    /* clients leave when the trace says so */
    bool interrupted;
    struct tr_run_record *records; /* [trace->n] */
    struct tr_samples *gaps;       /* [trace->n_classes], ms, of full-speed readers */
    struct tr_samples slow_gaps;   /* of the others: their own doing, not reported */
    struct tr_tick *ticks;
    size_t n_ticks, ticks_cap;
    uint64_t late, late_max_ns;
    uint64_t delay_max_ns; /* as in probe's load.h */
    uint64_t start_ns, end_ns;
};

/* Runs to the end, or until *stop.  `run` has opts, trace, tag and abandon; the rest is filled.
 * 0, or -errno and a sentence; tr_run_fini in any case. */
int tr_run(struct tr_run *run, const struct tr_prompts *prompts, const char *model,
           struct tr_progress *progress, const volatile int *stop, struct tr_errbuf *err);
void tr_run_fini(struct tr_run *run);

/* "replay-<tag>-<line>" */
void tr_run_request_id(const struct tr_run *run, size_t i, char *to, size_t size);

#endif
