/* SPDX-License-Identifier: Apache-2.0 */
/* shm/bill.h - the accounting queue, engine -> ledger, and what the ledger says back.
 *
 * One record per request, all its choices summed, copied in when the request has ended.  A bounded
 * SPSC queue: records and tail in the accounting region (engine), head and durable count in the
 * ledger page (ledger).  Full: the slot waits with its record; nothing is dropped, nobody blocks.
 * With --ledger off nobody reads it: the engine overwrites, and every record counts as durable. */
#ifndef TR_SHM_BILL_H
#define TR_SHM_BILL_H

#include "shm/layout.h"
#include "shm/trace.h"

#include <stdbool.h>

struct tr_bill {
    char request_id[TR_ID_BYTES];
    char key[TR_KEY_BYTES];
    uint32_t slot, gen;  /* of the lead: the stream id together with stream_rand */
    uint32_t owner_area; /* whose bell to ring when it is durable; TR_MAX_AREAS: nobody */
    uint32_t choices;
    uint64_t stream_rand;
    uint64_t arrival_ns, first_token_ns, finished_ns; /* monotonic; 0 = never */
    uint64_t disconnect_ns, cancel_ack_ns;
    uint64_t prompt_tokens, cached_tokens, completion_tokens, overrun_tokens;
    uint32_t last_token; /* last generated id; UINT32_MAX if none */
    uint32_t state;      /* enum tr_state, terminal: the worst of the choices */
    uint32_t finish;     /* enum tr_finish */
    uint32_t err;        /* enum tr_err */

    /* For its span (ledger/span.h), of the lead. */
    struct tr_trace trace;
    struct tr_stages stage;
    uint64_t admitted_ns, started_ns; /* started: the first of the choices */
    double temperature, top_p;
    int32_t top_k;
    uint32_t max_tokens;
    uint32_t flags; /* TR_REQ_* */
    uint32_t pad;
};

struct tr_accounting {
    struct tr_region_head head;
    TR_LINE _Atomic uint64_t tail; /* engine, release; ledger, acquire */
    TR_LINE struct tr_bill rec[TR_BILL_CAP];
};

struct tr_ledger_page {
    struct tr_region_head head;
    TR_LINE _Atomic uint64_t bill_head; /* ledger, release; engine, acquire: records taken */
    _Atomic uint64_t
        durable; /* ledger, release; engine and frontends, acquire: records that survive */
    _Atomic uint64_t heartbeat_ns;                        /* ledger, relaxed */
    _Atomic uint32_t sleeping;                            /* ledger, seq_cst, shm/bell.h */
    TR_LINE _Atomic uint64_t delivery_head[TR_MAX_AREAS]; /* ledger, release; frontends, acquire */
};

struct tr_shm;
struct tr_ring;

/* Any role.  What the span needs of the lead's ring; and when a choice was begun. */
void tr_bill_trace(struct tr_bill *b, const struct tr_ring *lead);
void tr_bill_started(struct tr_bill *b, const struct tr_ring *choice);

/* Engine.  The number that the next record will have: 1 + its place.  Stored in tr_ring.bill_seq of
 * all its slots BEFORE tr_bill_push, so that an engine that dies in between leaves numbers above the
 * tail, which the next one takes for void, and never a record that it would make again. */
uint64_t tr_bill_next(const struct tr_shm *s);

/* Engine.  Whether a record with this number has been queued (0 and numbers above the tail: no). */
bool tr_bill_is_queued(const struct tr_shm *s, uint64_t bill_seq);

/* Engine.  Queues the record (its number is tr_bill_next) and rings the ledger.  *seq, if not NULL,
 * is that number.  -EAGAIN when the queue is full. */
int tr_bill_push(struct tr_shm *s, const struct tr_bill *b, uint64_t *seq);

/* Ledger.  Copies the record at `at` (bill_head <= at < tail); 0 or -EAGAIN. */
int tr_bill_peek(const struct tr_shm *s, uint64_t at, struct tr_bill *out);
/* Ledger process of a service without a ledger: the engine does not wait for it.  Copies the record at
 * *at, or the oldest that is still whole, and steps behind it; *missed grows by those that were
 * overwritten before.  0, or -EAGAIN: there is none. */
int tr_bill_follow(const struct tr_shm *s, uint64_t *at, struct tr_bill *out, uint64_t *missed);
/* Ledger.  Everything below `upto` has been written: bill_head and durable move (release). */
void tr_bill_durable(struct tr_shm *s, uint64_t upto);

/* Engine and frontends.  Whether the record with this bill_seq (not 0) is durable. */
bool tr_bill_is_durable(const struct tr_shm *s, uint64_t bill_seq);
/* Engine.  All records up to this bill_seq are; without a ledger every one. */
uint64_t tr_bill_n_durable(const struct tr_shm *s);

#endif
