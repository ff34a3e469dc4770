/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/ledger.h"

#include "base/clock.h"
#include "base/log.h"
#include "ledger/file.h"
#include "ledger/row.h"
#include "ledger/settle.h"
#include "sandbox/sandbox.h"
#include "shm/bell.h"
#include "shm/close.h"
#include "shm/stat.h"
#include "shm/stream_id.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

enum {
    TAIL_BYTES = 4 << 20, /* more than TR_BILL_CAP rows: all that can be unconfirmed */
    WAIT_MS = 250,        /* also the beat, and the look for a dead supervisor */
    RETRY_MS = 200,       /* after a failed write */
    ENGINE_GONE_MS = 300, /* the kernel kills it with the supervisor; let it be over */
    BUSY_TRIES = 30,      /* for a file that another service has locked */
    BUSY_MS = 100
};

struct ledger {
    struct tr_shm *s;
    const struct tr_ledger_config *c;
    struct tr_lines rows, deliveries;
    struct tr_stat *stat;
    uint64_t upto;             /* records before this place are in the group or done */
    struct tr_stream_id *seen; /* of the last rows of the file, at the start */
    size_t n_seen;
    int signals;
    uint64_t credit[TR_MAX_AREAS]; /* delivery records that the area's frontends may still send */
    uint64_t told;                 /* areas that have been reported for having none */
    bool stop;
    bool failing; /* the last write failed: log changes, not every try */
    bool lost;    /* records are missing in the file for good */
};

static void beat(struct ledger *l)
{
    uint64_t now = tr_now_ns();
    atomic_store_explicit(&l->s->ledger->heartbeat_ns, now, memory_order_relaxed);
    tr_stat_beat(l->stat, now);
}

/* ---- rows that a former ledger process wrote but did not confirm ---- */

static void note_seen(void *arg, const char *line, size_t len)
{
    struct ledger *l = arg;
    static const char key[] = "\"stream_id\":\"";
    const char *p = memmem(line, len, key, sizeof(key) - 1);
    if (!p)
        return;
    p += sizeof(key) - 1;
    const char *q = memchr(p, '"', (size_t)(line + len - p));
    struct tr_stream_id id;
    if (q && tr_stream_id_parse(p, (size_t)(q - p), &id) == 0)
        l->seen[l->n_seen++ % TR_BILL_CAP] = id;
}

static int by_id(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct tr_stream_id));
}

/* The whole id: slot and generation are the engine's word, the random bits a frontend's, and a
 * hostile one could copy those of a stream that is not yet written. */
static bool was_seen(const struct ledger *l, const struct tr_bill *b)
{
    struct tr_stream_id id = {.slot = b->slot, .gen = b->gen, .rand = b->stream_rand};
    return l->n_seen && bsearch(&id, l->seen, l->n_seen, sizeof(id), by_id);
}

/* ---- one group ---- */

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

/* Adds to the group what is new in the queue. */
static void gather(struct ledger *l, uint64_t *owners)
{
    struct tr_bill b;
    char line[TR_ROW_BYTES];
    while (tr_bill_peek(l->s, l->upto, &b) == 0) {
        if (!was_seen(l, &b)) {
            size_t n = tr_row_bill(&b, l->c->model, line);
            if (tr_lines_add(&l->rows, line, n))
                break;
            log_lost(&b);
        }
        if (b.owner_area < TR_MAX_AREAS) {
            *owners |= 1ull << b.owner_area;
            l->credit[b.owner_area]++;
        }
        l->upto++;
    }
}

static void report(struct ledger *l, int ret)
{
    if (ret && !l->failing)
        tr_log(TR_LOG_ERROR, "cannot write the ledger: %s; records wait", strerror(-ret));
    if (!ret && l->failing)
        tr_log(TR_LOG_INFO, "the ledger is written again");
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
    for (uint32_t a = 0; a < l->s->config.n_areas; a++)
        if (owners >> a & 1)
            tr_bell_ring_area(l->s, a);
    tr_bell_ring_engine(l->s);
}

