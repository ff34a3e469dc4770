/* SPDX-License-Identifier: Apache-2.0 */
/* A real loop, a real loopback socket, tiny handlers.  Server and clients live in one thread: the
 * client pumps the loop while it waits. */
#include "base/clock.h"
#include "base/json.h"
#include "frontend/listen.h"
#include "frontend/route.h"

#include <criterion/criterion.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS 1000000ull

enum { KEPT = 8 << 20 };

/* ---- what the system is asked, and when it refuses ------------------------------------------ */

static struct {
    unsigned asks;   /* SIOCOUTQ */
    bool no_timers;  /* event_add of a timer fails: out of memory */
    unsigned denied; /* so often */
} sys;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
int __real_ioctl(int fd, unsigned long op, ...);
int __wrap_ioctl(int fd, unsigned long op, ...);
int __real_event_add(struct event *ev, const struct timeval *tv);
int __wrap_event_add(struct event *ev, const struct timeval *tv);

int __wrap_ioctl(int fd, unsigned long op, ...)
{
    va_list ap;
    va_start(ap, op);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    sys.asks += op == SIOCOUTQ;
    return __real_ioctl(fd, op, arg);
}

int __wrap_event_add(struct event *ev, const struct timeval *tv)
{
    if (sys.no_timers && tv && (tv->tv_sec || tv->tv_usec)) {
        sys.denied++;
        return -1;
    }
    return __real_event_add(ev, tv);
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* ---- server -------------------------------------------------------------------------------- */

static struct {
    struct event_base *base;
    struct tr_http_limits lim;
    struct tr_httpd *d;
    struct tr_listen *l;
    int fd;
    uint16_t port;
    bool need_key;
    bool cancel_on_fin; /* as a handler of non-streamed requests does */
    unsigned half_closed, gone, writables, ended;
    enum tr_gone why;
    uint64_t flood_bytes; /* of one /flood answer */
    size_t max_unsent;
    uint64_t delivered, delivered_of;
    unsigned deliveries;
    unsigned sunk;  /* bodies that /sink saw */
    uint64_t given; /* bytes that the last /give added to its connection */
} rig;

/* The owner of an answer that takes time. */
struct slow {
    struct tr_exchange *x;
    struct event *timer;
    uint64_t left; /* events, or bytes of a flood */
    uint64_t begin;
    bool flood;
    struct tr_delivered delivery;
};

static void slow_free(struct slow *s)
{
    event_free(s->timer);
    free(s);
}

static void delivered(struct tr_delivered *d, uint64_t acked)
{
    struct slow *s = (struct slow *)((char *)d - offsetof(struct slow, delivery));
    rig.delivered = acked;
    rig.delivered_of = d->upto;
    rig.deliveries++;
    slow_free(s);
}

static void slow_end(struct slow *s)
{
    struct tr_exchange *x = s->x;
    rig.ended++;
    event_del(s->timer);
    tr_exchange_stream_end(x);
    s->delivery.done = delivered;
    s->delivery.upto = tr_exchange_accepted(x);
    tr_exchange_deliver(x, &s->delivery);
}

static void flood_on(struct slow *s)
{
    static const char block[1000];
    while (s->left && tr_exchange_room(s->x) > 0) {
        size_t n = s->left < sizeof(block) ? (size_t)s->left : sizeof(block);
        tr_exchange_stream_write(s->x, block, n);
        s->left -= n;
        if (tr_exchange_unsent(s->x) > rig.max_unsent)
            rig.max_unsent = tr_exchange_unsent(s->x);
    }
    if (s->left == 0)
        slow_end(s);
}

static void slow_writable(void *owner)
{
    rig.writables++;
    if (((struct slow *)owner)->flood)
        flood_on(owner);
}

static void slow_half_closed(void *owner)
{
    struct slow *s = owner;
    rig.half_closed++;
    if (s->begin) {
        tr_exchange_stream_write(s->x, ": probe\n\n", 9);
    } else if (rig.cancel_on_fin) {
        tr_exchange_stream_abort(s->x, false);
        slow_free(s);
    }
}

static void slow_gone(void *owner, enum tr_gone why)
{
    rig.gone++;
    rig.why = why;
    slow_free(owner);
}

static const struct tr_owner_ops slow_ops = {slow_writable, slow_half_closed, slow_gone};

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct slow *s = arg;
    char line[32];
    if (s->left == 0) {
        slow_end(s);
        return;
    }
    s->left--;
    tr_exchange_stream_write(
        s->x, line, (size_t)snprintf(line, sizeof(line), "data: %u\n\n", (unsigned)s->left));
    event_add(s->timer, &(struct timeval){0, 1000});
}

static struct slow *slow_new(struct tr_exchange *x)
{
    struct slow *s = calloc(1, sizeof(*s));
    cr_assert(s);
    s->x = x;
    s->timer = event_new(rig.base, -1, 0, on_tick, s);
    tr_exchange_bind(x, &slow_ops, s);
    return s;
}

static void do_ping(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    (void)rq, (void)ctx;
    tr_exchange_reply(x, 200, "text/plain", "pong", 4);
}

static void do_echo(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    (void)ctx;
    tr_exchange_reply(x, 200, "application/octet-stream", rq->body.p, rq->body.len);
}

static void do_hold(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    (void)rq, (void)ctx;
    slow_new(x);
}

static void do_stream(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    (void)ctx;
    char n[16];
    struct slow *s = slow_new(x);
    s->left = tr_http_query(rq->http, "n", n, sizeof(n)) > 0 ? strtoull(n, NULL, 10) : 3;
    s->begin = 1;
    tr_exchange_stream_begin(x, "text/event-stream");
    event_add(s->timer, &(struct timeval){0, 1000});
}

static void do_cut(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    (void)rq, (void)ctx;
    tr_exchange_stream_begin(x, "text/event-stream");
    tr_exchange_stream_write(x, "data: 1\n\n", 9);
    tr_exchange_flush(x);
    tr_exchange_stream_abort(x, false);
}

static void do_flood(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    (void)rq, (void)ctx;
    struct slow *s = slow_new(x);
    s->flood = true;
    s->begin = 1;
    s->left = rig.flood_bytes;
    tr_exchange_stream_begin(x, "application/octet-stream");
    flood_on(s);
}

static void do_corked(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    (void)rq, (void)ctx;
    struct slow *s = slow_new(x);
    tr_exchange_stream_begin(x, "text/event-stream");
    for (int i = 0; i < 10; i++)
        tr_exchange_stream_write(x, "data: x\n\n", 9);
    cr_expect_gt(tr_exchange_unsent(x), 90u);
    slow_end(s);
}

static void do_sink(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    (void)ctx;
    cr_expect_gt(rq->body.len, 0u);
    rig.sunk++;
    tr_exchange_reply(x, 200, "text/plain", "ok", 2);
}

/* ?n= bytes from malloc, which the connection frees. */
static void do_give(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    (void)ctx;
    char buf[16];
    size_t n = tr_http_query(rq->http, "n", buf, sizeof(buf)) > 0 ? strtoull(buf, NULL, 10) : 0;
    char *body = n ? malloc(n) : NULL;
    for (size_t i = 0; i < n; i++)
        body[i] = (char)('a' + i % 26);
    uint64_t before = tr_exchange_accepted(x);
    tr_exchange_reply_give(x, 200, "application/octet-stream", body, n);
    rig.given = tr_exchange_accepted(x) - before;
}

