/* SPDX-License-Identifier: Apache-2.0 */
/* Reading, dispatching, writing out and ending a connection. */
#include "frontend/conn.h"

#include "base/assert.h"
#include "base/clock.h"
#include "frontend/conn_priv.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uuid/uuid.h>

#define SECOND 1000000000ull
#define LINGER_NS (2 * SECOND)       /* the whole request was read: wait for the client's FIN */
#define LINGER_BODY_NS (10 * SECOND) /* the client is still sending what we refuse */
#define USER_TIMEOUT_SLACK_MS 5000   /* beyond the write deadline */

enum {
    READS_PER_TURN = 16, /* then the others get their turn */
    IOV_PER_WRITE = 64,
    DISCARD_BYTES = 256 << 10, /* of a refused body that are read to keep the connection */
    BODY_FIRST_BYTES = 64 << 10,
    BODY_BYTES_PER_S = 16 << 10,
    OVERFULL_CONNECTIONS = 64 /* beyond the limit: these are told 503, others are just closed */
};

/* ---- deadlines ------------------------------------------------------------------------- */

static uint64_t read_deadline(const struct tr_conn *c)
{
    const struct tr_http_limits *l = c->d->lim;
    if (c->body_ns)
        return l->body_timeout_ns
                   ? c->body_ns + l->body_timeout_ns + c->body_seen / BODY_BYTES_PER_S * SECOND
                   : 0;
    uint64_t limit =
        c->served_one && !tr_http_begun(&c->http) ? l->keepalive_ns : l->header_timeout_ns;
    return limit ? c->since_ns + limit : 0;
}

static uint64_t write_deadline(const struct tr_conn *c)
{
    uint64_t limit = c->d->lim->write_deadline_ns;
    return c->blocked_ns && limit ? c->blocked_ns + limit : 0;
}

/* The earliest thing that time can do to this connection; 0: nothing. */
static uint64_t deadline(const struct tr_conn *c)
{
    if (c->state == TR_CONN_LINGER)
        return c->linger_ns;
    uint64_t w = write_deadline(c);
    uint64_t r = c->state == TR_CONN_READING ? read_deadline(c) : 0;
    return w && (!r || w < r) ? w : r;
}

/* Deadlines move with every byte; the timer does not.  It fires early and looks again. */
static void arm(struct tr_conn *c)
{
    uint64_t at = c->state == TR_CONN_DEAD ? 0 : deadline(c);
    if (!at || (c->armed_ns && c->armed_ns <= at))
        return;
    uint64_t now = tr_now_ns(), left = at > now ? at - now : 0;
    struct timeval tv = {(time_t)(left / SECOND), (suseconds_t)(left % SECOND / 1000 + 1)};
    if (tv.tv_usec >= 1000000)
        tv = (struct timeval){tv.tv_sec + 1, 0};
    c->armed_ns = at;
    event_add(&c->timer, &tv);
}

