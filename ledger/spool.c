/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/spool.h"

#include "base/assert.h"
#include "base/fault.h"
#include "ledger/frame.h"
#include "ledger/pack.h"
#include "ledger/spool_list.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    GROUP_BYTES = 1 << 20,
    CHUNK_BYTES = 256 << 10, /* what the sink thread reads at once */
    SEGMENT_BYTES = 4 << 20, /* a segment is ended when it is larger, */
    SEGMENTS_MIN = 8,        /* or larger than this part of the limit */
    SEGMENT_LEAST = 4 << 10
};

struct segment {
    uint64_t number, len;
};

struct tr_spool {
    /* main thread */
    int dir, lock, fd; /* fd: of the segment that is written to, -1 when there is none */
    uint8_t *group;
    size_t used;
    uint64_t max, segment_max, next;
    uint64_t open_len; /* of the segment that is written to */
    bool named;        /* its name in the folder outlives a power cut */
    /* either, under the mutex */
    pthread_mutex_t mutex;
    struct segment *seg; /* oldest first */
    size_t n_seg;
    bool open;                  /* the last of them is written to */
    struct tr_spool_place done; /* all before it is in the database */
    uint64_t bytes;
    /* sink thread */
    int in;             /* of the oldest segment, -1 when not open */
    uint64_t in_number; /* whose it is */
    uint8_t *chunk;
    uint64_t told; /* anomalies before this place of it have been reported */
    bool damaged;  /* it is to be set aside */
};

static void lock(struct tr_spool *p)
{
    pthread_mutex_lock(&p->mutex);
}

static void unlock(struct tr_spool *p)
{
    pthread_mutex_unlock(&p->mutex);
}

/* ---- opening ---- */

/* So that the folder itself is there after a power cut.  If that cannot be had, the first commit that
 * must be durable says so. */
