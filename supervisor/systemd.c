/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_FD = 3, MAX_FDS = 256 };

/* ---- the environment ---- */

/* A whole number up to `most`; -1: there is none, -EINVAL: it is something else. */
static long long number(const char *name, unsigned long long most)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return -1;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    return *text < '0' || *text > '9' || *end || errno || v > most ? -EINVAL : (long long)v;
}

static int take_address(struct tr_systemd *d, struct tr_errbuf *err)
{
    const char *path = getenv("NOTIFY_SOCKET");
    if (!path || !*path)
        return 0;
    size_t n = strlen(path);
    if ((*path != '/' && *path != '@') || n < 2 || n >= sizeof(d->to.sun_path))
        return tr_errf(err, -EINVAL, "NOTIFY_SOCKET is neither a path nor an abstract socket");
    d->to.sun_family = AF_UNIX;
    memcpy(d->to.sun_path, path, n);
    if (*path == '@')
        d->to.sun_path[0] = '\0';
    d->to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (*path == '/'));
    return 0;
}

static int take_watchdog(struct tr_systemd *d, struct tr_errbuf *err)
{
    long long pid = number("WATCHDOG_PID", INT32_MAX),
              us = number("WATCHDOG_USEC", UINT64_MAX / 1000000);
    if (us == -1 || (pid != -1 && pid != getpid()))
        return 0;
    if (us <= 0 || pid == -EINVAL)
        return tr_errf(err, -EINVAL, "WATCHDOG_USEC is not a time");
    d->watchdog_ns = (uint64_t)us * 1000;
    return 0;
}

static int take_sockets(struct tr_systemd *d, struct tr_errbuf *err)
{
    long long pid = number("LISTEN_PID", INT32_MAX), n = number("LISTEN_FDS", MAX_FDS);
    if (pid != getpid() || n == -1)
        return 0;
    if (n < 0)
        return tr_errf(err, -EINVAL, "LISTEN_FDS is not a number of sockets");
    const char *names = getenv("LISTEN_FDNAMES");
    d->names = names ? strdup(names) : NULL;
    if (names && !d->names)
        return tr_errf(err, -ENOMEM, "no memory for the names of sockets");
    d->n_fds = (unsigned)n;
    return 0;
}

int tr_systemd_init(struct tr_systemd *d, struct tr_errbuf *err)
{
    static const char *const all[] = {"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC",
                                      "LISTEN_PID",    "LISTEN_FDS",   "LISTEN_FDNAMES"};
    *d = (struct tr_systemd){0};
    int ret = take_address(d, err);
    if (!ret)
        ret = take_watchdog(d, err);
    if (!ret)
        ret = take_sockets(d, err);
    /* Emptied where they are: the strings are process.c's, which moved them. */
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        char *text = getenv(all[i]);
        if (text)
            *text = '\0';
    }
    return ret;
}

void tr_systemd_fini(struct tr_systemd *d)
{
    free(d->names);
    d->names = NULL;
}

/* ---- messages ---- */

int tr_systemd_tell(const struct tr_systemd *d, const char *message)
{
    if (!d->to_len)
        return 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), ret = 0;
    if (fd < 0)
        return -errno;
    if (sendto(fd, message, strlen(message), MSG_NOSIGNAL, (const struct sockaddr *)&d->to,
               d->to_len) < 0)
        ret = -errno;
    close(fd);
    return ret;
}

/* ---- sockets ---- */

/* The i-th of names separated by colons; "" when there are not so many. */
static const char *name_of(const struct tr_systemd *d, unsigned i, size_t *len)
{
    const char *p = d->names ? d->names : "";
    for (; i && *p; i--) {
        p += strcspn(p, ":");
        p += *p == ':';
    }
    *len = strcspn(p, ":");
    return p;
}

static int option(int fd, int name)
{
    int v = -1;
    socklen_t len = sizeof(v);
    return getsockopt(fd, SOL_SOCKET, name, &v, &len) < 0 ? -1 : v;
}

int tr_systemd_socket(const struct tr_systemd *d, unsigned i, int *fd, unsigned *port, int *grpc,
                      struct tr_errbuf *err)
{
    int own = FIRST_FD + (int)i, flags = fcntl(own, F_GETFL);
    size_t n;
    const char *name = name_of(d, i, &n);
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage room;
    } a;
    socklen_t len = sizeof(a);
    memset(&a, 0, sizeof(a));
    if (flags < 0 || option(own, SO_TYPE) != SOCK_STREAM || option(own, SO_ACCEPTCONN) != 1 ||
        getsockname(own, &a.any, &len) < 0 ||
        (a.any.sa_family != AF_INET && a.any.sa_family != AF_INET6))
        return tr_errf(err, -EINVAL,
                       "descriptor %d (%.*s) that the service manager passed is not a TCP socket "
                       "that listens",
                       own, (int)n, name);
    fcntl(own, F_SETFD, FD_CLOEXEC);
    fcntl(own, F_SETFL, flags | O_NONBLOCK);
    *port = ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
    *grpc = n == 4 && memcmp(name, "grpc", 4) == 0;
    *fd = own;
    return 0;
}
