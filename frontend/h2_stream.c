/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/h2_stream.c - the bytes of one stream: what waits, what was sent, what was acknowledged. */
#include "frontend/h2_priv.h"

#include "base/assert.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define GIVE_UP_NS (2 * 1000000000ull) /* on an acknowledgement */

/* A delivery on its way through the connection, which counts otherwise. */
struct crossing {
    struct tr_delivered w;
    struct tr_delivered *d;
    uint64_t acked; /* own bytes that were acknowledged before */
};

/* ---- life --------------------------------------------------------------------------------------- */

struct tr_h2_stream *tr_h2_stream_new(struct tr_h2 *h, int32_t id)
{
    struct tr_h2_stream *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->h = h;
    s->id = id;
    s->since_ns = tr_now_ns();
    s->why = TR_GONE_RESET;
    tr_emit_init(&s->text);
    tr_emit_init(&s->cookie);
    tr_http_init(&s->http, h->d->lim->max_header);
    STAILQ_INIT(&s->deliveries);
    TAILQ_INSERT_TAIL(&h->open, s, open_link);
    h->n_open++;
    h->rearm = true;
    return s;
}

static void tell_first(struct tr_h2_stream *s)
{
    struct tr_delivered *d = STAILQ_FIRST(&s->deliveries);
    STAILQ_REMOVE_HEAD(&s->deliveries, link);
    d->done(d, tr_h2_acked(s));
}

void tr_h2_stream_gone(struct tr_h2_stream *s, enum tr_gone why)
{
    const struct tr_h2_service *service = s->service;
    s->service = NULL;
    s->ended = true;
    if (service)
        service->gone(s->state, why);
    s->state = NULL;
}

void tr_h2_stream_dying(struct tr_h2_stream *s)
{
    if (!s->is_dying)
        TAILQ_INSERT_TAIL(&s->h->dying, s, dying_link);
    s->is_dying = true;
    tr_conn_raw_mark(s->h->c);
}

static void drop_output(struct tr_h2_stream *s)
{
    s->h->d->stats->unsent_bytes -= tr_outbuf_len(&s->out);
    tr_outbuf_fini(&s->h->d->pool, &s->out);
    s->blocked_ns = 0;
    if (s->is_waiting)
        TAILQ_REMOVE(&s->h->waiting, s, waiting_link);
    s->is_waiting = false;
}

void tr_h2_stream_free(struct tr_h2_stream *s, enum tr_gone why)
{
    struct tr_h2 *h = s->h;
    tr_h2_stream_gone(s, why);
    while (!STAILQ_EMPTY(&s->deliveries))
        tell_first(s);
    drop_output(s);
    if (s->is_ready)
        TAILQ_REMOVE(&h->ready, s, ready_link);
    if (s->is_telling)
        TAILQ_REMOVE(&h->telling, s, telling_link);
    if (s->is_dying)
        TAILQ_REMOVE(&h->dying, s, dying_link);
    TAILQ_REMOVE(&h->open, s, open_link);
    h->n_open--;
    h->idle_ns = tr_now_ns();
    h->rearm = true;
    tr_h2_head_fini(s);
    tr_http_fini(&s->http);
    free(s->trailers);
    free(s);
}

/* ---- bytes ---------------------------------------------------------------------------------------- */

/* The library asks for the bytes of a frame. */
static ssize_t read_data(nghttp2_session *session, int32_t id, uint8_t *buf, size_t len,
                         uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct tr_h2_stream *s = source->ptr;
    struct tr_h2 *h = user;
    struct iovec v[2];
    size_t at = 0;
    (void)session, (void)id;
    for (int i = 0, n = tr_outbuf_parts(&s->out, v); i < n && at < len; i++) {
        size_t part = v[i].iov_len < len - at ? v[i].iov_len : len - at;
        memcpy(buf + at, v[i].iov_base, part);
        at += part;
    }
    tr_outbuf_drain(&h->d->pool, &s->out, at);
    h->d->stats->unsent_bytes -= at;
    s->emitting = at;
    h->emitting = s;
    if (tr_outbuf_len(&s->out) == 0 && s->finished) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (s->trailers_len) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            if (tr_h2_trailers_send(s))
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
    } else if (at == 0) {
        s->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)at;
}

static void crossed(struct tr_delivered *w, uint64_t acked)
{
    struct crossing *x = (struct crossing *)w;
    x->d->done(x->d, acked >= w->upto ? x->d->upto : x->acked);
    free(x);
}

