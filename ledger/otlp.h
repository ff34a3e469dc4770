/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/otlp.h - traces: records of the accounting queue as spans to a collector (OTLP/HTTP, JSON).
 *
 * Path: http > tokens > subq > engine > step > ring > detok > event > socket   [+ ledger, beside it]
 *
 * The ledger's main thread puts in what it takes from the queues; a thread of its own gathers for a
 * moment, waits a little for what becomes of a request's bytes, and sends.  Nobody waits for it: the
 * queue holds TR_OTLP_SPANS; what finds no room in it is lost and counted.  What a killed ledger process
 * had in it is lost, too; a record that it had not confirmed is taken again by the next one, so its span
 * may be sent twice, with the same ids. */
#ifndef TR_LEDGER_OTLP_H
#define TR_LEDGER_OTLP_H

#include "ledger/span.h"
#include "shm/region.h"
#include "shm/stat.h"

enum {
    TR_OTLP_SPANS = 2048,
    TR_OTLP_LAST_MS = 2000 /* at the end of a service: for what is still there */
};

/* Flags and facts; borrowed for the life of the process. */
struct tr_otlp_config {
    const char *url; /* --otlp; "" or NULL: no traces */
    const char *headers;
    const char *ca;
    struct tr_span_facts facts;
};

struct tr_otlp;

/* Before the sandbox.  `stat`: the ledger's own.  0 and *out; NULL in it if there are to be no traces;
 * or -errno and a sentence. */
int tr_otlp_open(struct tr_otlp **out, const struct tr_otlp_config *c, uint32_t n_slots,
                 struct tr_stat *stat, struct tr_errbuf *err);

/* Starts the thread: after the sandbox was entered, so that it lives in it.  0 or -errno. */
int tr_otlp_start(struct tr_otlp *o);

/* ---- main thread; NULL is accepted everywhere ---- */

void tr_otlp_bill(struct tr_otlp *o, const struct tr_bill *b);
void tr_otlp_delivery(struct tr_otlp *o, const struct tr_delivery *d);
/* So many were lost before they came here. */
void tr_otlp_missed(struct tr_otlp *o, uint64_t n);

/* The thread ends when all of it is sent; or, given up, as soon as it can. */
void tr_otlp_finish(struct tr_otlp *o);
void tr_otlp_give_up(struct tr_otlp *o);
bool tr_otlp_has_ended(struct tr_otlp *o);

/* Joins the thread, which has ended or was not started. */
void tr_otlp_close(struct tr_otlp *o);

#endif