/* The client let a deadline pass. */
static void expired(struct tr_conn *c, uint64_t now)
{
    uint64_t w = write_deadline(c);
    if (c->state == TR_CONN_LINGER) {
        tr_conn_kill(c, TR_CONN_RESET);
    } else if (w && now >= w) {
        c->d->stats.slow_clients++;
        tr_conn_kill(c, TR_CONN_SLOW);
    } else if (c->answered || !tr_http_begun(&c->http)) {
        tr_conn_kill(c, TR_CONN_RESET); /* idle, or has its answer already */
    } else {
        c->d->stats.timeouts++;
        c->keep = false;
        tr_conn_error(c, TR_ERR_REQUEST_TIMEOUT, NULL, NULL);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct tr_conn *c = arg;
    uint64_t at = deadline(c), now = tr_now_ns();
    c->armed_ns = 0;
    if (at && now >= at)
        expired(c, now);
    if (c->state != TR_CONN_DEAD)
        arm(c);
}

/* ---- end ------------------------------------------------------------------------------- */

void tr_conn_kill(struct tr_conn *c, enum tr_conn_why why)
{
    struct tr_httpd *d = c->d;
    if (c->state == TR_CONN_DEAD)
        return;
    bool due = c->state == TR_CONN_BUSY;
    c->state = TR_CONN_DEAD;
    d->stats.open--;
    d->stats.busy -= due;
    d->stats.resets += due && why == TR_CONN_RESET;
    tr_conn_delivery_gone(c);
    event_del(&c->ev);
    event_del(&c->timer);
    TAILQ_REMOVE(&d->all, c, all_link);
    TAILQ_INSERT_TAIL(&d->dead, c, all_link);
    tr_conn_mark(c); /* so that it is freed */
    const struct tr_conn_owner_ops *ops = c->ops;
    c->ops = NULL;
    if (ops)
        ops->gone(c->owner, why);
    d->stats.unsent_bytes -= evbuffer_get_length(c->out);
    close(c->fd);
    c->fd = -1;
}

void tr_conn_reap(struct tr_conn *c)
{
    evbuffer_free(c->out);
    tr_http_fini(&c->http);
    free(c->in);
    free(c->body);
    free(c->extra);
    free(c);
}

/* A cut must be seen.  A missing last chunk is enough on HTTP/1.1, unless the kernel would keep
 * unsent bytes for a client that reads nothing; everything else is reset. */
static void close_cut(struct tr_conn *c)
{
    bool clear =
        c->chunked_out && evbuffer_get_length(c->out) == 0 && tr_conn_acked(c) == c->written;
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    if (!clear)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    tr_conn_kill(c, TR_CONN_RESET);
}

/* All is written: our FIN, then what the client still sends is read and dropped, so that a reset
 * does not destroy the answer on its way (RFC 9112 9.6). */
static void begin_linger(struct tr_conn *c)
{
    if (shutdown(c->fd, SHUT_WR) < 0) {
        tr_conn_kill(c, TR_CONN_RESET);
        return;
    }
    c->state = TR_CONN_LINGER;
    c->linger_ns = tr_now_ns() + (c->complete ? LINGER_NS : LINGER_BODY_NS);
    c->linger_left = c->d->lim->max_body * 8 + (1 << 20);
    c->in_at = c->in_len = 0;
}

/* ---- writing --------------------------------------------------------------------------- */

void tr_conn_write_out(struct tr_conn *c)
{
    while (!c->broken && c->may_write && evbuffer_get_length(c->out)) {
        struct evbuffer_iovec v[IOV_PER_WRITE];
        int n = evbuffer_peek(c->out, -1, NULL, v, IOV_PER_WRITE);
        struct msghdr m = {.msg_iov = (struct iovec *)v,
                           .msg_iovlen = (size_t)(n < IOV_PER_WRITE ? n : IOV_PER_WRITE)};
        ssize_t sent = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            c->may_write = false;
            break;
        }
        if (sent < 0) {
            c->broken = errno;
            break;
        }
        evbuffer_drain(c->out, (size_t)sent);
        c->written += (uint64_t)sent;
        c->d->stats.bytes_out += (uint64_t)sent;
        c->d->stats.unsent_bytes -= (uint64_t)sent;
        c->blocked_ns = 0;
    }
    if (!evbuffer_get_length(c->out))
        c->blocked_ns = 0;
    else if (!c->blocked_ns)
        c->blocked_ns = tr_now_ns();
}

_Static_assert(sizeof(struct evbuffer_iovec) == sizeof(struct iovec),
               "libevent's iovec is the system's");

/* After writing: faults, the end of the answer, the wish for more. */
static void after_write(struct tr_conn *c)
{
    if (c->broken) {
        tr_conn_kill(c, TR_CONN_RESET);
        return;
    }
    size_t unsent = evbuffer_get_length(c->out);
    if (c->state == TR_CONN_CLOSING && unsent == 0)
        begin_linger(c);
    else if (c->want_writable && unsent <= c->d->lim->stream_buffer / 2)
        tr_conn_later(c); /* `writable` comes from the next turn: one write each, then others */
}

/* ---- requests -------------------------------------------------------------------------- */

