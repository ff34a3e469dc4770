/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/ledger.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "ledger/feed.h"
#include "ledger/follow.h"
#include "ledger/life.h"
#include "ledger/otlp.h"
#include "ledger/settle.h"
#include "ledger/spool.h"
#include "ledger/sqlite_schema.h"
#include "ledger/trail.h"
#include "sandbox/sandbox.h"
#include "shm/bell.h"
#include "shm/close.h"
#include "shm/stat.h"
#include "shm/stream_id.h"

#include <errno.h>
#include <libgen.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    WAIT_MS = 250,        /* also the beat, and the look for a dead supervisor */
    RETRY_MS = 100,       /* after a failed write, or without room in the spool */
    ENGINE_GONE_MS = 300, /* the kernel kills it with the supervisor; let it be over */
    BUSY_TRIES = 40,      /* for a spool that another service has locked */
    BUSY_MS = 100,
    TOLD_MS = 5000,   /* for the database at the end of a service; drain.c waits longer */
    ORPHAN_MS = 2000, /* the same without a supervisor: another service may wait for the lock */
    TRIM_BYTES = 64 << 10
};

struct ledger {
    struct tr_shm *s;
    const struct tr_ledger_config *c;
    struct tr_spool *spool;
    struct tr_feed *feed;
    struct tr_otlp *otlp; /* NULL: no traces */
    struct tr_stat *stat;
    struct tr_life life;
    uint64_t upto;        /* records before this place are in the group or written */
    uint64_t owners;      /* areas to ring for those in the group */
    struct tr_entry held; /* a delivery that was taken when there was no room for it */
    bool holds;
    uint64_t billed;             /* requests since the start of this process */
    uint64_t sent[TR_MAX_AREAS]; /* delivery records of the area's frontends */
    uint64_t told;               /* areas that have been reported for sending too many */
    bool full;                   /* the spool had no room for what came last */
    bool told_full;              /* log changes */
    bool failing;                /* the last write failed: the same */
    int lost;                    /* -errno: records are missing for good */
};

static void beat(struct ledger *l)
{
    uint64_t now = tr_now_ns();
    atomic_store_explicit(&l->s->ledger->heartbeat_ns, now, memory_order_relaxed);
    tr_stat_beat(l->stat, now);
}

