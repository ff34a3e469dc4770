/* SPDX-License-Identifier: Apache-2.0 */
/* Composing answers: heads, whole bodies, error objects, chunks. */
#include "base/assert.h"
#include "frontend/conn_priv.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An answer that is shorter is cheaper to copy. */
enum { GIVE_BYTES = 16 << 10 };

static struct tr_conn *conn_of(struct tr_exchange *x)
{
    return (struct tr_conn *)((char *)x - offsetof(struct tr_conn, x));
}

static const struct tr_conn *const_conn_of(const struct tr_exchange *x)
{
    return (const struct tr_conn *)((const char *)x - offsetof(struct tr_conn, x));
}

void tr_conn_put(struct tr_conn *c, const char *p, size_t n)
{
    if (c->broken || n == 0)
        return;
    if (tr_outbuf_add(&c->d->pool, &c->out, p, n)) {
        c->broken = ENOMEM;
        return;
    }
    c->accepted += n;
    c->d->stats->unsent_bytes += n;
}

/* ---- head ------------------------------------------------------------------------------ */

static void put(struct tr_emit *t, const char *s)
{
    tr_emit_bytes(t, s, strlen(s));
}

static int add_header(struct tr_exchange *x, const char *name, const char *value)
{
    return tr_carrier_extra(&conn_of(x)->extra, name, value);
}

/* Whether what is left of a refused body is worth reading to keep the connection: little, and sure
 * to come (a client that asked with Expect may never send it). */
enum { DISCARD_BYTES = 256 << 10 };

static bool body_ends_soon(const struct tr_conn *c)
{
    const struct tr_http *h = &c->http;
    return c->complete || !h->has_body ||
           (!h->chunked && !h->expect_continue &&
            h->content_length - c->body_seen <= DISCARD_BYTES);
}

/* Status line and the fields of every answer. */
static struct tr_emit *begin_head(struct tr_conn *c, int status, const char *type)
{
    struct tr_emit *t = &c->d->text;
    char line[96];
    TR_ASSERT(!c->head_sent && !c->answer_done && c->state != TR_CONN_LINGER);
    c->head_sent = true;
    c->keep = c->keep && !tr_httpd_is_ending(c->d) && body_ends_soon(c);
    tr_emit_reset(t);
    snprintf(line, sizeof(line), "HTTP/1.1 %d %s\r\n", status, tr_http_reason(status));
    put(t, line);
    if (!c->request_id[0]) /* the head was never complete */
        tr_carrier_id(&c->http, c->request_id);
    tr_carrier_fields(t, c->d->lim, type, c->request_id, &c->extra);
    return t;
}

static void end_head(struct tr_conn *c, struct tr_emit *t)
{
    if (!c->keep)
        tr_carrier_field(t, "Connection", "close");
    else if (c->http.minor == 0)
        tr_carrier_field(t, "Connection", "keep-alive");
    put(t, "\r\n");
    if (t->failed)
        c->broken = ENOMEM;
    tr_conn_put(c, t->buf, t->len);
    tr_carrier_extra_drop(&c->extra);
}

/* The answer is complete; what follows happens in the loop. */
static void done(struct tr_conn *c)
{
    c->answer_done = true;
    tr_exchange_unbind(&c->x);
    tr_conn_mark(c);
}

/* ---- whole answers --------------------------------------------------------------------- */

static void reply_head(struct tr_conn *c, int status, const char *type, size_t len)
{
    struct tr_emit *t = begin_head(c, status, type);
    char number[32];
    if (status != 204 && status != 304) {
        snprintf(number, sizeof(number), "%zu", len);
        tr_carrier_field(t, "Content-Length", number);
    }
    end_head(c, t);
}

static void reply(struct tr_exchange *x, int status, const char *type, const char *body, size_t len)
{
    struct tr_conn *c = conn_of(x);
    if (c->state == TR_CONN_DEAD)
        return;
    reply_head(c, status, type, len);
    if (!c->no_body && status != 204)
        tr_conn_put(c, body, len);
    done(c);
}

static void reply_give(struct tr_exchange *x, int status, const char *type, char *body, size_t len)
{
    struct tr_conn *c = conn_of(x);
    if (len < GIVE_BYTES || c->state == TR_CONN_DEAD || c->no_body) {
        reply(x, status, type, body, len);
        free(body);
        return;
    }
    reply_head(c, status, type, len);
    if (c->broken || tr_outbuf_give(&c->d->pool, &c->out, body, len)) {
        c->broken = c->broken ? c->broken : ENOMEM;
        free(body);
    } else {
        c->accepted += len;
        c->d->stats->unsent_bytes += len;
    }
    done(c);
}

/* ---- streams --------------------------------------------------------------------------- */

