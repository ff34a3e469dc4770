/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/follow.h"

#include "base/clock.h"
#include "base/log.h"
#include "ledger/life.h"
#include "sandbox/sandbox.h"
#include "shm/bell.h"

#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    WAIT_MS = 250, /* the engine does not ring: nobody hurries */
    STEP_MS = 10
};

struct follower {
    struct tr_shm *s;
    struct tr_otlp *otlp;
    struct tr_stat *stat;
    struct tr_life life;
    uint64_t at; /* the next record */
};

static void beat(struct follower *f)
{
    uint64_t now = tr_now_ns();
    atomic_store_explicit(&f->s->ledger->heartbeat_ns, now, memory_order_relaxed);
    tr_stat_beat(f->stat, now);
}

static void take(struct follower *f)
{
    struct tr_bill b;
    struct tr_delivery d;
    uint64_t missed = 0;
    while (tr_bill_follow(f->s, &f->at, &b, &missed) == 0)
        tr_otlp_bill(f->otlp, &b);
    tr_otlp_missed(f->otlp, missed);
    /* Release is not needed: nobody but the next of us reads it. */
    atomic_store_explicit(&f->s->ledger->bill_head, f->at, memory_order_relaxed);
    for (uint32_t a = 0; a < f->s->config.n_areas; a++)
        for (int i = 0; i < TR_DELIVERY_CAP && tr_delivery_pop(f->s, a, &d) == 0; i++)
            tr_otlp_delivery(f->otlp, &d);
}

static void run(struct follower *f)
{
    struct pollfd fds[2] = {{.fd = f->s->bell_ledger, .events = POLLIN},
                            {.fd = f->life.signals, .events = POLLIN}};
    while (!f->life.stop && !tr_life_is_orphan(&f->life)) {
        beat(f);
        take(f);
        tr_bell_sleep(&f->s->ledger->sleeping);
        poll(fds, 2, WAIT_MS);
        tr_bell_awake(f->s->bell_ledger, &f->s->ledger->sleeping);
        tr_life_look(&f->life);
    }
    take(f);
}

/* False: the collector does not even say no. */
static bool end_export(struct follower *f)
{
    const struct timespec step = {.tv_nsec = STEP_MS * 1000000};
    tr_otlp_finish(f->otlp);
    for (int waited = 0; !tr_otlp_has_ended(f->otlp) && waited < 2 * TR_OTLP_LAST_MS;
         waited += STEP_MS) {
        if (waited == TR_OTLP_LAST_MS)
            tr_otlp_give_up(f->otlp);
        nanosleep(&step, NULL);
        beat(f);
    }
    return tr_otlp_has_ended(f->otlp);
}

int tr_follow_open(struct tr_otlp **out, struct tr_shm *s, const struct tr_ledger_config *c)
{
    struct tr_errbuf err;
    if (tr_otlp_open(out, &c->otlp, s->config.n_slots, s->stat[TR_STAT_LEDGER], &err) == 0)
        return 0;
    tr_log(TR_LOG_ERROR, "%s", err.msg);
    return -1;
}

static int start(struct follower *f, const struct tr_ledger_config *c)
{
    struct tr_errbuf err;
    if (tr_follow_open(&f->otlp, f->s, c))
        return -1;
    int ret = tr_sandbox_enter(TR_SANDBOX_LEDGER_NET, &err);
    if (ret)
        tr_log(ret < 0 ? TR_LOG_ERROR : TR_LOG_WARN, "%s", err.msg);
    if (ret >= 0 && (ret = tr_otlp_start(f->otlp)))
        tr_log(TR_LOG_ERROR, "cannot start the thread for traces: %s", strerror(-ret));
    return ret;
}

int tr_follow_main(struct tr_shm *s, const struct tr_ledger_config *c)
{
    struct follower f = {.s = s, .stat = s->stat[TR_STAT_LEDGER]};
    int status = 1;
    tr_life_open(&f.life, c->parent_pid);
    /* Relaxed: only we write it. */
    f.at = atomic_load_explicit(&s->ledger->bill_head, memory_order_relaxed);
    if (f.life.signals >= 0 && start(&f, c) == 0) {
        run(&f);
        status = 0;
        if (!end_export(&f))
            _exit(status);
    }
    tr_otlp_close(f.otlp);
    tr_life_close(&f.life);
    return status;
}
