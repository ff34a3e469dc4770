/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stream.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* After [DONE] the end of the body is awaited this long: it tells whether the end was clean, and
 * a server that watches its sockets does not see a stranger's hang-up. */
#define LINGER_NS 2000000000u

/* What a slow reader leaves in the kernel must not look as if it were read. */
#define SLOW_RCVBUF 4096

enum ending { END_CLEAN, END_CUT, END_FAULT, END_EXPIRED, END_HUNG_UP, END_REFUSED };

const char *tr_outcome_name(enum tr_outcome o)
{
    static const char *const names[TR_OUT_COUNT] = {
        [TR_OUT_COMPLETE] = "complete",   [TR_OUT_TRUNCATED] = "truncated",
        [TR_OUT_ERROR] = "error",         [TR_OUT_TIMEOUT] = "timeout",
        [TR_OUT_MALFORMED] = "malformed", [TR_OUT_REFUSED] = "refused",
        [TR_OUT_ABORTED] = "aborted",
    };
    return (unsigned)o < TR_OUT_COUNT ? names[o] : "?";
}

static void settle(struct tr_record *r, enum tr_outcome o, const char *detail)
{
    r->outcome = o;
    tr_copy_clean(r->detail, sizeof(r->detail), detail, strlen(detail));
}

/* Reasons that some servers give for a stream they broke off themselves. */
static bool finish_means_broken(const char *finish)
{
    static const char *const broken[] = {"abort", "aborted", "cancelled", "canceled", "error"};
    for (size_t i = 0; i < sizeof(broken) / sizeof(*broken); i++)
        if (!strcasecmp(finish, broken[i]))
            return true;
    return false;
}

/* A body that is no event stream: an error object, or an answer that was not streamed. */
static void settle_plain(struct tr_client_stream *s)
{
    struct tr_record *r = s->rec;
    struct tr_chunk c;
    char why[256];
    tr_chunk_read(&c, "", s->plain, s->plain_len);
    snprintf(why, sizeof(why), "status %d%s%s", r->http_status, c.error[0] ? ", " : "", c.error);
    if (r->http_status != 200 || c.kind == TR_CHUNK_ERROR) {
        settle(r, TR_OUT_ERROR, why);
    } else {
        snprintf(why, sizeof(why), "content-type %s instead of an event stream",
                 s->http.content_type);
        settle(r, TR_OUT_MALFORMED, why);
    }
    tr_chunk_fini(&c);
}

static void settle_finished(struct tr_record *r)
{
    char why[80];
    if (finish_means_broken(r->finish)) {
        snprintf(why, sizeof(why), "finish_reason \"%s\"", r->finish);
        settle(r, TR_OUT_TRUNCATED, why);
    } else {
        settle(r, TR_OUT_COMPLETE, "");
    }
}

static void keep_text(struct tr_client_stream *s, const char *text, size_t len)
{
    struct tr_record *r = s->rec;
    if (!r->text_len)
        r->text_hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < len; i++)
        r->text_hash = (r->text_hash ^ (unsigned char)text[i]) * 0x100000001B3u;
    /* Whole deltas only, and none after one that did not fit: what is kept stays valid UTF-8 and
     * a true beginning. */
    bool keep = s->rules->keep_text && len && r->text_kept == r->text_len &&
                len <= TR_STREAM_TEXT_MAX - r->text_kept;
    r->text_len += len;
    if (!keep)
        return;
    char *p = realloc(r->text, r->text_kept + len);
    if (!p)
        return;
    memcpy(p + r->text_kept, text, len);
    r->text = p;
    r->text_kept += len;
}

