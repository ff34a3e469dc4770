/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GROUP_BYTES = 1 << 20 };

/* Offset behind the last newline, or 0. */
static off_t whole_lines(int fd, off_t size)
{
    char buf[4096];
    while (size > 0) {
        size_t n = size < (off_t)sizeof(buf) ? (size_t)size : sizeof(buf);
        if (pread(fd, buf, n, size - (off_t)n) != (ssize_t)n)
            return -1;
        char *nl = memrchr(buf, '\n', n);
        if (nl)
            return size - (off_t)n + (nl - buf) + 1;
        size -= (off_t)n;
    }
    return 0;
}

static int open_whole(struct tr_lines *f, const char *path, struct tr_errbuf *err)
{
    struct stat st;
    f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    if (f->fd < 0)
        return tr_errf(err, -errno, "cannot open the ledger %s: %s", path, strerror(errno));
    if (flock(f->fd, LOCK_EX | LOCK_NB) < 0)
        return tr_errf(err, -EBUSY, "the ledger %s is in use by another service", path);
    if (fstat(f->fd, &st) < 0 || !S_ISREG(st.st_mode))
        return tr_errf(err, -EINVAL, "the ledger %s is not a regular file", path);
    f->len = whole_lines(f->fd, st.st_size);
    if (f->len < 0)
        return tr_errf(err, -EIO, "cannot read the ledger %s", path);
    f->torn = (uint64_t)(st.st_size - f->len);
    if (f->torn && ftruncate(f->fd, f->len) < 0)
        return tr_errf(err, -errno, "cannot mend the ledger %s: %s", path, strerror(errno));
    f->buf = malloc(GROUP_BYTES);
    if (!f->buf)
        return tr_errf(err, -ENOMEM, "no memory for the ledger");
    f->cap = GROUP_BYTES;
    return 0;
}

int tr_lines_open(struct tr_lines *f, const char *path, struct tr_errbuf *err)
{
    *f = (struct tr_lines){.fd = -1};
    int ret = open_whole(f, path, err);
    if (ret)
        tr_lines_close(f);
    return ret;
}

void tr_lines_close(struct tr_lines *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f->buf);
    *f = (struct tr_lines){.fd = -1};
}

int tr_lines_add(struct tr_lines *f, const char *line, size_t len)
{
    if (len > f->cap - f->used)
        return -ENOMEM;
    memcpy(f->buf + f->used, line, len);
    f->used += len;
    return 0;
}

int tr_lines_commit(struct tr_lines *f)
{
    size_t done = 0;
    while (done < f->used) {
        /* At its place, not appended: what a failed try left behind is written over. */
        ssize_t n = pwrite(f->fd, f->buf + done, f->used - done, f->len + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int e = n < 0 ? errno : EIO;
            /* Back to whole lines; if even that fails, the next try or the next opening mends it. */
            if (ftruncate(f->fd, f->len) < 0)
                e = errno;
            return -e;
        }
        done += (size_t)n;
    }
    if (f->used && fdatasync(f->fd) < 0) {
        int e = errno;
        if (ftruncate(f->fd, f->len) < 0)
            e = errno;
        return -e;
    }
    f->len += (off_t)f->used;
    f->used = 0;
    return 0;
}

int tr_lines_tail(struct tr_lines *f, size_t max, void (*fn)(void *, const char *, size_t),
                  void *arg)
{
    size_t n = f->len < (off_t)max ? (size_t)f->len : max;
    char *buf = malloc(n ? n : 1);
    if (!buf)
        return -ENOMEM;
    if (pread(f->fd, buf, n, f->len - (off_t)n) != (ssize_t)n) {
        free(buf);
        return -EIO;
    }
    char *p = buf, *end = buf + n;
    if ((off_t)n < f->len) {
        p = memchr(buf, '\n', n);
        p = p ? p + 1 : end;
    }
    while (p < end) {
        char *nl = memchr(p, '\n', (size_t)(end - p));
        if (!nl)
            break;
        fn(arg, p, (size_t)(nl - p));
        p = nl + 1;
    }
    free(buf);
    return 0;
}
