/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/task.h - what is made of a request's body: at once if it takes no time, else by a worker.
 *
 * Path: http > [task] tokens > subq > engine > step > ring > detok > event > socket
 *
 * Frontend only.  `make` parses, renders, encodes, and may run on any thread; `answer` runs on the
 * event loop afterwards, unless the connection has gone. */
#ifndef TR_FRONTEND_TASK_H
#define TR_FRONTEND_TASK_H

#include "frontend/ask.h"
#include "frontend/exchange.h"
#include "base/emit.h"
#include "frontend/event.h"
#include "frontend/sse.h"
#include "frontend/stream.h"
#include "frontend/worker.h"

#include <stdatomic.h>

/* A body or a message longer than this is a worker's: about 2 ms of the loop's time.  So is a grammar,
 * however short it is told. */
enum { TR_TASK_INLINE_BYTES = 16 << 10 };

struct tr_task {
    struct tr_ask *ask;    /* body not yet parsed; `answer` may take it and leave NULL */
    struct tr_fault fault; /* set by `make` when it fails */
    struct tr_emit out;    /* an answer that `make` wrote, if it writes one */

    /* What `make` and `answer` of a POST that starts work need besides. */
    const struct tr_dialect *dialect;
    enum tr_frame frame;
    enum tr_err refusal; /* nothing is open: what to say if the body is good */

    int (*make)(struct tr_task *t); /* 0, or -EINVAL with fault */
    void (*answer)(struct tr_task *t, struct tr_fe *fe, struct tr_exchange *x);

    /* private */
    struct tr_job job;
    struct tr_fe *fe;
    struct tr_exchange *x; /* NULL: gone */
    atomic_bool gone;      /* the same for the worker */
    int rc;
};

/* A task that takes the request's body over.  NULL: out of memory, answered. */
struct tr_task *tr_task_new(struct tr_fe *fe, struct tr_exchange *x,
                            const struct tr_http_request *rq);

/* Whether a worker should have it: the body is long, or its fields were read and say that a grammar is to be
 * compiled. */
bool tr_task_is_long(const struct tr_task *t);

/* Makes and answers; the task is freed at its end.  A failure is answered here. */
void tr_task_run(struct tr_task *t);

/* For a task that is not run. */
void tr_task_free(struct tr_task *t);

#endif
