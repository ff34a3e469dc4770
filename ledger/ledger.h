/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/ledger.h - the body of the ledger process: accounting queue -> spool -> database.
 *
 * Path: http > tokens > subq > engine > step > ring > detok > event > socket   [+ ledger, beside it]
 *
 * The main thread takes what stands in the queue as one group, writes it to the spool and says so:
 * streams whose terminal event waits for their record are rung.  What that means is --ledger-durability:
 *
 *   power     written and synced: it survives a power cut
 *   process   written: it survives the death of every process, at once if need be
 *   none      taken from the queue: the death of this process may lose it
 *
 * What became of the bytes follows in records of its own, which nobody waits for.  The sink thread
 * (ledger/feed.h) brings both to the database, once each: a group that was written but not yet confirmed
 * by a killed process is written again, and the database knows its rows by their stream ids.
 *
 * The database does not answer: the spool grows up to its limit.  The spool is full, or its disk does
 * not take it: records stay queued, streams go on, `ledger_unconfirmed_total` rises; when no slot is
 * left that does not wait for its record, new requests are refused.
 * The supervisor dies, or ends the service: the engine is gone too (the kernel, or the supervisor,
 * sees to it); what the rings still hold is settled into the spool, and the database has a moment to
 * take it, before this process ends.  What it did not take, the next start brings there. */
#ifndef TR_LEDGER_LEDGER_H
#define TR_LEDGER_LEDGER_H

#include "ledger/otlp.h"
#include "shm/region.h"

enum tr_durability { TR_DURABLE_POWER, TR_DURABLE_PROCESS, TR_DURABLE_NONE };

struct tr_ledger_config {
    const char *address; /* --ledger: a file, or postgresql://... */
    const char *spool;   /* --ledger-spool: a folder, "" for the default */
    uint64_t spool_max;  /* bytes */
    enum tr_durability durability;
    const char *model; /* served name, for the rows */
    int parent_pid;    /* the supervisor */
    struct tr_otlp_config otlp;
};

/* A service without a ledger (tr_shm_config.ledger 0) has this process for its traces alone: it follows
 * the accounting queue, which nobody waits for then, and what it is too late for is a lost span.
 *
 * Runs until the supervisor sends SIGTERM, when no engine and no frontend is left, or dies itself; in
 * both cases the queue is emptied and the rings are settled first.  Exit status of the process. */
int tr_ledger_main(struct tr_shm *s, const struct tr_ledger_config *c);

#endif
