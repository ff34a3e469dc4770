/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/h2.c - one connection of HTTP/2: frames in, frames out, its clocks and its end. */
#include "frontend/h2_priv.h"

#include "base/assert.h"
#include "base/clock.h"
#include "frontend/timer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000ull
#define LAST_WORD_NS SECOND /* from the first GOAWAY of a drain to the second, if no PING answers */

static const char preface[] = "PRI * HTTP/2.0\r\n";

/* ---- what comes ------------------------------------------------------------------------------- */

static int input(void *state, const char *data, size_t len)
{
    struct tr_h2 *h = state;
    h->in_library = h->receiving = true;
    ssize_t n = nghttp2_session_mem_recv(h->session, (const uint8_t *)data, len);
    h->in_library = h->receiving = false;
    tr_conn_raw_mark(h->c);
    if (n >= 0)
        return 0;
    h->peer_broke = true;
    if (n == NGHTTP2_ERR_FLOODED)
        nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(h->session),
                              NGHTTP2_ENHANCE_YOUR_CALM, NULL, 0);
    tr_h2_send(h);
    return -1;
}

/* ---- what goes -------------------------------------------------------------------------------- */

void tr_h2_send(struct tr_h2 *h)
{
    const uint8_t *p;
    ssize_t n = 0;
    if (h->in_library) {
        tr_conn_raw_mark(h->c);
        return;
    }
    h->in_library = true;
    while (tr_conn_raw_room(h->c) > 0) {
        h->emitting = NULL;
        n = nghttp2_session_mem_send(h->session, &p);
        if (n <= 0)
            break;
        tr_conn_raw_write(h->c, (const char *)p, (size_t)n);
        h->sent_ns = tr_now_ns();
        if (h->emitting)
            tr_h2_stream_emitted(h->emitting);
    }
    h->in_library = false;
    if (n < 0)
        h->broken = true;
    struct tr_h2_stream *s;
    TAILQ_FOREACH(s, &h->waiting, waiting_link)
    tr_h2_stream_refused(s);
}

/* ---- clocks ----------------------------------------------------------------------------------- */

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return !a || (b && b < a) ? b : a;
}

static uint64_t plus(uint64_t since, uint64_t limit)
{
    return since && limit ? since + limit : 0;
}

static uint64_t stream_deadline(const struct tr_h2_stream *s)
{
    const struct tr_http_limits *l = s->h->d->lim;
    uint64_t at = plus(s->blocked_ns, l->write_deadline_ns);
    if (!s->headed)
        at = sooner(at, plus(s->since_ns, l->header_timeout_ns));
    if (s->body_ns)
        at = sooner(at, tr_carrier_body_deadline(l, s->body_ns, s->piece_ns, s->body_seen));
    if (!STAILQ_EMPTY(&s->deliveries))
        at = sooner(at, STAILQ_FIRST(&s->deliveries)->until_ns);
    return at;
}

static uint64_t idle_deadline(const struct tr_h2 *h)
{
    const struct tr_http_limits *l = h->d->lim;
    if (h->n_open)
        return 0;
    return plus(h->idle_ns, h->served_one ? l->keepalive_ns : l->header_timeout_ns);
}

static uint64_t ping_deadline(const struct tr_h2 *h)
{
    return h->n_open ? plus(h->sent_ns, h->d->lim->heartbeat_ns) : 0;
}

static void arm(struct tr_h2 *h)
{
    struct tr_h2_stream *s;
    uint64_t at = sooner(idle_deadline(h), ping_deadline(h));
    if (h->drain_ns && !h->last_said)
        at = sooner(at, h->drain_ns + LAST_WORD_NS);
    TAILQ_FOREACH(s, &h->open, open_link)
    at = sooner(at, stream_deadline(s));
    h->rearm = false;
    if (!at || (h->armed_ns && h->armed_ns <= at))
        return;
    if (tr_timer_at(&h->timer, at) == 0)
        h->armed_ns = at;
    else
        h->rearm = true; /* in the next turn */
}

