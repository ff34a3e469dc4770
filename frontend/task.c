/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/task.c - see task.h. */
#include "frontend/task.h"

#include "frontend/access.h"
#include "frontend/api.h"

#include <stddef.h>
#include <stdlib.h>

struct tr_task *tr_task_new(struct tr_fe *fe, struct tr_exchange *x,
                            const struct tr_http_request *rq)
{
    struct tr_task *t = calloc(1, sizeof(*t));

    if (t)
        t->ask = tr_ask_new(fe, tr_exchange_take_body(x), rq->body.len);
    if (!t || !t->ask) {
        free(t);
        tr_exchange_error(x, TR_ERR_INTERNAL, "Out of memory.", NULL);
        return NULL;
    }
    tr_emit_init(&t->out);
    atomic_init(&t->gone, false);
    t->fe = fe;
    t->x = x;
    return t;
}

bool tr_task_is_long(const struct tr_task *t)
{
    return t->fe->workers &&
           (t->ask->text_len > TR_TASK_INLINE_BYTES || t->ask->wish.kind || t->ask->call.list);
}

void tr_task_free(struct tr_task *t)
{
    tr_ask_close(t->ask);
    tr_emit_fini(&t->out);
    free(t);
}

static void note(struct tr_task *t)
{
    const struct tr_stages *s = &t->ask->stage;

    tr_access_at(t->x, TR_AT_PARSED, s->parsed_ns);
    tr_access_at(t->x, TR_AT_RENDERED, s->rendered_ns);
    tr_access_at(t->x, TR_AT_TOKENISED, s->encoded_ns);
}

static void finish(struct tr_task *t)
{
    if (t->x)
        note(t);
    if (t->x && t->rc == 0)
        t->answer(t, t->fe, t->x);
    else if (t->x)
        tr_api_refuse(t->fe, t->x, &t->fault);
    tr_task_free(t);
}

/* ---- on a worker ---- */

static struct tr_task *task_of(struct tr_job *j)
{
    return (struct tr_task *)((char *)j - offsetof(struct tr_task, job));
}

static void conn_gone(void *owner, enum tr_gone why)
{
    struct tr_task *t = owner;

    (void)why;
    t->x = NULL;
    atomic_store_explicit(&t->gone, true, memory_order_relaxed);
}

/* Nothing has been written; and what a FIN means is known when the body has been read: a stream may
 * be read by a client that has closed its sending side (stream.c asks). */
static void conn_nothing(void *owner)
{
    (void)owner;
}

static const struct tr_owner_ops owner_ops = {
    .writable = conn_nothing, .half_closed = conn_nothing, .gone = conn_gone};

static void work(struct tr_job *j)
{
    struct tr_task *t = task_of(j);

    if (!atomic_load_explicit(&t->gone, memory_order_relaxed))
        t->rc = t->make(t);
}

static void done(struct tr_job *j)
{
    struct tr_task *t = task_of(j);

    t->fe->n_asks--;
    if (t->x)
        tr_exchange_unbind(t->x);
    finish(t);
}

void tr_task_run(struct tr_task *t)
{
    struct tr_fe *fe = t->fe;

    if (!tr_task_is_long(t)) {
        t->rc = t->make(t);
        finish(t);
        return;
    }
    t->job = (struct tr_job){.work = work, .done = done};
    if (tr_workers_push(fe->workers, &t->job)) {
        tr_stat_add(fe->stat, TR_STAT_REFUSED_OVERLOAD, 1);
        tr_exchange_error(t->x, TR_ERR_OVERLOADED, NULL, NULL);
        tr_task_free(t);
        return;
    }
    fe->n_asks++;
    tr_exchange_bind(t->x, &owner_ops, t);
}
