/* SPDX-License-Identifier: Apache-2.0 */
/* Reading: bytes to the parser, requests to their handlers, one after the other. */
#include "base/clock.h"
#include "frontend/conn_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <uuid/uuid.h>

#define LOOK_NS 2000000000ull /* for a client that is no longer listened to */

enum {
    READS_PER_TURN = 16,        /* then the others get their turn */
    BODIES_PER_TURN = 16 << 10, /* bytes: what a handler makes of more takes others' time */
    BODY_FIRST_BYTES = 64 << 10
};

/* ---- requests -------------------------------------------------------------------------- */

/* The client's x-request-id if it is short and printable, else one of ours. */
void tr_conn_take_id(struct tr_conn *c)
{
    struct tr_slice v = tr_http_field(&c->http, "x-request-id");
    bool good = v.len > 0 && v.len <= TR_CONN_ID_BYTES;
    for (size_t i = 0; good && i < v.len; i++)
        good = v.p[i] > 0x20 && v.p[i] < 0x7f;
    if (good) {
        memcpy(c->request_id, v.p, v.len);
        c->request_id[v.len] = '\0';
        return;
    }
    uuid_t u;
    uuid_generate_random(u);
    uuid_unparse_lower(u, c->request_id);
}

/* What is wrong with a request whose head is fine, before its body; the answer has then been
 * given.  The order is that of what a client may know: what this is, who asks, how much. */
static bool refused(struct tr_conn *c)
{
    const struct tr_httpd *d = c->d;
    const struct tr_http *h = &c->http;
    unsigned allow;
    if (c->overfull) {
        c->keep = false;
        c->d->stats.turned_away++;
        tr_exchange_error(&c->x, TR_ERR_CONNECTIONS, NULL, NULL);
        return true;
    }
    if (h->refuse != TR_OK || h->method == TR_HTTP_OTHER) {
        tr_exchange_error(&c->x, h->refuse != TR_OK ? h->refuse : TR_ERR_NOT_IMPLEMENTED, NULL,
                          NULL);
        return true;
    }
    c->x.error_body = tr_route_errors(d->ops.routes, d->ops.n_routes, h->path);
    c->rq.route =
        tr_route_find(d->ops.routes, d->ops.n_routes, h->method, h->path, &c->rq.id_param, &allow);
    if (h->method == TR_HTTP_OPTIONS && (allow || (h->path.len == 1 && h->path.p[0] == '*'))) {
        tr_conn_preflight(c, allow);
        return true;
    }
    if (!c->rq.route) {
        if (allow) {
            char buf[96];
            tr_route_allow(allow, buf);
            tr_exchange_header(&c->x, "Allow", buf);
        }
        tr_exchange_error(&c->x, allow ? TR_ERR_METHOD : TR_ERR_NOT_FOUND, NULL, NULL);
        return true;
    }
    const char *why = NULL;
    enum tr_err e = TR_OK;
    if (d->ops.check && !(c->rq.route->flags & TR_ROUTE_OPEN))
        e = d->ops.check(d->ops.ctx, &c->rq, &why);
    if (e == TR_OK && h->content_length > d->lim->max_body)
        e = TR_ERR_BODY_TOO_LARGE;
    if (e == TR_OK && h->has_body && !tr_route_json_type(tr_http_field(h, "content-type")))
        e = TR_ERR_MEDIA_TYPE;
    if (e == TR_ERR_DRAINING) /* also in the turn before tr_httpd_drain */
        c->keep = false;
    if (e != TR_OK)
        tr_exchange_error(&c->x, e, why, NULL);
    return e != TR_OK;
}

static void begin_request(struct tr_conn *c)
{
    struct tr_http *h = &c->http;
    c->d->stats.requests++;
    c->keep = h->keep_alive && !tr_httpd_is_ending(c->d);
    c->no_body = h->method == TR_HTTP_HEAD_METHOD;
    c->x.error_body = NULL;
    c->body_ns = c->piece_ns = tr_now_ns();
    tr_conn_take_id(c);
    c->rq =
        (struct tr_http_request){.http = h, .request_id = c->request_id, .arrived_ns = c->since_ns};
    if (refused(c) || !h->expect_continue)
        return;
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (tr_outbuf_add(&c->d->pool, &c->out, go_on, sizeof(go_on) - 1))
        c->broken = ENOMEM;
    else
        c->accepted += sizeof(go_on) - 1, c->d->stats.unsent_bytes += sizeof(go_on) - 1;
    tr_conn_mark(c);
}

/* A small body always has its place; the large ones share theirs, so that many clients who each send
 * all but the last byte do not take all memory. */