/* An answer that was not to be streamed. */
static void settle_whole(struct tr_client_stream *s)
{
    struct tr_record *r = s->rec;
    struct tr_chunk c;
    tr_chunk_read(&c, "", s->whole.p ? s->whole.p : "", s->whole.len);
    if (c.kind == TR_CHUNK_ERROR) {
        settle(r, TR_OUT_ERROR, c.error);
    } else if (c.kind != TR_CHUNK_PLAIN || !c.finish[0]) {
        settle(r, TR_OUT_MALFORMED, "an answer without a finish_reason");
    } else {
        r->has_usage = c.has_usage;
        r->usage = c.usage;
        memcpy(r->finish, c.finish, sizeof(r->finish));
        keep_text(s, c.text ? c.text : "", c.text_len);
        settle_finished(r);
    }
    tr_chunk_fini(&c);
}

static void finish(struct tr_client_stream *s, enum ending how, const char *why)
{
    struct tr_record *r = s->rec;
    if (!r->end_ns)
        r->end_ns = tr_now_ns();
    r->comments = s->sse.comments;

    if (how == END_REFUSED)
        settle(r, TR_OUT_REFUSED, why);
    else if (how == END_HUNG_UP)
        settle(r, TR_OUT_ABORTED, *why ? why : "hung up on purpose");
    else if (s->has_error)
        settle(r, TR_OUT_ERROR, s->error[0] ? s->error : "an error object without a message");
    else if (s->rules->whole && r->http_status == 200 && how == END_CLEAN)
        settle_whole(s);
    else if (r->http_status >= 400 || (how == END_CLEAN && !s->event_stream))
        settle_plain(s);
    else if (r->undecodable)
        settle(r, TR_OUT_MALFORMED, "an event that is not JSON");
    else if (r->finish[0] && (r->done || how == END_CLEAN)) {
        settle_finished(r);
        r->late_cut = how != END_CLEAN && r->outcome == TR_OUT_COMPLETE;
    } else if (r->done)
        settle(r, TR_OUT_TRUNCATED, "[DONE] without a finish_reason");
    else if (how == END_EXPIRED)
        settle(r, TR_OUT_TIMEOUT, why);
    else if (how == END_FAULT)
        settle(r, TR_OUT_MALFORMED, why);
    else
        settle(r, TR_OUT_TRUNCATED, how == END_CUT ? why : "ended without a finish_reason");
}

static void note_content(struct tr_client_stream *s)
{
    struct tr_record *r = s->rec;
    if (r->last_ns) {
        uint64_t gap = s->now_ns - r->last_ns;
        tr_samples_add(s->gaps, (double)gap / 1e6);
        if (gap > r->gap_max_ns)
            r->gap_max_ns = gap;
    } else {
        r->first_ns = s->now_ns;
    }
    r->last_ns = s->now_ns;
    r->content_events++;
}

static int note_chunk(struct tr_client_stream *s, const struct tr_chunk *c)
{
    struct tr_record *r = s->rec;
    if (c->has_usage) {
        r->has_usage = true;
        r->usage = c->usage;
    }
    if (c->finish[0] && !r->finish[0])
        memcpy(r->finish, c->finish, sizeof(r->finish));
    if (c->text)
        keep_text(s, c->text, c->text_len);
    if (!c->has_content)
        return 0;
    note_content(s);
    return s->rules->abort_after && r->content_events >= s->rules->abort_after ? -ECANCELED : 0;
}

static int on_event(void *ctx, const struct tr_sse_event *ev)
{
    struct tr_client_stream *s = ctx;
    struct tr_record *r = s->rec;
    struct tr_chunk c;
    int rc = 0;
    r->events++;
    if (r->done) {
        r->after_done++;
        return 0;
    }
    tr_chunk_read(&c, ev->name, ev->data, ev->data_len);
    switch (c.kind) {
    case TR_CHUNK_PLAIN:
        rc = note_chunk(s, &c);
        break;
    case TR_CHUNK_DONE:
        r->done = true;
        r->end_ns = s->now_ns;
        if (s->now_ns + LINGER_NS < s->deadline_ns)
            s->deadline_ns = s->now_ns + LINGER_NS;
        break;
    case TR_CHUNK_ERROR:
        if (!s->has_error)
            memcpy(s->error, c.error, sizeof(s->error));
        s->has_error = true;
        break;
    case TR_CHUNK_FOREIGN:
        r->foreign++;
        break;
    case TR_CHUNK_EMPTY:
        r->empty++;
        break;
    case TR_CHUNK_BAD:
        r->undecodable++;
        break;
    }
    tr_chunk_fini(&c);
    return rc;
}

