/* SPDX-License-Identifier: Apache-2.0 */
/* What the sink thread does with a spool: spool.h. */
#include "ledger/spool_list.h"
#include "ledger/spool_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Which segment is the oldest, and how far it may be read; false: there is none. */
static bool oldest(struct tr_spool *p, struct tr_spool_segment *seg, bool *ended, uint64_t *from)
{
    tr_spool_lock(p);
    bool any = p->n_seg > 0;
    if (any) {
        *seg = p->seg[0];
        *ended = p->n_seg > 1 || !p->open;
        *from = p->done.segment == seg->number ? p->done.at : 0;
    }
    tr_spool_unlock(p);
    return any;
}

static int open_oldest(struct tr_spool *p, uint64_t number)
{
    char name[TR_SPOOL_NAME_BYTES];
    if (p->in >= 0 && p->in_number == number)
        return 0;
    tr_spool_close_fd(&p->in);
    tr_spool_name(number, false, name);
    p->in = openat(p->dir, name, O_RDONLY | O_CLOEXEC);
    p->in_number = number;
    p->told = 0;
    p->damaged = false;
    return p->in < 0 ? -errno : 0;
}

void tr_spool_drop_oldest(struct tr_spool *p)
{
    char name[TR_SPOOL_NAME_BYTES], aside[TR_SPOOL_NAME_BYTES];
    tr_spool_lock(p);
    struct tr_spool_segment seg = p->seg[0];
    memmove(p->seg, p->seg + 1, --p->n_seg * sizeof(*p->seg));
    p->bytes -= seg.len;
    tr_spool_unlock(p);
    tr_spool_name(seg.number, false, name);
    tr_spool_name(seg.number, true, aside);
    /* One that cannot be removed is read once more by the next process. */
    if (p->damaged && p->in_number == seg.number)
        (void)renameat(p->dir, name, p->dir, aside);
    else
        (void)unlinkat(p->dir, name, 0);
    tr_spool_close_fd(&p->in);
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

static int take_from(struct tr_spool *p, const struct tr_spool_segment *seg, bool ended,
                     uint64_t from, struct taking *t, int max, uint64_t *upto)
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
    size_t n = seg->len - from < TR_SPOOL_CHUNK ? (size_t)(seg->len - from) : TR_SPOOL_CHUNK;
    ssize_t got = tr_spool_pread(p->in, p->chunk, n, from);
    if (got < 0)
        return (int)got;
    if ((size_t)got < n) /* somebody has cut it: what is missing was not there */
        n = (size_t)got;
    bool whole = ended && (from + n == seg->len || n < TR_SPOOL_CHUNK);
    *upto = from + take_pieces(t, max, n, whole, name, from);
    if (n == 0 && ended)
        *upto = seg->len;
    return 0;
}

int tr_spool_take(struct tr_spool *p, struct tr_entry *e, int max, struct tr_spool_place *upto,
                  void (*bad)(void *arg, const struct tr_spool_bad *b), void *arg)
{
    struct tr_spool_segment seg;
    bool ended = false;
    uint64_t from = 0, to = 0;
    while (oldest(p, &seg, &ended, &from)) {
        struct taking t = {.p = p, .e = e, .bad = bad, .arg = arg};
        if (from >= seg.len) {
            if (!ended)
                return 0;
            tr_spool_drop_oldest(p);
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
    tr_spool_lock(p);
    bool drop = false;
    if (p->n_seg && p->seg[0].number == upto.segment) {
        p->done = upto;
        drop = upto.at >= p->seg[0].len && (p->n_seg > 1 || !p->open);
    }
    tr_spool_unlock(p);
    if (drop)
        tr_spool_drop_oldest(p);
}