/* The client's x-request-id if it is short and printable, else one of ours. */
static void take_request_id(struct tr_conn *c)
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
        tr_conn_error(c, TR_ERR_CONNECTIONS, NULL, NULL);
        return true;
    }
    if (h->refuse != TR_OK || h->method == TR_HTTP_OTHER) {
        tr_conn_error(c, h->refuse != TR_OK ? h->refuse : TR_ERR_NOT_IMPLEMENTED, NULL, NULL);
        return true;
    }
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
            tr_conn_header(c, "Allow", buf);
        }
        tr_conn_error(c, allow ? TR_ERR_METHOD : TR_ERR_NOT_FOUND, NULL, NULL);
        return true;
    }
    const char *why = NULL;
    enum tr_err e = TR_OK;
    if (d->ops.check && !(c->rq.route->flags & TR_ROUTE_OPEN))
        e = d->ops.check(d->ops.ctx, c, &c->rq, &why);
    if (e == TR_OK && h->content_length > d->lim->max_body)
        e = TR_ERR_BODY_TOO_LARGE;
    if (e == TR_OK && h->has_body && !tr_route_json_type(tr_http_field(h, "content-type")))
        e = TR_ERR_MEDIA_TYPE;
    if (e != TR_OK)
        tr_conn_error(c, e, why, NULL);
    return e != TR_OK;
}

static void begin_request(struct tr_conn *c)
{
    struct tr_http *h = &c->http;
    c->d->stats.requests++;
    /* A refused body is read to its end only if that is little and surely comes; a client that
     * asked before sending may never send it. */
    c->keep = h->keep_alive && !c->d->draining;
    c->no_body = h->method == TR_HTTP_HEAD_METHOD;
    c->body_ns = tr_now_ns();
    take_request_id(c);
    c->rq =
        (struct tr_http_request){.http = h, .request_id = c->request_id, .arrived_ns = c->since_ns};
    if (refused(c) || !h->expect_continue)
        return;
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (evbuffer_add(c->out, go_on, sizeof(go_on) - 1) < 0)
        c->broken = ENOMEM;
    else
        c->accepted += sizeof(go_on) - 1, c->d->stats.unsent_bytes += sizeof(go_on) - 1;
    tr_conn_mark(c);
}

static bool body_room(struct tr_conn *c, size_t need)
{
    if (need <= c->body_cap)
        return true;
    size_t cap = c->body_cap ? c->body_cap * 2 : BODY_FIRST_BYTES;
    while (cap < need)
        cap *= 2;
    if (!c->http.chunked && cap > c->http.content_length)
        cap = (size_t)c->http.content_length;
    char *p = realloc(c->body, cap);
    if (!p)
        return false;
    c->body = p;
    c->body_cap = cap;
    return true;
}

static void body_piece(struct tr_conn *c, struct tr_slice piece)
{
    c->body_seen += piece.len;
    if (c->answered)
        return;
    if (piece.len > c->d->lim->max_body - c->body_len) {
        c->keep = false;
        tr_conn_error(c, TR_ERR_BODY_TOO_LARGE, NULL, NULL);
    } else if (!body_room(c, c->body_len + piece.len)) {
        c->keep = false;
        tr_conn_error(c, TR_ERR_OVERLOADED, NULL, NULL);
    } else {
        memcpy(c->body + c->body_len, piece.p, piece.len);
        c->body_len += piece.len;
    }
}

/* The answer to the present request has ended and nothing of its body is still to come. */
static void next_request(struct tr_conn *c)
{
    bool was_busy = c->state == TR_CONN_BUSY;
    c->d->stats.busy -= was_busy;
    free(c->body);
    c->body = NULL;
    c->body_len = c->body_cap = 0;
    c->body_seen = 0;
    c->body_ns = 0;
    c->extra_len = 0;
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
static void advance(struct tr_conn *c)
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
    c->rq.route->handler(c, &c->rq, c->d->ops.ctx);
    if (!c->answer_done && !c->ops) {
        if (c->head_sent)
            tr_conn_stream_abort(c);
        else
            tr_conn_error(c, TR_ERR_INTERNAL, NULL, NULL);
    }
    if (c->state == TR_CONN_BUSY && !c->answer_done)
        tr_conn_later(c); /* the FIN may have come before the request was whole */
    advance(c);
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
    if (!c->request_id[0] || !c->body_ns)
        take_request_id(c);
    tr_conn_error(c, c->http.err, c->http.why, NULL);
    advance(c);
}

