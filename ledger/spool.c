/* SPDX-License-Identifier: Apache-2.0 */
/* What the main thread does; the sink thread's side is in spool_take.c. */
#include "ledger/spool_priv.h"

#include "base/fault.h"
#include "ledger/frame.h"
#include "ledger/pack.h"
#include "ledger/spool_list.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    GROUP_BYTES = 1 << 20,
    SEGMENT_BYTES = 4 << 20, /* a segment is ended when it is larger, */
    SEGMENTS_MIN = 8,        /* or larger than this part of the limit */
    SEGMENT_LEAST = 4 << 10
};

/* ---- opening ---- */

/* So that the folder itself is there after a power cut.  A folder above it that may not be read, or that
 * cannot be synced by its nature (EINVAL), is no reason not to start; a disk that fails is. */
static int sync_parent(int dir)
{
    int fd = openat(dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    int ret = fsync(fd) < 0 && errno != EINVAL ? -errno : 0;
    close(fd);
    return ret;
}

static int take_folder(struct tr_spool *p, const char *dir, struct tr_errbuf *err)
{
    bool made = mkdir(dir, 0750) == 0;
    if (!made && errno != EEXIST)
        return tr_errf(err, -errno, "cannot make the ledger's spool %s: %s", dir, strerror(errno));
    p->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->dir < 0)
        return tr_errf(err, -errno, "cannot open the ledger's spool %s: %s", dir, strerror(errno));
    int ret = made ? sync_parent(p->dir) : 0;
    if (ret)
        return tr_errf(err, ret, "cannot sync the ledger's spool %s: %s", dir, strerror(-ret));
    p->lock = openat(p->dir, TR_SPOOL_LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    if (p->lock < 0)
        return tr_errf(err, -errno, "cannot write to the ledger's spool %s: %s", dir,
                       strerror(errno));
    if (flock(p->lock, LOCK_EX | LOCK_NB) < 0)
        return tr_errf(err, -EBUSY, "the ledger's spool %s is in use by another service", dir);
    return 0;
}

static int find_segments(struct tr_spool *p, const char *dir, struct tr_errbuf *err)
{
    struct tr_spool_file *list = NULL;
    ssize_t n = tr_spool_list(p->dir, &list);
    if (n < 0)
        return tr_errf(err, (int)n, "cannot read the ledger's spool %s: %s", dir,
                       strerror((int)-n));
    p->seg = calloc((size_t)n + 1, sizeof(*p->seg));
    for (ssize_t i = 0; i < n && p->seg; i++) {
        p->next = list[i].number + 1;
        if (list[i].aside)
            continue;
        p->seg[p->n_seg++] = (struct tr_spool_segment){list[i].number, (uint64_t)list[i].size};
        p->bytes += (uint64_t)list[i].size;
    }
    free(list);
    return p->seg ? 0 : tr_errf(err, -ENOMEM, "no memory for the ledger's spool");
}

int tr_spool_open(struct tr_spool **out, const char *dir, uint64_t max, struct tr_errbuf *err)
{
    struct tr_spool *p = calloc(1, sizeof(*p));
    if (!p)
        return tr_errf(err, -ENOMEM, "no memory for the ledger's spool");
    p->dir = p->lock = p->fd = p->in = -1;
    pthread_mutex_init(&p->mutex, NULL);
    p->next = 1;
    p->max = max;
    p->segment_max = max && max / SEGMENTS_MIN < SEGMENT_BYTES ? max / SEGMENTS_MIN : SEGMENT_BYTES;
    if (p->segment_max < SEGMENT_LEAST)
        p->segment_max = SEGMENT_LEAST;
    p->group = malloc(GROUP_BYTES);
    p->chunk = malloc(TR_SPOOL_CHUNK);
    int ret = p->group && p->chunk ? take_folder(p, dir, err)
                                   : tr_errf(err, -ENOMEM, "no memory for the ledger's spool");
    if (!ret)
        ret = find_segments(p, dir, err);
    if (ret) {
        tr_spool_close(p);
        return ret;
    }
    *out = p;
    return 0;
}

/* ---- writing: main thread ---- */

uint64_t tr_spool_bytes(struct tr_spool *p)
{
    tr_spool_lock(p);
    uint64_t bytes = p->bytes;
    tr_spool_unlock(p);
    return bytes;
}

size_t tr_spool_waiting(const struct tr_spool *p)
{
    return p->used;
}

void tr_spool_unlimited(struct tr_spool *p)
{
    p->max = 0;
}

int tr_spool_add(struct tr_spool *p, const struct tr_entry *e)
{
    uint8_t packed[TR_PACK_MAX];
    size_t n = tr_pack(e, packed);
    if (p->max && tr_spool_bytes(p) + p->used + TR_FRAME_HEAD + n > p->max)
        return -ENOSPC;
    if (TR_FRAME_HEAD + n > GROUP_BYTES - p->used)
        return -ENOMEM;
    p->used += tr_frame_put(packed, n, p->group + p->used);
    return 0;
}

/* An empty segment behind the others. */
static int begin_segment(struct tr_spool *p)
{
    char name[TR_SPOOL_NAME_BYTES];
    tr_spool_name(p->next, false, name);
    int fd = openat(p->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    if (fd < 0) {
        int e = errno;
        p->next += e == EEXIST;
        return -e;
    }
    p->next++; /* whatever happens to this one, its name is used */
    tr_spool_lock(p);
    struct tr_spool_segment *more = realloc(p->seg, (p->n_seg + 1) * sizeof(*more));
    if (more) {
        p->seg = more;
        p->seg[p->n_seg++] = (struct tr_spool_segment){p->next - 1, 0};
        p->open = true;
    }
    tr_spool_unlock(p);
    if (!more) {
        close(fd);
        return -ENOMEM;
    }
    p->fd = fd;
    p->open_len = 0;
    p->named = false;
    return 0;
}

static void end_segment(struct tr_spool *p)
{
    tr_spool_lock(p);
    p->open = false;
    tr_spool_unlock(p);
    tr_spool_close_fd(&p->fd);
}

/* The first group that must be durable need not be the first of its segment. */
static int sync_segment(struct tr_spool *p)
{
    if (fdatasync(p->fd) < 0 || (!p->named && fsync(p->dir) < 0))
        return -errno;
    p->named = true;
    return 0;
}

/* At its place, not appended: what a failed try left behind is written over. */
static int write_group(struct tr_spool *p, uint64_t at, bool sync)
{
    size_t done = 0;
    while (done < p->used) {
        ssize_t n = pwrite(p->fd, p->group + done, p->used - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        done += (size_t)n;
    }
    TR_FAULT(LEDGER_SPOOL_WRITTEN);
    return sync ? sync_segment(p) : 0;
}

int tr_spool_commit(struct tr_spool *p, bool sync)
{
    int ret = p->fd < 0 && p->used ? begin_segment(p) : 0;
    if (ret || !p->used)
        return ret;
    ret = write_group(p, p->open_len, sync);
    if (ret) {
        /* Back to whole frames; if even that fails, the next group is written over it, or the next
         * reader finds a torn end. */
        (void)!ftruncate(p->fd, (off_t)p->open_len);
        return ret;
    }
    p->open_len += p->used;
    tr_spool_lock(p);
    p->seg[p->n_seg - 1].len += p->used;
    p->bytes += p->used;
    tr_spool_unlock(p);
    p->used = 0;
    if (p->open_len >= p->segment_max)
        end_segment(p);
    return 0;
}

/* Under the mutex.  Whether the oldest segment is in the database as far as it was committed. */
static bool oldest_is_done(const struct tr_spool *p)
{
    return (p->done.segment == p->seg[0].number ? p->done.at : 0) == p->seg[0].len;
}

bool tr_spool_is_empty(struct tr_spool *p)
{
    tr_spool_lock(p);
    bool empty = p->n_seg == 0 || (p->n_seg == 1 && oldest_is_done(p));
    tr_spool_unlock(p);
    return empty;
}

bool tr_spool_trim(struct tr_spool *p, uint64_t least)
{
    tr_spool_lock(p);
    bool trim = p->open && p->n_seg == 1 && oldest_is_done(p) && p->seg[0].len > least;
    tr_spool_unlock(p);
    if (trim)
        end_segment(p);
    return trim;
}

/* ---- the end ---- */

void tr_spool_close(struct tr_spool *p)
{
    if (!p)
        return;
    tr_spool_close_fd(&p->fd);
    if (p->n_seg == 1 && oldest_is_done(p))
        tr_spool_drop_oldest(p);
    tr_spool_close_fd(&p->in);
    tr_spool_close_fd(&p->lock);
    tr_spool_close_fd(&p->dir);
    pthread_mutex_destroy(&p->mutex);
    free(p->seg);
    free(p->group);
    free(p->chunk);
    free(p);
}
