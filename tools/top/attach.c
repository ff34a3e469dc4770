/* SPDX-License-Identifier: Apache-2.0 */
#include "top/attach.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { PATIENCE_S = 5 };
#define SILENT_NS 10000000000ull

/* ---- the message ---- */

static void make_printable(char *s, size_t cap)
{
    s[cap - 1] = 0;
    for (; *s; s++)
        if (*s < ' ' || *s > '~' || *s == '"' || *s == '\\')
            *s = '?';
}

static int check_hello(struct tr_observe *h, uint32_t n_fds, struct tr_errbuf *err)
{
    struct tr_errbuf why = {""};
    if (h->magic != TR_OBSERVE_MAGIC)
        return tr_errf(err, -EPROTO, "what answers there is no tokenring service");
    struct tr_observe mine = tr_observe_of_this_build(&h->config);
    if (h->bytes != mine.bytes || h->layout_version != mine.layout_version ||
        h->n_values != mine.n_values || h->n_hists != mine.n_hists ||
        h->stat_bytes != mine.stat_bytes)
        return tr_errf(
            err, -EPROTO,
            "the service is of another build: use the tokenring that it was started with");
    if (tr_layout_check(&h->config, &why))
        return tr_errf(err, -EPROTO, "the service says impossible sizes: %s", why.msg);
    if (h->n_fds != mine.n_fds || n_fds != mine.n_fds)
        return tr_errf(err, -EPROTO, "the service sent %u descriptors instead of %u", n_fds,
                       mine.n_fds);
    make_printable(h->version, sizeof(h->version));
    make_printable(h->backend, sizeof(h->backend));
    make_printable(h->model, sizeof(h->model));
    return 0;
}

/* ---- mapping ---- */

static const void *map(const struct tr_observe *h, int fd, enum tr_region_kind kind, uint32_t index)
{
    size_t bytes = tr_layout_region_bytes(&h->config, kind);
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) < 0 || st.st_size < 0 ||
        (size_t)st.st_size < bytes)
        return NULL;
    void *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return NULL;
    struct tr_region_head head;
    memcpy(&head, p, sizeof(head));
    if (head.magic == TR_SHM_MAGIC && head.version == TR_LAYOUT_VERSION &&
        head.kind == (uint32_t)kind && head.index == index && head.bytes == bytes &&
        memcmp(&head.config, &h->config, sizeof(head.config)) == 0)
        return p;
    munmap(p, bytes);
    return NULL;
}

static bool map_all(struct tr_top_view *v, const int *fds)
{
    uint32_t n = tr_layout_n_stats(&v->hello.config);
    for (uint32_t i = 0; i < n; i++)
        if (!(v->stat[i] = map(&v->hello, fds[i], TR_REGION_STAT, i)))
            return false;
    return (v->slots = map(&v->hello, fds[n], TR_REGION_SLOTS, 0)) &&
           (v->processes = map(&v->hello, fds[n + 1], TR_REGION_PROCESSES, 0));
}

int tr_top_take(struct tr_top_view *v, const struct tr_observe *hello, const int *fds, uint32_t n,
                struct tr_errbuf *err)
{
    *v = (struct tr_top_view){.hello = *hello, .pidfd = -1};
    int ret = check_hello(&v->hello, n, err);
    if (!ret && !map_all(v, fds))
        ret = tr_errf(err, -EPROTO, "a region that the service sent is not what it should be");
    for (uint32_t i = 0; i < n; i++)
        close(fds[i]);
    if (ret)
        tr_top_detach(v);
    return ret;
}

static void unmap(const struct tr_top_view *v, const void *p, enum tr_region_kind kind)
{
    if (p)
        munmap((void *)p, tr_layout_region_bytes(&v->hello.config, kind));
}

void tr_top_detach(struct tr_top_view *v)
{
    for (uint32_t i = 0; i < TR_MAX_STATS; i++)
        unmap(v, v->stat[i], TR_REGION_STAT);
    unmap(v, v->slots, TR_REGION_SLOTS);
    unmap(v, v->processes, TR_REGION_PROCESSES);
    if (v->pidfd >= 0)
        close(v->pidfd);
    *v = (struct tr_top_view){.pidfd = -1};
}

/* ---- the socket ---- */

