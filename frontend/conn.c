/* SPDX-License-Identifier: Apache-2.0 */
/* A connection's birth, clocks, writing, turns and end. */
#include "frontend/conn.h"

#include "base/assert.h"
#include "base/clock.h"
#include "frontend/access.h"
#include "frontend/conn_priv.h"
#include "frontend/timer.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECOND 1000000000ull
#define LINGER_NS (2 * SECOND)       /* the whole request was read: wait for the client's FIN */
#define LINGER_BODY_NS (10 * SECOND) /* the client is still sending what we refuse */
#define RETIRE_IDLE_NS (2 * SECOND)  /* for the next request on a connection that is not kept */
#define USER_TIMEOUT_SLACK_MS 5000   /* beyond the write deadline */

enum {
    WRITE_BYTES_PER_TURN = 256 << 10, /* then the others get their turn */
    OVERFULL_CONNECTIONS = 64 /* beyond the limit: these are told 503, others are just closed */
};

/* ---- deadlines ------------------------------------------------------------------------- */

/* Served before, and nothing of the next request has come. */
static bool is_between(const struct tr_conn *c)
{
    return c->state == TR_CONN_READING && c->served_one && !c->answered && !tr_http_begun(&c->http);
}

static uint64_t read_deadline(const struct tr_conn *c)
{
    const struct tr_http_limits *l = c->d->lim;
    if (c->body_ns)
        return tr_carrier_body_deadline(l, c->body_ns, c->piece_ns, c->body_seen);
    if (!is_between(c))
        return l->header_timeout_ns ? c->since_ns + l->header_timeout_ns : 0;
    uint64_t at = l->keepalive_ns ? c->since_ns + l->keepalive_ns : 0;
    uint64_t retire = c->d->retire_ns > c->since_ns ? c->d->retire_ns : c->since_ns;
    bool sooner = c->d->retire_ns && (!at || retire + RETIRE_IDLE_NS < at);
    return sooner ? retire + RETIRE_IDLE_NS : at;
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
void tr_conn_arm(struct tr_conn *c)
{
    uint64_t at = c->state == TR_CONN_DEAD ? 0 : deadline(c);
    if (!at || (c->armed_ns && c->armed_ns <= at))
        return;
    if (tr_timer_at(&c->timer, at) == 0)
        c->armed_ns = at;
    else
        c->d->clock_missed = true; /* the tick sees to it */
}

/* The client sent no further request.  One that has come in this moment is still taken; then our
 * FIN, not a reset, so that a client that sends now knows that nobody has read it. */
void tr_conn_close_idle(struct tr_conn *c)
{
    if (!is_between(c))
        return;
    c->may_read = true;
    tr_conn_read(c);
    if (!is_between(c))
        return;
    c->complete = true;
    c->state = TR_CONN_CLOSING;
    tr_conn_mark(c);
}

/* The client let a deadline pass. */
static void expired(struct tr_conn *c, uint64_t now)
{
    uint64_t w = write_deadline(c);
    if (c->state != TR_CONN_LINGER && w && now >= w) {
        tr_conn_close_hard(c, true); /* the kernel's bytes for it go too */
        tr_conn_kill(c, TR_GONE_SLOW);
    } else if (is_between(c)) {
        tr_conn_close_idle(c);
    } else if (c->state == TR_CONN_LINGER || c->answered || !tr_http_begun(&c->http)) {
        tr_conn_kill(c, TR_GONE_RESET); /* idle, or has its answer already */
    } else {
        c->d->stats->timeouts++;
        c->keep = false;
        tr_conn_note(c, NULL);
        tr_exchange_error(&c->x, TR_ERR_REQUEST_TIMEOUT, NULL, NULL);
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
        tr_conn_arm(c);
}

/* ---- end ------------------------------------------------------------------------------- */

void tr_conn_kill(struct tr_conn *c, enum tr_gone why)
{
    struct tr_httpd *d = c->d;
    if (c->state == TR_CONN_DEAD)
        return;
    bool due = c->state == TR_CONN_BUSY;
    c->state = TR_CONN_DEAD;
    d->stats->open--;
    d->stats->overfull -= c->overfull;
    d->stats->busy -= due;
    d->stats->resets += due && why == TR_GONE_RESET;
    d->stats->slow_clients += why == TR_GONE_SLOW;
    tr_conn_delivery_gone(c);
    event_del(&c->ev);
    event_del(&c->timer);
    if (d->asked == c)
        d->asked = TAILQ_PREV(c, tr_conn_list, all_link);
    TAILQ_REMOVE(&d->all, c, all_link);
    TAILQ_INSERT_TAIL(&d->dead, c, all_link);
    tr_conn_mark(c); /* so that it is freed */
    const struct tr_owner_ops *ops = c->x.owner_ops;
    void *owner = c->x.owner;
    tr_exchange_unbind(&c->x);
    if (ops)
        ops->gone(owner, why);
    tr_conn_raw_gone(c, why);
    tr_access_gone(&c->x, why);
    d->stats->unsent_bytes -= tr_outbuf_len(&c->out);
    d->stats->kernel_bytes -= c->written - c->acked;
    close(c->fd);
    c->fd = -1;
}

void tr_conn_reap(struct tr_conn *c)
{
    tr_outbuf_fini(&c->d->pool, &c->out);
    tr_http_fini(&c->http);
    tr_tls_conn_free(c->tls);
    free(c->in);
    free(tr_conn_take_body(c));
    tr_carrier_extra_drop(&c->extra);
    free(c);
}

/* Whatever closes the socket from here on, this process's death too, is a reset. */
void tr_conn_close_hard(const struct tr_conn *c, bool on)
{
    struct linger l = {.l_onoff = on, .l_linger = 0};
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
}

/* A cut must be seen.  A missing last chunk is enough on HTTP/1.1, unless the kernel would keep
 * unsent bytes for a client that reads nothing; everything else is reset. */
static void close_cut(struct tr_conn *c)
{
    bool clear = c->chunked_out && !c->cut_hard && tr_outbuf_len(&c->out) == 0 &&
                 tr_conn_acked(c) == c->written;
    if (!clear)
        tr_conn_close_hard(c, true);
    tr_conn_kill(c, TR_GONE_RESET);
}

/* All is written: our FIN, then what the client still sends is read and dropped, so that a reset
 * does not destroy the answer on its way (RFC 9112 9.6). */
static void begin_linger(struct tr_conn *c)
{
    tr_conn_close_hard(c, false);
    if (c->tls)
        tr_tls_bye(c->tls);
    if (shutdown(c->fd, SHUT_WR) < 0) {
        tr_conn_kill(c, TR_GONE_RESET);
        return;
    }
    c->state = TR_CONN_LINGER;
    c->linger_ns = tr_now_ns() + (c->complete ? LINGER_NS : LINGER_BODY_NS);
    c->linger_left = c->d->lim->max_body * 8 + (1 << 20);
    c->in_at = c->in_len = 0;
}

/* ---- writing --------------------------------------------------------------------------- */

static ssize_t send_some(struct tr_conn *c)
{
    struct iovec v[2];
    struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)tr_outbuf_parts(&c->out, v)};
    if (c->tls)
        return tr_tls_send(c->tls, v[0].iov_base, v[0].iov_len);
    return sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void tr_conn_write_out(struct tr_conn *c)
{
    size_t turn = 0;
    while (!c->broken && c->may_write && tr_outbuf_len(&c->out) && turn < WRITE_BYTES_PER_TURN) {
        ssize_t sent = send_some(c);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN) {
            c->may_write = false;
            break;
        }
        if (sent < 0) {
            c->broken = errno;
            break;
        }
        tr_outbuf_drain(&c->d->pool, &c->out, (size_t)sent);
        turn += (size_t)sent;
        c->written += (uint64_t)sent;
        c->d->stats->bytes_out += (uint64_t)sent;
        c->d->stats->writes++;
        c->d->stats->unsent_bytes -= (uint64_t)sent;
        c->d->stats->kernel_bytes += (uint64_t)sent;
        c->blocked_ns = 0;
    }
    if (!tr_outbuf_len(&c->out)) {
        c->blocked_ns = 0;
        return;
    }
    /* Also if it is an earlier answer's bytes that the kernel has refused. */
    if (!c->may_write && (c->state == TR_CONN_RAW || (c->head_sent && !c->answer_done)))
        c->want_writable = true;
    tr_outbuf_wait(&c->d->pool, &c->out);
    if (!c->blocked_ns)
        c->blocked_ns = tr_now_ns();
}

