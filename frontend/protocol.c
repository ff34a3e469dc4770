/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/protocol.c - see protocol.h. */
#include "frontend/protocol.h"

#include "base/assert.h"
#include "frontend/conn_priv.h"

#include <stddef.h>
#include <stdlib.h>

enum { READS_PER_TURN = 16 }; /* then the others get their turn */

struct tr_conn *tr_conn_of(struct tr_exchange *x)
{
    if (x->ops != &tr_conn_exchange_ops)
        return NULL;
    return (struct tr_conn *)((char *)x - offsetof(struct tr_conn, x));
}

void tr_conn_become(struct tr_conn *c, const struct tr_protocol *p, void *state)
{
    TR_ASSERT(c->state == TR_CONN_BUSY || c->state == TR_CONN_READING);
    TR_ASSERT(!c->head_sent && !c->answer_done && !c->x.owner_ops);
    c->d->stats->busy -= c->state == TR_CONN_BUSY;
    c->state = TR_CONN_RAW;
    c->raw = (struct tr_conn_raw){.protocol = p, .state = state};
    c->fin_told = false;
    free(tr_conn_take_body(c));
    tr_conn_mark(c);  /* it may be draining */
    tr_conn_later(c); /* what has come already */
}

static bool is_raw(const struct tr_conn *c)
{
    return c->state == TR_CONN_RAW && c->raw.protocol && !c->raw.over;
}

/* ---- reading ------------------------------------------------------------------------------ */

static void input(struct tr_conn *c, const char *data, size_t len)
{
    if (c->raw.protocol->input(c->raw.state, data, len) < 0)
        c->raw.over = true;
}

/* What HTTP/1 had read beyond its last request. */
static void input_kept(struct tr_conn *c)
{
    char *kept = c->in;
    size_t at = c->in_at, len = c->in_len;
    c->in = NULL;
    c->in_at = c->in_len = 0;
    input(c, kept + at, len - at);
    free(kept);
}

static void read_all(struct tr_conn *c)
{
    if (c->in_at < c->in_len && is_raw(c) && !c->raw.paused)
        input_kept(c);
    for (int i = 0; i < READS_PER_TURN; i++) {
        if (!is_raw(c) || c->raw.paused || !c->may_read || c->broken)
            return;
        size_t n = tr_conn_read_some(c);
        if (n)
            input(c, c->d->scratch, n);
    }
    tr_conn_later(c);
}

/* ---- turns -------------------------------------------------------------------------------- */

static void tell_half_closed(struct tr_conn *c)
{
    if (c->fin_told || !c->rdhup)
        return;
    c->fin_told = true;
    c->d->stats->half_closed++;
    c->raw.protocol->half_closed(c->raw.state);
}

void tr_conn_raw_work(struct tr_conn *c)
{
    /* Who has sent a FIN, or is not read, shows a reset only here. */
    if ((c->fin_told || c->raw.paused) && !tr_conn_peer_lives(c))
        return;
    tr_conn_write_out(c);
    if (is_raw(c) && !c->broken && tr_conn_takes_more(c)) {
        c->want_writable = false;
        c->raw.protocol->writable(c->raw.state);
    }
    read_all(c);
    if (is_raw(c) && (c->raw.paused || !c->may_read))
        tell_half_closed(c);
    tr_conn_mark(c);
}

/* The protocol has ended; the connection goes on to write what it left. */
static void finish(struct tr_conn *c)
{
    tr_conn_raw_gone(c, TR_GONE_SHUT);
    c->complete = true;
    c->state = TR_CONN_CLOSING;
    c->may_read |= c->rdhup; /* a FIN that was read is seen again: nothing is waited for */
}

void tr_conn_raw_turn_end(struct tr_conn *c)
{
    if (c->raw.cut) {
        tr_conn_close_hard(c, true);
        tr_conn_kill(c, TR_GONE_RESET);
        return;
    }
    if (is_raw(c) && tr_httpd_is_ending(c->d) && !c->raw.drained) {
        c->raw.drained = true;
        c->raw.protocol->drain(c->raw.state);
    }
    if (is_raw(c) && c->raw.marked) {
        c->raw.marked = false;
        c->raw.protocol->turn_end(c->raw.state);
    }
    if (c->raw.over)
        finish(c);
}

void tr_conn_raw_gone(struct tr_conn *c, enum tr_gone why)
{
    const struct tr_protocol *p = c->raw.protocol;
    tr_conn_raw_busy(c, 0);
    c->raw.protocol = NULL;
    if (p)
        p->gone(c->raw.state, why);
}

/* ---- for the protocol ----------------------------------------------------------------------- */

void tr_conn_raw_write(struct tr_conn *c, const char *data, size_t len)
{
    if (!is_raw(c) || len == 0)
        return;
    tr_conn_put(c, data, len);
    if (tr_outbuf_len(&c->out) >= c->d->lim->stream_buffer)
        c->want_writable = true;
    tr_conn_mark(c);
}

size_t tr_conn_raw_room(struct tr_conn *c)
{
    size_t room = tr_conn_room(c);
    if (!room)
        c->want_writable = true;
    return room;
}

void tr_conn_raw_flush(struct tr_conn *c)
{
    if (!is_raw(c))
        return;
    tr_conn_write_out(c);
    tr_conn_mark(c); /* what came of it is looked at in the loop */
}

void tr_conn_raw_mark(struct tr_conn *c)
{
    c->raw.marked = true;
    tr_conn_mark(c);
}

void tr_conn_raw_pause(struct tr_conn *c, bool on)
{
    if (c->raw.paused == on)
        return;
    c->raw.paused = on;
    tr_conn_later(c);
}

void tr_conn_raw_close(struct tr_conn *c)
{
    c->raw.over = true;
    tr_conn_mark(c);
}

void tr_conn_raw_abort(struct tr_conn *c)
{
    c->raw.over = c->raw.cut = true;
    tr_conn_mark(c);
}

void tr_conn_raw_busy(struct tr_conn *c, unsigned n)
{
    c->d->stats->busy += n;
    c->d->stats->busy -= c->raw.busy;
    c->raw.busy = n;
}

struct tr_httpd *tr_conn_httpd(struct tr_conn *c)
{
    return c->d;
}

struct event_base *tr_httpd_base(struct tr_httpd *d)
{
    return d->base;
}

const struct tr_http_limits *tr_httpd_limits(const struct tr_httpd *d)
{
    return d->lim;
}