static void on_head(void *ctx, const struct tr_httpc *h)
{
    struct tr_client_stream *s = ctx;
    s->rec->http_status = h->status;
    s->rec->head_ns = s->now_ns;
    s->rec->retry_after = h->has_retry_after;
    /* A server that forgets the type still gets its events read; one that says JSON is believed. */
    s->event_stream = h->status == 200 && !s->rules->whole &&
                      strncmp(h->content_type, "application/json", 16) != 0;
}

static int on_body(void *ctx, const char *bytes, size_t len)
{
    struct tr_client_stream *s = ctx;
    s->body_read += len;
    if (s->event_stream)
        return tr_sse_parser_push(&s->sse, bytes, len);
    if (s->rules->whole && s->rec->http_status == 200)
        return s->whole.len + len > TR_STREAM_EVENT_MAX ? -EMSGSIZE
                                                        : tr_buf_append(&s->whole, bytes, len);
    size_t room = sizeof(s->plain) - s->plain_len;
    if (len > room)
        len = room;
    memcpy(s->plain + s->plain_len, bytes, len);
    s->plain_len += len;
    return 0;
}

/* What the parsers said about the bytes at hand.  True when the record is settled. */
static bool act_on(struct tr_client_stream *s, int rc)
{
    if (rc == 1 && s->event_stream) {
        int end = tr_sse_parser_end(&s->sse);
        rc = end < 0 ? end : 1;
    }
    if (!rc)
        return false;
    if (rc == 1)
        finish(s, END_CLEAN, "");
    else if (rc == -ECANCELED)
        finish(s, END_HUNG_UP, "");
    else if (rc == -EPIPE)
        finish(s, END_CUT, s->http.fault);
    else if (rc == -EMSGSIZE)
        finish(s, END_FAULT, "an event over 4 MiB");
    else
        finish(s, END_FAULT, rc == -EPROTO && s->http.fault ? s->http.fault : strerror(-rc));
    return true;
}

/* A slow reader still wants to know whether it was let in: the length of the head at hand, or all
 * there is when its end is not in sight. */
static size_t head_len(int fd, char *buf, size_t size)
{
    ssize_t n = recv(fd, buf, size, MSG_PEEK);
    if (n <= 0)
        return size;
    const char *end = memmem(buf, (size_t)n, "\r\n\r\n", 4);
    return end ? (size_t)(end - buf) + 4 : (size_t)n;
}

/* What a slow reader may have read of the body by now, less what it has; 0 with wake_ns. */
static size_t share(struct tr_client_stream *s, uint64_t now_ns)
{
    const struct tr_record *r = s->rec;
    double bps = s->rules->read_bps;
    s->paused = false;
    if (!s->rules->paced || r->http_status != 200)
        return SIZE_MAX;
    /* Some ten reads a second, or a byte at a time. */
    double least = bps / 10 < 1 ? 1 : bps / 10;
    double may = (double)(now_ns - r->head_ns) / 1e9 * bps - (double)s->body_read;
    if (may >= least)
        return may < 65536 ? (size_t)may : 65536;
    s->paused = true;
    s->wake_ns = bps > 0 ? now_ns + (uint64_t)((least - may) / bps * 1e9) + 1000000 : UINT64_MAX;
    return 0;
}

