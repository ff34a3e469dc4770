/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/receipt.c - see receipt.h. */
#include "frontend/receipt.h"

#include "base/clock.h"
#include "base/fault.h"
#include "frontend/fe.h"

#include <stdlib.h>
#include <string.h>

/* Outlives the stream, or not: waits until the peer's kernel has everything, or is gone. */
struct tr_receipt_wait {
    struct tr_delivered d;
    struct tr_fe *fe;
    struct tr_receipt r; /* as it was when the answer was complete */
    /* Whose stream is still there.  NULL: the record is ours to write, unless somebody else does. */
    struct tr_receipt *live;
    bool mute;
};

void tr_receipt_init(struct tr_receipt *r, const char request_id[TR_ID_BYTES],
                     struct tr_stream_id id)
{
    memset(r, 0, sizeof(*r));
    memcpy(r->rec.request_id, request_id, sizeof(r->rec.request_id));
    r->rec.slot = id.slot;
    r->rec.gen = id.gen;
    r->rec.stream_rand = id.rand;
}

/* Forgets what has arrived but for the last of it; if nothing has, every other mark. */
static void make_room(struct tr_receipt *r, uint64_t acked)
{
    uint32_t old = 0, to = 0;

    while (old + 1 < r->n_marks && r->mark[old + 1].bytes <= acked)
        old++;
    for (uint32_t i = old; i < r->n_marks; i += old ? 1 : 2)
        r->mark[to++] = r->mark[i];
    r->n_marks = to;
}

void tr_receipt_mark(struct tr_receipt *r, struct tr_exchange *x, uint64_t tokens)
{
    if (r->n_marks && r->mark[r->n_marks - 1].tokens >= tokens)
        return;
    if (r->n_marks == TR_RECEIPT_MARKS)
        make_room(r, tr_exchange_acked(x));
    r->mark[r->n_marks++] = (struct tr_mark){.bytes = tr_exchange_accepted(x), .tokens = tokens};
}

uint64_t tr_receipt_tokens(const struct tr_receipt *r, uint64_t acked)
{
    uint64_t tokens = 0;

    for (uint32_t i = 0; i < r->n_marks && r->mark[i].bytes <= acked; i++)
        tokens = r->mark[i].tokens;
    return tokens > r->before ? tokens : r->before;
}

void tr_receipt_part(struct tr_receipt *r, uint64_t acked)
{
    r->before = tr_receipt_tokens(r, acked);
    r->rec.closed_ns = tr_now_ns();
    r->n_marks = 0;
}

void tr_receipt_resume(struct tr_receipt *r)
{
    r->rec.closed_ns = 0;
    r->no_reader = false;
}

static void write_record(struct tr_receipt *r, struct tr_fe *fe, uint64_t acked)
{
    r->rec.delivered_tokens = (uint32_t)tr_receipt_tokens(r, acked);
    if (!r->rec.closed_ns)
        r->rec.closed_ns = tr_now_ns();
    r->written = true;
    /* Full: the ledger is far behind; the columns stay NULL, which is what they mean. */
    TR_FAULT(FRONTEND_DELIVERY_BEFORE);
    (void)tr_delivery_push(fe->shm, &r->rec);
    TR_FAULT(FRONTEND_DELIVERY_PUSHED);
}

void tr_receipt_deliver_now(struct tr_receipt *r, struct tr_fe *fe, uint64_t acked)
{
    if (r->written || r->no_reader)
        return;
    if (!r->wait) {
        write_record(r, fe, acked);
        return;
    }
    r->wait->r.before = r->before;
    r->wait->live = NULL;
    r->wait = NULL;
    r->written = true;
}

void tr_receipt_leave(struct tr_receipt *r)
{
    if (!r->wait)
        return;
    r->wait->live = NULL;
    r->wait->mute = true;
    r->wait = NULL;
}

/* To a stream that is kept for another reader; the record is final if this one has everything. */
static void tell_live(struct tr_receipt_wait *w, uint64_t acked)
{
    struct tr_receipt *r = w->live;
    uint64_t tokens = tr_receipt_tokens(&w->r, acked);

    r->wait = NULL;
    if (tokens > r->before)
        r->before = tokens;
    r->rec.first_byte_ns = w->r.rec.first_byte_ns;
    r->rec.closed_ns = tr_now_ns();
    if (acked >= w->d.upto)
        write_record(r, w->fe, 0);
}

static void on_delivered(struct tr_delivered *d, uint64_t acked)
{
    struct tr_receipt_wait *w = (struct tr_receipt_wait *)d;

    if (w->live)
        tell_live(w, acked);
    else if (!w->mute)
        write_record(&w->r, w->fe, acked);
    w->fe->n_deliveries--;
    free(w);
}

void tr_receipt_deliver_later(struct tr_receipt *r, struct tr_fe *fe, struct tr_exchange *x)
{
    struct tr_receipt_wait *w = r->written ? NULL : calloc(1, sizeof(*w));

    tr_receipt_leave(r); /* an earlier reader's: this one is told more */
    if (!w) {
        r->written = true; /* or never */
        return;
    }
    w->fe = fe;
    w->r = *r;
    w->live = r;
    w->d.upto = tr_exchange_accepted(x);
    w->d.done = on_delivered;
    r->wait = w;
    r->n_marks = 0;
    fe->n_deliveries++;
    tr_exchange_deliver(x, &w->d);
}
