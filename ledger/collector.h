/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/collector.h - one HTTP conversation with a collector of OTLP, by libcurl.
 *
 * One thread.  Each call has a limit in time and in bytes, whatever the collector does; it can be given
 * up from another thread.  No redirection is followed and no proxy used.  What headers say is told
 * nowhere. */
#ifndef TR_LEDGER_COLLECTOR_H
#define TR_LEDGER_COLLECTOR_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TR_COLLECTOR_MS = 10000,      /* for one request, all of it */
    TR_COLLECTOR_ANSWER = 1 << 16 /* bytes of an answer that are read, as many of its fields */
};

struct tr_collector;

/* Whether --otlp and --otlp-headers can be meant.  0, or -EINVAL and a sentence that repeats neither:
 * there may be a secret in them. */
int tr_collector_check(const char *url, const char *headers, struct tr_errbuf *err);

/* `url`: http:// or https://, the base to which /v1/traces is added unless it ends so.  `headers`:
 * "name=value,name=value" with %XX in values, or "".  `ca`: a PEM file of authorities, or "" for the
 * system's.  *give_up may be set from another thread.  All are borrowed.  0, or -errno and a sentence. */
int tr_collector_open(struct tr_collector **out, const char *url, const char *headers,
                      const char *ca, const atomic_bool *give_up, struct tr_errbuf *err);
void tr_collector_close(struct tr_collector *c); /* NULL is accepted */

enum tr_collected {
    TR_COLLECTED,      /* taken; some spans may have been rejected */
    TR_COLLECTOR_BUSY, /* to be tried again: 429, 502, 503, 504, no connection, no answer in time */
    TR_COLLECTOR_REFUSES /* it will not take this, ever */
};

struct tr_collector_answer {
    uint64_t rejected;    /* COLLECTED: so many spans it did not want */
    unsigned retry_s;     /* BUSY: not before; 0: it did not say */
    struct tr_errbuf why; /* not COLLECTED */
};

enum tr_collected tr_collector_post(struct tr_collector *c, const char *body, size_t len,
                                    struct tr_collector_answer *a);

/* Spans that a body of an answer says were rejected (partialSuccess); 0 for anything else. */
uint64_t tr_collector_rejected(const char *body, size_t len);

#endif
