/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of HTTP/2 from any frames: the input is a list of records {type, flags, stream, length,
 * payload}, of which frames are made, so that most of them get further than their first nine bytes.
 * The first byte says in what pieces they arrive.  Whatever comes: nothing is left when the connection
 * has ended, and every owner was told so. */
#include "base/assert.h"
#include "frontend/conn.h"
#include "frontend/route.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FRAMES = 64, WIRE_BYTES = FRAMES * (9 + 255) + 64, TURNS = 12 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned owners; /* bound, and not yet told that it is over */

struct holder {
    struct tr_exchange *x;
    size_t left;
};

static void go_on(struct holder *o)
{
    static const char block[3000];
    while (o->left && tr_exchange_room(o->x) > 0) {
        size_t n = o->left < sizeof(block) ? o->left : sizeof(block);
        tr_exchange_stream_write(o->x, block, n);
        o->left -= n;
    }
    if (o->left)
        return;
    tr_exchange_stream_end(o->x);
    owners--;
    free(o);
}

static void writable(void *owner)
{
    struct holder *o = owner;
    if (o->left)
        go_on(o);
}

static void half_closed(void *owner)
{
    struct holder *o = owner;
    tr_exchange_stream_abort(o->x, true);
    owners--;
    free(o);
}

static void gone(void *owner, enum tr_gone why)
{
    (void)why;
    owners--;
    free(owner);
}

static const struct tr_owner_ops owner_ops = {writable, half_closed, gone};

static void do_echo(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    (void)ctx;
    tr_exchange_reply(x, 200, "text/plain", rq->body.p, rq->body.len);
}

static void do_stream(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    struct holder *o = malloc(sizeof(*o));
    (void)rq, (void)ctx;
    TR_ASSERT(o);
    *o = (struct holder){x, 70000};
    owners++;
    tr_exchange_bind(x, &owner_ops, o);
    tr_exchange_stream_begin(x, "text/event-stream");
    go_on(o);
}

static const struct tr_route routes[] = {
    {.method = TR_HTTP_GET, .pattern = "/", .handler = do_stream},
    {.method = TR_HTTP_POST, .pattern = "/", .handler = do_echo},
};

/* The frames that the input means, behind a preface and a first SETTINGS. */
static size_t compose(const uint8_t *data, size_t size, uint8_t *wire)
{
    static const uint8_t hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    size_t at = sizeof(hello);
    memcpy(wire, hello, sizeof(hello)); /* its NUL is the last byte of the frame */
    for (int i = 0; i < FRAMES && size >= 4; i++) {
        size_t len = data[3] < size - 4 ? data[3] : size - 4;
        const uint8_t head[9] = {0, 0, (uint8_t)len, data[0], data[1], 0, 0, 0, data[2]};
        memcpy(wire + at, head, sizeof(head));
        memcpy(wire + at + sizeof(head), data + 4, len);
        at += sizeof(head) + len;
        data += 4 + len;
        size -= 4 + len;
    }
    return at;
}

static void listen_to(int fd, bool deaf)
{
    char buf[4096];
    while (!deaf && recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
        ;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tr_http_limits lim;
    struct tr_httpd_ops ops = {.routes = routes, .n_routes = 2};
    uint8_t wire[WIRE_BYTES];
    int pair[2];
    if (size < 2)
        return 0;
    size_t step = 1 + (size_t)data[0] * 8, len = compose(data + 2, size - 2, wire);
    lim = tr_http_limits_default;
    struct event_base *base = event_base_new();
    struct tr_httpd *d = tr_httpd_new(base, &lim, &ops);
    TR_ASSERT(d && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    TR_ASSERT(tr_conn_accept(d, pair[0]) == 0);
    for (size_t at = 0; at < len; at += step) {
        (void)!send(pair[1], wire + at, len - at < step ? len - at : step, MSG_NOSIGNAL);
        event_base_loop(base, EVLOOP_NONBLOCK);
        listen_to(pair[1], data[1] & 1);
    }
    if (data[1] & 2)
        tr_httpd_drain(d);
    if (data[1] & 4)
        shutdown(pair[1], SHUT_WR);
    for (int i = 0; i < TURNS; i++) {
        event_base_loop(base, EVLOOP_NONBLOCK);
        listen_to(pair[1], data[1] & 1);
    }
    close(pair[1]);
    for (int i = 0; i < TURNS && tr_httpd_stats(d)->open; i++)
        event_base_loop(base, EVLOOP_NONBLOCK);
    const struct tr_httpd_stats *st = tr_httpd_stats(d);
    TR_ASSERT(st->open == 0 && st->busy == 0 && owners == 0);
    TR_ASSERT(st->unsent_bytes == 0 && st->body_bytes == 0 && st->kernel_bytes == 0);
    tr_httpd_free(d);
    event_base_free(base);
    return 0;
}