/* The body leaves the connection and comes back as the answer: never copied. */
static void do_take(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    (void)ctx;
    size_t len = rq->body.len;
    char *body = tr_exchange_take_body(x);
    cr_expect(body == rq->body.p && tr_exchange_take_body(x) == NULL);
    tr_exchange_reply_give(x, 200, "application/octet-stream", body, len);
}

static void do_nothing(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    (void)x, (void)rq, (void)ctx;
}

static void do_id(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    (void)ctx;
    tr_exchange_header(x, "X-Extra", "1");
    cr_expect_eq(tr_exchange_header(x, "X-Bad", "a\r\nb"), -EINVAL);
    tr_exchange_errorf(x, TR_ERR_MODEL_NOT_FOUND, "model", "no model '%.*s'", (int)rq->id_param.len,
                       rq->id_param.p);
}

static const struct tr_route routes[] = {
    {.method = TR_HTTP_GET, .pattern = "/ping", .handler = do_ping, .flags = TR_ROUTE_OPEN},
    {.method = TR_HTTP_POST, .pattern = "/echo", .handler = do_echo},
    {.method = TR_HTTP_GET, .pattern = "/hold", .handler = do_hold},
    {.method = TR_HTTP_POST, .pattern = "/stream", .handler = do_stream},
    {.method = TR_HTTP_GET, .pattern = "/flood", .handler = do_flood},
    {.method = TR_HTTP_GET, .pattern = "/nothing", .handler = do_nothing},
    {.method = TR_HTTP_GET, .pattern = "/give", .handler = do_give},
    {.method = TR_HTTP_POST, .pattern = "/take", .handler = do_take},
    {.method = TR_HTTP_POST, .pattern = "/sink", .handler = do_sink},
    {.method = TR_HTTP_GET, .pattern = "/cut", .handler = do_cut},
    {.method = TR_HTTP_GET, .pattern = "/corked", .handler = do_corked},
    {.method = TR_HTTP_GET, .pattern = "/models/{id*}", .handler = do_id},
};

static enum tr_err check(void *ctx, struct tr_exchange *x, struct tr_http_request *rq,
                         const char **why)
{
    (void)ctx, (void)x, (void)why;
    struct tr_slice v = tr_http_field(rq->http, "authorization");
    return rig.need_key && (v.len != 8 || memcmp(v.p, "Bearer k", 8) != 0) ? TR_ERR_UNAUTHORIZED
                                                                           : TR_OK;
}

static void start(void)
{
    struct tr_httpd_ops ops = {check, routes, sizeof(routes) / sizeof(routes[0]), NULL};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    rig.base = event_base_new();
    rig.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    cr_assert(rig.base && rig.fd >= 0);
    cr_assert_eq(bind(rig.fd, (struct sockaddr *)&a, sizeof(a)), 0);
    cr_assert_eq(listen(rig.fd, 1024), 0); /* a thousand at once, and no turn taken yet */
    getsockname(rig.fd, (struct sockaddr *)&a, &len);
    rig.port = ntohs(a.sin_port);
    rig.d = tr_httpd_new(rig.base, &rig.lim, &ops);
    cr_assert(rig.d);
    rig.l = tr_listen_new(rig.d, rig.base, rig.fd, NULL);
    cr_assert(rig.l);
}

static void setup(void)
{
    rig.lim = tr_http_limits_default;
}

static void stop(void)
{
    if (!rig.d)
        return;
    tr_listen_free(rig.l);
    tr_httpd_free(rig.d);
    event_base_free(rig.base);
    close(rig.fd);
}

TestSuite(conn, .init = setup, .fini = stop);

/* ---- client ------------------------------------------------------------------------------- */

struct client {
    int fd;
    char *buf;
    size_t len;
    bool eof, reset;
    bool deaf; /* does not read */
};

static void pump(void)
{
    event_base_loop(rig.base, EVLOOP_NONBLOCK | EVLOOP_ONCE);
}

static void hear(struct client *k)
{
    while (!k->eof && !k->deaf && k->len < KEPT) {
        ssize_t n = recv(k->fd, k->buf + k->len, KEPT - k->len, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            k->eof = true;
            k->reset = n < 0;
            return;
        }
        k->len += (size_t)n;
    }
}

static struct client *dial_with(int rcvbuf)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(rig.port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct client *k = calloc(1, sizeof(*k));
    cr_assert(k);
    k->buf = calloc(1, KEPT + 1);
    k->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (rcvbuf)
        setsockopt(k->fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof(rcvbuf));
    cr_assert_eq(connect(k->fd, (struct sockaddr *)&a, sizeof(a)), 0);
    fcntl(k->fd, F_SETFL, O_NONBLOCK);
    return k;
}

static struct client *dial(void)
{
    return dial_with(0);
}

static void hang_up(struct client *k)
{
    if (k->fd >= 0)
        close(k->fd);
    free(k->buf);
    free(k);
}

static void reset_fd(int fd)
{
    struct linger hard = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    close(fd);
}

/* Sends all of it (as far as the server lets us) without reading. */
static void say_n(struct client *k, const char *s, size_t n)
{
    uint64_t until = tr_now_ns() + 60000 * MS;
    while (n && tr_now_ns() < until) {
        ssize_t w = send(k->fd, s, n, MSG_NOSIGNAL);
        if (w < 0 && errno != EAGAIN)
            return;
        if (w > 0) {
            s += w;
            n -= (size_t)w;
        }
        pump();
    }
}

static void say(struct client *k, const char *s)
{
    say_n(k, s, strlen(s));
}

