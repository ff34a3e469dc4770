/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/h2_session.c - the library's session of one connection: its memory, what it says has come, its
 * limits. */
#include "frontend/h2_priv.h"

#include "base/clock.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000ull

enum {
    MAX_CONTINUATIONS = 8, /* frames of a head beyond the first */
    ACKS = 256,            /* of SETTINGS and PING that wait for room in the socket */
    SETTINGS_ENTRIES = 32,
    RESET_BURST = 1000,   /* streams that a client may reset at once ... */
    RESETS_PER_S = 33,    /* ... and from then on */
    LITTLE_BYTES = 65535, /* of a body that nobody needs any more: the first window */
    TOKENS = 10000,       /* frames without a byte of a body that may come at once ... */
    TOKENS_PER_S = 1000,
    TOKENS_FOR_DATA = 4 /* ... more for each frame of an answer: windows are told of it */
};

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

/* What is left of the body is little, and sure to come. */
static bool ends_soon(const struct tr_h2_stream *s)
{
    const struct tr_http *http = &s->http;
    return s->has_length && !http->expect_continue &&
           http->content_length - s->body_seen <= LITTLE_BYTES;
}

/* Who has its answer before it has sent all of its request need not send the rest (RFC 9113 8.1).  There
 * are clients that take that reset for a failure of the answer: what is little is awaited, as long as a
 * body may take. */
static void answered_early(struct tr_h2_stream *s)
{
    if (!ends_soon(s)) {
        nghttp2_submit_rst_stream(s->h->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_NO_ERROR);
        return;
    }
    s->body_ns = s->piece_ns = tr_now_ns();
    s->h->rearm = true;
}

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
        answered_early(s);
    return 0;
}

/* ---- the session ---------------------------------------------------------------------------- */

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

int tr_h2_session_open(struct tr_h2 *h)
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
    h->tokens_ns = tr_now_ns();
    h->tokens = TOKENS;
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
