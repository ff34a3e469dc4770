/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/otlp.h"

#include "base/clock.h"
#include "base/log.h"
#include "ledger/collector.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BATCH = 256,     /* spans of one request */
    EARLY = 256,     /* deliveries that came before their span */
    GATHER_MS = 500, /* between two looks */
    RETRY_MS = 1000, /* after a failure, then twice as long each time */
    RETRY_MAX_MS = 30000
};
/* A frontend says within 2 s of the end what became of the bytes; held streams say it later, or never. */
#define DELIVERY_NS (3 * 1000000000ull)

struct place {
    struct tr_span span;
    uint64_t since_ns; /* when it came */
    bool sent;
};

struct tr_otlp {
    const struct tr_otlp_config *c;
    struct tr_collector *collector;
    struct tr_stat *stat;
    /* The thread's. */
    struct tr_emit body;
    struct tr_span *batch;
    size_t n_batch; /* waits to be sent again */
    bool failing;   /* log changes, not every try */
    unsigned retry_ms;
    pthread_t thread;
    bool started;
    atomic_bool give_up; /* relaxed: seen at the next look */
    /* Under the mutex, which nobody holds across a wait. */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct place *queue; /* [TR_OTLP_SPANS], the one that came as i-th at i modulo that */
    uint64_t head, tail;
    uint64_t *of_slot; /* 1 + where the last span of the slot is */
    /* Of clients that left: the frontend is done before the engine.  The last that came, at n % EARLY; in
     * which are also those of streams that have no span. */
    struct tr_delivery *early;
    uint64_t n_early;
    uint32_t n_slots;
    bool finish, ended;
};

/* ---- main thread: in ---- */

static void lost(struct tr_otlp *o, uint64_t n)
{
    tr_stat_add(o->stat, TR_STAT_SPANS_OVERFLOW, n);
}

void tr_otlp_missed(struct tr_otlp *o, uint64_t n)
{
    if (o && n)
        lost(o, n);
}

void tr_otlp_bill(struct tr_otlp *o, const struct tr_bill *b)
{
    if (!o || !tr_span_is_wanted(b))
        return;
    pthread_mutex_lock(&o->mutex);
    bool room = o->tail - o->head < TR_OTLP_SPANS;
    if (room) {
        struct place *p = &o->queue[o->tail++ % TR_OTLP_SPANS];
        p->span = (struct tr_span){.bill = *b};
        p->since_ns = tr_now_ns();
        p->sent = false;
        for (uint64_t i = o->n_early; i && o->n_early - i < EARLY && !p->span.delivered; i--)
            (void)tr_span_deliver(&p->span, &o->early[(i - 1) % EARLY]);
        if (b->slot < o->n_slots)
            o->of_slot[b->slot] = o->tail;
    }
    pthread_mutex_unlock(&o->mutex);
    if (!room)
        lost(o, 1);
}

void tr_otlp_delivery(struct tr_otlp *o, const struct tr_delivery *d)
{
    if (!o || d->slot >= o->n_slots)
        return;
    pthread_mutex_lock(&o->mutex);
    uint64_t at = o->of_slot[d->slot];
    struct place *p = at > o->head ? &o->queue[(at - 1) % TR_OTLP_SPANS] : NULL;
    if (!p || p->sent || !tr_span_deliver(&p->span, d))
        o->early[o->n_early++ % EARLY] = *d;
    pthread_mutex_unlock(&o->mutex);
}

/* ---- the thread: out ---- */

/* Moves what may go into the batch. */
static void gather(struct tr_otlp *o)
{
    uint64_t now = tr_now_ns();
    pthread_mutex_lock(&o->mutex);
    for (uint64_t i = o->head; i < o->tail && o->n_batch < BATCH; i++) {
        struct place *p = &o->queue[i % TR_OTLP_SPANS];
        if (p->sent || !(p->span.delivered || o->finish || now - p->since_ns >= DELIVERY_NS))
            continue;
        o->batch[o->n_batch++] = p->span;
        p->sent = true;
    }
    while (o->head < o->tail && o->queue[o->head % TR_OTLP_SPANS].sent)
        o->head++;
    pthread_mutex_unlock(&o->mutex);
}

static void failed(struct tr_otlp *o, const struct tr_collector_answer *a)
{
    if (!o->failing)
        tr_log(TR_LOG_WARN, "%s; %d spans can wait", a->why.msg, TR_OTLP_SPANS);
    o->failing = true;
    tr_stat_add(o->stat, TR_STAT_SPAN_ERRORS, 1);
    o->retry_ms = !o->retry_ms                     ? RETRY_MS
                  : 2 * o->retry_ms < RETRY_MAX_MS ? 2 * o->retry_ms
                                                   : RETRY_MAX_MS;
    if (a->retry_s)
        o->retry_ms = a->retry_s * 1000;
}

static void worked(struct tr_otlp *o)
{
    if (o->failing)
        tr_log(TR_LOG_INFO, "the collector takes traces again");
    o->failing = false;
    o->retry_ms = 0;
}

