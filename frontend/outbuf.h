/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/outbuf.h - bytes on their way to one socket.
 *
 * Path: http > tokens > subq > engine > step > ring > detok > event > frame > socket [outbuf]
 *
 * One contiguous piece that grows at its end and shrinks at its front, and behind it at most one body
 * that was given away whole, so that one write has at most two parts.  An empty one holds no memory:
 * pieces come from a pool of the process and go back when all is written, so that thousands of
 * connections that are up to date share a few.  What must wait is kept in a piece of its size.
 *
 * Out of memory: -ENOMEM, and nothing has changed. */
#ifndef TR_FRONTEND_OUTBUF_H
#define TR_FRONTEND_OUTBUF_H

#include <stddef.h>
#include <sys/uio.h>

struct tr_outpool {
    void *free; /* a list of pieces */
    unsigned n_free;
};
void tr_outpool_fini(struct tr_outpool *p);

struct tr_outbuf {
    char *buf; /* bytes [at, end) of cap */
    size_t at, end, cap;
    char *given; /* after them: [given_at, given_end), from malloc */
    size_t given_at, given_end;
};

/* All zero is empty. */
void tr_outbuf_fini(struct tr_outpool *p, struct tr_outbuf *o);

static inline size_t tr_outbuf_len(const struct tr_outbuf *o)
{
    return o->end - o->at + o->given_end - o->given_at;
}

int tr_outbuf_add(struct tr_outpool *p, struct tr_outbuf *o, const char *data, size_t len);
/* `body` is from malloc and o's from here on, unless this fails. */
int tr_outbuf_give(struct tr_outpool *p, struct tr_outbuf *o, char *body, size_t len);

/* What there is, in order; the number of parts. */
int tr_outbuf_parts(const struct tr_outbuf *o, struct iovec v[2]);
/* The first n bytes are written; memory is given back with the last one. */
void tr_outbuf_drain(struct tr_outpool *p, struct tr_outbuf *o, size_t n);
/* What is left must wait: keeps no more memory than it needs. */
void tr_outbuf_wait(struct tr_outpool *p, struct tr_outbuf *o);

#endif
