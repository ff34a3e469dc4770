/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/heritage_listen.c - the sockets that frontends accept from, and who can reach them.  See
 * heritage.h. */
#include "supervisor/heritage.h"

#include "base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 4096 };

static int bind_one(struct tr_heritage *h, const struct addrinfo *a, const char *port,
                    unsigned *bound, struct tr_errbuf *err)
{
    int one = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return tr_errf(err, -errno, "cannot make a socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (a->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
    if (bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
        int e = errno;
        close(fd);
        return tr_errf(err, -e, "cannot listen on %s port %s: %s", h->opt.host, port, strerror(e));
    }
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } own;
    socklen_t len = sizeof(own);
    memset(&own, 0, sizeof(own));
    getsockname(fd, &own.any, &len);
    *bound = ntohs(own.any.sa_family == AF_INET6 ? own.v6.sin6_port : own.v4.sin_port);
    h->listen_fds[h->n_listen++] = fd;
    return 0;
}

/* "[::1]", as it stands in an address of a page, is "::1". */
static void take_brackets_off(struct tr_heritage *h)
{
    size_t n = strlen(h->opt.host);
    if (n < 4 || n - 2 >= sizeof(h->host) || h->opt.host[0] != '[' || h->opt.host[n - 1] != ']' ||
        !strchr(h->opt.host, ':'))
        return;
    snprintf(h->host, sizeof(h->host), "%.*s", (int)(n - 2), h->opt.host + 1);
    h->opt.host = h->host;
}

static unsigned least_of(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static int listen_on(struct tr_heritage *h, const char *port, unsigned *bound,
                     struct tr_errbuf *err)
{
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM},
                    *list;
    int e = getaddrinfo(h->opt.host, port, &hints, &list);
    if (e)
        return tr_errf(err, -EINVAL, "--host %s: %s", h->opt.host, gai_strerror(e));
    int ret = 0;
    unsigned most = least_of(h->n_listen + TR_MAX_LISTEN / 2, TR_MAX_LISTEN); /* of two ports */
    for (const struct addrinfo *a = list; a && !ret && h->n_listen < most; a = a->ai_next)
        ret = bind_one(h, a, port, bound, err);
    freeaddrinfo(list);
    return ret;
}

/* Those of a service manager, of one kind; they go before --host and the port of that kind. */
static int take_passed(struct tr_heritage *h, int of_grpc, unsigned *bound, struct tr_errbuf *err)
{
    const struct tr_systemd *d = &h->systemd;
    for (unsigned i = 0; i < d->n_fds; i++) {
        int fd, grpc;
        unsigned port;
        int ret = tr_systemd_socket(d, i, &fd, &port, &grpc, err);
        if (ret)
            return ret;
        if (grpc != of_grpc)
            continue;
        if (h->n_listen == TR_MAX_LISTEN)
            return tr_errf(err, -EINVAL, "the service manager passed more than %d sockets",
                           TR_MAX_LISTEN);
        if (!*bound)
            *bound = port;
        h->listen_fds[h->n_listen++] = fd;
    }
    return 0;
}

int tr_heritage_listen(struct tr_heritage *h, struct tr_errbuf *err)
{
    const char *grpc = h->opt.grpc_port;
    char port[16];
    take_brackets_off(h);
    snprintf(port, sizeof(port), "%llu", (unsigned long long)h->opt.port);
    int ret = take_passed(h, false, &h->port, err);
    if (!ret && !h->n_listen)
        ret = listen_on(h, port, &h->port, err);
    unsigned before = h->n_listen;
    if (!ret)
        ret = take_passed(h, true, &h->grpc_port, err);
    h->n_grpc = h->n_listen - before;
    if (ret || h->n_grpc || strcmp(grpc, "off") == 0)
        return ret;
    if (!*grpc || strlen(grpc) > 5 || strspn(grpc, "0123456789") != strlen(grpc) ||
        atoi(grpc) > 65535)
        return tr_errf(err, -EINVAL, "--grpc-port must be a port from 0 to 65535, or off");
    ret = listen_on(h, grpc, &h->grpc_port, err);
    h->n_grpc = h->n_listen - before;
    return ret;
}

/* ---- who can reach it ---- */

static bool is_loopback(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a;
    socklen_t len = sizeof(a);

    memset(&a, 0, sizeof(a));
    if (getsockname(fd, &a.any, &len) < 0)
        return true;
    if (a.any.sa_family == AF_INET)
        return ntohl(a.v4.sin_addr.s_addr) >> 24 == 127;
    return a.any.sa_family != AF_INET6 || IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&a.v6.sin6_addr) && a.v6.sin6_addr.s6_addr[12] == 127);
}

void tr_heritage_warn_open(const struct tr_heritage *h)
{
    unsigned i = 0;

    while (i < h->n_listen && is_loopback(h->listen_fds[i]))
        i++;
    if (i < h->n_listen && !h->keys.needed)
        tr_log(TR_LOG_WARN,
               "whoever reaches this machine may use the service: it listens on more than "
               "loopback, and there is no --api-keys");
}