/* The head is not complete in time: the whole connection stands still until it is. */
static void stream_expired(struct tr_h2_stream *s, uint64_t now)
{
    const struct tr_http_limits *l = s->h->d->lim;
    uint64_t at = plus(s->blocked_ns, l->write_deadline_ns);
    if (at && at <= now) {
        s->h->d->stats->slow_clients++;
        tr_h2_stream_gone(s, TR_GONE_SLOW);
        tr_h2_reset(s, TR_H2_CANCEL);
        return;
    }
    at = s->headed ? 0 : plus(s->since_ns, l->header_timeout_ns);
    if (at && at <= now) {
        s->h->d->stats->timeouts++;
        s->h->peer_broke = true;
        nghttp2_session_terminate_session(s->h->session, NGHTTP2_ENHANCE_YOUR_CALM);
        return;
    }
    at = s->body_ns ? tr_carrier_body_deadline(l, s->body_ns, s->piece_ns, s->body_seen) : 0;
    if (at && at <= now)
        tr_h2_http_timeout(s);
    tr_h2_stream_delivery_clock(s, now);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct tr_h2 *h = arg;
    uint64_t now = tr_now_ns(), at = idle_deadline(h);
    h->armed_ns = 0;
    h->rearm = true;
    if (at && at <= now)
        nghttp2_session_terminate_session(h->session, NGHTTP2_NO_ERROR);
    at = ping_deadline(h);
    if (at && at <= now)
        tr_h2_ping_conn(h);
    if (h->drain_ns && !h->last_said && h->drain_ns + LAST_WORD_NS <= now)
        tr_h2_last_word(h);
    for (struct tr_h2_stream *s = TAILQ_FIRST(&h->open), *next; s; s = next) {
        next = TAILQ_NEXT(s, open_link);
        at = stream_deadline(s);
        if (at && at <= now)
            stream_expired(s, now);
    }
    tr_conn_raw_mark(h->c);
}

void tr_h2_ping_conn(struct tr_h2 *h)
{
    h->sent_ns = tr_now_ns(); /* not sooner again */
    if (!h->ping_ns && nghttp2_submit_ping(h->session, NGHTTP2_FLAG_NONE, NULL) == 0)
        h->ping_ns = h->sent_ns;
    tr_conn_raw_mark(h->c);
}

/* ---- turns and the end -------------------------------------------------------------------------- */

static void tell_writable(struct tr_h2 *h)
{
    struct tr_h2_list now = TAILQ_HEAD_INITIALIZER(now);
    TAILQ_CONCAT(&now, &h->telling, telling_link);
    for (struct tr_h2_stream *s; (s = TAILQ_FIRST(&now));) {
        TAILQ_REMOVE(&now, s, telling_link);
        s->is_telling = false;
        if (s->service && !s->ended && !s->closed)
            s->service->writable(s->state);
    }
}

/* Streams whose end has come: those that we reset are told of by the library in its turn. */
static bool bury(struct tr_h2 *h)
{
    bool resets = false;
    for (struct tr_h2_stream *s; (s = TAILQ_FIRST(&h->dying));) {
        TAILQ_REMOVE(&h->dying, s, dying_link);
        s->is_dying = false;
        if (s->closed) {
            tr_h2_stream_free(s, s->why);
        } else if (s->resetting) {
            resets = true;
            nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, s->id, s->reset_code);
        }
    }
    return resets;
}

static bool is_over(const struct tr_h2 *h)
{
    if (h->broken)
        return true;
    if (nghttp2_session_want_write(h->session))
        return false;
    return !nghttp2_session_want_read(h->session) || (!h->n_open && (h->last_said || h->fin));
}

static void turn_end(void *state)
{
    struct tr_h2 *h = state;
    tr_h2_http_run(h);
    tell_writable(h);
    tr_h2_send(h);
    while (bury(h))
        tr_h2_send(h);
    tr_conn_raw_busy(h->c, h->n_open);
    if (is_over(h)) {
        tr_conn_raw_close(h->c);
        return;
    }
    if (!TAILQ_EMPTY(&h->telling) || !TAILQ_EMPTY(&h->ready))
        tr_conn_raw_mark(h->c);
    if (h->rearm)
        arm(h);
}

