/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/receipt.h - what a client has really received of its answer, for the ledger.
 *
 * A socket acknowledges bytes, the ledger counts tokens: a receipt keeps marks that say how many
 * tokens lay before a byte.  When the peer's kernel has everything, or the connection is gone, the
 * last mark that was acknowledged becomes `delivered_tokens` of the delivery record (shm/area.h).
 *
 * Frontend only, event loop only.
 *   I1  marks ascend strictly in tokens and never descend in bytes
 *   I2  what is reported is never more than what was acknowledged
 *
 * Full: marks that have been acknowledged are forgotten but for the last one; if there are none,
 * every other mark is, and the count gets coarser, never higher.  Delivery queue full: the record
 * is lost and the ledger's columns stay NULL.
 * Peer died: the count is that of the last acknowledgement. */
#ifndef TR_FRONTEND_RECEIPT_H
#define TR_FRONTEND_RECEIPT_H

#include "frontend/conn.h"
#include "frontend/fe.h"
#include "shm/area.h"
#include "shm/stream_id.h"

enum { TR_RECEIPT_MARKS = 32 };

struct tr_mark {
    uint64_t bytes; /* tr_conn_accepted after the event */
    uint64_t tokens;
};

struct tr_receipt {
    struct tr_delivery rec; /* first_byte_ns is the stream's to set, the rest is ours */
    struct tr_mark mark[TR_RECEIPT_MARKS];
    uint32_t n_marks;
};

void tr_receipt_init(struct tr_receipt *r, const char request_id[TR_ID_BYTES],
                     struct tr_stream_id id);

/* Everything that `c` has accepted so far carries `tokens` tokens. */
void tr_receipt_mark(struct tr_receipt *r, struct tr_conn *c, uint64_t tokens);

/* The answer has been handed over completely: the record is written when the peer has it, from a
 * copy, so that r may go.  Without memory there is no record. */
void tr_receipt_deliver_later(const struct tr_receipt *r, struct tr_fe *fe, struct tr_conn *c);

/* The socket is gone, or is cut now: writes the record for `acked` bytes. */
void tr_receipt_deliver_now(struct tr_receipt *r, struct tr_fe *fe, uint64_t acked);

#endif
