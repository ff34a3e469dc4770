/* SPDX-License-Identifier: Apache-2.0 */
/* All connections of a process: the end of a turn, the next turn, and their common end. */
#include "frontend/conn_priv.h"

#include "base/assert.h"
#include "base/clock.h"

#include <stdlib.h>

enum { ROUNDS_PER_TURN = 4 };

const struct tr_http_limits tr_http_limits_default = {
    .max_body = 4 << 20,
    .max_bodies = 128 << 20,
    .max_header = 32 << 10,
    .stream_buffer = 16 << 10,
    .header_timeout_ns = 10 * 1000000000ull,
    .body_timeout_ns = 30 * 1000000000ull,
    .keepalive_ns = 75 * 1000000000ull,
    .write_deadline_ns = 30 * 1000000000ull,
    .heartbeat_ns = 15 * 1000000000ull,
    .max_connections = 4096,
};

/* A dead connection may still stand in a list; it is freed when it has been taken out there. */
static void reap_dead(struct tr_httpd *d)
{
    for (struct tr_conn *c = TAILQ_FIRST(&d->dead), *next; c; c = next) {
        next = TAILQ_NEXT(c, all_link);
        if (c->dirty || c->again)
            continue;
        TAILQ_REMOVE(&d->dead, c, all_link);
        tr_conn_reap(c);
    }
}

/* An event activated from a callback runs after all callbacks that were already due: this is the
 * end of the turn.  Answers of one connection may wake the next request in it, which answers, and
 * so on; after a few rounds the others get their chance. */
static void on_turn_end(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct tr_httpd *d = arg;
    for (int round = 0; round < ROUNDS_PER_TURN && !TAILQ_EMPTY(&d->dirty); round++) {
        struct tr_conn_list now = TAILQ_HEAD_INITIALIZER(now);
        TAILQ_CONCAT(&now, &d->dirty, dirty_link);
        for (struct tr_conn *c; (c = TAILQ_FIRST(&now));) {
            TAILQ_REMOVE(&now, c, dirty_link);
            c->dirty = false;
            if (c->state != TR_CONN_DEAD)
                tr_conn_turn_end(c);
        }
    }
    reap_dead(d);
    d->turn_due = false;
    d->handshakes = 0;
    if (!TAILQ_EMPTY(&d->dirty) && !d->again_due) {
        d->again_due = true;
        event_add(d->again_ev, &(struct timeval){0, 0});
    }
}

static void end_turn(struct tr_httpd *d)
{
    if (d->turn_due)
        return;
    d->turn_due = true;
    event_active(d->turn_ev, EV_TIMEOUT, 1);
}

void tr_conn_mark(struct tr_conn *c)
{
    if (!c->dirty && c->state != TR_CONN_DEAD) {
        c->dirty = true;
        TAILQ_INSERT_TAIL(&c->d->dirty, c, dirty_link);
    }
    end_turn(c->d);
}

/* Nothing is left to do for it after all.  If it was the only one the loop may sleep: an event that is
 * due would cost each token another turn of it. */
void tr_conn_unmark(struct tr_conn *c)
{
    struct tr_httpd *d = c->d;
    if (!c->dirty)
        return;
    c->dirty = false;
    TAILQ_REMOVE(&d->dirty, c, dirty_link);
    if (TAILQ_EMPTY(&d->dirty) && TAILQ_EMPTY(&d->dead) && d->turn_due) {
        d->turn_due = false;
        event_del(d->turn_ev);
    }
}

void tr_conn_later(struct tr_conn *c)
{
    if (c->again || c->state == TR_CONN_DEAD)
        return;
    c->again = true;
    TAILQ_INSERT_TAIL(&c->d->again, c, again_link);
    if (!c->d->again_due) {
        c->d->again_due = true;
        event_add(c->d->again_ev, &(struct timeval){0, 0});
    }
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct tr_httpd *d = arg;
    struct tr_conn_list now = TAILQ_HEAD_INITIALIZER(now);
    TAILQ_CONCAT(&now, &d->again, again_link);
    d->again_due = false;
    for (struct tr_conn *c; (c = TAILQ_FIRST(&now));) {
        TAILQ_REMOVE(&now, c, again_link);
        c->again = false;
        if (c->state != TR_CONN_DEAD)
            tr_conn_work(c);
    }
    end_turn(d);
}

