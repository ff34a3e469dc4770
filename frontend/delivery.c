/* SPDX-License-Identifier: Apache-2.0 */
/* When the peer's kernel has acknowledged the bytes of an answer.  Nothing tells us; while
 * somebody waits, the queues of their sockets are asked: after 10 ms, then after twice as long each
 * time, so that many who wait cost little. */
#include "frontend/conn_priv.h"

#include "base/clock.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

enum {
    ASK_EVERY_US = 10 * 1000,
    DELIVERY_ASKS = 256, /* system calls each time, at most */
    ASKS_PER_TICK = 64,  /* system calls of the gauge, and connections it looks at */
    LOOKS_PER_TICK = 512
};
#define GIVE_UP_NS (2 * 1000000000ull)

uint64_t tr_conn_accepted(const struct tr_conn *c)
{
    return c->accepted;
}

uint64_t tr_conn_blocked_ns(const struct tr_conn *c)
{
    return c->blocked_ns;
}

/* A FIN that is not acknowledged counts as one byte in the queue: the answer is then one byte low
 * for a moment, never high. */
uint64_t tr_conn_acked(struct tr_conn *c)
{
    int queued = 0;
    uint64_t acked = 0;
    if (c->fd < 0 || ioctl(c->fd, SIOCOUTQ, &queued) < 0 || queued < 0)
        return c->acked;
    if (c->tls)
        acked = tr_tls_acked(c->tls, (size_t)queued);
    else if ((uint64_t)queued <= c->written)
        acked = c->written - (uint64_t)queued;
    if (acked > c->acked) {
        c->d->stats->kernel_bytes -= acked - c->acked;
        c->acked = acked;
    }
    return c->acked;
}

void tr_httpd_ask_kernel(struct tr_httpd *d)
{
    for (int looked = 0, asked = 0; looked < LOOKS_PER_TICK && asked < ASKS_PER_TICK; looked++) {
        struct tr_conn *c = d->asked ? TAILQ_NEXT(d->asked, all_link) : TAILQ_FIRST(&d->all);
        d->asked = c;
        if (!c)
            return;
        if (c->acked == c->written)
            continue;
        tr_conn_acked(c);
        asked++;
    }
}

/* ---- deliveries ---- */

void tr_httpd_deliver_arm(struct tr_httpd *d)
{
    if (d->n_deliver && !d->deliver_armed)
        d->deliver_armed = event_add(d->deliver_ev, &(struct timeval){0, ASK_EVERY_US}) == 0;
}

static void wait_in(struct tr_conn *c, unsigned level, uint64_t now)
{
    c->ask_level = level;
    c->ask_ns = now + ((uint64_t)ASK_EVERY_US << level) * 1000;
    TAILQ_INSERT_TAIL(&c->d->deliver[level], c, deliver_link);
    c->d->n_deliver++;
}

static void take_out(struct tr_conn *c)
{
    struct tr_httpd *d = c->d;
    TAILQ_REMOVE(&d->deliver[c->ask_level], c, deliver_link);
    if (--d->n_deliver || !d->deliver_armed)
        return;
    event_del(d->deliver_ev);
    d->deliver_armed = false;
}

void tr_conn_deliver(struct tr_conn *c, struct tr_delivered *w)
{
    uint64_t now = tr_now_ns();
    if (c->state == TR_CONN_DEAD) {
        w->done(w, c->acked);
        return;
    }
    bool waits = !STAILQ_EMPTY(&c->deliveries);
    w->until_ns = now + GIVE_UP_NS;
    STAILQ_INSERT_TAIL(&c->deliveries, w, link);
    /* A new answer: asked soon again.  Who is asked sooner anyway is not put off by it, or one answer after
     * the other would never let him be asked. */
    if (waits && c->ask_ns <= now + ASK_EVERY_US * 1000ull)
        return;
    if (waits)
        take_out(c);
    wait_in(c, 0, now);
    tr_httpd_deliver_arm(c->d);
}

/* `done` may free its own struct and begin other deliveries. */
static void tell_first(struct tr_conn *c, uint64_t acked)
{
    struct tr_delivered *w = STAILQ_FIRST(&c->deliveries);
    STAILQ_REMOVE_HEAD(&c->deliveries, link);
    w->done(w, acked);
}

void tr_conn_delivery_gone(struct tr_conn *c)
{
    if (STAILQ_EMPTY(&c->deliveries))
        return;
    uint64_t acked = tr_conn_acked(c);
    take_out(c);
    while (!STAILQ_EMPTY(&c->deliveries))
        tell_first(c, acked);
}

/* Asks one socket; what is still waited for, after a longer pause. */
static void ask(struct tr_conn *c, uint64_t now)
{
    uint64_t acked = tr_conn_acked(c);
    unsigned level = c->ask_level + 1 < TR_DELIVER_LEVELS ? c->ask_level + 1 : c->ask_level;
    take_out(c);
    for (struct tr_delivered *w; (w = STAILQ_FIRST(&c->deliveries));) {
        if (acked < w->upto && now < w->until_ns)
            break;
        tell_first(c, acked);
    }
    if (!STAILQ_EMPTY(&c->deliveries))
        wait_in(c, level, now);
}

/* Those who have waited longest first: they are few, and the others come at the latest when this has
 * caught up. */
void tr_httpd_deliver(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct tr_httpd *d = arg;
    uint64_t now = tr_now_ns();
    int asked = 0;
    for (int level = TR_DELIVER_LEVELS; level-- > 0;)
        for (struct tr_conn *c;
             asked < DELIVERY_ASKS && (c = TAILQ_FIRST(&d->deliver[level])) && c->ask_ns <= now;
             asked++)
            ask(c, now);
    tr_httpd_deliver_arm(d);
}
