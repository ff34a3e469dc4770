/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bare.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { BACKLOG = 4096, BUFFER = 16 << 10, BYTES_MIN = 64, BYTES_MAX = 4096 };

struct args {
    uint32_t sockets, rounds, bytes, round_us;
};

static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                           "Transfer-Encoding: chunked\r\n\r\n";
static const char tail[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

static int listen_here(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, BACKLOG) ||
        getsockname(fd, (struct sockaddr *)&at, &len)) {
        fprintf(stderr, "bench bare: %s\n", strerror(errno));
        return -1;
    }
    printf("%u\n", ntohs(at.sin_port));
    fflush(stdout);
    return fd;
}

/* The options of a frontend's sockets (frontend/conn.c). */
static int take_one(int listener)
{
    char request[4096];
    int on = 1, sndbuf = 4 * BUFFER, lowat = BUFFER;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, sizeof(lowat));
    if (recv(fd, request, sizeof(request), 0) <= 0 ||
        send(fd, head, sizeof(head) - 1, MSG_NOSIGNAL) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* One chunk of `bytes` bytes on the wire, its framing included, that reads as one content event. */
static size_t make_chunk(char *out, uint32_t bytes)
{
    static const char begin[] = "data: {\"content\":\"", end[] = "\"}\n\n\r\n";
    char size[16];
    size_t payload = bytes - 2 - (size_t)snprintf(size, sizeof(size), "%x\r\n", bytes);
    size_t n = (size_t)snprintf(out, BYTES_MAX, "%zx\r\n%s", payload, begin);
    size_t fill = payload + 2 - (sizeof(begin) - 1) - (sizeof(end) - 1);
    memset(out + n, 'x', fill);
    memcpy(out + n + fill, end, sizeof(end) - 1);
    return n + fill + sizeof(end) - 1;
}

static void wait_until(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

static int serve(const struct args *a, const int *fd)
{
    char chunk[BYTES_MAX + 16];
    struct iovec v = {.iov_base = chunk, .iov_len = make_chunk(chunk, a->bytes)};
    uint64_t at = tr_now_ns();
    for (uint32_t r = 0; r < a->rounds; r++) {
        for (uint32_t i = 0; i < a->sockets; i++)
            if (writev(fd[i], &v, 1) != (ssize_t)v.iov_len)
                return -1;
        at += (uint64_t)a->round_us * 1000;
        if (a->round_us)
            wait_until(at);
    }
    for (uint32_t i = 0; i < a->sockets; i++)
        if (send(fd[i], tail, sizeof(tail) - 1, MSG_NOSIGNAL) < 0)
            return -1;
    return 0;
}

static int usage(FILE *f)
{
    fprintf(f, "usage: tokenring bench bare [--sockets N] [--rounds N] [--bytes N] "
               "[--round-us N]\n");
    return f == stdout ? 0 : 2;
}

int tr_bench_bare_main(int argc, char **argv)
{
    static const struct option options[] = {{"sockets", 1, NULL, 's'}, {"rounds", 1, NULL, 'r'},
                                            {"bytes", 1, NULL, 'b'},   {"round-us", 1, NULL, 'u'},
                                            {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0}};
    struct args a = {.sockets = 1000, .rounds = 200, .bytes = 240};
    int c;
    optind = 1;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        uint32_t v = optarg ? (uint32_t)strtoul(optarg, NULL, 10) : 0;
        if (c == 's')
            a.sockets = v;
        else if (c == 'r')
            a.rounds = v;
        else if (c == 'b')
            a.bytes = v;
        else if (c == 'u')
            a.round_us = v;
        else
            return usage(c == 'h' ? stdout : stderr);
    }
    if (optind != argc || !a.sockets || a.bytes < BYTES_MIN || a.bytes > BYTES_MAX)
        return usage(stderr);
    int *fd = calloc(a.sockets, sizeof(*fd));
    int listener = fd ? listen_here() : -1, rc = listener < 0;
    uint32_t n = 0;
    while (!rc && n < a.sockets)
        rc = (fd[n++] = take_one(listener)) < 0;
    if (!rc && serve(&a, fd)) {
        fprintf(stderr, "bench bare: %s\n", strerror(errno));
        rc = 1;
    }
    while (n > 0)
        close(fd[--n]); /* -1 where accept failed: harmless */
    if (listener >= 0)
        close(listener);
    free(fd);
    return rc;
}