/* For what comes within `ms` on an idle machine; a busy one has ten times as long. */
#define WAIT(cond, ms, ...)                                                                        \
    do {                                                                                           \
        uint64_t until_ = tr_now_ns() + 10 * (uint64_t)(ms)*MS;                                    \
        while (!(cond) && tr_now_ns() < until_) {                                                  \
            pump();                                                                                \
            struct client *k_[] = {__VA_ARGS__};                                                   \
            for (size_t i_ = 0; i_ < sizeof(k_) / sizeof(k_[0]); i_++)                             \
                hear(k_[i_]);                                                                      \
        }                                                                                          \
        cr_assert(cond, "%s: %.300s", #cond, ((struct client *[]){__VA_ARGS__})[0]->buf);          \
    } while (0)

static unsigned count(const struct client *k, const char *part)
{
    unsigned n = 0;
    size_t len = strlen(part);
    for (const char *p = k->buf; (p = memmem(p, k->len - (size_t)(p - k->buf), part, len)); p++)
        n++;
    return n;
}

static bool has(const struct client *k, const char *part)
{
    return count(k, part) > 0;
}

/* The last body in the buffer is the error object with all four keys. */
static void expect_error_json(const struct client *k, const char *code)
{
    const char *head_end = NULL;
    for (const char *p = k->buf; (p = strstr(p, "\r\n\r\n")); p += 4)
        head_end = p + 4;
    cr_assert(head_end);
    struct tr_json_fault f;
    struct tr_json_doc *d = tr_json_parse(head_end, k->len - (size_t)(head_end - k->buf), &f);
    cr_assert(d, "%s: %s", head_end, f.why);
    const struct tr_json *e = TR_JSON_GET(tr_json_root(d), "error");
    cr_expect(tr_json_is(TR_JSON_GET(e, "message"), TR_JSON_STRING));
    cr_expect(tr_json_is(TR_JSON_GET(e, "type"), TR_JSON_STRING));
    cr_expect(TR_JSON_GET(e, "param"));
    cr_expect(tr_json_eq(TR_JSON_GET(e, "code"), code, strlen(code)), "%s", head_end);
    tr_json_free(d);
}

#define PING "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
#define ECHO(n) "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: " #n "\r\n\r\n"
#define STREAM(q) "POST /stream" q " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"

/* ---- requests and answers -------------------------------------------------------------------- */

Test(conn, answers_come_in_order_on_one_connection)
{
    start();
    struct client *k = dial();
    say(k, PING ECHO(3) "abc" PING STREAM("") PING);
    WAIT(count(k, "pong") == 3 && has(k, "0\r\n\r\n"), 2000, k);
    cr_expect_eq(count(k, "HTTP/1.1 200 OK"), 5);
    cr_expect(has(k, "\r\n\r\nabcHTTP/1.1 200"));
    cr_expect(has(k, "9\r\ndata: 2\n\n\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 0\n\n\r\n0\r\n\r\nHTTP"));
    cr_expect(has(k, "X-Accel-Buffering: no\r\nIncremental: ?1\r\nTransfer-Encoding: chunked"));
    cr_expect_not(k->eof);
    say(k, PING);
    WAIT(count(k, "pong") == 4, 2000, k);
    hang_up(k);
}

Test(conn, what_is_written_in_a_turn_leaves_at_once_and_in_its_own_chunks)
{
    start();
    struct client *k = dial();
    say(k, "GET /corked HTTP/1.1\r\nHost: x\r\n\r\n");
    WAIT(k->len > 0, 2000, k);
    cr_expect(has(k, "0\r\n\r\n"), "the answer came in pieces: %s", k->buf);
    cr_expect_eq(count(k, "9\r\ndata: x\n\n\r\n"), 10);
    hang_up(k);
}

Test(conn, http10_streams_without_chunks_and_closes)
{
    start();
    struct client *k = dial();
    say(k, "POST /stream HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
    WAIT(k->eof, 2000, k);
    cr_expect(has(k, "\r\n\r\ndata: 2\n\ndata: 1\n\ndata: 0\n\n"));
    cr_expect(has(k, "Connection: close"));
    cr_expect_not(has(k, "Transfer-Encoding"));
    cr_expect_not(k->reset);
    hang_up(k);
    k = dial();
    say(k, "GET /ping HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /ping HTTP/1.0\r\n\r\n");
    WAIT(k->eof, 2000, k);
    cr_expect_eq(count(k, "pong"), 2);
    hang_up(k);
}

Test(conn, a_cut_stream_looks_cut)
{
    start();
    struct client *k = dial();
    say(k, "GET /cut HTTP/1.1\r\nHost: x\r\n\r\n");
    WAIT(k->eof, 2000, k);
    cr_expect_not(has(k, "0\r\n\r\n"));
    hang_up(k);
    k = dial();
    say(k, "GET /cut HTTP/1.0\r\n\r\n");
    WAIT(k->eof, 2000, k);
    cr_expect(k->reset);
    hang_up(k);
}

Test(conn, a_handler_that_forgets_to_answer_is_500)
{
    start();
    struct client *k = dial();
    say(k, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n");
    WAIT(has(k, "internal_error"), 2000, k);
    cr_expect(has(k, "HTTP/1.1 500"));
    hang_up(k);
}

Test(conn, head_has_the_length_and_no_body)
{
    start();
    struct client *k = dial();
    say(k, "HEAD /ping HTTP/1.1\r\nHost: x\r\n\r\n" PING);
    WAIT(has(k, "pong"), 2000, k);
    cr_expect_eq(count(k, "Content-Length: 4"), 2);
    cr_expect_eq(count(k, "pong"), 1);
    hang_up(k);
}

/* Each size around the one from which a body is not copied, and one that fills the socket. */
Test(conn, a_body_that_is_given_arrives_whole_and_the_next_answer_after_it)
{
    static const size_t sizes[] = {0, 1, (16 << 10) - 1, 16 << 10, (16 << 10) + 1, 3 << 20};
    start();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct client *k = dial();
        char s[128], length[64];
        snprintf(s, sizeof(s), "GET /give?n=%zu HTTP/1.1\r\nHost: x\r\n\r\n", sizes[i]);
        snprintf(length, sizeof(length), "Content-Length: %zu\r\n", sizes[i]);
        say(k, s);
        say(k, PING);
        WAIT(has(k, "pong"), 5000, k);
        const char *body = strstr(k->buf, "\r\n\r\n") + 4;
        cr_expect(has(k, length), "%.200s", k->buf);
        cr_expect_eq(rig.given, (uint64_t)(body - k->buf) + sizes[i]);
        for (size_t at = 0; at < sizes[i]; at++)
            cr_assert_eq(body[at], 'a' + (char)(at % 26), "byte %zu of %zu", at, sizes[i]);
        cr_expect_eq(strncmp(body + sizes[i], "HTTP/1.1 200", 12), 0);
        cr_expect_eq(tr_httpd_stats(rig.d)->unsent_bytes, 0u);
        hang_up(k);
    }
}

Test(conn, a_body_that_is_given_is_freed_with_head_and_when_the_client_is_gone)
{
    start();
    struct client *k = dial();
    say(k, "HEAD /give?n=100000 HTTP/1.1\r\nHost: x\r\n\r\n" PING);
    WAIT(has(k, "pong"), 2000, k);
    cr_expect(has(k, "Content-Length: 100000\r\n") && !has(k, "abcdef"));
    cr_expect_lt(rig.given, 1000u);
    hang_up(k);
    k = dial_with(4096);
    k->deaf = true;
    say(k, "GET /give?n=8000000 HTTP/1.1\r\nHost: x\r\n\r\n");
    WAIT(tr_httpd_stats(rig.d)->unsent_bytes > 1000000, 2000, k);
    reset_fd(k->fd);
    k->fd = -1;
    WAIT(tr_httpd_stats(rig.d)->open == 0, 2000, k);
    cr_expect_eq(tr_httpd_stats(rig.d)->unsent_bytes, 0u);
    hang_up(k);
}

Test(conn, a_body_can_be_taken_from_the_connection)
{
    start();
    struct client *k = dial();
    say(k, "POST /take HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
           "POST /take HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
           "2\r\nde\r\n0\r\n\r\n"
           "POST /take HTTP/1.1\r\nHost: x\r\n\r\n" PING);
    WAIT(has(k, "pong"), 2000, k);
    cr_expect(has(k, "\r\n\r\nhelloHTTP/1.1") && has(k, "\r\n\r\nabcdeHTTP/1.1"));
    cr_expect_eq(count(k, "HTTP/1.1 200"), 4u);
    hang_up(k);
}

Test(conn, the_request_id_is_echoed_or_made)
{
    start();
    struct client *k = dial();
    say(k, "GET /ping HTTP/1.1\r\nHost: x\r\nX-Request-Id: abc-1\r\n\r\n");
    WAIT(has(k, "pong"), 2000, k);
    cr_expect(has(k, "X-Request-Id: abc-1\r\n"));
    say(k, "GET /models/a/%22b%ff HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\xff\r\n\r\n");
    WAIT(has(k, "}}"), 2000, k);
    cr_expect(has(k, "X-Extra: 1\r\n") && !has(k, "X-Bad"));
    cr_expect(has(k, "no model 'a/\\\"b\xef\xbf\xbd'\""));
    cr_expect(has(k, "\"param\":\"model\""));
    cr_expect_eq(count(k, "X-Request-Id: "), 2);
    cr_expect_not(has(k, "a\xff"));
    hang_up(k);
}

Test(conn, sockets_have_nodelay_and_bounded_buffers)
{
    start();
    int fds[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    cr_expect_eq(tr_conn_accept(rig.d, fds[0]), 0, "a UNIX socket serves too");
    struct client k = {.fd = fds[1], .buf = calloc(1, KEPT + 1)};
    say(&k, PING);
    WAIT(has(&k, "pong"), 2000, &k);
    close(fds[1]);
    free(k.buf);
    struct client *t = dial();
    say(t, PING);
    WAIT(has(t, "pong"), 2000, t);
    int on = 0;
    socklen_t len = sizeof(on);
    bool seen = false;
    for (int fd = 3; fd < 64; fd++) { /* the server's end is the one whose peer is t */
        struct sockaddr_in a = {0}, b = {0};
        socklen_t al = sizeof(a), bl = sizeof(b);
        if (getpeername(fd, (struct sockaddr *)&a, &al) != 0 || a.sin_family != AF_INET ||
            getsockname(t->fd, (struct sockaddr *)&b, &bl) != 0 || a.sin_port != b.sin_port)
            continue;
        seen = true;
        getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &len);
        cr_expect_eq(on, 1);
        getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &on, &len);
        cr_expect_eq(on, (int)rig.lim.stream_buffer);
    }
    cr_expect(seen);
    hang_up(t);
}

/* ---- refusals ------------------------------------------------------------------------------ */

Test(conn, a_refused_body_never_becomes_a_request_line)
{
    rig.need_key = true;
    start();
    static const char *const first[] = {
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n",
        "POST /no/such/path HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n",
        "POST /ping HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 2000\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        for (int split = 0; split < 2; split++) {
            struct client *k = dial();
            char s[4096];
            size_t n = (size_t)sprintf(s, "%s", first[i]);
            memset(s + n, '{', 2000);
            say_n(k, s, n + (split ? 100 : 2000));
            if (split) {
                WAIT(has(k, "}}"), 2000, k);
                say_n(k, s + n, 1900);
            }
            say(k, PING);
            WAIT(has(k, "pong"), 2000, k);
            cr_expect_eq(count(k, "HTTP/1.1 "), 2, "%s", k->buf);
            cr_expect_eq(count(k, "HTTP/1.1 4"), 1, "%s", k->buf);
            hang_up(k);
        }
    }
    /* chunked: closed after the answer */
    struct client *k = dial();
    say(k, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\"}\r\n");
    say(k, "0\r\n\r\n" PING);
    WAIT(k->eof, 2000, k);
    cr_expect(has(k, "Connection: close") && count(k, "HTTP/1.1 ") == 1);
    expect_error_json(k, "invalid_api_key");
    hang_up(k);
}

