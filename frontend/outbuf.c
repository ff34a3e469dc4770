/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/outbuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE_BYTES = 4096,
    POOL_PIECES = 64, /* more are given back to the system */
    GROW_BYTES = 1024,
    WAIT_BYTES = 256 /* what waits is kept in multiples of this */
};

/* ---- pieces ---- */

static char *take(struct tr_outpool *p)
{
    void *piece = p->free;
    if (!piece)
        return malloc(PIECE_BYTES);
    memcpy(&p->free, piece, sizeof(void *));
    p->n_free--;
    return piece;
}

static void give_back(struct tr_outpool *p, char *piece, size_t cap)
{
    if (cap != PIECE_BYTES || p->n_free == POOL_PIECES) {
        free(piece);
        return;
    }
    memcpy(piece, &p->free, sizeof(void *));
    p->free = piece;
    p->n_free++;
}

void tr_outpool_fini(struct tr_outpool *p)
{
    while (p->free)
        free(take(p));
}

/* ---- one buffer ---- */

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Moves the bytes into a piece of `cap` bytes, which hold them. */
static int move(struct tr_outpool *p, struct tr_outbuf *o, size_t cap)
{
    size_t len = o->end - o->at;
    char *piece = cap == PIECE_BYTES ? take(p) : malloc(cap);
    if (!piece)
        return -ENOMEM;
    if (o->buf) {
        memcpy(piece, o->buf + o->at, len);
        give_back(p, o->buf, o->cap);
    }
    o->buf = piece;
    o->at = 0;
    o->end = len;
    o->cap = cap;
    return 0;
}

static int make_room(struct tr_outpool *p, struct tr_outbuf *o, size_t n)
{
    size_t len = o->end - o->at;
    if (o->cap - o->end >= n)
        return 0;
    if (o->buf && o->cap - len >= n) {
        memmove(o->buf, o->buf + o->at, len);
        o->at = 0;
        o->end = len;
        return 0;
    }
    if (n > (size_t)-1 / 2 - len)
        return -ENOMEM;
    return move(p, o, len + n <= PIECE_BYTES ? PIECE_BYTES : round_up(len + n, GROW_BYTES));
}

/* Bytes cannot stand behind a given body: what is left of it becomes part of the piece. */
static int fold(struct tr_outpool *p, struct tr_outbuf *o)
{
    size_t n = o->given_end - o->given_at;
    if (!o->given)
        return 0;
    if (n) {
        if (make_room(p, o, n))
            return -ENOMEM;
        memcpy(o->buf + o->end, o->given + o->given_at, n);
        o->end += n;
    }
    free(o->given);
    o->given = NULL;
    o->given_at = o->given_end = 0;
    return 0;
}

int tr_outbuf_add(struct tr_outpool *p, struct tr_outbuf *o, const char *data, size_t len)
{
    if (len == 0)
        return 0;
    if (fold(p, o) || make_room(p, o, len))
        return -ENOMEM;
    memcpy(o->buf + o->end, data, len);
    o->end += len;
    return 0;
}

int tr_outbuf_give(struct tr_outpool *p, struct tr_outbuf *o, char *body, size_t len)
{
    if (fold(p, o))
        return -ENOMEM;
    o->given = body;
    o->given_at = 0;
    o->given_end = len;
    return 0;
}

int tr_outbuf_parts(const struct tr_outbuf *o, struct iovec v[2])
{
    int n = 0;
    if (o->end > o->at)
        v[n++] = (struct iovec){o->buf + o->at, o->end - o->at};
    if (o->given_end > o->given_at)
        v[n++] = (struct iovec){o->given + o->given_at, o->given_end - o->given_at};
    return n;
}

void tr_outbuf_drain(struct tr_outpool *p, struct tr_outbuf *o, size_t n)
{
    size_t first = n < o->end - o->at ? n : o->end - o->at;
    o->at += first;
    o->given_at += n - first;
    if (o->at == o->end && o->buf) {
        give_back(p, o->buf, o->cap);
        o->buf = NULL;
        o->at = o->end = o->cap = 0;
    }
    if (o->given && o->given_at == o->given_end) {
        free(o->given);
        o->given = NULL;
        o->given_at = o->given_end = 0;
    }
}

void tr_outbuf_wait(struct tr_outpool *p, struct tr_outbuf *o)
{
    size_t cap = round_up(o->end - o->at, WAIT_BYTES);
    if (o->buf && cap <= o->cap / 2)
        (void)move(p, o, cap); /* without memory it stays where it is */
}

void tr_outbuf_fini(struct tr_outpool *p, struct tr_outbuf *o)
{
    if (o->buf)
        give_back(p, o->buf, o->cap);
    free(o->given);
    *o = (struct tr_outbuf){0};
}
