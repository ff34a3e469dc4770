/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/spool_read.h"

#include "ledger/frame.h"
#include "ledger/pack.h"
#include "ledger/sink.h"
#include "ledger/spool_list.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { FILE_MAX_BYTES = 1 << 30 }; /* ours are some MiB */

int tr_spool_place(const char *address, const char *given, char *out, size_t size)
{
    const char *state = getenv("STATE_DIRECTORY");
    int n;
    if (given && *given)
        n = snprintf(out, size, "%s", given);
    else if (!tr_sink_is_server(address))
        n = snprintf(out, size, "%s.spool", address);
    else if (state && *state)
        n = snprintf(out, size, "%.*s/ledger.spool", (int)strcspn(state, ":"), state);
    else
        n = snprintf(out, size, "tokenring-ledger.spool");
    return n > 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

const char *tr_spool_fault_words(enum tr_spool_fault fault)
{
    switch (fault) {
    case TR_SPOOL_TORN:
        return "a torn end";
    case TR_SPOOL_DAMAGED:
        return "damaged bytes";
    default:
        return "a record of another version";
    }
}

static void tell(const struct tr_spool_reader *r, enum tr_spool_fault fault, const char *file,
                 uint64_t at, uint64_t len)
{
    struct tr_spool_bad bad = {.fault = fault, .file = file, .at = at, .len = len};
    if (r->bad)
        r->bad(r->arg, &bad);
}

static void give(const struct tr_spool_reader *r, const struct tr_frame *f, const char *file,
                 uint64_t at)
{
    struct tr_entry e;
    if (tr_unpack(f->payload, f->payload_len, &e))
        tell(r, TR_SPOOL_UNKNOWN, file, at + f->at, f->len);
    else if (r->entry)
        r->entry(r->arg, &e);
}

size_t tr_spool_piece(const uint8_t *p, size_t n, size_t from, bool whole, const char *file,
                      uint64_t at, const struct tr_spool_reader *r)
{
    struct tr_frame f = tr_frame_next(p, n, from);
    if (f.kind == TR_FRAME_NONE || (f.kind == TR_FRAME_TORN && !whole))
        return 0;
    if (f.kind == TR_FRAME_GOOD)
        give(r, &f, file, at);
    else
        tell(r, f.kind == TR_FRAME_TORN ? TR_SPOOL_TORN : TR_SPOOL_DAMAGED, file, at + f.at, f.len);
    return f.len;
}

size_t tr_spool_scan(const uint8_t *p, size_t n, bool whole, const char *file, uint64_t at,
                     const struct tr_spool_reader *r)
{
    size_t done = 0, len;
    while ((len = tr_spool_piece(p, n, done, whole, file, at, r)) != 0)
        done += len;
    return done;
}

/* ---- whole folders ---- */

static int read_segment(int dir, const struct tr_spool_file *f, bool whole,
                        const struct tr_spool_reader *r)
{
    char name[TR_SPOOL_NAME_BYTES];
    tr_spool_name(f->number, f->aside, name);
    if (f->size > FILE_MAX_BYTES)
        return -EFBIG;
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    uint8_t *buf = malloc((size_t)f->size + 1);
    ssize_t n = buf ? tr_spool_pread(fd, buf, (size_t)f->size, 0) : -ENOMEM;
    close(fd);
    if (n >= 0)
        tr_spool_scan(buf, (size_t)n, whole, name, 0, r);
    free(buf);
    return n < 0 ? (int)n : 0;
}

int tr_spool_each(const char *dir, bool live, const struct tr_spool_reader *r,
                  struct tr_errbuf *err)
{
    struct tr_spool_file *list = NULL;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT
                   ? 0
                   : tr_errf(err, -errno, "cannot read the spool %s: %s", dir, strerror(errno));
    ssize_t n = tr_spool_list(fd, &list);
    int ret = n < 0 ? (int)n : 0;
    for (ssize_t i = 0; i < n && !ret; i++)
        ret = read_segment(fd, &list[i], !live || i < n - 1, r);
    close(fd);
    free(list);
    return ret ? tr_errf(err, ret, "cannot read the spool %s: %s", dir, strerror(-ret)) : 0;
}

bool tr_spool_is_live(const char *dir)
{
    int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = at >= 0 ? openat(at, TR_SPOOL_LOCK, O_RDONLY | O_CLOEXEC) : -1;
    bool live = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    if (at >= 0)
        close(at);
    return live;
}