/* Gives bytes to the parser until they are used up or a request is being answered; how many
 * were used. */
static size_t feed(struct tr_conn *c, const char *p, size_t n)
{
    size_t at = 0, used;
    struct tr_slice piece;
    while (c->state == TR_CONN_READING && !c->broken) {
        if (!tr_http_begun(&c->http) && evbuffer_get_length(c->out) >= c->d->lim->stream_buffer)
            break; /* answers wait: no more of them */
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
            advance(c);
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
static size_t read_some(struct tr_conn *c)
{
    size_t want = read_size(c);
    ssize_t n = recv(c->fd, c->d->scratch, want, MSG_DONTWAIT);
    if (n > 0) {
        c->d->stats.bytes_in += (uint64_t)n;
        return (size_t)n;
    }
    if (n < 0 && errno == EINTR)
        return 0;
    c->may_read = false;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    /* FIN between requests, or in the middle of one, which then never was: answers that wait are
     * still written. */
    if (n == 0 && c->state == TR_CONN_READING && evbuffer_get_length(c->out)) {
        c->complete = true;
        c->state = TR_CONN_CLOSING;
    } else {
        tr_conn_kill(c, TR_CONN_RESET);
    }
    return 0;
}

static void linger_read(struct tr_conn *c)
{
    for (int i = 0; i < READS_PER_TURN && c->may_read; i++) {
        size_t n = read_some(c);
        if (c->state == TR_CONN_DEAD)
            return;
        if (n >= c->linger_left) {
            tr_conn_kill(c, TR_CONN_RESET);
            return;
        }
        c->linger_left -= n;
    }
    if (c->may_read)
        tr_conn_later(c);
}

static void read_in(struct tr_conn *c)
{
    if (c->in_at < c->in_len)
        feed_kept(c);
    for (int i = 0; i < READS_PER_TURN; i++) {
        if (c->state != TR_CONN_READING || c->in_at < c->in_len || !c->may_read || c->broken)
            return;
        if (!tr_http_begun(&c->http) && evbuffer_get_length(c->out) >= c->d->lim->stream_buffer)
            return;
        size_t n = read_some(c);
        if (n) {
            size_t used = feed(c, c->d->scratch, n);
            keep_rest(c, c->d->scratch + used, n - used);
        }
    }
    tr_conn_later(c);
}

/* While an answer is due nothing is read; whether the peer is still there is asked from the
 * kernel, which keeps the state however much unread input there is. */
static void look_for_close(struct tr_conn *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    if (poll(&p, 1, 0) <= 0)
        return;
    if (p.revents & (POLLERR | POLLHUP | POLLNVAL)) {
        tr_conn_kill(c, TR_CONN_RESET);
        return;
    }
    if (!(p.revents & POLLRDHUP))
        return;
    c->rdhup = true;
    if (c->fin_told || !c->ops)
        return;
    c->fin_told = true;
    c->d->stats.half_closed++;
    c->ops->half_closed(c->owner);
}

/* ---- turns ----------------------------------------------------------------------------- */

void tr_conn_turn_end(struct tr_conn *c)
{
    if (c->cut) {
        close_cut(c);
        return;
    }
    if (c->state != TR_CONN_LINGER) {
        advance(c);
        tr_conn_write_out(c);
        after_write(c);
    }
    if (c->state == TR_CONN_READING) {
        read_in(c);
        if (c->state == TR_CONN_CLOSING)
            tr_conn_mark(c);
    }
    if (c->state == TR_CONN_LINGER)
        linger_read(c);
    arm(c);
}

void tr_conn_work(struct tr_conn *c)
{
    if (c->state == TR_CONN_BUSY)
        look_for_close(c);
    if (c->state == TR_CONN_DEAD)
        return;
    if (c->state != TR_CONN_LINGER)
        tr_conn_write_out(c);
    if (c->want_writable && c->ops && !c->broken &&
        evbuffer_get_length(c->out) <= c->d->lim->stream_buffer / 2) {
        c->want_writable = false;
        c->ops->writable(c->owner);
    }
    if (c->state != TR_CONN_DEAD)
        tr_conn_turn_end(c);
}

static void on_event(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    struct tr_conn *c = arg;
    c->may_read |= (what & (EV_READ | EV_CLOSED)) != 0;
    c->may_write |= (what & EV_WRITE) != 0;
    c->rdhup |= (what & EV_CLOSED) != 0;
    tr_conn_work(c);
}

/* ---- owner ----------------------------------------------------------------------------- */

void tr_conn_bind(struct tr_conn *c, const struct tr_conn_owner_ops *ops, void *owner)
{
    TR_ASSERT(c->state == TR_CONN_BUSY && !c->answer_done && !c->ops);
    c->ops = ops;
    c->owner = owner;
    c->fin_told = false;
}

void tr_conn_unbind(struct tr_conn *c)
{
    c->ops = NULL;
    c->owner = NULL;
}

bool tr_conn_half_closed(const struct tr_conn *c)
{
    return c->rdhup;
}

const struct tr_http_request *tr_conn_request(const struct tr_conn *c)
{
    return &c->rq;
}

struct tr_httpd *tr_conn_httpd(const struct tr_conn *c)
{
    return c->d;
}

bool tr_conn_is_http10(const struct tr_conn *c)
{
    return c->http.minor == 0;
}

/* ---- birth ----------------------------------------------------------------------------- */

/* The kernel's share of a connection is bounded, small writes leave at once, and a peer that
 * acknowledges nothing is given up.  All of it is best effort: a UNIX socket knows none of it. */
static void set_options(int fd, const struct tr_http_limits *l)
{
    int on = 1, sndbuf = (int)(l->stream_buffer * 4 > 65536 ? l->stream_buffer * 4 : 65536);
    unsigned lowat = (unsigned)l->stream_buffer;
    unsigned gone_ms = (unsigned)(l->write_deadline_ns / 1000000) + USER_TIMEOUT_SLACK_MS;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, sizeof(lowat));
    if (l->write_deadline_ns)
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &gone_ms, sizeof(gone_ms));
}

