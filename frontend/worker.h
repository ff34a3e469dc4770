/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/worker.h - a few threads for work that would hold up the event loop.
 *
 * Frontend only; started after the fork.  A job's `work` runs on a worker, then its `done` on the
 * event loop, always both and in this order.  Workers run at a lower priority than the loop.  Jobs are started first come, first served.
 *
 * Full:  tr_workers_push says -EAGAIN at TR_WORKERS_JOBS jobs; nothing is queued. */
#ifndef TR_FRONTEND_WORKER_H
#define TR_FRONTEND_WORKER_H

#include <event2/event.h>

enum { TR_WORKERS_JOBS = 256 };

struct tr_job {
    void (*work)(struct tr_job *j); /* any thread; touches nothing but the job's own */
    void (*done)(struct tr_job *j); /* event loop; may free the job */
    struct tr_job *next;
};

struct tr_workers;

/* NULL when threads or descriptors have run out. */
struct tr_workers *tr_workers_start(struct event_base *base, unsigned n_threads);

/* Waits for the jobs that run and calls `done` of none.  The jobs are the caller's.  NULL is fine. */
void tr_workers_stop(struct tr_workers *w);

/* 0 or -EAGAIN.  The job is the caller's memory and stays in place until `done`. */
int tr_workers_push(struct tr_workers *w, struct tr_job *j);

#endif