bool tr_conn_takes_more(const struct tr_conn *c)
{
    return c->want_writable && tr_conn_room(c) > 0 &&
           tr_outbuf_len(&c->out) <= c->d->lim->stream_buffer / 2;
}

/* ETIMEDOUT is TCP_USER_TIMEOUT: the peer's kernel has acknowledged nothing for so long. */
static enum tr_gone why_of(int error)
{
    return error == ETIMEDOUT ? TR_GONE_SLOW : TR_GONE_RESET;
}

/* After writing: faults, the end of the answer, the wish for more. */
static void after_write(struct tr_conn *c)
{
    if (c->broken) {
        tr_conn_kill(c, why_of(c->broken));
        return;
    }
    size_t unsent = tr_outbuf_len(&c->out);
    if (c->state == TR_CONN_CLOSING && unsent == 0)
        begin_linger(c);
    else if ((unsent && c->may_write) || /* a large answer to a fast reader */
             tr_conn_takes_more(c))
        tr_conn_later(c); /* `writable` comes from the next turn: one write each, then others */
}

/* ---- turns --------------------------------------------------------------------------- */

/* While an answer is due nothing is read; whether the peer is still there is asked from the
 * kernel, which keeps the state however much unread input there is. */
bool tr_conn_peer_lives(struct tr_conn *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    if (poll(&p, 1, 0) <= 0)
        return true;
    if (p.revents & (POLLERR | POLLHUP | POLLNVAL)) {
        int error = 0;
        socklen_t len = sizeof(error);
        getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len);
        tr_conn_kill(c, why_of(error));
        return false;
    }
    if (p.revents & POLLRDHUP)
        c->rdhup = true;
    return true;
}

