/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/ledger.h - the body of the ledger process: accounting queue -> durable file.
 *
 * Path: http > tokens > subq > engine > step > ring > detok > event > socket   [+ ledger, beside it]
 *
 * Takes what stands in the queue as one group, writes and syncs it, then says so: streams whose
 * terminal event waits for their record are rung.  FILE holds one line for each request; what became
 * of the bytes follows in FILE.delivery.  A row is written exactly once: after a crash of this
 * process, rows that reached the file but were not yet confirmed are recognised by their stream id.
 *
 * The disk does not answer: records stay queued, streams go on, `ledger_unconfirmed_total` rises.
 * The supervisor dies, or ends the service: the engine is gone too (the kernel, or the supervisor,
 * sees to it); what the rings still hold is settled into the file before this process ends. */
#ifndef TR_LEDGER_LEDGER_H
#define TR_LEDGER_LEDGER_H

#include "shm/region.h"

struct tr_ledger_config {
    const char *path;  /* --ledger */
    const char *model; /* served name, for the rows */
    int parent_pid;    /* the supervisor */
};

/* Runs until the supervisor sends SIGTERM, when no engine and no frontend is left, or dies itself; in
 * both cases the queue is emptied and the rings are settled first.  Exit status of the process. */
int tr_ledger_main(struct tr_shm *s, const struct tr_ledger_config *c);

#endif
