/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/h2.c - one connection of HTTP/2: frames in, frames out, its clocks and its end. */
#include "frontend/h2_priv.h"

#include "base/assert.h"
#include "base/clock.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000ull
#define LAST_WORD_NS SECOND /* from the first GOAWAY of a drain to the second, if no PING answers */

enum {
    MAX_CONTINUATIONS = 8, /* frames of a head beyond the first */
    ACKS = 256,            /* of SETTINGS and PING that wait for room in the socket */
    SETTINGS_ENTRIES = 32,
    RESET_BURST = 1000, /* streams that a client may reset at once ... */
    RESETS_PER_S = 33,  /* ... and from then on */
    TOKENS = 10000,     /* frames without a byte of a body that may come at once ... */
    TOKENS_PER_S = 1000,
    TOKENS_FOR_DATA = 4 /* ... more for each frame of an answer: windows are told of it */
};

static const char preface[] = "PRI * HTTP/2.0\r\n";

/* ---- the library's memory -------------------------------------------------------------------- */

static bool grow(struct tr_h2 *h, size_t from, size_t to)
{
    if (to > from && h->memory + to - from > TR_H2_MEMORY)
        return false;
    h->memory += to - from;
    return true;
}

static void *mem_malloc(size_t size, void *user)
{
    struct tr_h2 *h = user;
    void *p = h->memory + size <= TR_H2_MEMORY ? malloc(size ? size : 1) : NULL;
    if (p)
        h->memory += malloc_usable_size(p);
    return p;
}

static void mem_free(void *p, void *user)
{
    struct tr_h2 *h = user;
    h->memory -= p ? malloc_usable_size(p) : 0;
    free(p);
}

static void *mem_calloc(size_t n, size_t size, void *user)
{
    if (size && n > TR_H2_MEMORY / size)
        return NULL;
    void *p = mem_malloc(n * size, user);
    if (p)
        memset(p, 0, n * size);
    return p;
}

static void *mem_realloc(void *p, size_t size, void *user)
{
    struct tr_h2 *h = user;
    size_t old = p ? malloc_usable_size(p) : 0;
    if (!grow(h, old, size))
        return NULL;
    void *q = realloc(p, size);
    h->memory += (q ? malloc_usable_size(q) : old) - size;
    return q;
}

/* ---- what comes ------------------------------------------------------------------------------- */

static struct tr_h2_stream *stream_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

/* Frames that carry nothing cost a token each. */
static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user)
{
    struct tr_h2 *h = user;
    uint64_t now = tr_now_ns(), more = (now - h->tokens_ns) / (SECOND / TOKENS_PER_S);
    if (hd->type == NGHTTP2_DATA && hd->length > 0)
        return 0;
    if (more) {
        h->tokens = more < TOKENS - h->tokens ? h->tokens + (unsigned)more : TOKENS;
        h->tokens_ns = now;
    }
    if (h->tokens && --h->tokens == 0) {
        h->peer_broke = true;
        nghttp2_session_terminate_session(session, NGHTTP2_ENHANCE_YOUR_CALM);
    }
    return 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct tr_h2 *h = user;
    int32_t id = frame->hd.stream_id;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct tr_h2_stream *s = tr_h2_stream_new(h, id);
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(session, id, s);
    /* No stream of a client goes before another one of its own. */
    nghttp2_extpri fair = {.urgency = NGHTTP2_EXTPRI_DEFAULT_URGENCY, .inc = 1};
    nghttp2_session_change_extpri_stream_priority(session, id, &fair, 1);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    (void)flags, (void)user;
    struct tr_h2_stream *s = stream_of(session, frame->hd.stream_id);
    if (s && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        tr_h2_head_field(s, (struct tr_slice){(const char *)name, name_len},
                         (struct tr_slice){(const char *)value, value_len});
    return 0;
}

/* What the library would pass over in silence. */
static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
                             const uint8_t *name, size_t name_len, const uint8_t *value,
                             size_t value_len, uint8_t flags, void *user)
{
    (void)name, (void)name_len, (void)value, (void)value_len, (void)flags, (void)user;
    nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                              NGHTTP2_PROTOCOL_ERROR);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static void request_whole(struct tr_h2_stream *s)
{
    s->whole = true;
    if (s->service)
        s->service->end(s->state);
}

