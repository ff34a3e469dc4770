/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/grpc_message.c - what a message becomes: at once if it is short, else by a worker.
 *
 * Putting a text of megabytes into JSON takes longer than a token; the loop has other streams.  A job
 * holds all that the worker needs: the request, and its call, may go meanwhile. */
#include "frontend/grpc_priv.h"

#include "base/clock.h"
#include "frontend/task.h"
#include "frontend/worker.h"

#include <stdatomic.h>
#include <stdlib.h>

struct job {
    struct tr_job job; /* first */
    struct tr_fe *fe;
    struct tr_grpc_request *r; /* the loop's; NULL: gone */
    atomic_bool gone;          /* the same for the worker */
    char *msg;
    uint32_t len;
    bool in_stream;
    uint64_t timeout_ns;
    struct tr_grpc_message m;
};

/* Any thread. */
static int translate(struct job *j)
{
    struct tr_oip_infer q = {.stream = j->in_stream};
    struct tr_grpc_message *m = &j->m;
    int rc = tr_oip_infer_open(&q, j->msg, j->len, &m->fault);

    snprintf(m->id, sizeof(m->id), "%s", q.id);
    m->wants = q.wants;
    m->empty_final = q.empty_final;
    if (rc == 0 && q.stream && !j->in_stream)
        rc = tr_fault_set(&m->fault, TR_ERR_BAD_PARAM, "stream",
                          "ModelInfer answers once; ModelStreamInfer streams.");
    if (rc == 0)
        rc = tr_oip_infer_body(&q, j->timeout_ns, &m->body, &m->fault);
    tr_oip_infer_close(&q);
    return rc;
}

static void finish(struct job *j)
{
    if (j->r)
        tr_grpc_start(j->r, &j->m);
    tr_emit_fini(&j->m.body);
    free(j->msg);
    free(j);
}

static void refuse(struct job *j, enum tr_err e)
{
    tr_oip_read_id(j->msg, j->len, j->m.id);
    j->m.refusal = e;
    finish(j);
}

/* ---- on a worker ---- */

static void on_gone(void *owner, enum tr_gone why)
{
    struct job *j = owner;

    (void)why;
    j->r = NULL;
    atomic_store_explicit(&j->gone, true, memory_order_relaxed); /* it only saves work */
}

static void on_nothing(void *owner)
{
    (void)owner;
}

static const struct tr_owner_ops owner_ops = {
    .writable = on_nothing, .half_closed = on_nothing, .gone = on_gone};

static void work(struct tr_job *job)
{
    struct job *j = (struct job *)job;

    if (!atomic_load_explicit(&j->gone, memory_order_relaxed))
        j->m.rc = translate(j);
}

static void done(struct tr_job *job)
{
    struct job *j = (struct job *)job;

    j->fe->n_asks--;
    if (j->r)
        tr_exchange_unbind(&j->r->x);
    finish(j);
}

/* ---- on the loop ---- */

static void give_to_worker(struct job *j)
{
    enum tr_err e = tr_grpc_turned_away(j->r->call);

    j->job = (struct tr_job){.work = work, .done = done};
    if (!e && tr_workers_push(j->fe->workers, &j->job))
        e = TR_ERR_OVERLOADED;
    if (e) {
        refuse(j, e);
        return;
    }
    j->fe->n_asks++;
    tr_exchange_bind(&j->r->x, &owner_ops, j);
}

int tr_grpc_read_message(struct tr_grpc_request *r, char *msg, uint32_t len)
{
    struct tr_grpc_call *c = r->call;
    struct tr_fe *fe = c->g->fe;
    uint64_t now = c->method->in_stream ? tr_now_ns() : tr_h2_arrived_ns(c->s);
    struct job *j = calloc(1, sizeof(*j));

    if (!j)
        return -ENOMEM;
    j->fe = fe;
    j->r = r;
    j->msg = msg;
    j->len = len;
    j->in_stream = c->method->in_stream;
    j->timeout_ns = c->deadline_ns > now ? c->deadline_ns - now : !!c->deadline_ns;
    j->m.arrived_ns = now;
    atomic_init(&j->gone, false);
    tr_emit_init(&j->m.body);
    if (fe->workers && len > TR_TASK_INLINE_BYTES) {
        give_to_worker(j);
        return 0;
    }
    j->m.rc = translate(j);
    finish(j);
    return 0;
}
