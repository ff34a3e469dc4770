/* SPDX-License-Identifier: Apache-2.0 */
/* Reading: bytes to the parser, requests to their handlers, one after the other. */
#include "base/clock.h"
#include "frontend/access.h"
#include "frontend/conn_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define LOOK_NS 2000000000ull /* for a client that is no longer listened to */

enum {
    READS_PER_TURN = 16,       /* then the others get their turn */
    SHAKES_PER_TURN = 4,       /* about a millisecond each with an RSA key */
    BODIES_PER_TURN = 16 << 10 /* bytes: what a handler makes of more takes others' time */
};

/* ---- requests -------------------------------------------------------------------------- */

/* `h` NULL: it is refused before its head could be read whole. */
void tr_conn_note(struct tr_conn *c, const struct tr_http *h)
{
    if (!c->x.access)
        tr_access_begin(&c->x, c->d->access, h, c->http.minor ? "http/1.1" : "http/1.0", &c->peer,
                        c->since_ns);
}

static void begin_request(struct tr_conn *c)
{
    struct tr_http *h = &c->http;
    c->d->stats->requests++;
    c->keep = h->keep_alive && !tr_httpd_is_ending(c->d);
    c->no_body = h->method == TR_HTTP_HEAD_METHOD;
    c->x.error_body = NULL;
    c->body_ns = c->piece_ns = tr_now_ns();
    tr_carrier_id(h, c->request_id);
    tr_conn_note(c, h);
    c->rq =
        (struct tr_http_request){.http = h, .request_id = c->request_id, .arrived_ns = c->since_ns};
    if (tr_carrier_refuses(c->d, &c->x, &c->rq, c->overfull, &c->keep) || !h->expect_continue)
        return;
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (tr_outbuf_add(&c->d->pool, &c->out, go_on, sizeof(go_on) - 1))
        c->broken = ENOMEM;
    else
        c->accepted += sizeof(go_on) - 1, c->d->stats->unsent_bytes += sizeof(go_on) - 1;
    tr_conn_mark(c);
}

static void body_piece(struct tr_conn *c, struct tr_slice piece)
{
    c->body_seen += piece.len;
    c->piece_ns = tr_now_ns();
    if (c->answered)
        return;
    const char *why;
    enum tr_err e = tr_carrier_body(c->d, &c->body, &c->http, piece, &why);
    if (e == TR_OK)
        return;
    c->keep = false;
    tr_exchange_error(&c->x, e, why, NULL);
}

char *tr_conn_take_body(struct tr_conn *c)
{
    return tr_carrier_body_take(c->d, &c->body);
}

/* The answer to the present request has ended and nothing of its body is still to come. */
static void next_request(struct tr_conn *c)
{
    bool was_busy = c->state == TR_CONN_BUSY;
    c->d->stats->busy -= was_busy;
    free(tr_conn_take_body(c));
    c->body_seen = 0;
    c->body_ns = 0;
    tr_carrier_extra_drop(&c->extra);
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
    c->d->stats->busy++;
    tr_access_at(&c->x, TR_AT_BODY, tr_now_ns());
    c->rq.body = (struct tr_slice){c->body.p, c->body.len};
    c->turn_body += c->body.len;
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

/* The first line of HTTP/2's preface, which no request of HTTP/1 can begin with, as the first bytes. */
static bool is_preface(const struct tr_conn *c)
{
    static const char line[] = "PRI * HTTP/2.0\r\n";
    const struct tr_http *h = &c->http;
    return !c->served_one && !h->blank_seen && h->head_len == sizeof(line) - 1 &&
           memcmp(h->head, line, sizeof(line) - 1) == 0;
}

static void broken_request(struct tr_conn *c)
{
    if (is_preface(c)) {
        tr_h2_begin(c, false);
        return;
    }
    if (c->answered) { /* it has its answer; the rest is noise */
        c->keep = false;
        next_request(c);
        return;
    }
    c->keep = false;
    c->no_body = false;
    tr_conn_note(c, NULL);
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
    ssize_t n = c->tls ? tr_tls_recv(c->tls, c->d->scratch, want)
                       : recv(c->fd, c->d->scratch, want, MSG_DONTWAIT);
    if (n > 0) {
        c->d->stats->bytes_in += (uint64_t)n;
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

/* Before the first request: false: not yet, or it has become something else or was killed. */
static bool shake(struct tr_conn *c)
{
    if (c->shaken)
        return true;
    if (!c->may_read)
        return false;
    if (c->d->handshakes >= SHAKES_PER_TURN) {
        tr_conn_later(c);
        return false;
    }
    c->d->handshakes++;
    int done = tr_tls_shake(c->tls);
    if (done < 0)
        tr_conn_kill(c, TR_GONE_RESET);
    if (done <= 0) {
        c->may_read = false;
        return false;
    }
    c->shaken = true;
    if (tr_tls_is_h2(c->tls))
        tr_h2_begin(c, true);
    return c->state == TR_CONN_READING;
}

void tr_conn_read(struct tr_conn *c)
{
    if (!shake(c))
        return;
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