static void request_headed(struct tr_h2_stream *s, bool end)
{
    struct tr_httpd *d = s->h->d;
    void *ctx = NULL;
    tr_h2_head_done(s, end);
    s->headed = true;
    s->service = &tr_h2_http;
    for (unsigned i = 0; i < d->n_services && s->bad == TR_OK && s->service == &tr_h2_http; i++)
        if (d->service[i].service->takes(d->service[i].ctx, &s->http)) {
            s->service = d->service[i].service;
            ctx = d->service[i].ctx;
        }
    s->h->served_one = true;
    s->h->rearm = true;
    s->state = s->service->open(ctx, s, &s->http);
    if (!s->state) { /* out of memory */
        s->service = NULL;
        tr_h2_reset(s, TR_H2_INTERNAL_ERROR);
    }
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct tr_h2 *h = user;
    struct tr_h2_stream *s = stream_of(session, frame->hd.stream_id);
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK)) {
        h->ping_ns = 0;
        if (h->drain_ns)
            tr_h2_last_word(h);
    }
    if (!s || (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        request_headed(s, end);
    if (end)
        request_whole(s);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t len, void *user)
{
    (void)flags, (void)user;
    struct tr_h2_stream *s = stream_of(session, id);
    /* The connection's window is everybody's; what a stream may send is its own affair. */
    nghttp2_session_consume_connection(session, len);
    if (!s || !s->service || len == 0)
        return 0;
    s->body_seen += len;
    s->piece_ns = tr_now_ns();
    s->service->data(s->state, (const char *)data, len);
    return 0;
}

/* The library forgets it.  It may be our own doing, with its user on the stack. */
static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
    struct tr_h2 *h = user;
    struct tr_h2_stream *s = stream_of(session, id);
    if (!s)
        return 0;
    nghttp2_session_set_stream_user_data(session, id, NULL);
    s->closed = true;
    s->why = s->ended && code == NGHTTP2_NO_ERROR ? TR_GONE_SHUT : TR_GONE_RESET;
    if (h->receiving)
        tr_h2_stream_gone(s, s->why); /* in the turn in which it is read, before anything else */
    tr_h2_stream_dying(s);
    return 0;
}

/* Who has its answer before it has sent all of its request need not send the rest (RFC 9113 8.1). */
static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct tr_h2 *h = user;
    if (frame->hd.type == NGHTTP2_DATA)
        h->tokens =
            h->tokens + TOKENS_FOR_DATA < TOKENS ? h->tokens + TOKENS_FOR_DATA : (unsigned)TOKENS;
    if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    struct tr_h2_stream *s = stream_of(session, frame->hd.stream_id);
    if (s && !s->whole && frame->hd.type != NGHTTP2_PUSH_PROMISE)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_NO_ERROR);
    return 0;
}

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
    uint64_t at = sooner(idle_deadline(h), ping_deadline(h)), now = tr_now_ns();
    if (h->drain_ns && !h->last_said)
        at = sooner(at, h->drain_ns + LAST_WORD_NS);
    TAILQ_FOREACH(s, &h->open, open_link)
    at = sooner(at, stream_deadline(s));
    h->rearm = false;
    if (!at || (h->armed_ns && h->armed_ns <= at))
        return;
    uint64_t left = at > now ? at - now : 0;
    struct timeval tv = {(time_t)(left / SECOND), (suseconds_t)(left % SECOND / 1000 + 1)};
    if (tv.tv_usec >= 1000000)
        tv = (struct timeval){tv.tv_sec + 1, 0};
    if (event_add(&h->timer, &tv) == 0)
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
        s->h->d->stats.slow_clients++;
        tr_h2_stream_gone(s, TR_GONE_SLOW);
        tr_h2_reset(s, TR_H2_CANCEL);
        return;
    }
    at = s->headed ? 0 : plus(s->since_ns, l->header_timeout_ns);
    if (at && at <= now) {
        s->h->d->stats.timeouts++;
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

static nghttp2_session_callbacks *make_callbacks(void)
{
    nghttp2_session_callbacks *cb;
    if (nghttp2_session_callbacks_new(&cb))
        return NULL;
    nghttp2_session_callbacks_set_on_begin_frame_callback(cb, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(cb, on_invalid_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
    return cb;
}

static nghttp2_option *make_options(void)
{
    nghttp2_option *o;
    if (nghttp2_option_new(&o))
        return NULL;
    nghttp2_option_set_no_auto_window_update(o, 1);
    nghttp2_option_set_max_continuations(o, MAX_CONTINUATIONS);
    nghttp2_option_set_max_outbound_ack(o, ACKS);
    nghttp2_option_set_max_settings(o, SETTINGS_ENTRIES);
    nghttp2_option_set_stream_reset_rate_limit(o, RESET_BURST, RESETS_PER_S);
    return o;
}

static int open_session(struct tr_h2 *h)
{
    nghttp2_mem mem = {.mem_user_data = h,
                       .malloc = mem_malloc,
                       .free = mem_free,
                       .calloc = mem_calloc,
                       .realloc = mem_realloc};
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, TR_H2_STREAMS},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)h->d->lim->max_header},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    nghttp2_session_callbacks *cb = make_callbacks();
    nghttp2_option *o = make_options();
    int ret = cb && o ? nghttp2_session_server_new3(&h->session, cb, h, o, &mem) : -1;
    nghttp2_session_callbacks_del(cb);
    nghttp2_option_del(o);
    if (ret == 0)
        ret = nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings,
                                      sizeof(settings) / sizeof(settings[0]));
    return ret;
}

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
    h->idle_ns = h->sent_ns = h->tokens_ns = tr_now_ns();
    h->tokens = TOKENS;
    TAILQ_INIT(&h->open);
    TAILQ_INIT(&h->ready);
    TAILQ_INIT(&h->waiting);
    TAILQ_INIT(&h->telling);
    TAILQ_INIT(&h->dying);
    evtimer_assign(&h->timer, c->d->base, on_timer, h);
    if (open_session(h)) {
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