/* True when the batch is empty now. */
static bool send_batch(struct tr_otlp *o)
{
    const struct tr_span *spans[BATCH];
    struct tr_collector_answer a = {0};
    for (size_t i = 0; i < o->n_batch; i++)
        spans[i] = &o->batch[i];
    tr_span_request(&o->body, spans, o->n_batch, &o->c->facts);
    enum tr_collected r = TR_COLLECTOR_REFUSES;
    if (o->body.failed)
        tr_errf(&a.why, 0, "no memory for traces");
    else
        r = tr_collector_post(o->collector, o->body.buf, o->body.len, &a);
    if (r != TR_COLLECTED)
        failed(o, &a);
    if (r == TR_COLLECTOR_BUSY)
        return false;
    uint64_t rejected = r == TR_COLLECTOR_REFUSES ? o->n_batch
                        : a.rejected < o->n_batch ? a.rejected
                                                  : o->n_batch;
    tr_stat_add(o->stat, TR_STAT_SPANS_REFUSED, rejected);
    tr_stat_add(o->stat, TR_STAT_SPANS, o->n_batch - rejected);
    if (r == TR_COLLECTED)
        worked(o);
    else
        o->retry_ms = 0; /* the next ones may be taken */
    o->n_batch = 0;
    return true;
}

static void pause_for(struct tr_otlp *o, unsigned ms)
{
    struct timespec until;
    int ret = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&o->mutex);
    while (ret == 0 && !o->finish && !atomic_load_explicit(&o->give_up, memory_order_relaxed))
        ret = pthread_cond_timedwait(&o->cond, &o->mutex, &until);
    pthread_mutex_unlock(&o->mutex);
}

/* Whether nothing is left to do, or nothing more will be done. */
static bool is_over(struct tr_otlp *o)
{
    pthread_mutex_lock(&o->mutex);
    bool all = o->finish && o->head == o->tail && o->n_batch == 0;
    pthread_mutex_unlock(&o->mutex);
    return all || atomic_load_explicit(&o->give_up, memory_order_relaxed);
}

static bool is_finishing(struct tr_otlp *o)
{
    pthread_mutex_lock(&o->mutex);
    bool finishing = o->finish;
    pthread_mutex_unlock(&o->mutex);
    return finishing;
}

static void *export(void *arg)
{
    struct tr_otlp *o = arg;
    while (!is_over(o)) {
        if (o->n_batch == 0)
            gather(o);
        bool full = o->n_batch == BATCH;
        if (o->n_batch && !send_batch(o)) {
            if (is_finishing(o)) /* one try is enough for the last ones */
                break;
            pause_for(o, o->retry_ms);
        } else if (!full) {
            pause_for(o, GATHER_MS);
        }
    }
    pthread_mutex_lock(&o->mutex);
    uint64_t left = o->n_batch + (o->tail - o->head);
    o->ended = true;
    pthread_mutex_unlock(&o->mutex);
    if (left)
        tr_log(TR_LOG_WARN, "%llu spans have not been sent", (unsigned long long)left);
    return NULL;
}

/* ---- life ---- */

static int make_queue(struct tr_otlp *o, uint32_t n_slots)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&o->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&o->cond, &attr);
    pthread_condattr_destroy(&attr);
    tr_emit_init(&o->body);
    o->n_slots = n_slots;
    o->queue = calloc(TR_OTLP_SPANS, sizeof(*o->queue));
    o->batch = calloc(BATCH, sizeof(*o->batch));
    o->of_slot = calloc(n_slots, sizeof(*o->of_slot));
    o->early = calloc(EARLY, sizeof(*o->early));
    return o->queue && o->batch && o->of_slot && o->early ? 0 : -ENOMEM;
}

int tr_otlp_open(struct tr_otlp **out, const struct tr_otlp_config *c, uint32_t n_slots,
                 struct tr_stat *stat, struct tr_errbuf *err)
{
    *out = NULL;
    if (!c->url || !*c->url)
        return 0;
    struct tr_otlp *o = calloc(1, sizeof(*o));
    if (!o)
        return tr_errf(err, -ENOMEM, "no memory for traces");
    o->c = c;
    o->stat = stat;
    int ret = make_queue(o, n_slots) ? tr_errf(err, -ENOMEM, "no memory for traces") : 0;
    if (!ret)
        ret = tr_collector_open(&o->collector, c->url, c->headers, c->ca, &o->give_up, err);
    if (ret) {
        tr_otlp_close(o);
        return ret;
    }
    tr_log(TR_LOG_INFO, "traces: up to %d spans wait for their collector, in %.1f MiB",
           TR_OTLP_SPANS,
           (double)(TR_OTLP_SPANS * sizeof(*o->queue) + BATCH * sizeof(*o->batch)) / 1048576);
    *out = o;
    return 0;
}

int tr_otlp_start(struct tr_otlp *o)
{
    if (!o)
        return 0;
    int e = pthread_create(&o->thread, NULL, export, o);
    o->started = e == 0;
    return -e;
}

void tr_otlp_finish(struct tr_otlp *o)
{
    if (!o)
        return;
    pthread_mutex_lock(&o->mutex);
    o->finish = true;
    pthread_cond_signal(&o->cond);
    pthread_mutex_unlock(&o->mutex);
}

void tr_otlp_give_up(struct tr_otlp *o)
{
    if (!o)
        return;
    pthread_mutex_lock(&o->mutex);
    atomic_store_explicit(&o->give_up, true, memory_order_relaxed);
    pthread_cond_signal(&o->cond);
    pthread_mutex_unlock(&o->mutex);
}

bool tr_otlp_has_ended(struct tr_otlp *o)
{
    if (!o)
        return true;
    pthread_mutex_lock(&o->mutex);
    bool ended = o->ended || !o->started;
    pthread_mutex_unlock(&o->mutex);
    return ended;
}

void tr_otlp_close(struct tr_otlp *o)
{
    if (!o)
        return;
    if (o->started)
        pthread_join(o->thread, NULL);
    tr_collector_close(o->collector);
    pthread_cond_destroy(&o->cond);
    pthread_mutex_destroy(&o->mutex);
    tr_emit_fini(&o->body);
    free(o->queue);
    free(o->batch);
    free(o->of_slot);
    free(o->early);
    free(o);
}
