/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/receipt.h - what a client has really received of its answer, for the ledger.
 *
 * A socket acknowledges bytes, the ledger counts tokens: a receipt keeps marks that say how many
 * tokens lay before a byte.  When the peer's kernel has everything, or the connection is gone, the
 * last mark that was acknowledged becomes `delivered_tokens` of the delivery record (shm/area.h).
 *
 * Frontend only, event loop only.
 *   I1  marks ascend strictly in tokens and never descend in bytes
 *   I2  what is reported is never more than what was acknowledged, or what a reader who came back said
 *       that he has; with several readers it is the furthest
 *   I3  at most one record for each stream
 *
 * Full: marks that have been acknowledged are forgotten but for the last one; if there are none,
 * every other mark is, and the count gets coarser, never higher.  Delivery queue full: the record
 * is lost and the ledger's columns stay NULL.
 * Peer died: the count is that of the last acknowledgement. */
#ifndef TR_FRONTEND_RECEIPT_H
#define TR_FRONTEND_RECEIPT_H

#include "frontend/exchange.h"
#include "shm/area.h"
#include "shm/stream_id.h"

enum { TR_RECEIPT_MARKS = 32 };

struct tr_mark {
    uint64_t bytes; /* tr_exchange_accepted after the event */
    uint64_t tokens;
};

struct tr_fe;
struct tr_receipt_wait;

struct tr_receipt {
    struct tr_delivery rec; /* first_byte_ns is the stream's to set, the rest is ours */
    struct tr_mark mark[TR_RECEIPT_MARKS];
    uint32_t n_marks;
    uint64_t before;              /* tokens that former readers have */
    struct tr_receipt_wait *wait; /* the complete answer, on its way; NULL: none */
    bool written;                 /* the record is, or is left to `wait` */
    bool no_reader; /* adopted, and nobody has come: what was delivered is not known here */
};

void tr_receipt_init(struct tr_receipt *r, const char request_id[TR_ID_BYTES],
                     struct tr_stream_id id);

/* Everything that `x` has accepted so far carries `tokens` tokens. */
void tr_receipt_mark(struct tr_receipt *r, struct tr_exchange *x, uint64_t tokens);

/* The reader is gone, or is cut now, with `acked` bytes at him; another may come. */
void tr_receipt_part(struct tr_receipt *r, uint64_t acked);

/* One has come.  What he says that he has is marked before anything is written to him. */
void tr_receipt_resume(struct tr_receipt *r);

/* The answer has been handed over completely: the record is written when the peer has it.  If he never
 * gets it and the stream is still kept, another reader may.  Without memory there is no record. */
void tr_receipt_deliver_later(struct tr_receipt *r, struct tr_fe *fe, struct tr_exchange *x);

/* The stream ends here, with `acked` bytes at its reader, if it has one: writes the record, or leaves
 * that to an answer that is on its way. */
void tr_receipt_deliver_now(struct tr_receipt *r, struct tr_fe *fe, uint64_t acked);

/* Tokens that its readers have, if `acked` bytes are at the present one. */
uint64_t tr_receipt_tokens(const struct tr_receipt *r, uint64_t acked);

/* r goes away without a record. */
void tr_receipt_leave(struct tr_receipt *r);

#endif