struct tr_httpd *tr_httpd_new(struct event_base *base, const struct tr_http_limits *lim,
                              const struct tr_httpd_ops *ops)
{
    int need = EV_FEATURE_ET | EV_FEATURE_EARLY_CLOSE;
    struct tr_httpd *d = calloc(1, sizeof(*d));
    if (!d || (event_base_get_features(base) & need) != need) {
        free(d);
        return NULL;
    }
    d->base = base;
    d->lim = lim;
    d->ops = *ops;
    d->stats = &d->own;
    TAILQ_INIT(&d->all);
    TAILQ_INIT(&d->dirty);
    TAILQ_INIT(&d->again);
    TAILQ_INIT(&d->dead);
    for (int i = 0; i < TR_DELIVER_LEVELS; i++)
        TAILQ_INIT(&d->deliver[i]);
    tr_emit_init(&d->text);
    d->turn_ev = event_new(base, -1, 0, on_turn_end, d);
    d->again_ev = event_new(base, -1, 0, on_again, d);
    d->deliver_ev = event_new(base, -1, EV_PERSIST, tr_httpd_deliver, d);
    if (d->turn_ev && d->again_ev && d->deliver_ev)
        return d;
    tr_httpd_free(d);
    return NULL;
}

void tr_httpd_free(struct tr_httpd *d)
{
    if (!d)
        return;
    for (struct tr_conn *c; (c = TAILQ_FIRST(&d->all));)
        tr_conn_kill(c, TR_GONE_SHUT);
    for (struct tr_conn *c; (c = TAILQ_FIRST(&d->dead));) {
        TAILQ_REMOVE(&d->dead, c, all_link);
        tr_conn_reap(c);
    }
    if (d->turn_ev)
        event_free(d->turn_ev);
    if (d->again_ev)
        event_free(d->again_ev);
    if (d->deliver_ev)
        event_free(d->deliver_ev);
    tr_emit_fini(&d->text);
    tr_outpool_fini(&d->pool);
    free(d);
}

void tr_httpd_use_tls(struct tr_httpd *d, struct tr_tls *t)
{
    d->tls = t;
}

void tr_httpd_use_access(struct tr_httpd *d, struct tr_access_log *l)
{
    d->access = l;
}

struct tr_access_log *tr_httpd_access(const struct tr_httpd *d)
{
    return d->access;
}

const struct tr_httpd_stats *tr_httpd_stats(const struct tr_httpd *d)
{
    return d->stats;
}

void tr_httpd_count_with(struct tr_httpd *d, struct tr_httpd *first)
{
    d->stats = first->stats;
}

static bool idle(const struct tr_conn *c)
{
    return c->state == TR_CONN_READING && !c->answered && c->in_at == c->in_len &&
           !tr_http_begun(&c->http) && tr_outbuf_len(&c->out) == 0;
}

void tr_httpd_drain(struct tr_httpd *d)
{
    d->draining = true;
    for (struct tr_conn *c = TAILQ_FIRST(&d->all), *next; c; c = next) {
        next = TAILQ_NEXT(c, all_link); /* one whose client has gone ends here */
        if (idle(c))
            tr_conn_close_idle(c);
        else if (c->state == TR_CONN_RAW)
            tr_conn_mark(c); /* it is told at the end of the turn */
    }
}

void tr_httpd_retire(struct tr_httpd *d)
{
    struct tr_conn *c;
    d->retire_ns = tr_now_ns();
    TAILQ_FOREACH(c, &d->all, all_link)
    {
        if (idle(c) || c->state == TR_CONN_RAW)
            tr_conn_mark(c); /* its time is shorter now; it is told */
    }
}

void tr_httpd_tick(struct tr_httpd *d)
{
    struct tr_conn *c;
    tr_httpd_ask_kernel(d);
    tr_httpd_deliver_arm(d);
    if (!d->clock_missed)
        return;
    d->clock_missed = false;
    TAILQ_FOREACH(c, &d->all, all_link)
    tr_conn_arm(c);
}
