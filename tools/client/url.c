/* SPDX-License-Identifier: Apache-2.0 */
#include "client/url.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool printable(const char *s)
{
    for (; *s; s++)
        if (*s <= ' ' || *s > '~')
            return false;
    return true;
}

/* Copies [from, from + len) unless it does not fit. */
static int take(char *to, size_t size, const char *from, size_t len)
{
    if (len >= size)
        return -EINVAL;
    memcpy(to, from, len);
    to[len] = 0;
    return 0;
}

static int take_host_port(struct tr_url *u, const char *at, size_t len)
{
    const char *host = at, *end = at + len, *port = NULL;
    size_t host_len;
    if (len && *at == '[') {
        const char *close = memchr(at, ']', len);
        if (!close || (close + 1 < end && close[1] != ':'))
            return -EINVAL;
        host++;
        host_len = (size_t)(close - host);
        port = close + 1 < end ? close + 2 : NULL;
    } else {
        const char *colon = memchr(at, ':', len);
        host_len = colon ? (size_t)(colon - at) : len;
        port = colon ? colon + 1 : NULL;
    }
    if (!host_len || take(u->host, sizeof(u->host), host, host_len))
        return -EINVAL;
    if (!port)
        return take(u->port, sizeof(u->port), "80", 2);
    if (port == end || strspn(port, "0123456789") < (size_t)(end - port))
        return -EINVAL;
    return take(u->port, sizeof(u->port), port, (size_t)(end - port));
}

int tr_url_parse(struct tr_url *u, const char *text, struct tr_errbuf *err)
{
    struct tr_url n = {0};
    const char *at = text;
    if (!strncmp(text, "https://", 8))
        return tr_errf(err, -EINVAL, "%s: only plain http is spoken here", text);
    if (!strncmp(text, "http://", 7))
        at += 7;
    else if (strstr(text, "://"))
        return tr_errf(err, -EINVAL, "%s: not an http:// address", text);
    if (!printable(text) || strpbrk(at, "@?#"))
        return tr_errf(err, -EINVAL, "%s: not of the form http://host:port/base", text);

    size_t len = strcspn(at, "/");
    size_t base_len = strlen(at + len);
    while (base_len && at[len + base_len - 1] == '/')
        base_len--;
    /* OpenAI clients are configured with the /v1 included; take that form too. */
    if (base_len >= 3 && !memcmp(at + len + base_len - 3, "/v1", 3))
        base_len -= 3;
    if (take_host_port(&n, at, len) || take(n.authority, sizeof(n.authority), at, len) ||
        take(n.base, sizeof(n.base), at + len, base_len))
        return tr_errf(err, -EINVAL, "%s: not of the form http://host:port/base", text);
    *u = n;
    return 0;
}

int tr_url_resolve(struct tr_url *u, struct tr_errbuf *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *ai = NULL;
    int rc = getaddrinfo(u->host, u->port, &hints, &ai);
    if (rc == EAI_NONAME || rc == EAI_ADDRFAMILY) {
        /* A machine with nothing but loopback has no "configured" address. */
        hints.ai_flags = 0;
        rc = getaddrinfo(u->host, u->port, &hints, &ai);
    }
    if (rc)
        return tr_errf(err, -EHOSTUNREACH, "%s: %s", u->host, gai_strerror(rc));
    memcpy(&u->addr, ai->ai_addr, ai->ai_addrlen);
    u->addr_len = ai->ai_addrlen;
    freeaddrinfo(ai);
    return 0;
}

int tr_url_connect(const struct tr_url *u, int rcvbuf)
{
    int fd = socket(u->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (rcvbuf) /* before the connect: it decides the window */
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof(rcvbuf));
    if (connect(fd, (const struct sockaddr *)&u->addr, u->addr_len) && errno != EINPROGRESS) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}