/* All of them below `emitted` are the connection's affair now. */
static void deliver_emitted(struct tr_h2_stream *s)
{
    struct tr_delivered *d;
    while ((d = STAILQ_FIRST(&s->deliveries)) && d->upto <= s->marks.own) {
        struct crossing *x = malloc(sizeof(*x));
        if (!x) {
            tell_first(s);
            continue;
        }
        unsigned n = s->marks.n;
        *x =
            (struct crossing){.w = {.upto = n ? s->marks.mark[n - 1].conn_end : 0, .done = crossed},
                              .d = d,
                              .acked = s->marks.acked};
        STAILQ_REMOVE_HEAD(&s->deliveries, link);
        tr_conn_deliver(s->h->c, &x->w);
    }
}

void tr_h2_stream_emitted(struct tr_h2_stream *s)
{
    if (s->blocked_ns)
        s->want_writable = true;
    s->blocked_ns = 0;
    if (s->emitting)
        tr_marks_add(&s->marks, s->emitting, tr_conn_accepted(s->h->c));
    s->emitting = 0;
    deliver_emitted(s);
    if (tr_outbuf_len(&s->out))
        return;
    if (s->is_waiting)
        TAILQ_REMOVE(&s->h->waiting, s, waiting_link);
    s->is_waiting = false;
    if (!s->want_writable || s->ended || s->is_telling)
        return;
    s->want_writable = false;
    s->is_telling = true;
    TAILQ_INSERT_TAIL(&s->h->telling, s, telling_link);
    tr_conn_raw_mark(s->h->c);
}

void tr_h2_stream_refused(struct tr_h2_stream *s)
{
    if (s->blocked_ns)
        return;
    tr_outbuf_wait(&s->h->d->pool, &s->out);
    s->want_writable = true;
    s->blocked_ns = tr_now_ns();
    s->h->rearm = true;
}

static void wake(struct tr_h2_stream *s)
{
    if (s->deferred)
        nghttp2_session_resume_data(s->h->session, s->id);
    s->deferred = false;
    tr_conn_raw_mark(s->h->c);
}

static void taken(struct tr_h2_stream *s, size_t len)
{
    s->accepted += len;
    s->h->d->stats->unsent_bytes += len;
    if (tr_outbuf_len(&s->out) >= s->h->d->lim->stream_buffer)
        s->want_writable = true;
    if (!s->is_waiting)
        TAILQ_INSERT_TAIL(&s->h->waiting, s, waiting_link);
    s->is_waiting = true;
    wake(s);
}

static bool takes_bytes(const struct tr_h2_stream *s)
{
    return !s->ended && !s->closed && s->head_sent && !s->no_data;
}

void tr_h2_write(struct tr_h2_stream *s, const char *data, size_t len)
{
    if (len == 0 || !takes_bytes(s))
        return;
    if (tr_outbuf_add(&s->h->d->pool, &s->out, data, len))
        tr_h2_reset(s, TR_H2_INTERNAL_ERROR);
    else
        taken(s, len);
}

void tr_h2_give(struct tr_h2_stream *s, char *data, size_t len)
{
    if (len == 0 || !takes_bytes(s)) {
        free(data);
        return;
    }
    if (tr_outbuf_give(&s->h->d->pool, &s->out, data, len)) {
        free(data);
        tr_h2_reset(s, TR_H2_INTERNAL_ERROR);
    } else {
        taken(s, len);
    }
}

/* ---- head and end ----------------------------------------------------------------------------------- */

void tr_h2_head_lines(struct tr_h2_stream *s, int status, char *lines, size_t len, bool end)
{
    nghttp2_data_provider body = {.source.ptr = s, .read_callback = read_data};
    if (s->closed || s->ended)
        return;
    TR_ASSERT(!s->head_sent);
    s->head_sent = true;
    s->no_data = s->ended = s->finished = end;
    if (tr_h2_head_send(s, status, lines, len, end ? NULL : &body))
        tr_h2_reset(s, TR_H2_INTERNAL_ERROR);
    tr_conn_raw_mark(s->h->c);
}

/* As lines, which are the caller's to free; NULL: no memory. */
static char *lines_of(const struct tr_h2_field *f, size_t n, size_t *len)
{
    struct tr_emit e;
    tr_emit_init(&e);
    for (size_t i = 0; i < n; i++) {
        tr_emit_bytes(&e, f[i].name, strlen(f[i].name));
        tr_emit_bytes(&e, ": ", 2);
        tr_emit_bytes(&e, f[i].value, strlen(f[i].value));
        tr_emit_bytes(&e, "\r\n", 2);
    }
    if (e.failed)
        tr_emit_fini(&e);
    *len = e.len;
    return e.buf;
}