/* The message with its descriptors; how many of these, or -1. */
static int receive(int fd, struct tr_observe *hello, int *fds)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(TR_OBSERVE_MAX_FDS * sizeof(int))];
    } control;
    struct iovec v = {.iov_base = hello, .iov_len = sizeof(*hello)};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    memset(&control, 0, sizeof(control));
    memset(hello, 0, sizeof(*hello));
    ssize_t got = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
    int n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); got > 0 && c; c = CMSG_NXTHDR(&m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t bytes = c->cmsg_len - CMSG_LEN(0);
        if (bytes > (TR_OBSERVE_MAX_FDS - (size_t)n) * sizeof(int))
            bytes = (TR_OBSERVE_MAX_FDS - (size_t)n) * sizeof(int);
        memcpy(fds + n, CMSG_DATA(c), bytes);
        n += (int)(bytes / sizeof(int));
    }
    if (got == 0)
        errno = ECONNRESET;
    return got > 0 ? n : -1;
}

static int connect_to(const char *path, struct tr_errbuf *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = PATIENCE_S};
    if (strlen(path) >= sizeof(a.sun_path))
        return tr_errf(err, -ENAMETOOLONG, "%s is too long for a socket", path);
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return tr_errf(err, -errno, "cannot make a socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (connect(fd, (const struct sockaddr *)&a, sizeof(a)) == 0)
        return fd;
    int e = errno;
    close(fd);
    if (e == ECONNREFUSED || e == ENOENT)
        return tr_errf(err, -e, "no service answers at %s", path);
    return tr_errf(err, -e, "cannot connect to %s: %s", path, strerror(e));
}

static int said_nothing(const char *path, const struct ucred *peer, struct tr_errbuf *err)
{
    int e = errno;
    if (e == EAGAIN)
        return tr_errf(err, -e, "the service at %s does not answer within %d s", path, PATIENCE_S);
    if (peer->uid != geteuid() && geteuid() != 0)
        return tr_errf(err, -EACCES,
                       "the service at %s runs as user %u: only this user and root may look", path,
                       peer->uid);
    return tr_errf(err, -e, "the service at %s did not answer: %s", path, strerror(e));
}

static int attach_at(struct tr_top_view *v, const char *path, struct tr_errbuf *err)
{
    struct tr_observe hello;
    struct tr_errbuf why = {""};
    struct ucred peer = {0};
    socklen_t len = sizeof(peer);
    int fds[TR_OBSERVE_MAX_FDS], fd = connect_to(path, err);
    if (fd < 0)
        return fd;
    (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len);
    memset(fds, -1, sizeof(fds));
    int n = receive(fd, &hello, fds);
    int ret = n < 0 ? said_nothing(path, &peer, err) : 0;
    close(fd);
    if (ret)
        return ret;
    ret = tr_top_take(v, &hello, fds, (uint32_t)n, &why);
    if (ret)
        return tr_errf(err, ret, "%s: %s", path, why.msg);
    if (peer.pid > 0)
        v->pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
    return 0;
}

int tr_top_attach(struct tr_top_view *v, const char *path, unsigned port, struct tr_errbuf *err)
{
    if (path)
        return attach_at(v, path, err);
    int ret = tr_errf(err, -ENOENT, "no service with a control socket on port %u", port);
    for (int place = 0; place < TR_OBSERVE_PLACES; place++) {
        char at[108];
        struct tr_errbuf why = {""};
        if (tr_observe_path((enum tr_observe_place)place, port, at, sizeof(at)))
            continue;
        int e = attach_at(v, at, &why);
        if (!e)
            return 0;
        /* What was found and refused says more than a place where nothing is. */
        if (e != -ENOENT && e != -ECONNREFUSED)
            ret = tr_errf(err, e, "%s", why.msg);
    }
    return ret;
}

bool tr_top_is_gone(const struct tr_top_view *v)
{
    struct pollfd p = {.fd = v->pidfd, .events = POLLIN};
    if (v->pidfd >= 0)
        return poll(&p, 1, 0) > 0;
    uint64_t beat =
        atomic_load_explicit(&v->stat[TR_STAT_SUPERVISOR]->heartbeat_ns, memory_order_relaxed);
    uint64_t now = tr_now_ns();
    return now > beat && now - beat > SILENT_NS;
}