static void sync_parent(int dir)
{
    int fd = openat(dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fsync(fd);
    close(fd);
}

static int take_folder(struct tr_spool *p, const char *dir, struct tr_errbuf *err)
{
    bool made = mkdir(dir, 0750) == 0;
    if (!made && errno != EEXIST)
        return tr_errf(err, -errno, "cannot make the ledger's spool %s: %s", dir, strerror(errno));
    p->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->dir < 0)
        return tr_errf(err, -errno, "cannot open the ledger's spool %s: %s", dir, strerror(errno));
    if (made)
        sync_parent(p->dir);
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
        p->seg[p->n_seg++] = (struct segment){list[i].number, (uint64_t)list[i].size};
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
    p->chunk = malloc(CHUNK_BYTES);
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

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- writing: main thread ---- */

uint64_t tr_spool_bytes(struct tr_spool *p)
{
    lock(p);
    uint64_t bytes = p->bytes;
    unlock(p);
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
    lock(p);
    struct segment *more = realloc(p->seg, (p->n_seg + 1) * sizeof(*more));
    if (more) {
        p->seg = more;
        p->seg[p->n_seg++] = (struct segment){p->next - 1, 0};
        p->open = true;
    }
    unlock(p);
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
    lock(p);
    p->open = false;
    unlock(p);
    close_fd(&p->fd);
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
    lock(p);
    p->seg[p->n_seg - 1].len += p->used;
    p->bytes += p->used;
    unlock(p);
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
    lock(p);
    bool empty = p->n_seg == 0 || (p->n_seg == 1 && oldest_is_done(p));
    unlock(p);
    return empty;
}

bool tr_spool_trim(struct tr_spool *p, uint64_t least)
{
    lock(p);
    bool trim = p->open && p->n_seg == 1 && oldest_is_done(p) && p->seg[0].len > least;
    unlock(p);
    if (trim)
        end_segment(p);
    return trim;
}

/* ---- reading: sink thread ---- */

/* Which segment is the oldest, and how far it may be read; false: there is none. */
static bool oldest(struct tr_spool *p, struct segment *seg, bool *ended, uint64_t *from)
{
    lock(p);
    bool any = p->n_seg > 0;
    if (any) {
        *seg = p->seg[0];
        *ended = p->n_seg > 1 || !p->open;
        *from = p->done.segment == seg->number ? p->done.at : 0;
    }
    unlock(p);
    return any;
}

static int open_oldest(struct tr_spool *p, uint64_t number)
{
    char name[TR_SPOOL_NAME_BYTES];
    if (p->in >= 0 && p->in_number == number)
        return 0;
    close_fd(&p->in);
    tr_spool_name(number, false, name);
    p->in = openat(p->dir, name, O_RDONLY | O_CLOEXEC);
    p->in_number = number;
    p->told = 0;
    p->damaged = false;
    return p->in < 0 ? -errno : 0;
}

/* The oldest segment is in the database. */
static void drop_oldest(struct tr_spool *p)
{
    char name[TR_SPOOL_NAME_BYTES], aside[TR_SPOOL_NAME_BYTES];
    lock(p);
    struct segment seg = p->seg[0];
    memmove(p->seg, p->seg + 1, --p->n_seg * sizeof(*p->seg));
    p->bytes -= seg.len;
    unlock(p);
    tr_spool_name(seg.number, false, name);
    tr_spool_name(seg.number, true, aside);
    /* One that cannot be removed is read once more by the next process. */
    if (p->damaged && p->in_number == seg.number)
        (void)renameat(p->dir, name, p->dir, aside);
    else
        (void)unlinkat(p->dir, name, 0);
    close_fd(&p->in);
    p->in_number = 0;
    p->damaged = false;
}

struct taking {
    struct tr_spool *p;
    struct tr_entry *e;
    int n;
    void (*bad)(void *arg, const struct tr_spool_bad *b);
    void *arg;
};

static void take_entry(void *arg, const struct tr_entry *e)
{
    struct taking *t = arg;
    t->e[t->n++] = *e;
}

static void take_bad(void *arg, const struct tr_spool_bad *b)
{
    struct taking *t = arg;
    t->p->damaged |= b->fault != TR_SPOOL_TORN;
    if (b->at < t->p->told)
        return;
    t->p->told = b->at + b->len;
    t->bad(t->arg, b);
}

/* Pieces of the chunk until there is no room for another entry. */
static size_t take_pieces(struct taking *t, int max, size_t n, bool whole, const char *file,
                          uint64_t at)
{
    struct tr_spool_reader r = {take_entry, take_bad, t};
    size_t done = 0, len;
    while (t->n < max && (len = tr_spool_piece(t->p->chunk, n, done, whole, file, at, &r)) != 0)
        done += len;
    return done;
}

static int take_from(struct tr_spool *p, const struct segment *seg, bool ended, uint64_t from,
                     struct taking *t, int max, uint64_t *upto)
{
    char name[TR_SPOOL_NAME_BYTES];
    int ret = open_oldest(p, seg->number);
    tr_spool_name(seg->number, false, name);
    if (ret == -ENOENT) { /* somebody has removed it: told, and passed over */
        take_bad(t, &(struct tr_spool_bad){TR_SPOOL_DAMAGED, name, from, seg->len - from});
        *upto = seg->len;
        return 0;
    }
    if (ret)
        return ret;
    size_t n = seg->len - from < CHUNK_BYTES ? (size_t)(seg->len - from) : CHUNK_BYTES;
    ssize_t got = tr_spool_pread(p->in, p->chunk, n, from);
    if (got < 0)
        return (int)got;
    if ((size_t)got < n) /* somebody has cut it: what is missing was not there */
        n = (size_t)got;
    bool whole = ended && (from + n == seg->len || n < CHUNK_BYTES);
    *upto = from + take_pieces(t, max, n, whole, name, from);
    if (n == 0 && ended)
        *upto = seg->len;
    return 0;
}

int tr_spool_take(struct tr_spool *p, struct tr_entry *e, int max, struct tr_spool_place *upto,
                  void (*bad)(void *arg, const struct tr_spool_bad *b), void *arg)
{
    struct segment seg;
    bool ended = false;
    uint64_t from = 0, to = 0;
    while (oldest(p, &seg, &ended, &from)) {
        struct taking t = {.p = p, .e = e, .bad = bad, .arg = arg};
        if (from >= seg.len) {
            if (!ended)
                return 0;
            drop_oldest(p);
            continue;
        }
        int ret = take_from(p, &seg, ended, from, &t, max, &to);
        if (ret)
            return ret;
        *upto = (struct tr_spool_place){seg.number, to};
        if (t.n || to == from)
            return t.n;
        tr_spool_done(p, *upto); /* anomalies only */
    }
    return 0;
}

void tr_spool_done(struct tr_spool *p, struct tr_spool_place upto)
{
    lock(p);
    bool drop = false;
    if (p->n_seg && p->seg[0].number == upto.segment) {
        p->done = upto;
        drop = upto.at >= p->seg[0].len && (p->n_seg > 1 || !p->open);
    }
    unlock(p);
    if (drop)
        drop_oldest(p);
}

/* ---- the end ---- */

void tr_spool_close(struct tr_spool *p)
{
    if (!p)
        return;
    close_fd(&p->fd);
    if (p->n_seg == 1 && oldest_is_done(p))
        drop_oldest(p);
    close_fd(&p->in);
    close_fd(&p->lock);
    close_fd(&p->dir);
    pthread_mutex_destroy(&p->mutex);
    free(p->seg);
    free(p->group);
    free(p->chunk);
    free(p);
}
