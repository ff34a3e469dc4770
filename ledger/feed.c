/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/feed.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BATCH = 512,    /* entries of one transaction */
    GATHER_MS = 50, /* between transactions, unless there is a whole batch */
    RETRY_MS = 250, /* after a failure, then twice as long each time */
    RETRY_MAX_MS = 2000
};

struct tr_feed {
    struct tr_spool *spool;
    const char *address;
    struct tr_stat *stat;
    const struct tr_sink_ops *ops;
    struct tr_sink *sink; /* NULL: to be opened */
    struct tr_entry *batch;
    bool failing; /* log changes, not every try */
    unsigned retry_ms;
    pthread_t thread;
    bool started;
    /* under the mutex */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool woken, finish, give_up, ended;
};

/* ---- the thread ---- */

static void on_bad(void *arg, const struct tr_spool_bad *b)
{
    struct tr_feed *f = arg;
    tr_log(TR_LOG_WARN, "the ledger's spool: %s in %s at byte %llu, %llu bytes%s",
           tr_spool_fault_words(b->fault), b->file, (unsigned long long)b->at,
           (unsigned long long)b->len,
           b->fault == TR_SPOOL_TORN ? ": cut off" : ": the segment is set aside");
    tr_stat_add(f->stat, TR_STAT_LEDGER_ANOMALIES, 1);
}

static void failed(struct tr_feed *f, const char *why)
{
    if (!f->failing)
        tr_log(TR_LOG_ERROR, "%s; records wait in the spool", why);
    f->failing = true;
    tr_stat_add(f->stat, TR_STAT_LEDGER_DB_ERRORS, 1);
    f->retry_ms = !f->retry_ms                     ? RETRY_MS
                  : 2 * f->retry_ms < RETRY_MAX_MS ? 2 * f->retry_ms
                                                   : RETRY_MAX_MS;
}

static void worked(struct tr_feed *f)
{
    if (f->failing)
        tr_log(TR_LOG_INFO, "the ledger's database takes records again");
    f->failing = false;
    f->retry_ms = 0;
}

/* One transaction.  Entries applied, or -errno. */
static int feed_once(struct tr_feed *f)
{
    struct tr_errbuf err = {""};
    struct tr_spool_place upto;
    int ret = f->sink ? 0 : f->ops->open(&f->sink, f->address, false, &err);
    if (ret) {
        failed(f, err.msg);
        return ret;
    }
    int n = tr_spool_take(f->spool, f->batch, BATCH, &upto, on_bad, f);
    if (n < 0) {
        tr_errf(&err, n, "cannot read the ledger's spool: %s", strerror(-n));
        failed(f, err.msg);
        return n;
    }
    if (n)
        TR_FAULT(LEDGER_SINK_TAKEN);
    ret = n ? f->ops->apply(f->sink, f->batch, (size_t)n, &err) : 0;
    if (ret) {
        failed(f, err.msg);
        return ret;
    }
    if (n) {
        TR_FAULT(LEDGER_SINK_COMMITTED);
        tr_spool_done(f->spool, upto);
        TR_FAULT(LEDGER_SINK_DONE);
        tr_stat_add(f->stat, TR_STAT_LEDGER_STORED, (uint64_t)n);
    }
    worked(f);
    return n;
}

/* For `ms`; 0: until it is woken.  Shorter when an end is wanted: after a failure only by giving up, for
 * the pause is what the database needs. */
static void pause_for(struct tr_feed *f, unsigned ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&f->mutex);
    int ret = 0;
    while (!(f->failing ? f->give_up : f->finish || (ms == 0 && f->woken)) && ret == 0)
        ret = ms ? pthread_cond_timedwait(&f->cond, &f->mutex, &until)
                 : pthread_cond_wait(&f->cond, &f->mutex);
    if (ms == 0)
        f->woken = false;
    pthread_mutex_unlock(&f->mutex);
}

/* Whether to end after a try with this result. */
static bool is_over(struct tr_feed *f, int ret)
{
    pthread_mutex_lock(&f->mutex);
    bool over = f->give_up || (f->finish && ret == 0);
    pthread_mutex_unlock(&f->mutex);
    return over;
}

static void *feed(void *arg)
{
    struct tr_feed *f = arg;
    for (;;) {
        int ret = feed_once(f);
        if (is_over(f, ret))
            break;
        if (ret < 0)
            pause_for(f, f->retry_ms);
        else if (ret == 0)
            pause_for(f, 0);
        else if (ret < BATCH)
            pause_for(f, GATHER_MS);
    }
    pthread_mutex_lock(&f->mutex);
    f->ended = true;
    pthread_mutex_unlock(&f->mutex);
    return NULL;
}

/* ---- main thread ---- */

int tr_feed_open(struct tr_feed **out, struct tr_spool *spool, const char *address,
                 struct tr_stat *stat, struct tr_errbuf *err)
{
    struct tr_feed *f = calloc(1, sizeof(*f));
    pthread_condattr_t attr;
    if (!f)
        return tr_errf(err, -ENOMEM, "no memory for the ledger");
    pthread_mutex_init(&f->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&f->cond, &attr);
    pthread_condattr_destroy(&attr);
    f->spool = spool;
    f->address = address;
    f->stat = stat;
    f->ops = tr_sink_for(address);
    f->batch = calloc(BATCH, sizeof(*f->batch));
    struct tr_errbuf why = {""};
    int ret = f->batch ? f->ops->open(&f->sink, address, false, &why) : -ENOMEM;
    if (ret == -EAGAIN) {
        failed(f, why.msg);
    } else if (ret) {
        if (ret == -ENOMEM)
            tr_errf(&why, 0, "no memory for the ledger");
        tr_feed_close(f);
        return tr_errf(err, ret, "%s", why.msg);
    }
    *out = f;
    return 0;
}

int tr_feed_start(struct tr_feed *f)
{
    int e = pthread_create(&f->thread, NULL, feed, f);
    f->started = e == 0;
    return -e;
}

static void set(struct tr_feed *f, bool *what)
{
    pthread_mutex_lock(&f->mutex);
    *what = true;
    pthread_cond_signal(&f->cond);
    pthread_mutex_unlock(&f->mutex);
}

void tr_feed_wake(struct tr_feed *f)
{
    set(f, &f->woken);
}

void tr_feed_finish(struct tr_feed *f)
{
    set(f, &f->finish);
}

void tr_feed_give_up(struct tr_feed *f)
{
    set(f, &f->give_up);
}

bool tr_feed_has_ended(struct tr_feed *f)
{
    pthread_mutex_lock(&f->mutex);
    bool ended = f->ended || !f->started;
    pthread_mutex_unlock(&f->mutex);
    return ended;
}

void tr_feed_close(struct tr_feed *f)
{
    if (!f)
        return;
    if (f->started)
        pthread_join(f->thread, NULL);
    if (f->sink)
        f->ops->close(f->sink);
    pthread_cond_destroy(&f->cond);
    pthread_mutex_destroy(&f->mutex);
    free(f->batch);
    free(f);
}
