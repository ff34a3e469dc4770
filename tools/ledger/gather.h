/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ledger/gather.h - every request of a ledger once: from its database, and from what is still in
 * the spool.
 *
 * The spool is read first, into memory (it is bounded by --ledger-spool-max), then the database, in one
 * look: what moves from one to the other meanwhile is found in at least one, and told once. */
#ifndef TR_LEDGER_TOOL_GATHER_H
#define TR_LEDGER_TOOL_GATHER_H

#include "ledger/sink.h"
#include "ledger/spool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tr_gather_turn {
    const struct tr_row *row;
};

struct tr_gather {
    const struct tr_sink_ops *ops;
    struct tr_sink *db;  /* NULL: none yet */
    struct tr_row *bill; /* [n_bill], by stream id */
    size_t n_bill, cap_bill;
    struct tr_gather_turn *order;     /* the same by time */
    bool *given;                      /* [n_bill] */
    struct tr_row_delivery *delivery; /* [n_delivery], by stream id */
    bool *met;                        /* [n_delivery]: its request is known */
    size_t n_delivery, cap_delivery;
    uint64_t faults; /* places of the spool that cannot be read */
    bool live;       /* a ledger process is at work on this spool */
    bool no_memory;
    void (*odd)(void *arg, const char *sentence); /* anomalies; may be NULL */
    void *odd_arg;
};

/* `g` zeroed but for odd and odd_arg.  Reads the spool, opens the database to read.  0, or -errno and a
 * sentence; tr_gather_close in both cases. */
int tr_gather_open(struct tr_gather *g, const char *address, const char *spool,
                   struct tr_errbuf *err);
void tr_gather_close(struct tr_gather *g);

/* Once.  Each request that passes, by created_us, then stream_id; `spooled`: it is not yet in the
 * database.  Stops when fn says other than 0, and returns that; -errno and a sentence. */
int tr_gather_each(struct tr_gather *g, const struct tr_sink_filter *f,
                   int (*fn)(void *arg, const struct tr_row_whole *r, bool spooled), void *arg,
                   struct tr_errbuf *err);

#endif
