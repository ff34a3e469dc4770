/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/listen.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

enum {
    ACCEPTS_PER_TURN = 4,
    DRAIN_ACCEPTS = 16384, /* four backlogs: then who connects in a flood is reset */
    REST_US = 100 * 1000,
    LEAVE_US = 1000
};

struct tr_listen {
    struct tr_httpd *d;
    int fd;
    struct event *ev, *rest;
    struct tr_balance *balance;
    struct tr_balance_left left;
};

static void tell(struct tr_listen *l, bool closed)
{
    if (!l->balance)
        return;
    l->balance->closed = closed;
    tr_balance_tell(l->balance, tr_httpd_stats(l->d));
}

/* Out of descriptors or memory: look again later; the backlog keeps the clients. */
static void pause_accepting(struct tr_listen *l)
{
    event_del(l->ev);
    event_add(l->rest, &(struct timeval){0, REST_US});
    tell(l, true);
}

/* The others were woken too.  Whether they have taken it is looked at soon. */
static void leave_to_others(struct tr_listen *l)
{
    event_del(l->ev);
    event_add(l->rest, &(struct timeval){0, LEAVE_US});
}

static void on_rested(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct tr_listen *l = arg;
    struct pollfd p = {.fd = l->fd, .events = POLLIN};
    if (poll(&p, 1, 0) == 0)
        l->left.since_ns = 0;
    tell(l, false);
    event_add(l->ev, NULL);
}

/* The descriptor, which is a connection's by then; -1 and errno. */
static int accept_one(struct tr_listen *l, int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_storage room;
    } peer;
    socklen_t len = sizeof(peer);
    int c = accept4(fd, &peer.any, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (c >= 0)
        tr_conn_accept_from(l->d, c, len >= sizeof(peer.any) ? &peer.any : NULL);
    return c;
}

static void on_listen(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct tr_listen *l = arg;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        if (l->balance && !tr_balance_is_ours(l->balance, &l->left, tr_now_ns())) {
            leave_to_others(l);
            return;
        }
        int c = accept_one(l, fd);
        if (c >= 0) {
            tell(l, false);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            pause_accepting(l);
            return;
        }
        if (errno == EAGAIN)
            return;
        /* ECONNABORTED and the network errors of accept(2) belong to one client: the next. */
    }
}

struct tr_listen *tr_listen_new(struct tr_httpd *d, struct event_base *base, int fd,
                                struct tr_balance *b)
{
    struct tr_listen *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    l->d = d;
    l->fd = fd;
    l->balance = b;
    l->ev = event_new(base, fd, EV_READ | EV_PERSIST, on_listen, l);
    l->rest = event_new(base, -1, 0, on_rested, l);
    if (l->ev && l->rest && event_add(l->ev, NULL) == 0) {
        tell(l, false);
        return l;
    }
    tr_listen_free(l);
    return NULL;
}

void tr_listen_drain(struct tr_listen *l)
{
    for (int i = 0; i < DRAIN_ACCEPTS; i++) {
        if (accept_one(l, l->fd) < 0 && (errno == EAGAIN || errno == EMFILE || errno == ENFILE ||
                                         errno == ENOBUFS || errno == ENOMEM))
            return;
    }
}

void tr_listen_free(struct tr_listen *l)
{
    if (!l)
        return;
    tell(l, true);
    if (l->ev)
        event_free(l->ev);
    if (l->rest)
        event_free(l->rest);
    free(l);
}