static void look_for_close(struct tr_conn *c)
{
    if (!tr_conn_peer_lives(c) || !c->rdhup || c->fin_told || !c->x.owner_ops)
        return;
    c->fin_told = true;
    c->d->stats->half_closed++;
    c->x.owner_ops->half_closed(c->x.owner);
}

void tr_conn_turn_end(struct tr_conn *c)
{
    if (c->cut) {
        close_cut(c);
        return;
    }
    if (c->state == TR_CONN_RAW) {
        tr_conn_raw_turn_end(c);
        if (c->state == TR_CONN_DEAD)
            return;
    }
    if (c->state != TR_CONN_LINGER) {
        tr_conn_advance(c);
        tr_conn_write_out(c);
        after_write(c);
    }
    if (c->state == TR_CONN_READING) {
        tr_conn_read(c);
        if (c->state == TR_CONN_CLOSING)
            tr_conn_mark(c);
    }
    if (c->state == TR_CONN_LINGER)
        tr_conn_drop(c);
    tr_conn_arm(c);
}

void tr_conn_work(struct tr_conn *c)
{
    c->turn_body = 0;
    if (c->state == TR_CONN_RAW) {
        tr_conn_raw_work(c);
        return;
    }
    if (c->state == TR_CONN_BUSY)
        look_for_close(c);
    if (c->state == TR_CONN_DEAD)
        return;
    if (c->state != TR_CONN_LINGER)
        tr_conn_write_out(c);
    if (c->x.owner_ops && !c->broken && tr_conn_takes_more(c)) {
        c->want_writable = false;
        c->x.owner_ops->writable(c->x.owner);
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
    if (c->tls) /* either may wait for the other */
        c->may_read = c->may_write = true;
    c->rdhup |= (what & EV_CLOSED) != 0;
    tr_conn_work(c);
}

/* ---- birth ----------------------------------------------------------------------------- */

/* What is asked for; the kernel doubles it to have room for its own. */
static int send_buffer(const struct tr_http_limits *l)
{
    return (int)(l->stream_buffer * 4 > 65536 ? l->stream_buffer * 4 : 65536);
}

size_t tr_conn_kernel_bytes(const struct tr_http_limits *l)
{
    return 2 * (size_t)send_buffer(l);
}

/* The kernel's share of a connection is bounded, small writes leave at once, and a peer that
 * acknowledges nothing is given up.  All of it is best effort: a UNIX socket knows none of it. */
static void set_options(int fd, const struct tr_http_limits *l)
{
    int on = 1, sndbuf = send_buffer(l);
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
    if (!c)
        return NULL;
    c->x.ops = &tr_conn_exchange_ops;
    c->x.request_id = c->request_id;
    c->d = d;
    c->fd = fd;
    c->may_write = true;
    c->since_ns = tr_now_ns();
    c->overfull = d->stats->open - d->stats->overfull >= d->lim->max_connections;
    STAILQ_INIT(&c->deliveries);
    tr_http_init(&c->http, d->lim->max_header);
    if (d->tls && !(c->tls = tr_tls_conn_new(d->tls, fd))) {
        free(c);
        return NULL;
    }
    c->shaken = !c->tls;
    return c;
}

static void set_peer(struct tr_peer *p, const struct sockaddr *sa)
{
    const struct sockaddr_in *v4 = (const void *)sa;
    const struct sockaddr_in6 *v6 = (const void *)sa;
    if (sa && sa->sa_family == AF_INET) {
        *p = (struct tr_peer){.family = AF_INET, .port = ntohs(v4->sin_port)};
        memcpy(p->addr, &v4->sin_addr, sizeof(v4->sin_addr));
    } else if (sa && sa->sa_family == AF_INET6) {
        *p = (struct tr_peer){.family = AF_INET6, .port = ntohs(v6->sin6_port)};
        memcpy(p->addr, &v6->sin6_addr, sizeof(v6->sin6_addr));
    }
}

const struct tr_peer *tr_conn_peer(const struct tr_conn *c)
{
    return &c->peer;
}

int tr_conn_accept(struct tr_httpd *d, int fd)
{
    return tr_conn_accept_from(d, fd, NULL);
}

int tr_conn_accept_from(struct tr_httpd *d, int fd, const struct sockaddr *peer)
{
    struct tr_conn *c = NULL;
    d->stats->accepted++;
    if (d->stats->open < (uint64_t)d->lim->max_connections + OVERFULL_CONNECTIONS)
        c = new_conn(d, fd);
    if (!c) {
        d->stats->unanswered++;
        close(fd);
        return -ENOMEM;
    }
    set_peer(&c->peer, peer);
    set_options(fd, d->lim);
    event_assign(&c->ev, d->base, fd, EV_READ | EV_WRITE | EV_CLOSED | EV_ET | EV_PERSIST, on_event,
                 c);
    evtimer_assign(&c->timer, d->base, on_timer, c);
    if (event_add(&c->ev, NULL) < 0) {
        d->stats->unanswered++;
        close(fd);
        tr_conn_reap(c);
        return -ENOMEM;
    }
    d->stats->open++;
    d->stats->overfull += c->overfull;
    TAILQ_INSERT_TAIL(&d->all, c, all_link);
    tr_conn_arm(c);
    return 0;
}