static void writable(void *state)
{
    struct tr_h2 *h = state;
    tr_conn_raw_mark(h->c);
}

static void half_closed(void *state)
{
    struct tr_h2 *h = state;
    h->fin = true;
    /* Whether anybody is still there is asked by what no window holds back. */
    nghttp2_submit_ping(h->session, NGHTTP2_FLAG_NONE, NULL);
    for (struct tr_h2_stream *s = TAILQ_FIRST(&h->open), *next; s; s = next) {
        next = TAILQ_NEXT(s, open_link);
        if (!s->whole) { /* it never will be */
            tr_h2_stream_gone(s, TR_GONE_RESET);
            tr_h2_reset(s, TR_H2_CANCEL);
        } else if (s->service && !s->closed) {
            s->service->half_closed(s->state);
        }
    }
    tr_conn_raw_mark(h->c);
}

/* In two steps, so that nothing that crosses with the first is lost: it says that there will be a
 * last stream, the second one, when the peer must have seen that, which one it was. */
static void drain(void *state)
{
    struct tr_h2 *h = state;
    h->drain_ns = tr_now_ns();
    nghttp2_submit_shutdown_notice(h->session);
    nghttp2_submit_ping(h->session, NGHTTP2_FLAG_NONE, NULL);
    h->rearm = true;
    tr_conn_raw_mark(h->c);
}

void tr_h2_last_word(struct tr_h2 *h)
{
    if (h->last_said)
        return;
    h->last_said = true;
    nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(h->session), NGHTTP2_NO_ERROR,
                          NULL, 0);
    tr_conn_raw_mark(h->c);
}

static void free_all(struct tr_h2 *h)
{
    event_del(&h->timer);
    nghttp2_session_del(h->session);
    TR_ASSERT(h->memory == 0);
    free(h);
}

static void gone(void *state, enum tr_gone why)
{
    struct tr_h2 *h = state;
    if (why == TR_GONE_SHUT && (h->peer_broke || h->broken))
        why = TR_GONE_RESET;
    h->in_library = true; /* nothing is sent any more */
    for (struct tr_h2_stream *s; (s = TAILQ_FIRST(&h->open));)
        tr_h2_stream_free(s, s->closed ? s->why : why);
    free_all(h);
}

static const struct tr_protocol h2 = {.input = input,
                                      .writable = writable,
                                      .half_closed = half_closed,
                                      .turn_end = turn_end,
                                      .drain = drain,
                                      .gone = gone};

/* ---- birth -------------------------------------------------------------------------------------- */

void tr_h2_begin(struct tr_conn *c, bool whole)
{
    struct tr_h2 *h = calloc(1, sizeof(*h));
    if (!h) {
        c->broken = ENOMEM;
        tr_conn_mark(c);
        return;
    }
    h->c = c;
    h->d = c->d;
    h->overfull = c->overfull;
    h->idle_ns = h->sent_ns = tr_now_ns();
    TAILQ_INIT(&h->open);
    TAILQ_INIT(&h->ready);
    TAILQ_INIT(&h->waiting);
    TAILQ_INIT(&h->telling);
    TAILQ_INIT(&h->dying);
    evtimer_assign(&h->timer, c->d->base, on_timer, h);
    if (tr_h2_session_open(h)) {
        free_all(h);
        c->broken = ENOMEM;
        tr_conn_mark(c);
        return;
    }
    h->rearm = true;
    tr_conn_become(c, &h2, h);
    if (!whole && input(h, preface, sizeof(preface) - 1))
        h->broken = true;
    tr_conn_raw_mark(c);
}

size_t tr_h2_conn_bytes(void)
{
    return sizeof(struct tr_h2) + TR_H2_MEMORY;
}