Test(conn, unknown_paths_and_methods_are_json_with_allow)
{
    start();
    struct client *k = dial();
    say(k, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    WAIT(has(k, "}}"), 2000, k);
    cr_expect(has(k, "HTTP/1.1 405") && has(k, "Allow: POST, OPTIONS\r\n"));
    expect_error_json(k, "method_not_allowed");
    say(k, "GET /nope HTTP/1.1\r\nHost: x\r\n\r\n");
    WAIT(count(k, "}}") == 2, 2000, k);
    expect_error_json(k, "not_found");
    say(k, "BREW /ping HTTP/1.1\r\nHost: x\r\n\r\n");
    WAIT(count(k, "}}") == 3, 2000, k);
    expect_error_json(k, "not_implemented");
    say(k, "GET //ping/?x=1 HTTP/1.1\r\nHost: [::1]\r\n\r\n");
    WAIT(has(k, "pong"), 2000, k);
    say(k, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data\r\n"
           "Content-Length: 1\r\n\r\nx");
    WAIT(count(k, "}}") == 4, 2000, k);
    expect_error_json(k, "unsupported_media_type");
    cr_expect_not(k->eof);
    hang_up(k);
}

Test(conn, broken_framing_is_answered_and_closed)
{
    start();
    static const struct {
        const char *s, *status;
    } t[] = {
        {"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400"},
        {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: "
         "chunked\r\n\r\n",
         "HTTP/1.1 400"},
        {"GET / HTTP/3.0\r\n\r\n", "HTTP/1.1 505"},
        {"\x16\x03\x01\xff", "HTTP/1.1 400"},
        {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
         "HTTP/1.1 400"},
    };
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        struct client *k = dial();
        say(k, t[i].s);
        WAIT(k->eof, 2000, k);
        cr_expect(strncmp(k->buf, t[i].status, 12) == 0, "%s: %s", t[i].s, k->buf);
        cr_expect(has(k, "Connection: close") && has(k, "\"error\":{") && !k->reset);
        hang_up(k);
    }
}

