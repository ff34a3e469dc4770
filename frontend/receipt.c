/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/receipt.c - see receipt.h. */
#include "frontend/receipt.h"

#include "base/clock.h"
#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

/* Outlives the stream: waits until the peer's kernel has everything, or is gone. */
struct waiting {
    struct tr_conn_delivery d;
    struct tr_fe *fe;
    struct tr_receipt r;
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

void tr_receipt_mark(struct tr_receipt *r, struct tr_conn *c, uint64_t tokens)
{
    if (r->n_marks && r->mark[r->n_marks - 1].tokens == tokens)
        return;
    if (r->n_marks == TR_RECEIPT_MARKS)
        make_room(r, tr_conn_acked(c));
    r->mark[r->n_marks++] = (struct tr_mark){.bytes = tr_conn_accepted(c), .tokens = tokens};
}

static uint32_t tokens_delivered(const struct tr_receipt *r, uint64_t acked)
{
    uint64_t tokens = 0;

    for (uint32_t i = 0; i < r->n_marks && r->mark[i].bytes <= acked; i++)
        tokens = r->mark[i].tokens;
    return (uint32_t)tokens;
}

void tr_receipt_deliver_now(struct tr_receipt *r, struct tr_fe *fe, uint64_t acked)
{
    r->rec.delivered_tokens = tokens_delivered(r, acked);
    r->rec.closed_ns = tr_now_ns();
    /* Full: the ledger is far behind; the columns stay NULL, which is what they mean. */
    TR_FAULT(FRONTEND_DELIVERY_BEFORE);
    (void)tr_delivery_push(fe->shm, &r->rec);
    TR_FAULT(FRONTEND_DELIVERY_PUSHED);
}

static void on_delivered(struct tr_conn_delivery *d, uint64_t acked)
{
    struct waiting *w = (struct waiting *)d;

    tr_receipt_deliver_now(&w->r, w->fe, acked);
    w->fe->n_deliveries--;
    free(w);
}

void tr_receipt_deliver_later(const struct tr_receipt *r, struct tr_fe *fe, struct tr_conn *c)
{
    struct waiting *w = calloc(1, sizeof(*w));

    if (!w)
        return;
    w->fe = fe;
    w->r = *r;
    w->d.upto = tr_conn_accepted(c);
    w->d.done = on_delivered;
    fe->n_deliveries++;
    tr_conn_deliver(c, &w->d);
}