static bool body_room(struct tr_conn *c, size_t need)
{
    if (need <= c->body_cap)
        return true;
    size_t cap = c->body_cap ? c->body_cap * 2 : BODY_FIRST_BYTES;
    while (cap < need)
        cap *= 2;
    if (!c->http.chunked && cap > c->http.content_length)
        cap = (size_t)c->http.content_length;
    if (cap > BODY_FIRST_BYTES &&
        c->d->stats.body_bytes + cap - c->body_cap > c->d->lim->max_bodies)
        return false;
    char *p = realloc(c->body, cap);
    if (!p)
        return false;
    c->d->stats.body_bytes += cap - c->body_cap;
    c->body = p;
    c->body_cap = cap;
    return true;
}

static void body_piece(struct tr_conn *c, struct tr_slice piece)
{
    c->body_seen += piece.len;
    c->piece_ns = tr_now_ns();
    if (c->answered)
        return;
    if (piece.len > c->d->lim->max_body - c->body_len) {
        c->keep = false;
        tr_exchange_error(&c->x, TR_ERR_BODY_TOO_LARGE, NULL, NULL);
    } else if (!body_room(c, c->body_len + piece.len)) {
        c->keep = false;
        c->d->stats.turned_away++;
        tr_exchange_error(&c->x, TR_ERR_OVERLOADED,
                          "Too many large bodies are on their way; try again soon.", NULL);
    } else {
        memcpy(c->body + c->body_len, piece.p, piece.len);
        c->body_len += piece.len;
    }
}

char *tr_conn_take_body(struct tr_conn *c)
{
    char *body = c->body;
    c->d->stats.body_bytes -= c->body_cap;
    c->body = NULL;
    c->body_len = c->body_cap = 0;
    return body;
}

/* The answer to the present request has ended and nothing of its body is still to come. */
static void next_request(struct tr_conn *c)
{
    bool was_busy = c->state == TR_CONN_BUSY;
    c->d->stats.busy -= was_busy;
    free(tr_conn_take_body(c));
    c->body_seen = 0;
    c->body_ns = 0;
    c->extra_len = 0;
    c->request_id[0] = '\0';
    c->answered = c->answer_done = c->head_sent = c->chunked_out = c->no_body = false;
    c->want_writable = false;
    if (!c->keep || c->d->draining) { /* a stream's head may have gone out before the drain */
        c->state = TR_CONN_CLOSING;
        return;
    }
    c->complete = false;
    tr_http_next(&c->http);
    c->served_one = true;
    c->since_ns = tr_now_ns();
    c->state = TR_CONN_READING;
}

/* An answer that was given: on with the next request, with the rest of a refused body, or to the
 * end. */
void tr_conn_advance(struct tr_conn *c)
{
    if (!c->answer_done)
        return;
    if (c->complete || !c->keep) {
        next_request(c);
    } else {
        c->answer_done = false;
        c->answered = true;
    }
}

static void dispatch(struct tr_conn *c)
{
    c->complete = true;
    if (c->answered) {
        next_request(c);
        return;
    }
    c->state = TR_CONN_BUSY;
    c->d->stats.busy++;
    c->rq.body = (struct tr_slice){c->body, c->body_len};
    c->turn_body += c->body_len;
    c->rq.route->handler(&c->x, &c->rq, c->d->ops.ctx);
    if (c->state == TR_CONN_RAW) /* it has become something else */
        return;
    if (!c->answer_done && !c->x.owner_ops) {
        if (c->head_sent)
            tr_exchange_stream_abort(&c->x, false);
        else
            tr_exchange_error(&c->x, TR_ERR_INTERNAL, NULL, NULL);
    }
    if (c->state == TR_CONN_BUSY && !c->answer_done)
        tr_conn_later(c); /* the FIN may have come before the request was whole */
    tr_conn_advance(c);
}

static void broken_request(struct tr_conn *c)
{
    if (c->answered) { /* it has its answer; the rest is noise */
        c->keep = false;
        next_request(c);
        return;
    }
    c->keep = false;
    c->no_body = false;
    tr_exchange_error(&c->x, c->http.err, c->http.why, NULL);
    tr_conn_advance(c);
}

/* Whether the next request must wait: answers do, or this connection had its part of the turn. */
static bool must_wait(struct tr_conn *c)
{
    if (tr_http_begun(&c->http))
        return false;
    if (c->turn_body >= BODIES_PER_TURN)
        tr_conn_later(c);
    return c->turn_body >= BODIES_PER_TURN || tr_outbuf_len(&c->out) >= c->d->lim->stream_buffer;
}

/* Gives bytes to the parser until they are used up or a request is being answered; how many
 * were used. */