Test(conn, continue_is_said_once_and_only_when_the_body_is_wanted)
{
    rig.need_key = true;
    start();
    struct client *k = dial();
#define EXPECT(extra) "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n" extra "\r\n"
    say(k, EXPECT("Authorization: Bearer k\r\nContent-Length: 40000\r\n"));
    WAIT(has(k, "HTTP/1.1 100 Continue\r\n\r\n"), 100, k);
    static char piece[4000];
    memset(piece, 'b', sizeof(piece));
    for (int i = 0; i < 10; i++)
        say_n(k, piece, sizeof(piece));
    WAIT(k->len > 40000, 2000, k);
    cr_expect_eq(count(k, "HTTP/1.1 100"), 1);
    cr_expect_eq(count(k, "HTTP/1.1 200"), 1);
    hang_up(k);
    static const struct {
        const char *s, *status;
    } t[] = {
        {EXPECT("Content-Length: 5\r\n"), "HTTP/1.1 401"},
        {EXPECT("Authorization: Bearer k\r\nContent-Length: 99999999\r\n"), "HTTP/1.1 413"},
    };
    for (size_t i = 0; i < 2; i++) {
        k = dial();
        say(k, t[i].s);
        WAIT(k->eof, 2000, k);
        cr_expect(strncmp(k->buf, t[i].status, 12) == 0, "%s", k->buf);
        hang_up(k);
    }
    k = dial();
    say(k, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: foo\r\nContent-Length: 1\r\n\r\na");
    WAIT(has(k, "HTTP/1.1 417"), 2000, k);
    hang_up(k);
    k = dial();
    say(k, "POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nAuthorization: Bearer k\r\n"
           "Content-Length: 1\r\n\r\na");
    WAIT(k->eof, 2000, k);
    cr_expect_not(has(k, "100 Continue"));
    hang_up(k);
}

static void too_large(const char *head, size_t send_bytes)
{
    struct client *k = dial();
    char *body = malloc(send_bytes + 1);
    memset(body, 'a', send_bytes);
    k->deaf = true; /* sends everything before it reads */
    say(k, head);
    say_n(k, body, send_bytes);
    k->deaf = false;
    WAIT(k->eof, 5000, k);
    cr_expect(strncmp(k->buf, "HTTP/1.1 413", 12) == 0, "%.80s", k->buf);
    cr_expect_not(k->reset);
    expect_error_json(k, "body_too_large");
    free(body);
    hang_up(k);
}

Test(conn, a_body_over_the_limit_gets_its_413_whole)
{
    rig.lim.max_body = 1 << 20;
    start();
    for (int i = 0; i < 5; i++) {
        too_large("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n", 1048577);
        too_large("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4194304\r\n\r\n", 4194304);
        too_large("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9223372036854775807\r\n\r\n",
                  0);
    }
    /* chunks without end: the answer is readable although we stop listening */
    struct client *k = dial();
    static char chunk[65536 + 16];
    size_t n = (size_t)sprintf(chunk, "10000\r\n");
    memset(chunk + n, 'a', 65536);
    memcpy(chunk + n + 65536, "\r\n", 2);
    say(k, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 1000; i++) {
        cr_assert(send(k->fd, chunk, n + 65538, MSG_NOSIGNAL) > 0 || errno == EAGAIN);
        pump();
    }
    WAIT(k->eof, 5000, k);
    cr_expect_not(k->reset);
    expect_error_json(k, "body_too_large");
    cr_expect_eq(tr_httpd_stats(rig.d)->open, 1u);
    reset_fd(k->fd); /* what it sent is still unread, and yet its end is seen */
    k->fd = -1;
    WAIT(tr_httpd_stats(rig.d)->open == 0, 2000, k);
    hang_up(k);
}

/* All but the last byte of many large bodies: they share their room, and small ones have their own. */
Test(conn, bodies_on_their_way_take_bounded_memory)
{
    enum { N = 6, BODY = 256 << 10 };
    static char body[BODY];
    rig.lim.max_bodies = 2 * BODY;
    start();
    struct client *k[N], *small = dial();
    memset(body, 'b', sizeof(body));
    for (int i = 0; i < N; i++) {
        k[i] = dial();
        say(k[i],
            i % 2
                ? ECHO(262144)
                : "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n40000\r\n");
        say_n(k[i], body, BODY - 1);
    }
    WAIT(has(k[N - 1], "}}"), 2000, k[N - 1]);
    cr_expect_leq(tr_httpd_stats(rig.d)->body_bytes, 2u * BODY + N * (64u << 10));
    expect_error_json(k[N - 1], "engine_overloaded");
    cr_expect(has(k[N - 1], "HTTP/1.1 503") && has(k[N - 1], "Retry-After") &&
              has(k[N - 1], "onnection: close"));
    uint64_t refused = 0;
    for (int i = 0; i < N; i++) {
        hear(k[i]);
        refused += has(k[i], "HTTP/1.1 503");
    }
    cr_expect_eq(tr_httpd_stats(rig.d)->turned_away, refused);
    say(small, ECHO(60000));
    say_n(small, body, 60000);
    WAIT(small->len > 60000, 2000, small);
    cr_expect(has(small, "HTTP/1.1 200"));
    for (int i = 0; i < N; i++)
        hang_up(k[i]);
    WAIT(tr_httpd_stats(rig.d)->open == 1, 2000, small);
    cr_expect_eq(tr_httpd_stats(rig.d)->body_bytes, 0u);
    say(small, ECHO(262144));
    say_n(small, body, BODY);
    WAIT(count(small, "HTTP/1.1 200") == 2 && small->len > BODY + 60000, 2000, small);
    cr_expect_eq(tr_httpd_stats(rig.d)->body_bytes, 0u);
    hang_up(small);
}

Test(conn, browsers_get_their_preflight_and_errors_too)
{
    rig.need_key = true;
    rig.lim.cors = "https://page.example";
    start();
    struct client *k = dial();
    say(k, "OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: https://page.example\r\n"
           "Access-Control-Request-Method: POST\r\n"
           "Access-Control-Request-Headers: authorization,content-type,x-stainless-os\r\n\r\n");
    WAIT(has(k, "\r\n\r\n"), 2000, k);
    cr_expect(strncmp(k->buf, "HTTP/1.1 204", 12) == 0);
    cr_expect(has(k, "Access-Control-Allow-Origin: https://page.example\r\n"));
    cr_expect(has(k, "Access-Control-Allow-Methods: POST, OPTIONS\r\n"));
    cr_expect(has(k, "Allow-Headers: authorization,content-type,x-stainless-os\r\n"));
    cr_expect_not(has(k, "Content-Length"));
    say(k, ECHO(0));
    WAIT(has(k, "HTTP/1.1 401"), 2000, k);
    cr_expect_eq(count(k, "Access-Control-Allow-Origin"), 2);
    say(k, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n");
    WAIT(count(k, "HTTP/1.1 204") == 2, 2000, k);
    hang_up(k);
}

/* ---- time ---------------------------------------------------------------------------------- */

Test(conn, slow_heads_and_bodies_are_timed_out)
{
    rig.lim.header_timeout_ns = 60 * MS;
    rig.lim.body_timeout_ns = 60 * MS;
    rig.lim.keepalive_ns = 120 * MS;
    start();
    struct client *silent = dial(), *head = dial(), *body = dial(), *idle = dial();
    say(head, "GET /ping HTTP/1.1\r\nHost");
    say(body, ECHO(100) "abc");
    say(idle, PING);
    uint64_t t = tr_now_ns();
    WAIT(silent->eof && head->eof && body->eof, 2000, silent, head, body, idle);
    cr_expect_eq(silent->len, 0);
    expect_error_json(head, "request_timeout");
    cr_expect(has(head, "X-Request-Id: "));
    expect_error_json(body, "request_timeout");
    cr_expect(has(idle, "pong"));
    WAIT(idle->eof, 2000, idle);
    cr_expect_geq(tr_now_ns() - t, 100 * MS);
    hang_up(silent), hang_up(head), hang_up(body), hang_up(idle);
}

Test(conn, a_timer_that_could_not_be_armed_is_armed_by_the_tick)
{
    rig.lim.header_timeout_ns = 100 * MS;
    start();
    sys.no_timers = true;
    struct client *k = dial();
    say(k, "GET /ping HTTP/1.1\r\n");
    WAIT(tr_httpd_stats(rig.d)->bytes_in > 0, 2000, k);
    cr_expect_gt(sys.denied, 0u);
    sys.no_timers = false;
    tr_httpd_tick(rig.d);
    WAIT(k->eof, 2000, k);
    expect_error_json(k, "request_timeout");
    hang_up(k);
}

Test(conn, a_dripping_head_does_not_extend_its_time)
{
    rig.lim.header_timeout_ns = 100 * MS;
    start();
    struct client *k = dial();
    say(k, "GET /ping HTTP/1.1\r\nHost: x\r\nA: ");
    int bytes = 0;
    for (; !k->eof && bytes < 200; bytes++) { /* a second and more */
        say(k, "a");
        usleep(5000);
        hear(k);
    }
    cr_expect(k->eof && bytes < 200);
    hang_up(k);
}

struct drip {
    uint64_t all_ms,
        pause_ms; /* until all is sent or the end came; the longest between two bytes */
};

/* Sends a body of 100 bytes, one in `pause_us`, or later when this process has no turn. */
static struct drip drip_body(struct client *k, useconds_t pause_us)
{
    struct drip d = {0};
    say(k, ECHO(100));
    uint64_t begin = tr_now_ns(), last = begin;
    for (int i = 0; i < 100 && !k->eof; i++) {
        usleep(pause_us);
        say(k, "a");
        hear(k);
        uint64_t now = tr_now_ns();
        d.pause_ms = (now - last) / MS > d.pause_ms ? (now - last) / MS : d.pause_ms;
        last = now;
    }
    d.all_ms = (last - begin) / MS;
    return d;
}

Test(conn, a_body_that_keeps_coming_is_not_timed_out)
{
    rig.lim.body_timeout_ns = 400 * MS;
    start();
    struct client *k = dial();
    struct drip d = drip_body(k, 8000);
    cr_expect_gt(d.all_ms, 700);
    if (d.pause_ms < 390)
        WAIT(has(k, "HTTP/1.1 200"), 2000, k);
    hang_up(k);
}

Test(conn, a_dripping_body_ends_after_ten_pauses)
{
    rig.lim.body_timeout_ns = 100 * MS;
    start();
    struct client *k = dial();
    struct drip d = drip_body(k, 20000); /* all of it would take two seconds */
    cr_expect(k->eof && (d.all_ms >= 1000 || d.pause_ms >= 95), "%u %u ms", (unsigned)d.all_ms,
              (unsigned)d.pause_ms);
    expect_error_json(k, "request_timeout");
    hang_up(k);
}

Test(conn, a_slow_reader_of_the_last_answer_is_not_idle)
{
    rig.lim.keepalive_ns = 50 * MS;
    rig.flood_bytes = 200000;
    start();
    struct client *k = dial_with(4096);
    k->deaf = true;
    say(k, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 2000 && !rig.ended; i++) { /* slowly, until only the last bytes wait */
        k->deaf = i % 4 != 0;
        pump();
        hear(k);
    }
    cr_assert_eq(rig.ended, 1);
    k->deaf = true;
    uint64_t t = tr_now_ns();
    while (tr_now_ns() - t < 150 * MS)
        pump();
    k->deaf = false;
    WAIT(k->eof, 2000, k);
    cr_expect(has(k, "0\r\n\r\n") && k->len > rig.flood_bytes && !k->reset);
    hang_up(k);
}

Test(conn, a_reader_that_takes_nothing_is_cut_as_slow)
{
    rig.lim.write_deadline_ns = 100 * MS;
    rig.flood_bytes = 50 << 20;
    start();
    struct client *k = dial_with(4096);
    k->deaf = true;
    say(k, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
    WAIT(rig.gone == 1, 3000, k);
    cr_expect_eq(rig.why, TR_GONE_SLOW);
    cr_expect_eq(tr_httpd_stats(rig.d)->slow_clients, 1);
    cr_expect_leq(rig.max_unsent, rig.lim.stream_buffer + 2048);
    hang_up(k);
}

/* ---- back-pressure ------------------------------------------------------------------------- */

Test(conn, an_owner_is_told_when_it_may_write_again)
{
    rig.flood_bytes = 5 << 20;
    start();
    struct client *k = dial_with(16384);
    k->deaf = true;
    say(k, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 200; i++)
        pump();
    cr_expect_gt(tr_httpd_stats(rig.d)->unsent_bytes, 0);
    cr_expect_lt(tr_httpd_stats(rig.d)->bytes_out, 1u << 20);
    k->deaf = false;
    WAIT(rig.ended == 1 && k->len > rig.flood_bytes, 5000, k);
    cr_expect_leq(rig.max_unsent, rig.lim.stream_buffer + 2048);
    cr_expect_gt(rig.writables, 50u);
    WAIT(rig.deliveries == 1, 2500, k);
    cr_expect_geq(rig.delivered, rig.delivered_of);
    cr_expect_eq(tr_httpd_stats(rig.d)->unsent_bytes, 0);
    hang_up(k);
}

/* A whole answer of n bytes that nobody reads, and a stream behind it. */
static struct client *stream_behind(size_t n)
{
    char ask[160];
    struct client *k = dial_with(4096);
    k->deaf = true;
    snprintf(ask, sizeof(ask),
             "GET /give?n=%zu HTTP/1.1\r\nHost: x\r\n\r\nGET /flood HTTP/1.1\r\nHost: x\r\n\r\n",
             n);
    say(k, ask);
    for (int i = 0; i < 100; i++)
        pump();
    return k;
}

Test(conn, a_stream_behind_an_answer_that_waits_is_told_when_it_may_write)
{
    rig.lim.stream_buffer = 64 << 10;
    rig.flood_bytes = 1000;
    start();
    /* How much the kernel takes is its own matter: more until it refuses the last of it. */
    struct client *k = NULL;
    for (size_t n = 48 << 10; !k && n < 1 << 20; n += 16 << 10) {
        uint64_t asked = tr_httpd_stats(rig.d)->requests;
        rig.ended = 0;
        k = stream_behind(n);
        bool both = tr_httpd_stats(rig.d)->requests == asked + 2;
        cr_assert(both, "the stream's turn has not come with %zu bytes", n);
        if (!rig.ended)
            break;
        hang_up(k);
        k = NULL;
    }
    cr_assert(k);
    k->deaf = false;
    WAIT(rig.ended == 1, 5000, k);
    WAIT(has(k, "\r\n0\r\n\r\n"), 5000, k);
    hang_up(k);
}

/* Bytes that arrive nowhere: small enough for the kernel, too many for the reader's window. */
Test(conn, deliveries_that_wait_are_asked_for_more_and_more_seldom)
{
    enum { N = 40 };
    rig.flood_bytes = 30000;
    rig.lim.stream_buffer = 64 << 10;
    start();
    struct client *k[N];
    for (int i = 0; i < N; i++) {
        k[i] = dial_with(2048);
        k[i]->deaf = true;
        say(k[i], "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    WAIT(rig.ended == N, 5000, k[0]);
    unsigned before = sys.asks;
    uint64_t begin = tr_now_ns();
    while (tr_now_ns() - begin < 1000 * MS)
        event_base_loop(rig.base, EVLOOP_ONCE);
    cr_expect_eq(rig.deliveries, 0);
    /* 10 + 20 + 40 + 80 ms, then every 160. */
    uint64_t most = 5 + (tr_now_ns() - begin) / (160 * MS);
    cr_expect_leq(sys.asks - before, N * most, "%u", sys.asks - before);
    for (int i = 0; i < N; i++)
        k[i]->deaf = false;
    uint64_t until = tr_now_ns() + 60000 * MS;
    while (rig.deliveries < N && tr_now_ns() < until) {
        for (int i = 0; i < N; i++)
            hear(k[i]);
        pump();
    }
    cr_expect_eq(rig.deliveries, N);
    cr_expect_geq(rig.delivered, rig.delivered_of);
    for (int i = 0; i < N; i++)
        hang_up(k[i]);
}

/* Without a pause between them: with one of 10 ms the kernel was asked all the same. */
Test(conn, answers_that_follow_each_other_do_not_keep_the_first_from_being_delivered)
{
    rig.flood_bytes = 10;
    start();
    struct client *k = dial();
    for (unsigned n = 0; n < 20000 && !rig.deliveries; n++) {
        say(k, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
        WAIT(rig.ended == n + 1, 5000, k);
    }
    cr_expect_gt(rig.deliveries, 0);
    hang_up(k);
}

Test(conn, what_a_dead_reader_did_not_take_is_not_delivered)
{
    rig.flood_bytes = 150000;
    start();
    struct client *k = dial_with(4096);
    k->deaf = true;
    say(k, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 100; i++)
        pump();
    reset_fd(k->fd);
    k->fd = -1;
    WAIT(rig.deliveries == 1 || rig.gone == 1, 3000, k);
    if (rig.deliveries)
        cr_expect_lt(rig.delivered, rig.delivered_of);
    hang_up(k);
}

Test(conn, input_is_not_read_while_an_answer_is_due)
{
    start();
    struct client *k = dial();
    say(k, STREAM("?n=200"));
    WAIT(has(k, "data: 199"), 2000, k);
    uint64_t before = tr_httpd_stats(rig.d)->bytes_in;
    static char junk[1 << 20];
    memset(junk, 'j', sizeof(junk));
    for (int i = 0; i < 50; i++) {
        (void)!send(k->fd, junk, sizeof(junk), MSG_NOSIGNAL | MSG_DONTWAIT);
        pump();
    }
    cr_expect_leq(tr_httpd_stats(rig.d)->bytes_in - before, 16u << 10);
    WAIT(k->eof, 5000, k);
    cr_expect(has(k, "0\r\n\r\nHTTP/1.1 4")); /* the junk is no request */
    hang_up(k);
}

Test(conn, pipelined_bodies_leave_the_others_their_turn)
{
    enum { N = 40, BODY = 8000 };
    static char s[N * (BODY + 100)];
    size_t len = 0;
    start();
    struct client *k = dial();
    for (int i = 0; i < N; i++) {
        len += (size_t)sprintf(
            s + len, "POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", BODY);
        memset(s + len, '{', BODY);
        len += BODY;
    }
    size_t sent = 0;
    unsigned most = 0;
    for (uint64_t until = tr_now_ns() + 60000 * MS; rig.sunk < N && tr_now_ns() < until;) {
        ssize_t w = sent < len ? send(k->fd, s + sent, len - sent, MSG_NOSIGNAL) : 0;
        sent += w > 0 ? (size_t)w : 0;
        unsigned before = rig.sunk;
        pump();
        most = rig.sunk - before > most ? rig.sunk - before : most;
    }
    cr_expect_eq(rig.sunk, (unsigned)N);
    /* an event and a second look may fall into the same turn: twice two whole ones and one begun */
    cr_expect(most > 0 && most <= 6, "%u in one turn", most);
    WAIT(count(k, "HTTP/1.1 200") == N, 2000, k);
    hang_up(k);
}

Test(conn, pipelined_answers_to_a_deaf_client_are_bounded)
{
    start();
    struct client *k = dial_with(4096);
    k->deaf = true;
    for (int i = 0; i < 20000; i++) {
        if (send(k->fd, PING, sizeof(PING) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            pump();
        if (i % 100 == 0)
            pump();
    }
    cr_expect_leq(tr_httpd_stats(rig.d)->unsent_bytes, rig.lim.stream_buffer + 1024);
    hang_up(k);
}

/* ---- closes -------------------------------------------------------------------------------- */

Test(conn, a_fin_is_half_closed_and_a_reset_is_gone)
{
    start();
    struct client *k = dial();
    say(k, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n" PING); /* with pipelined input behind it */
    for (int i = 0; i < 20; i++)
        pump();
    shutdown(k->fd, SHUT_WR);
    WAIT(rig.half_closed == 1, 2000, k);
    for (int i = 0; i < 50; i++)
        pump();
    cr_expect(rig.half_closed == 1 && rig.gone == 0);
    reset_fd(k->fd);
    k->fd = -1;
    WAIT(rig.gone == 1, 2000, k);
    cr_expect_eq(rig.why, TR_GONE_RESET);
    hang_up(k);
}

Test(conn, a_fin_that_came_with_the_request_is_seen)
{
    start();
    struct client *k = dial();
    (void)!send(k->fd, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n", 31, MSG_NOSIGNAL);
    shutdown(k->fd, SHUT_WR);
    WAIT(rig.half_closed == 1, 2000, k);
    hang_up(k);
    k = dial();
    (void)!send(k->fd, PING ECHO(1) "a", sizeof(PING ECHO(1) "a") - 1, MSG_NOSIGNAL);
    shutdown(k->fd, SHUT_WR);
    WAIT(k->eof, 2000, k);
    cr_expect(has(k, "pong") && count(k, "HTTP/1.1 200") == 2 && !k->reset);
    hang_up(k);
}

Test(conn, a_half_closed_reader_keeps_its_stream_and_a_closed_one_does_not)
{
    start();
    struct client *k = dial();
    say(k, STREAM("?n=50"));
    WAIT(has(k, "data: 49"), 2000, k);
    shutdown(k->fd, SHUT_WR);
    WAIT(k->eof, 3000, k);
    cr_expect(has(k, ": probe") && has(k, "data: 0\n") && has(k, "0\r\n\r\n"));
    cr_expect_eq(rig.gone, 0);
    hang_up(k);
    k = dial();
    say(k, STREAM("?n=1000"));
    WAIT(has(k, "data: 999"), 2000, k);
    close(k->fd);
    k->fd = -1;
    for (int i = 0; i < 20; i++) /* no timer of the loop is due in so few turns */
        pump();
    cr_expect_eq(rig.gone, 1);
    hang_up(k);
}

static unsigned open_fds(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    cr_assert(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

Test(conn, a_thousand_resets_at_random_moments_leave_nothing)
{
    enum { ALL = 1000, AT_ONCE = 50 };
    start();
    struct {
        int fd;
        uint64_t die;
    } k[AT_ONCE] = {0};
    static const char *const what[] = {STREAM("?n=20"),
                                       "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n",
                                       "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n",
                                       ECHO(1000) "abc",
                                       "GET /pi",
                                       STREAM("?n=0") PING};
    rig.flood_bytes = 1 << 20;
    rig.cancel_on_fin = true;
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(rig.port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    unsigned base = open_fds(), made = 0, alive = 0;
    srand(7);
    while (made < ALL || alive) {
        for (int i = 0; i < AT_ONCE; i++) {
            if (k[i].die && tr_now_ns() >= k[i].die) {
                if (rand() % 4)
                    reset_fd(k[i].fd);
                else
                    close(k[i].fd);
                k[i].die = 0;
                alive--;
            }
            if (!k[i].die && made < ALL) {
                k[i].fd = socket(AF_INET, SOCK_STREAM, 0);
                cr_assert_eq(connect(k[i].fd, (struct sockaddr *)&a, sizeof(a)), 0);
                const char *s = what[(unsigned)rand() % (sizeof(what) / sizeof(what[0]))];
                (void)!send(k[i].fd, s, strlen(s), MSG_NOSIGNAL);
                k[i].die = tr_now_ns() + (uint64_t)(rand() % 30) * MS;
                made++, alive++;
            }
        }
        pump();
    }
    uint64_t until = tr_now_ns() + 60000 * MS;
    while (tr_httpd_stats(rig.d)->open && tr_now_ns() < until)
        pump();
    cr_expect_eq(tr_httpd_stats(rig.d)->open, 0);
    cr_expect_eq(tr_httpd_stats(rig.d)->busy, 0);
    cr_expect_eq(tr_httpd_stats(rig.d)->unsent_bytes, 0);
    cr_expect_leq(open_fds(), base + 2);
    /* and the loop is quiet */
    double cpu = cpu_s();
    event_base_loopexit(rig.base, &(struct timeval){0, 500000});
    event_base_dispatch(rig.base);
    cr_expect_lt(cpu_s() - cpu, 0.05);
    struct client *c = dial();
    say(c, PING);
    WAIT(has(c, "pong"), 2000, c);
    hang_up(c);
}

Test(conn, a_reset_of_a_paused_connection_does_not_spin)
{
    start();
    struct client *k = dial();
    say(k, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n" PING PING);
    for (int i = 0; i < 20; i++)
        pump();
    shutdown(k->fd, SHUT_WR);
    WAIT(rig.half_closed == 1, 1000, k);
    double cpu = cpu_s();
    event_base_loopexit(rig.base, &(struct timeval){0, 300000});
    event_base_dispatch(rig.base);
    cr_expect_lt(cpu_s() - cpu, 0.03);
    hang_up(k);
}

/* ---- many ---------------------------------------------------------------------------------- */

Test(conn, connections_beyond_the_limit_are_told_503)
{
    rig.lim.max_connections = 2;
    start();
    struct client *a = dial(), *b = dial();
    say(a, PING), say(b, PING);
    WAIT(has(a, "pong") && has(b, "pong"), 2000, a, b);
    struct client *c = dial();
    say(c, PING);
    WAIT(c->eof, 3000, c);
    cr_expect(has(c, "HTTP/1.1 503") && has(c, "Retry-After: 1"));
    expect_error_json(c, "too_many_connections");
    cr_expect_eq(tr_httpd_stats(rig.d)->turned_away, 1);
    hang_up(a), hang_up(b), hang_up(c);
}

/* Its client takes its time to go: who comes meanwhile does not pay for that. */
Test(conn, a_connection_that_was_refused_holds_no_place)
{
    rig.lim.max_connections = 2;
    start();
    struct client *a = dial(), *b = dial();
    say(a, PING), say(b, PING);
    WAIT(has(a, "pong") && has(b, "pong"), 2000, a, b);
    struct client *c = dial();
    say(c, PING);
    WAIT(has(c, "HTTP/1.1 503"), 3000, c);
    hang_up(b);
    for (int i = 0; i < 200 && tr_httpd_stats(rig.d)->open > 2; i++)
        pump();
    cr_expect_eq(tr_httpd_stats(rig.d)->open, 2, "one within, one that lingers");
    struct client *d = dial();
    say(d, PING);
    WAIT(has(d, "pong") || has(d, "503"), 3000, d);
    cr_expect(has(d, "pong"));
    hang_up(a), hang_up(c), hang_up(d);
}

Test(conn, connections_far_beyond_the_limit_are_closed_and_counted)
{
    rig.lim.max_connections = 2;
    start();
    struct client *k[70];
    for (int i = 0; i < 70; i++)
        k[i] = dial();
    for (int i = 0; i < 200 && tr_httpd_stats(rig.d)->accepted < 70; i++)
        pump();
    cr_expect_eq(tr_httpd_stats(rig.d)->open, 66);
    cr_expect_eq(tr_httpd_stats(rig.d)->unanswered, 4);
    WAIT(k[69]->eof, 2000, k[69]);
    cr_expect_eq(k[69]->len, 0);
    for (int i = 0; i < 70; i++)
        hang_up(k[i]);
}

Test(conn, running_out_of_descriptors_is_survived)
{
    start();
    struct rlimit old, now;
    getrlimit(RLIMIT_NOFILE, &old);
    struct client *k = dial(), *extra = dial();
    now = old;
    now.rlim_cur = (rlim_t)open_fds() + 16; /* far below any limit that is in force */
    setrlimit(RLIMIT_NOFILE, &now);
    while (dup(rig.fd) >= 0)
        ;
    say(k, PING);
    for (int i = 0; i < 20; i++)
        pump();
    cr_expect_eq(tr_httpd_stats(rig.d)->accepted, 0);
    setrlimit(RLIMIT_NOFILE, &old);
    WAIT(has(k, "pong"), 2000, k);
    hang_up(k), hang_up(extra);
}

Test(conn, a_drain_closes_the_idle_and_lets_the_busy_finish)
{
    start();
    struct client *idle = dial(), *busy = dial();
    say(idle, PING);
    say(busy, STREAM("?n=30"));
    WAIT(has(idle, "pong") && has(busy, "data: 29"), 2000, idle, busy);
    tr_httpd_drain(rig.d);
    WAIT(idle->eof, 2000, idle, busy);
    cr_expect_eq(tr_httpd_stats(rig.d)->busy, 1);
    WAIT(busy->eof, 2000, idle, busy);
    cr_expect(has(busy, "data: 0\n\n\r\n0\r\n\r\n"));
    cr_expect_eq(tr_httpd_stats(rig.d)->busy, 0);
    hang_up(idle), hang_up(busy);
}

Test(conn, those_in_the_backlog_at_a_drain_are_answered_and_not_reset)
{
    enum { N = 20 };
    start();
    struct client *k[N];
    for (int i = 0; i < N; i++) {
        k[i] = dial(); /* the loop has not turned: nobody has accepted */
        if (i % 2)
            cr_assert_gt(send(k[i]->fd, PING, strlen(PING), MSG_NOSIGNAL), 0);
    }
    tr_listen_drain(rig.l);
    tr_listen_free(rig.l);
    close(rig.fd);
    rig.l = NULL;
    rig.fd = -1;
    tr_httpd_drain(rig.d);
    for (int i = 0; i < N; i++) {
        if (i % 2 == 0)
            say(k[i], PING); /* its bytes came a moment after its connection */
        WAIT(k[i]->eof, 2000, k[i]);
        cr_expect(has(k[i], "pong") && has(k[i], "onnection: close") && !k[i]->reset, "%d", i);
        hang_up(k[i]);
    }
}

Test(conn, a_retiring_server_answers_one_more_request_on_each_connection)
{
    start();
    struct client *idle = dial(), *asks = dial(), *fresh = dial(), *busy = dial();
    say(idle, PING);
    say(asks, PING);
    say(busy, STREAM("?n=30"));
    WAIT(has(idle, "pong") && has(asks, "pong") && has(busy, "data: 29"), 2000, idle, asks, busy);
    cr_expect(!has(asks, "Connection: close") && !has(busy, "Connection: close"));
    tr_httpd_retire(rig.d);
    say(asks, PING);
    say(fresh, PING);
    WAIT(asks->eof && fresh->eof, 2000, idle, asks, fresh, busy);
    cr_expect(has(asks, "Connection: close") && has(fresh, "Connection: close"));
    cr_expect(has(fresh, "pong") && !idle->eof && !busy->eof);
    WAIT(has(busy, "data: 0\n\n\r\n0\r\n\r\n"), 2000, idle, busy);
    cr_expect(!busy->eof); /* its head had not said that it is the last */
    say(busy, PING);
    WAIT(busy->eof, 1500, idle, busy);
    cr_expect(has(busy, "pong") && has(busy, "Connection: close"));
    WAIT(idle->eof, 4000, idle);
    hang_up(idle), hang_up(asks), hang_up(fresh), hang_up(busy);
    for (int i = 0; i < 50 && tr_httpd_stats(rig.d)->open; i++)
        pump();
    cr_expect_eq(tr_httpd_stats(rig.d)->open, 0);
}

Test(conn, freeing_the_server_tells_the_owners)
{
    start();
    struct client *k = dial();
    say(k, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 20; i++)
        pump();
    tr_listen_free(rig.l);
    tr_httpd_free(rig.d);
    cr_expect(rig.gone == 1 && rig.why == TR_GONE_SHUT);
    rig.d = NULL;
    event_base_free(rig.base);
    close(rig.fd);
    hang_up(k);
}