static bool read_some(struct tr_client_stream *s)
{
    char buf[65536];
    size_t most = share(s, tr_now_ns());
    if (!most)
        return false;
    if (most > sizeof(buf))
        most = sizeof(buf);
    if (s->rules->paced && !s->rec->head_ns)
        most = head_len(s->fd, buf, most);
    ssize_t n = recv(s->fd, buf, most, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    s->now_ns = tr_now_ns();
    if (n > 0)
        return act_on(s, tr_httpc_push(&s->http, buf, (size_t)n));
    if (n == 0)
        return act_on(s, tr_httpc_eof(&s->http));
    /* A reset is a cut wherever it comes; a body without a length cannot end with one. */
    finish(s, END_CUT, strerror(errno));
    return true;
}

/* True when the stream has to end: the connection did not come about. */
static bool check_connected(struct tr_client_stream *s)
{
    int soerr = 0;
    socklen_t n = sizeof(soerr);
    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &soerr, &n))
        soerr = errno;
    if (soerr) {
        finish(s, END_REFUSED, strerror(soerr));
        return true;
    }
    struct sockaddr_storage peer;
    n = sizeof(peer);
    if (!getpeername(s->fd, (struct sockaddr *)&peer, &n)) {
        s->connecting = false;
        s->rec->connect_ns = tr_now_ns();
    }
    return false;
}

bool tr_client_stream_io(struct tr_client_stream *s)
{
    if (s->connecting && check_connected(s))
        return true;
    if (s->connecting)
        return false;
    if (s->req_sent < s->req_len) {
        ssize_t n = send(s->fd, s->req + s->req_sent, s->req_len - s->req_sent, MSG_NOSIGNAL);
        if (n > 0)
            s->req_sent += (size_t)n;
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            s->req_sent = s->req_len; /* it may have answered early and closed: read on */
    }
    return read_some(s);
}

bool tr_client_stream_wants_write(const struct tr_client_stream *s)
{
    return s->connecting || s->req_sent < s->req_len;
}

bool tr_client_stream_wants_read(struct tr_client_stream *s, uint64_t now_ns)
{
    return share(s, now_ns) > 0;
}

void tr_client_stream_hang_up(struct tr_client_stream *s, const char *why)
{
    finish(s, END_HUNG_UP, why);
}

void tr_client_stream_cut(struct tr_client_stream *s)
{
    int soerr = 0;
    socklen_t n = sizeof(soerr);
    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &soerr, &n) || !soerr)
        soerr = ECONNRESET;
    finish(s, END_CUT, strerror(soerr));
}

void tr_client_stream_expire(struct tr_client_stream *s)
{
    const char *where = s->connecting       ? "while connecting"
                        : !s->rec->head_ns  ? "before the head"
                        : !s->rec->first_ns ? "before any content"
                                            : "within the stream";
    finish(s, s->connecting ? END_REFUSED : END_EXPIRED, where);
}

bool tr_client_stream_start(struct tr_client_stream *s, const struct tr_url *url, const char *req,
                            size_t req_len, const struct tr_client_stream_rules *rules,
                            struct tr_record *rec, struct tr_samples *gaps)
{
    static const struct tr_httpc_ops ops = {on_head, on_body};
    memset(s, 0, offsetof(struct tr_client_stream, http));
    s->req = req;
    s->req_len = req_len;
    s->rules = rules;
    s->rec = rec;
    s->gaps = gaps;
    tr_httpc_init(&s->http, TR_STREAM_BODY_MAX, &ops, s);
    tr_sse_parser_init(&s->sse, TR_STREAM_EVENT_MAX, on_event, s);
    rec->start_ns = tr_now_ns();
    s->deadline_ns = rec->start_ns + rules->timeout_ns;
    s->connecting = true;
    s->fd = tr_url_connect(url, rules->paced ? SLOW_RCVBUF : 0);
    if (s->fd >= 0)
        return false;
    finish(s, END_REFUSED, strerror(-s->fd));
    s->fd = -1;
    return true;
}

void tr_client_stream_fini(struct tr_client_stream *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    tr_sse_parser_fini(&s->sse);
    free(s->whole.p);
    s->whole = (struct tr_buf){0};
}

void tr_record_fini(struct tr_record *r)
{
    free(r->text);
    r->text = NULL;
}