static void stream_begin(struct tr_exchange *x, const char *type)
{
    struct tr_conn *c = conn_of(x);
    if (c->state == TR_CONN_DEAD)
        return;
    c->chunked_out = c->http.minor == 1;
    if (!c->chunked_out) {
        c->keep = false;
        tr_conn_close_hard(c, true);
    }
    struct tr_emit *t = begin_head(c, 200, type);
    tr_carrier_stream_fields(t);
    if (c->chunked_out)
        tr_carrier_field(t, "Transfer-Encoding", "chunked");
    end_head(c, t);
    tr_conn_mark(c);
}

static void chunk_size(struct tr_conn *c, size_t len)
{
    char line[2 * sizeof(len) + 2], *end = line + sizeof(line), *p = end;
    *--p = '\n';
    *--p = '\r';
    do {
        *--p = "0123456789abcdef"[len % 16];
        len /= 16;
    } while (len);
    tr_conn_put(c, p, (size_t)(end - p));
}

static void stream_write(struct tr_exchange *x, const char *data, size_t len)
{
    struct tr_conn *c = conn_of(x);
    if (c->state == TR_CONN_DEAD || len == 0 || c->no_body || c->cut)
        return;
    TR_ASSERT(c->head_sent && !c->answer_done);
    if (c->chunked_out)
        chunk_size(c, len);
    tr_conn_put(c, data, len);
    if (c->chunked_out)
        tr_conn_put(c, "\r\n", 2);
    if (tr_outbuf_len(&c->out) >= c->d->lim->stream_buffer)
        c->want_writable = true;
    tr_conn_mark(c);
}

static void stream_end(struct tr_exchange *x)
{
    struct tr_conn *c = conn_of(x);
    if (c->state == TR_CONN_DEAD || c->cut)
        return;
    TR_ASSERT(c->head_sent && !c->answer_done);
    if (c->chunked_out && !c->no_body)
        tr_conn_put(c, "0\r\n\r\n", 5);
    done(c);
}

static void stream_abort(struct tr_exchange *x, bool hard)
{
    struct tr_conn *c = conn_of(x);
    tr_exchange_unbind(x);
    if (c->state == TR_CONN_DEAD)
        return;
    c->cut = true;
    c->cut_hard |= hard;
    tr_conn_mark(c);
}

static void flush(struct tr_exchange *x)
{
    struct tr_conn *c = conn_of(x);
    if (c->state == TR_CONN_DEAD || c->state == TR_CONN_LINGER || c->cut)
        return;
    tr_conn_write_out(c);
    if (!tr_outbuf_len(&c->out))
        c->want_writable = false; /* the caller sees it */
    if (c->state == TR_CONN_BUSY && !c->answer_done && !c->broken && !c->want_writable &&
        !tr_outbuf_len(&c->out))
        tr_conn_unmark(c);
    else
        tr_conn_mark(c); /* what came of it is looked at in the loop */
}

size_t tr_conn_unsent(const struct tr_conn *c)
{
    return tr_outbuf_len(&c->out);
}

size_t tr_conn_room(const struct tr_conn *c)
{
    size_t unsent = tr_outbuf_len(&c->out), bound = c->d->lim->stream_buffer;
    return unsent < bound && (!unsent || c->may_write) ? bound - unsent : 0;
}

/* ---- the exchange ---------------------------------------------------------------------- */

static size_t unsent(const struct tr_exchange *x)
{
    return tr_conn_unsent(const_conn_of(x));
}

static size_t room(const struct tr_exchange *x)
{
    return tr_conn_room(const_conn_of(x));
}

static uint64_t accepted(const struct tr_exchange *x)
{
    return tr_conn_accepted(const_conn_of(x));
}

static uint64_t acked(struct tr_exchange *x)
{
    return tr_conn_acked(conn_of(x));
}

static uint64_t blocked_ns(const struct tr_exchange *x)
{
    return tr_conn_blocked_ns(const_conn_of(x));
}

static bool half_closed(const struct tr_exchange *x)
{
    return const_conn_of(x)->rdhup;
}

static char *take_body(struct tr_exchange *x)
{
    return tr_conn_take_body(conn_of(x));
}

static void deliver(struct tr_exchange *x, struct tr_delivered *d)
{
    tr_conn_deliver(conn_of(x), d);
}

static void bound(struct tr_exchange *x)
{
    struct tr_conn *c = conn_of(x);

    TR_ASSERT(c->state == TR_CONN_BUSY && !c->answer_done);
    c->fin_told = false;
}

const struct tr_exchange_ops tr_conn_exchange_ops = {.header = add_header,
                                                     .reply = reply,
                                                     .reply_give = reply_give,
                                                     .stream_begin = stream_begin,
                                                     .stream_write = stream_write,
                                                     .stream_end = stream_end,
                                                     .stream_abort = stream_abort,
                                                     .flush = flush,
                                                     .unsent = unsent,
                                                     .room = room,
                                                     .accepted = accepted,
                                                     .acked = acked,
                                                     .blocked_ns = blocked_ns,
                                                     .half_closed = half_closed,
                                                     .take_body = take_body,
                                                     .deliver = deliver,
                                                     .bound = bound};