static struct tr_conn *new_conn(struct tr_httpd *d, int fd)
{
    struct tr_conn *c = calloc(1, sizeof(*c));
    struct evbuffer *out = evbuffer_new();
    if (!c || !out) {
        free(c);
        if (out)
            evbuffer_free(out);
        return NULL;
    }
    c->d = d;
    c->fd = fd;
    c->out = out;
    c->may_write = true;
    c->since_ns = tr_now_ns();
    c->overfull = d->stats.open >= d->lim->max_connections;
    tr_http_init(&c->http, d->lim->max_header);
    return c;
}

int tr_conn_accept(struct tr_httpd *d, int fd)
{
    struct tr_conn *c = NULL;
    if (d->stats.open < (uint64_t)d->lim->max_connections + OVERFULL_CONNECTIONS)
        c = new_conn(d, fd);
    if (!c) {
        d->stats.refused++;
        close(fd);
        return -ENOMEM;
    }
    set_options(fd, d->lim);
    event_assign(&c->ev, d->base, fd, EV_READ | EV_WRITE | EV_CLOSED | EV_ET | EV_PERSIST, on_event,
                 c);
    evtimer_assign(&c->timer, d->base, on_timer, c);
    if (event_add(&c->ev, NULL) < 0) {
        close(fd);
        tr_conn_reap(c);
        return -ENOMEM;
    }
    d->stats.open++;
    d->stats.accepted++;
    d->stats.refused += c->overfull;
    TAILQ_INSERT_TAIL(&d->all, c, all_link);
    arm(c);
    return 0;
}