/* Writes what stands in the queue.  True when something moved. */
static bool commit_group(struct ledger *l)
{
    /* Relaxed: only we write it. */
    uint64_t head = atomic_load_explicit(&l->s->ledger->bill_head, memory_order_relaxed);
    uint64_t owners = 0;
    gather(l, &owners);
    if (l->upto == head)
        return false;
    for (int ret; (ret = tr_lines_commit(&l->rows)) != 0;) {
        report(l, ret);
        struct timespec nap = {.tv_nsec = RETRY_MS * 1000000L};
        nanosleep(&nap, NULL);
        beat(l);
        if (getppid() != l->c->parent_pid)
            return false; /* the group stays; the commit in settle() is the last try */
    }
    report(l, 0);
    confirm(l, owners);
    return true;
}

/* A former ledger process may have been killed at any place of its confirm(). */
static void confirm_again(struct ledger *l)
{
    /* Relaxed: only we write it. */
    l->upto = atomic_load_explicit(&l->s->ledger->bill_head, memory_order_relaxed);
    if (l->upto)
        confirm(l, ~0ull);
}

/* A frontend owes one record for each request; it may be ahead of ours by a queue.  What is beyond
 * that is nonsense, and would fill the disk. */
static bool has_credit(struct ledger *l, uint32_t area)
{
    if (l->credit[area]) {
        l->credit[area]--;
        return true;
    }
    if (!(l->told >> area & 1))
        tr_log(TR_LOG_WARN, "a frontend (area %u) reports more deliveries than requests: dropped",
               area);
    l->told |= 1ull << area;
    return false;
}

/* At most a queue of each: one that is filled without end must not keep the accounts waiting. */
static bool take_deliveries(struct ledger *l)
{
    struct tr_delivery d;
    char line[TR_ROW_BYTES];
    bool any = false;
    for (uint32_t a = 0; a < l->s->config.n_areas; a++)
        for (int i = 0; i < TR_DELIVERY_CAP && tr_delivery_pop(l->s, a, &d) == 0; i++) {
            any = true;
            if (!has_credit(l, a))
                continue;
            size_t n = tr_row_delivery(&d, line);
            if (tr_lines_add(&l->deliveries, line, n) && tr_lines_commit(&l->deliveries) == 0)
                (void)tr_lines_add(&l->deliveries, line, n);
        }
    /* Not part of the promise to a client: a failure is counted, the lines stay for the next try. */
    if (any && tr_lines_commit(&l->deliveries))
        tr_stat_add(l->stat, TR_STAT_LEDGER_ERRORS, 1);
    return any;
}

static bool work(struct ledger *l)
{
    bool bills = commit_group(l), deliveries = take_deliveries(l);
    return bills || deliveries;
}

/* ---- the end ---- */

static void settle_one(void *arg, const struct tr_bill *b)
{
    struct ledger *l = arg;
    char line[TR_ROW_BYTES];
    if (was_seen(l, b))
        return;
    size_t n = tr_row_bill(b, l->c->model, line);
    if (tr_lines_add(&l->rows, line, n) && tr_lines_commit(&l->rows) == 0)
        (void)tr_lines_add(&l->rows, line, n);
}

/* The engine is gone for good: nothing else will account for what it had not ended, or not recorded. */
static void settle(struct ledger *l)
{
    while (work(l))
        ;
    tr_settle_rings(l->s, settle_one, l);
    int ret = tr_lines_commit(&l->rows);
    l->lost = ret != 0;
    if (ret)
        tr_log(TR_LOG_ERROR, "cannot settle into the ledger: %s", strerror(-ret));
}

static void take_signals(struct ledger *l)
{
    struct signalfd_siginfo si;
    while (read(l->signals, &si, sizeof(si)) == (ssize_t)sizeof(si))
        if (si.ssi_signo == SIGTERM && (int)si.ssi_pid == l->c->parent_pid)
            l->stop = true;
}

