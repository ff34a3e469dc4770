/* SPDX-License-Identifier: Apache-2.0 */
/* When the peer's kernel has acknowledged the bytes of an answer.  Nothing tells us; while
 * somebody waits, the queues of their sockets are asked every few milliseconds. */
#include "frontend/conn_priv.h"

#include "base/clock.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

enum {
    ASK_EVERY_US = 10 * 1000,
    ASKS_PER_TICK = 64, /* system calls of the gauge, and connections it looks at */
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
    if (c->fd >= 0 && ioctl(c->fd, SIOCOUTQ, &queued) == 0 && queued >= 0 &&
        (uint64_t)queued <= c->written && c->written - (uint64_t)queued > c->acked) {
        c->d->stats.kernel_bytes -= c->written - (uint64_t)queued - c->acked;
        c->acked = c->written - (uint64_t)queued;
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

static void unlink_delivery(struct tr_conn_delivery *w)
{
    struct tr_httpd *d = w->conn->d;
    *w->pprev = w->next;
    if (w->next)
        w->next->pprev = w->pprev;
    w->conn->deliveries--;
    w->conn = NULL;
    if (!d->deliveries)
        event_del(d->deliver_ev);
}

void tr_conn_deliver(struct tr_conn *c, struct tr_conn_delivery *w)
{
    struct tr_httpd *d = c->d;
    if (!d->deliveries)
        event_add(d->deliver_ev, &(struct timeval){0, ASK_EVERY_US});
    w->conn = c;
    w->until_ns = tr_now_ns() + GIVE_UP_NS;
    w->next = d->deliveries;
    w->pprev = &d->deliveries;
    if (w->next)
        w->next->pprev = &w->next;
    d->deliveries = w;
    c->deliveries++;
}

/* `done` may free its own struct and begin other deliveries; it does not cancel others. */
static void tell(struct tr_conn_delivery *w, uint64_t acked)
{
    unlink_delivery(w);
    w->done(w, acked);
}

void tr_conn_delivery_gone(struct tr_conn *c)
{
    uint64_t acked = c->deliveries ? tr_conn_acked(c) : 0;
    for (struct tr_conn_delivery *w = c->d->deliveries, *next; w && c->deliveries; w = next) {
        next = w->next;
        if (w->conn == c)
            tell(w, acked);
    }
}

void tr_httpd_deliver(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct tr_httpd *d = arg;
    uint64_t now = tr_now_ns();
    for (struct tr_conn_delivery *w = d->deliveries, *next; w; w = next) {
        next = w->next;
        uint64_t acked = tr_conn_acked(w->conn);
        if (acked >= w->upto || now >= w->until_ns)
            tell(w, acked);
    }
}
