/* SPDX-License-Identifier: Apache-2.0 */
#include "scripted_http.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNS_MAX 512
#define REQUEST_MAX 65536

struct tr_scripted_http {
    const struct tr_script *scripts;
    size_t n;
    const char *const *metrics;
    size_t n_metrics;
    int fd, port;
    _Atomic bool stop;
    pthread_t acceptor;
    pthread_t conns[CONNS_MAX];
    size_t n_conns;
    pthread_mutex_t lock; /* over the rest */
    size_t posts, scrapes;
    char body[REQUEST_MAX];
};

struct conn {
    struct tr_scripted_http *s;
    int fd;
};

static void pause_for(unsigned ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* False when the client is gone. */
static bool say(int fd, const char *p, size_t len)
{
    while (len) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

static void wait_for_hangup(const struct conn *c)
{
    struct pollfd p = {c->fd, POLLRDHUP, 0};
    while (!c->s->stop && poll(&p, 1, 50) == 0)
        ;
}

static void play(const struct conn *c, const struct tr_script *script)
{
    for (size_t i = 0; i < script->n; i++) {
        const struct tr_script_piece *piece = &script->pieces[i];
        for (unsigned k = 0; k < (piece->times ? piece->times : 1); k++) {
            if (piece->pause_ms)
                pause_for(piece->pause_ms);
            if (c->s->stop || !say(c->fd, piece->p, piece->len))
                return;
        }
    }
    if (script->end == TR_SCRIPT_HANG)
        wait_for_hangup(c);
    if (script->end == TR_SCRIPT_RESET) {
        struct linger l = {1, 0};
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
    }
}

/* Reads head and body into buf, NUL-ended.  The body, or NULL. */
static char *read_request(int fd, char *buf)
{
    size_t len = 0, want = 0;
    char *body = NULL;
    while (!body || len < want) {
        ssize_t n = len < REQUEST_MAX - 1 ? recv(fd, buf + len, REQUEST_MAX - 1 - len, 0) : -1;
        if (n <= 0)
            return NULL;
        len += (size_t)n;
        buf[len] = 0;
        char *end = body ? NULL : strstr(buf, "\r\n\r\n");
        if (!end)
            continue;
        body = end + 4;
        const char *cl = strcasestr(buf, "content-length:");
        want = (size_t)(body - buf) + (cl && cl < end ? strtoul(cl + 15, NULL, 10) : 0);
    }
    return body;
}

static void answer(int fd, const char *status, const char *body)
{
    char head[160];
    int n = snprintf(head, sizeof(head), "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n", status,
                     strlen(body));
    if (say(fd, head, (size_t)n))
        say(fd, body, strlen(body));
}

static void answer_metrics(struct tr_scripted_http *s, int fd)
{
    pthread_mutex_lock(&s->lock);
    size_t k = s->scrapes++;
    pthread_mutex_unlock(&s->lock);
    if (!s->n_metrics)
        answer(fd, "404 Not Found", "");
    else
        answer(fd, "200 OK", s->metrics[k < s->n_metrics ? k : s->n_metrics - 1]);
}

static void *serve(void *arg)
{
    struct conn c = *(struct conn *)arg;
    char *buf = malloc(REQUEST_MAX);
    free(arg);
    char *body = buf ? read_request(c.fd, buf) : NULL;
    if (body && !strncmp(buf, "POST ", 5)) {
        pthread_mutex_lock(&c.s->lock);
        size_t k = c.s->posts++;
        memcpy(c.s->body, body, strlen(body) + 1);
        pthread_mutex_unlock(&c.s->lock);
        play(&c, &c.s->scripts[k % c.s->n]);
    } else if (body && !strncmp(buf, "GET /v1/models ", 15)) {
        answer(c.fd, "200 OK", "{\"object\":\"list\",\"data\":[{\"id\":\"scripted\"}]}");
    } else if (body) {
        answer_metrics(c.s, c.fd);
    }
    close(c.fd);
    free(buf);
    return NULL;
}

static void *accept_all(void *arg)
{
    struct tr_scripted_http *s = arg;
    while (!s->stop) {
        struct pollfd p = {s->fd, POLLIN, 0};
        if (poll(&p, 1, 20) <= 0)
            continue;
        int fd = accept(s->fd, NULL, NULL);
        struct conn *c = fd >= 0 && s->n_conns < CONNS_MAX ? malloc(sizeof(*c)) : NULL;
        if (!c) {
            if (fd >= 0)
                close(fd);
            continue;
        }
        *c = (struct conn){s, fd};
        if (pthread_create(&s->conns[s->n_conns], NULL, serve, c)) {
            close(fd);
            free(c);
            continue;
        }
        s->n_conns++;
    }
    return NULL;
}

struct tr_scripted_http *tr_scripted_http_start(const struct tr_script *scripts, size_t n,
                                                const char *const *metrics, size_t n_metrics)
{
    struct tr_scripted_http *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->scripts = scripts;
    s->n = n;
    s->metrics = metrics;
    s->n_metrics = n_metrics;
    pthread_mutex_init(&s->lock, NULL);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s->fd < 0 || bind(s->fd, (struct sockaddr *)&a, len) || listen(s->fd, 256) ||
        getsockname(s->fd, (struct sockaddr *)&a, &len) ||
        pthread_create(&s->acceptor, NULL, accept_all, s)) {
        if (s->fd >= 0)
            close(s->fd);
        free(s);
        return NULL;
    }
    s->port = ntohs(a.sin_port);
    return s;
}

int tr_scripted_http_port(const struct tr_scripted_http *s)
{
    return s->port;
}

const char *tr_scripted_http_body(struct tr_scripted_http *s)
{
    /* What the connection's thread wrote before it unlocked is seen from here on. */
    pthread_mutex_lock(&s->lock);
    pthread_mutex_unlock(&s->lock);
    return s->body;
}

void tr_scripted_http_stop(struct tr_scripted_http *s)
{
    if (!s)
        return;
    s->stop = true;
    pthread_join(s->acceptor, NULL);
    for (size_t i = 0; i < s->n_conns; i++)
        pthread_join(s->conns[i], NULL);
    close(s->fd);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
