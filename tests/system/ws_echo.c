/* SPDX-License-Identifier: Apache-2.0 */
/* A WebSocket that says back what it is told, over the frontend's own connections and sessions: what
 * suites for the protocol want to talk to.
 *
 *     system_ws_echo     prints its port on 127.0.0.1 and serves until it is killed */
#include "frontend/exchange.h"
#include "frontend/listen.h"
#include "frontend/route.h"
#include "frontend/ws_session.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { MAX_MESSAGE = 64 << 20 };

static size_t held;

static void on_message(void *owner, bool binary, const char *data, size_t len)
{
    tr_ws_session_send(owner, binary ? TR_WS_BINARY : TR_WS_TEXT, NULL, 0, data, len);
}

static void nothing(void *owner)
{
    (void)owner;
}

static void on_closed(void *owner, enum tr_gone why)
{
    (void)owner, (void)why;
}

static void handler(struct tr_exchange *x, const struct tr_http_request *rq, void *ctx)
{
    static const struct tr_ws_session_ops ops = {.message = on_message,
                                                 .room = nothing,
                                                 .closed = on_closed,
                                                 .drain = nothing,
                                                 .gone = free};
    struct tr_ws_session *s = calloc(1, sizeof(*s));
    struct tr_ws_config cfg = {
        .wire = {.max_message = MAX_MESSAGE, .held = &held, .max_held = SIZE_MAX}};

    (void)ctx;
    if (!s || tr_ws_session_open(s, x, rq, &cfg, &ops, s))
        free(s);
}

static int listening(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) || listen(fd, 100) ||
        getsockname(fd, (struct sockaddr *)&at, &len)) {
        perror("ws_echo");
        exit(1);
    }
    printf("%u\n", ntohs(at.sin_port));
    fflush(stdout);
    return fd;
}

int main(void)
{
    static const struct tr_route routes[] = {
        {.method = TR_HTTP_GET, .pattern = "/", .handler = handler}};
    struct tr_httpd_ops ops = {.routes = routes, .n_routes = 1};
    struct tr_http_limits lim = tr_http_limits_default;

    signal(SIGPIPE, SIG_IGN);
    lim.max_body = MAX_MESSAGE;
    struct event_base *base = event_base_new();
    struct tr_httpd *d = base ? tr_httpd_new(base, &lim, &ops) : NULL;
    if (!d || !tr_listen_new(d, base, listening(), NULL)) {
        fputs("ws_echo: out of memory\n", stderr);
        return 1;
    }
    event_base_dispatch(base);
    return 0;
}
