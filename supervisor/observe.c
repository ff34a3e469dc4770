/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/observe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 128, PER_TURN = 16 };

/* ---- the file ---- */

static struct sockaddr_un address(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    return a;
}

/* 0: nobody is there, the name may be taken. */
static int look_at(const char *path, struct tr_errbuf *err)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : tr_errf(err, -errno, "%s: %s", path, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return tr_errf(err, -EADDRINUSE, "%s is there and is not a socket: it is left alone", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_un a = address(path);
    int ret = connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    if (ret == ECONNREFUSED || ret == ENOENT)
        return 0;
    if (ret && ret != EAGAIN)
        return tr_errf(err, -ret, "%s: %s", path, strerror(ret));
    return tr_errf(err, -EADDRINUSE,
                   "%s belongs to a service that runs: --control-socket names "
                   "another one",
                   path);
}

/* Made under another name and moved to its own: a socket that is there is one that listens, and
 * one that was left behind is replaced in one stroke. */
static int make_file(struct tr_observer *o, struct tr_errbuf *err)
{
    char made[sizeof(o->path) + 16];
    snprintf(made, sizeof(made), "%s.%d", o->path, (int)getpid());
    if (strlen(made) >= sizeof(o->path))
        return tr_errf(err, -ENAMETOOLONG, "%s is too long for a socket", o->path);
    struct sockaddr_un a = address(made);
    struct stat st;
    mode_t mask = umask(0177);
    int ret = bind(o->fd, (const struct sockaddr *)&a, sizeof(a));
    umask(mask);
    if (ret < 0)
        return tr_errf(err, -errno, "cannot make the socket %s: %s", made, strerror(errno));
    if (listen(o->fd, BACKLOG) == 0 && lstat(made, &st) == 0 && rename(made, o->path) == 0) {
        o->dev = st.st_dev;
        o->ino = st.st_ino;
        return 0;
    }
    ret = tr_errf(err, -errno, "cannot make the socket %s: %s", o->path, strerror(errno));
    unlink(made);
    return ret;
}

static int open_at(struct tr_observer *o, const char *path, struct tr_errbuf *err)
{
    if (strlen(path) >= sizeof(o->path))
        return tr_errf(err, -ENAMETOOLONG, "--control-socket %s is too long: at most %zu bytes",
                       path, sizeof(o->path) - 1);
    int ret = look_at(path, err);
    if (ret)
        return ret;
    snprintf(o->path, sizeof(o->path), "%s", path);
    o->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (o->fd < 0)
        return tr_errf(err, -errno, "cannot make a socket: %s", strerror(errno));
    ret = make_file(o, err);
    if (ret) {
        close(o->fd);
        o->fd = -1;
    }
    return ret;
}

/* The first place that the environment names and that can be used. */
static int open_auto(struct tr_observer *o, unsigned port, struct tr_errbuf *err)
{
    int ret = -ENOENT;
    for (int place = 0; place < TR_OBSERVE_PLACES; place++) {
        char path[sizeof(o->path)];
        if (place == TR_OBSERVE_SYSTEM ||
            tr_observe_path((enum tr_observe_place)place, port, path, sizeof(path)))
            continue;
        ret = open_at(o, path, err);
        if (!ret || ret == -EADDRINUSE)
            return ret;
    }
    return ret;
}

int tr_observe_open(struct tr_observer *o, const char *where, const struct tr_observe *message,
                    struct tr_errbuf *err)
{
    *o = (struct tr_observer){.fd = -1, .message = *message};
    if (strcmp(where, "off") == 0)
        return 0;
    if (strcmp(where, "auto") == 0)
        return open_auto(o, message->port, err);
    return open_at(o, where, err);
}

void tr_observe_close(struct tr_observer *o)
{
    struct stat st;
    if (o->fd < 0)
        return;
    if (lstat(o->path, &st) == 0 && st.st_dev == o->dev && st.st_ino == o->ino)
        unlink(o->path);
    close(o->fd);
    o->fd = -1;
}

/* ---- observers ---- */

static bool may_see(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && len == sizeof(peer) &&
           (peer.uid == geteuid() || peer.uid == 0);
}

/* The order of shm/observe.h. */
static uint32_t list_fds(const struct tr_shm_fds *fds, int *out)
{
    uint32_t n = tr_layout_n_stats(&fds->config);
    for (uint32_t i = 0; i < n; i++)
        out[i] = fds->stat[i].ro;
    out[n] = fds->slots.ro;
    out[n + 1] = fds->processes.ro;
    return n + 2;
}

/* A fresh socket has room for it; if not, this observer gets nothing. */
static void send_all(int fd, const struct tr_observe *message, const struct tr_shm_fds *fds)
{
    int list[TR_OBSERVE_MAX_FDS];
    uint32_t n = list_fds(fds, list);
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(list))];
    } control;
    struct iovec v = {.iov_base = (void *)message, .iov_len = sizeof(*message)};
    struct msghdr m = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = CMSG_SPACE(n * sizeof(int))};
    memset(&control, 0, sizeof(control));
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(c), list, n * sizeof(int));
    (void)sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int tr_observe_pollfd(struct tr_observer *o)
{
    bool full = o->full;
    o->full = false;
    return full ? -1 : o->fd;
}

void tr_observe_serve(struct tr_observer *o, const struct tr_shm_fds *fds)
{
    for (unsigned i = 0; o->fd >= 0 && i < PER_TURN; i++) {
        int fd = accept4(o->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            o->full = errno != EAGAIN;
            return;
        }
        if (may_see(fd))
            send_all(fd, &o->message, fds);
        close(fd);
    }
    o->full = o->fd >= 0;
}