void tr_h2_head(struct tr_h2_stream *s, int status, const struct tr_h2_field *f, size_t n, bool end)
{
    size_t len;
    char *lines = lines_of(f, n, &len);
    if (lines || n == 0)
        tr_h2_head_lines(s, status, lines, len, end);
    else
        tr_h2_reset(s, TR_H2_INTERNAL_ERROR);
    free(lines);
}

void tr_h2_end(struct tr_h2_stream *s, const struct tr_h2_field *f, size_t n)
{
    if (!takes_bytes(s))
        return;
    if (n && !(s->trailers = lines_of(f, n, &s->trailers_len))) {
        tr_h2_reset(s, TR_H2_INTERNAL_ERROR);
        return;
    }
    s->ended = s->finished = true;
    wake(s);
}

/* What was written in this turn leaves before it, if it may. */
void tr_h2_reset(struct tr_h2_stream *s, uint32_t code)
{
    s->ended = true;
    if (s->closed || s->resetting)
        return;
    s->resetting = true;
    s->reset_code = code;
    tr_h2_stream_dying(s);
}

void tr_h2_flush(struct tr_h2_stream *s)
{
    tr_h2_send(s->h);
    tr_conn_raw_flush(s->h->c);
}

void tr_h2_consume(struct tr_h2_stream *s, size_t len)
{
    if (!s->closed)
        nghttp2_session_consume_stream(s->h->session, s->id, len);
    tr_conn_raw_mark(s->h->c);
}

/* ---- counts ------------------------------------------------------------------------------------------- */

size_t tr_h2_unsent(const struct tr_h2_stream *s)
{
    return tr_outbuf_len(&s->out);
}

size_t tr_h2_room(struct tr_h2_stream *s)
{
    size_t unsent = tr_outbuf_len(&s->out), bound = s->h->d->lim->stream_buffer;
    if (unsent < bound && !s->blocked_ns)
        return bound - unsent;
    s->want_writable = true;
    return 0;
}

uint64_t tr_h2_accepted(const struct tr_h2_stream *s)
{
    return s->accepted;
}

uint64_t tr_h2_acked(struct tr_h2_stream *s)
{
    return tr_marks_acked(&s->marks, tr_conn_acked(s->h->c));
}

uint64_t tr_h2_blocked_ns(const struct tr_h2_stream *s)
{
    return s->blocked_ns;
}

bool tr_h2_half_closed(const struct tr_h2_stream *s)
{
    return s->h->fin;
}

void tr_h2_deliver(struct tr_h2_stream *s, struct tr_delivered *d)
{
    d->until_ns = tr_now_ns() + GIVE_UP_NS;
    STAILQ_INSERT_TAIL(&s->deliveries, d, link);
    s->h->rearm = true;
    tr_conn_raw_mark(s->h->c);
    deliver_emitted(s);
}

void tr_h2_stream_delivery_clock(struct tr_h2_stream *s, uint64_t now)
{
    while (!STAILQ_EMPTY(&s->deliveries) && STAILQ_FIRST(&s->deliveries)->until_ns <= now)
        tell_first(s);
}

bool tr_h2_is_overfull(struct tr_h2_stream *s)
{
    if (!s->h->overfull)
        return false;
    s->h->d->stats->turned_away++;
    tr_h2_last_word(s->h);
    return true;
}

void tr_h2_ping(struct tr_h2_stream *s)
{
    tr_h2_ping_conn(s->h);
}

struct tr_httpd *tr_h2_httpd(struct tr_h2_stream *s)
{
    return s->h->d;
}

const struct tr_peer *tr_h2_peer(const struct tr_h2_stream *s)
{
    return &s->h->c->peer;
}

uint64_t tr_h2_arrived_ns(const struct tr_h2_stream *s)
{
    return s->since_ns;
}

size_t tr_h2_stream_bytes(void)
{
    return sizeof(struct tr_h2_stream) + tr_h2_http_bytes();
}

void tr_h2_serve(struct tr_httpd *d, const struct tr_h2_service *service, void *ctx)
{
    TR_ASSERT(d->n_services < TR_H2_SERVICES);
    d->service[d->n_services].service = service;
    d->service[d->n_services++].ctx = ctx;
}