static size_t feed(struct tr_conn *c, const char *p, size_t n)
{
    size_t at = 0, used;
    struct tr_slice piece;
    while (c->state == TR_CONN_READING && !c->broken && !c->cut) {
        if (must_wait(c))
            break;
        bool fresh = !tr_http_begun(&c->http);
        enum tr_http_ev ev = tr_http_feed(&c->http, p + at, n - at, &used, &piece);
        at += used;
        if (fresh && used)
            c->since_ns = tr_now_ns();
        if (ev == TR_HTTP_MORE)
            break;
        if (ev == TR_HTTP_HEAD)
            begin_request(c);
        else if (ev == TR_HTTP_BODY)
            body_piece(c, piece);
        else if (ev == TR_HTTP_END)
            dispatch(c);
        else
            broken_request(c);
        if (c->answer_done && c->state == TR_CONN_READING)
            tr_conn_advance(c);
    }
    return at;
}

/* ---- reading --------------------------------------------------------------------------- */

/* Keeps what the parser did not take: at most one read. */
static void keep_rest(struct tr_conn *c, const char *p, size_t n)
{
    if (n == 0 || c->state == TR_CONN_CLOSING)
        return;
    c->in = malloc(n);
    if (!c->in) {
        c->broken = ENOMEM;
        tr_conn_mark(c);
        return;
    }
    memcpy(c->in, p, n);
    c->in_at = 0;
    c->in_len = n;
}

static void feed_kept(struct tr_conn *c)
{
    c->in_at += feed(c, c->in + c->in_at, c->in_len - c->in_at);
    if (c->in_at < c->in_len)
        return;
    free(c->in);
    c->in = NULL;
    c->in_at = c->in_len = 0;
}

/* Inside a body the read may be large, but not beyond its end. */
static size_t read_size(const struct tr_conn *c)
{
    const struct tr_http *h = &c->http;
    if (c->state == TR_CONN_LINGER)
        return sizeof(c->d->scratch);
    if (!c->body_ns || h->chunked || h->content_length <= c->body_seen)
        return TR_CONN_READ_BYTES;
    uint64_t left = h->content_length - c->body_seen;
    return left < sizeof(c->d->scratch) ? (size_t)left : sizeof(c->d->scratch);
}

/* One read into the scratch buffer: its bytes, 0 if there are none now (or the connection has
 * ended). */
size_t tr_conn_read_some(struct tr_conn *c)
{
    size_t want = read_size(c);
    ssize_t n = recv(c->fd, c->d->scratch, want, MSG_DONTWAIT);
    if (n > 0) {
        c->d->stats.bytes_in += (uint64_t)n;
        /* Also after a short read the socket is asked once more: a reset that came with these bytes
         * was reported as "readable" (see conn.h) and makes no edge of its own. */
        return (size_t)n;
    }
    if (n < 0 && errno == EINTR)
        return 0;
    c->may_read = false;
    if (n < 0 && errno == EAGAIN)
        return 0;
    /* FIN between requests, or in the middle of one, which then never was: answers that wait are
     * still written. */
    if (n == 0 && c->state == TR_CONN_RAW) {
        c->rdhup = true;
    } else if (n == 0 && c->state == TR_CONN_READING && tr_outbuf_len(&c->out)) {
        c->complete = true;
        c->state = TR_CONN_CLOSING;
    } else {
        tr_conn_kill(c, TR_GONE_RESET);
    }
    return 0;
}

/* Whether nothing can come and nothing can be sent any more, whatever is still unread. */
static bool is_over(const struct tr_conn *c)
{
    struct pollfd p = {.fd = c->fd};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLERR | POLLHUP));
}

/* A client that sends without end is no longer listened to: closing at once would destroy the
 * answer that it has not read yet.  Its window closes, and it has a moment to look. */
void tr_conn_drop(struct tr_conn *c)
{
    for (int i = 0; i < READS_PER_TURN && c->may_read && c->linger_left; i++) {
        size_t n = tr_conn_read_some(c);
        if (c->state == TR_CONN_DEAD)
            return;
        c->linger_left -= n < c->linger_left ? n : c->linger_left;
        if (!c->linger_left)
            c->linger_ns = tr_now_ns() + LOOK_NS;
    }
    if (!c->linger_left) {
        if (is_over(c))
            tr_conn_kill(c, TR_GONE_RESET);
    } else if (c->may_read) {
        tr_conn_later(c);
    }
}

void tr_conn_read(struct tr_conn *c)
{
    if (c->in_at < c->in_len)
        feed_kept(c);
    for (int i = 0; i < READS_PER_TURN; i++) {
        if (c->state != TR_CONN_READING || c->in_at < c->in_len || !c->may_read || c->broken ||
            c->cut)
            return;
        if (must_wait(c))
            return;
        size_t n = tr_conn_read_some(c);
        if (n) {
            size_t used = feed(c, c->d->scratch, n);
            keep_rest(c, c->d->scratch + used, n - used);
        }
    }
    tr_conn_later(c);
}