/* ---- start and loop ---- */

/* The ledger of a service that was killed a moment ago may still be settling into this file. */
static int open_soon(struct tr_lines *f, const char *path, struct tr_errbuf *err)
{
    int ret = tr_lines_open(f, path, err);
    for (int tries = 0; ret == -EBUSY && tries < BUSY_TRIES; tries++) {
        struct timespec pause = {.tv_nsec = BUSY_MS * 1000000L};
        nanosleep(&pause, NULL);
        ret = tr_lines_open(f, path, err);
    }
    return ret;
}

static int open_files(struct ledger *l)
{
    struct tr_errbuf err;
    char path[4096];
    if (snprintf(path, sizeof(path), "%s.delivery", l->c->path) >= (int)sizeof(path)) {
        tr_log(TR_LOG_ERROR, "the path of the ledger is too long");
        return -1;
    }
    if (open_soon(&l->rows, l->c->path, &err) || open_soon(&l->deliveries, path, &err)) {
        tr_log(TR_LOG_ERROR, "%s", err.msg);
        return -1;
    }
    if (l->rows.torn)
        tr_log(TR_LOG_WARN, "the ledger ended in a torn line of %llu bytes: cut off",
               (unsigned long long)l->rows.torn);
    l->seen = calloc(TR_BILL_CAP, sizeof(*l->seen));
    if (!l->seen || tr_lines_tail(&l->rows, TAIL_BYTES, note_seen, l)) {
        tr_log(TR_LOG_ERROR, "cannot read the ledger %s", l->c->path);
        return -1;
    }
    if (l->n_seen > TR_BILL_CAP)
        l->n_seen = TR_BILL_CAP;
    qsort(l->seen, l->n_seen, sizeof(*l->seen), by_id);
    return 0;
}

static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR2); /* the supervisor died (PDEATHSIG) */
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* After the files are open; nothing else is needed of the system. */
static int confine(void)
{
    struct tr_errbuf err;
    int ret = tr_sandbox_enter(TR_SANDBOX_LEDGER, &err);
    if (ret)
        tr_log(ret < 0 ? TR_LOG_ERROR : TR_LOG_WARN, "%s", err.msg);
    return ret < 0 ? -1 : 0;
}

static void run(struct ledger *l)
{
    struct pollfd fds[2] = {{.fd = l->s->bell_ledger, .events = POLLIN},
                            {.fd = l->signals, .events = POLLIN}};
    for (;;) {
        beat(l);
        if (work(l))
            continue;
        bool orphan = getppid() != l->c->parent_pid;
        if (orphan) {
            struct timespec nap = {.tv_nsec = ENGINE_GONE_MS * 1000000L};
            nanosleep(&nap, NULL);
        }
        if (orphan || l->stop) {
            settle(l);
            return;
        }
        tr_bell_sleep(&l->s->ledger->sleeping);
        if (!work(l))
            poll(fds, 2, WAIT_MS);
        tr_bell_awake(l->s->bell_ledger, &l->s->ledger->sleeping);
        take_signals(l);
    }
}

int tr_ledger_main(struct tr_shm *s, const struct tr_ledger_config *c)
{
    struct ledger l = {
        .s = s, .c = c, .stat = s->stat[TR_STAT_LEDGER], .rows.fd = -1, .deliveries.fd = -1};
    for (uint32_t a = 0; a < TR_MAX_AREAS; a++)
        l.credit[a] = TR_DELIVERY_CAP;
    l.signals = open_signals();
    int status = 1;
    confirm_again(&l);
    if (l.signals >= 0 && open_files(&l) == 0 && confine() == 0) {
        run(&l);
        status = l.lost;
    }
    tr_lines_close(&l.rows);
    tr_lines_close(&l.deliveries);
    free(l.seen);
    if (l.signals >= 0)
        close(l.signals);
    return status;
}