static void nap(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* ---- the group ---- */

/* Frontends write a line for each stream that ends (frontend/stream.c); nobody is left to do it for
 * one whose frontend died. */
static void log_lost(const struct tr_bill *b)
{
    const struct tr_close_info *i = tr_close_info(tr_close_of(b->state, b->finish, b->err));
    char id[TR_STREAM_ID_BYTES];

    if (b->owner_area < TR_MAX_AREAS || !tr_log_on(i->level))
        return;
    tr_stream_id_format((struct tr_stream_id){b->slot, b->gen, b->stream_rand}, id);
    tr_log(i->level, "stream %s ended: %s (%s); request %.*s, tokens %llu + %llu, choices %u", id,
           i->reason, i->words, (int)sizeof(b->request_id), b->request_id,
           (unsigned long long)b->prompt_tokens, (unsigned long long)b->completion_tokens,
           b->choices);
}

/* Whether the entry is in the group now. */
static bool add(struct ledger *l, const struct tr_entry *e)
{
    int ret = tr_spool_add(l->spool, e);
    l->full |= ret == -ENOSPC;
    return ret == 0;
}

static void tell_full(struct ledger *l)
{
    if (l->full && !l->told_full)
        tr_log(TR_LOG_ERROR, "the ledger's spool is full (%llu KiB): records wait",
               (unsigned long long)(l->c->spool_max >> 10));
    if (!l->full && l->told_full)
        tr_log(TR_LOG_INFO, "the ledger's spool has room again");
    l->told_full = l->full;
}

static void gather_bills(struct ledger *l)
{
    struct tr_bill b;
    struct tr_entry e;
    while (tr_bill_peek(l->s, l->upto, &b) == 0) {
        tr_row_of_bill(&b, l->c->model, &e);
        if (!add(l, &e))
            return;
        log_lost(&b);
        tr_trail_bill(&e.bill);
        tr_otlp_bill(l->otlp, &b);
        if (b.owner_area < TR_MAX_AREAS)
            l->owners |= 1ull << b.owner_area;
        l->billed++;
        l->upto++;
        TR_FAULT(LEDGER_TAKEN);
    }
}

/* A stream has one record, and its frontend may be ahead of ours by a queue; those that are held may
 * have been billed by a process before this one.  Which frontend sends it is open, for streams change
 * hands; what is beyond all of them is nonsense, and would fill the disk. */
static bool has_credit(struct ledger *l, uint32_t area)
{
    if (l->sent[area] < l->billed + l->s->config.n_slots + TR_DELIVERY_CAP) {
        l->sent[area]++;
        return true;
    }
    if (!(l->told >> area & 1))
        tr_log(TR_LOG_WARN, "a frontend (area %u) reports more deliveries than requests: dropped",
               area);
    l->told |= 1ull << area;
    return false;
}

/* At most a queue of each: one that is filled without end must not keep the accounts waiting.  True
 * when there were any. */
static bool gather_deliveries(struct ledger *l)
{
    struct tr_delivery d;
    bool any = false;
    l->holds = l->holds && !add(l, &l->held);
    for (uint32_t a = 0; a < l->s->config.n_areas; a++)
        for (int i = 0; i < TR_DELIVERY_CAP && !l->holds && tr_delivery_pop(l->s, a, &d) == 0;
             i++) {
            any = true;
            if (!has_credit(l, a))
                continue;
            TR_FAULT(LEDGER_DELIVERY_TAKEN);
            tr_row_of_delivery(&d, &l->held);
            tr_trail_delivery(&l->held.delivery);
            tr_otlp_delivery(l->otlp, &d);
            l->holds = !add(l, &l->held);
        }
    return any;
}

static void report(struct ledger *l, int ret)
{
    if (ret && !l->failing)
        tr_log(TR_LOG_ERROR, "cannot write the ledger's spool: %s; records wait", strerror(-ret));
    if (!ret && l->failing)
        tr_log(TR_LOG_INFO, "the ledger's spool is written again");
    l->failing = ret != 0;
    if (ret)
        tr_stat_add(l->stat, TR_STAT_LEDGER_ERRORS, 1);
}

/* Tells that the rows before l->upto are written.  Each record has one row, so their number is the
 * place in the queue: added up, the group of a process killed in between would be missing or double. */
static void confirm(struct ledger *l, uint64_t owners)
{
    tr_stat_set(l->stat, TR_STAT_LEDGER_ROWS, l->upto);
    tr_bill_durable(l->s, l->upto);
    TR_FAULT(LEDGER_DURABLE);
    for (uint32_t a = 0; a < l->s->config.n_areas; a++)
        if (owners >> a & 1)
            tr_bell_ring_area(l->s, a);
    tr_bell_ring_engine(l->s);
}

static bool has_unconfirmed(const struct ledger *l)
{
    /* Relaxed: only we write it. */
    return l->upto != atomic_load_explicit(&l->s->ledger->bill_head, memory_order_relaxed);
}

/* Writes the group.  True when it is written; false: there was none, or it stays for the next try. */
static bool flush(struct ledger *l)
{
    if (l->c->durability == TR_DURABLE_NONE && has_unconfirmed(l)) {
        confirm(l, l->owners);
        l->owners = 0;
    }
    if (!tr_spool_waiting(l->spool))
        return false;
    bool bills = has_unconfirmed(l);
    TR_FAULT(LEDGER_SPOOL_BEFORE);
    int ret = tr_spool_commit(l->spool, bills && l->c->durability == TR_DURABLE_POWER);
    report(l, ret);
    tr_stat_set(l->stat, TR_STAT_LEDGER_SPOOL_BYTES, tr_spool_bytes(l->spool));
    if (ret)
        return false;
    TR_FAULT(LEDGER_SPOOL_SYNCED);
    if (bills)
        confirm(l, l->owners);
    l->owners = 0;
    tr_feed_wake(l->feed);
    return true;
}

/* True when something moved. */
static bool work(struct ledger *l)
{
    /* What a failed write left is tried again before more is taken. */
    if (l->failing && !flush(l))
        return false;
    l->full = false;
    gather_bills(l);
    bool any = gather_deliveries(l);
    tell_full(l);
    return flush(l) || (any && !l->failing && !l->holds);
}

/* A former ledger process may have been killed at any place of its confirm(). */
static void confirm_again(struct ledger *l)
{
    /* Relaxed: only we write it. */
    l->upto = atomic_load_explicit(&l->s->ledger->bill_head, memory_order_relaxed);
    if (l->upto)
        confirm(l, ~0ull);
}

/* ---- the end ---- */

static void settle_one(void *arg, const struct tr_bill *b)
{
    struct ledger *l = arg;
    struct tr_entry e;
    tr_otlp_bill(l->otlp, b);
    tr_row_of_bill(b, l->c->model, &e);
    if (add(l, &e))
        return;
    int ret = tr_spool_commit(l->spool, true);
    if (ret || !add(l, &e))
        l->lost = ret ? ret : -ENOMEM;
}

/* The queue is emptied for as long as there is somebody to say that it takes too long. */
static void empty_queue(struct ledger *l)
{
    while (work(l) || ((l->failing || l->holds) && !tr_life_is_orphan(&l->life))) {
        if (l->failing)
            nap(RETRY_MS);
        beat(l);
    }
}

/* The engine is gone for good: nothing else will account for what it had not ended, or not recorded. */
static void settle(struct ledger *l)
{
    tr_spool_unlimited(l->spool);
    empty_queue(l);
    tr_settle_rings(l->s, settle_one, l);
    int ret = tr_spool_commit(l->spool, true);
    if (ret)
        l->lost = ret;
    if (l->lost)
        tr_log(TR_LOG_ERROR, "cannot settle into the ledger's spool: %s", strerror(-l->lost));
    tr_feed_wake(l->feed);
}

static bool have_ended(struct ledger *l)
{
    return tr_feed_has_ended(l->feed) && tr_otlp_has_ended(l->otlp);
}

/* The database has so long to take the rest; else the next start brings it there.  So has the collector
 * of traces.  False: one of them does not even say no, and its thread cannot be waited for. */
static bool end_threads(struct ledger *l, unsigned limit_ms)
{
    unsigned waited = 0;
    tr_feed_finish(l->feed);
    tr_otlp_finish(l->otlp);
    for (; !have_ended(l) && waited < limit_ms; waited += 10) {
        nap(10);
        beat(l);
        if (waited == TR_OTLP_LAST_MS)
            tr_otlp_give_up(l->otlp);
    }
    tr_feed_give_up(l->feed);
    tr_otlp_give_up(l->otlp);
    for (; !have_ended(l) && waited < limit_ms + 1500; waited += 10)
        nap(10);
    if (!tr_spool_is_empty(l->spool))
        tr_log(TR_LOG_WARN,
               "the database has not taken all records: %llu bytes stay in the spool "
               "for the next start",
               (unsigned long long)tr_spool_bytes(l->spool));
    return have_ended(l);
}

/* ---- start and loop ---- */

static int open_both(struct ledger *l, const char *dir, struct tr_errbuf *err)
{
    /* Looked at first, so that a wrong name leaves no folder beside somebody's file. */
    int ret = tr_sink_is_server(l->c->address) ? 0 : tr_sqlite_is_ours(l->c->address, err);
    if (!ret)
        ret = tr_spool_open(&l->spool, dir, l->c->spool_max, err);
    if (!ret)
        ret = tr_feed_open(&l->feed, l->spool, l->c->address, l->stat, err);
    if (ret) {
        tr_spool_close(l->spool);
        l->spool = NULL;
    }
    return ret;
}

/* The ledger of a service that was killed a moment ago may still be settling. */
static int open_soon(struct ledger *l, const char *dir)
{
    struct tr_errbuf err;
    int ret = open_both(l, dir, &err);
    for (int tries = 0; ret == -EBUSY && tries < BUSY_TRIES; tries++) {
        nap(BUSY_MS);
        ret = open_both(l, dir, &err);
    }
    if (ret)
        tr_log(TR_LOG_ERROR, "%s", err.msg);
    return ret;
}

/* After everything is open for the first time.  What is opened later lies in two folders: segments of
 * the spool, and the log of an SQLite database beside it. */
static int confine(struct ledger *l, const char *dir)
{
    struct tr_errbuf err;
    char file[4096];
    const char *dirs[] = {dir, NULL};
    bool server = tr_sink_is_server(l->c->address);
    snprintf(file, sizeof(file), "%s", l->c->address);
    if (!server)
        dirs[1] = dirname(file);
    int ret = tr_sandbox_enter_with(server || l->otlp ? TR_SANDBOX_LEDGER_NET : TR_SANDBOX_LEDGER,
                                    dirs, server ? 1 : 2, &err);
    if (ret)
        tr_log(ret < 0 ? TR_LOG_ERROR : TR_LOG_WARN, "%s", err.msg);
    return ret < 0 ? -1 : 0;
}

static int start(struct ledger *l)
{
    char dir[4096];
    if (tr_spool_place(l->c->address, l->c->spool, dir, sizeof(dir))) {
        tr_log(TR_LOG_ERROR, "the path of the ledger is too long");
        return -1;
    }
    if (open_soon(l, dir) || tr_follow_open(&l->otlp, l->s, l->c) || confine(l, dir))
        return -1;
    int ret = tr_feed_start(l->feed);
    if (!ret)
        ret = tr_otlp_start(l->otlp);
    if (!ret)
        return 0;
    tr_log(TR_LOG_ERROR, "cannot start the ledger's threads: %s", strerror(-ret));
    tr_feed_give_up(l->feed); /* it may run already, and is joined */
    return ret;
}

/* How long to sleep when there is nothing to do. */
static int pause_ms(struct ledger *l)
{
    if (l->failing || l->full)
        return RETRY_MS;
    if (tr_spool_trim(l->spool, TRIM_BYTES))
        tr_feed_wake(l->feed);
    return WAIT_MS;
}

static void run(struct ledger *l)
{
    struct pollfd fds[2] = {{.fd = l->s->bell_ledger, .events = POLLIN},
                            {.fd = l->life.signals, .events = POLLIN}};
    for (;;) {
        beat(l);
        if (work(l))
            continue;
        bool orphan = tr_life_is_orphan(&l->life);
        if (orphan)
            nap(ENGINE_GONE_MS);
        if (orphan || l->life.stop) {
            settle(l);
            return;
        }
        tr_bell_sleep(&l->s->ledger->sleeping);
        if (!work(l))
            poll(fds, 2, pause_ms(l));
        tr_bell_awake(l->s->bell_ledger, &l->s->ledger->sleeping);
        tr_stat_set(l->stat, TR_STAT_LEDGER_SPOOL_BYTES, tr_spool_bytes(l->spool));
        tr_life_look(&l->life);
    }
}

int tr_ledger_main(struct tr_shm *s, const struct tr_ledger_config *c)
{
    struct ledger l = {.s = s, .c = c, .stat = s->stat[TR_STAT_LEDGER]};
    int status = 1;
    if (!s->config.ledger)
        return tr_follow_main(s, c);
    tr_life_open(&l.life, c->parent_pid);
    confirm_again(&l);
    if (l.life.signals >= 0 && start(&l) == 0) {
        run(&l);
        status = l.lost != 0;
        if (!end_threads(&l, tr_life_is_orphan(&l.life) ? ORPHAN_MS : TOLD_MS))
            _exit(status);
    }
    tr_feed_close(l.feed);
    tr_otlp_close(l.otlp);
    tr_spool_close(l.spool);
    tr_life_close(&l.life);
    return status;
}
