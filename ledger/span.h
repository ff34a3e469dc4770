/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/span.h - a request as a span of OpenTelemetry, in the JSON of OTLP.
 *
 * Pure.  Names and values are those of the semantic conventions for generative AI (their state of
 * development of 2026) and, where these have none, begin with "tokenring.".  No text: neither prompt nor
 * answer, nor stop strings.  What another process wrote is only rendered: it may be garbage, the JSON is
 * whole.
 *
 * Format: opentelemetry-proto, ExportTraceServiceRequest as JSON: ids in hexadecimal, 64-bit numbers as
 * strings. */
#ifndef TR_LEDGER_SPAN_H
#define TR_LEDGER_SPAN_H

#include "base/emit.h"
#include "shm/area.h"
#include "shm/bill.h"

#include <stdbool.h>

struct tr_span {
    struct tr_bill bill;
    bool delivered; /* the three below are known */
    uint64_t first_byte_ns, closed_ns;
    uint32_t delivered_tokens;
};

/* What is the same for all of them; borrowed. */
struct tr_span_facts {
    const char *model;    /* served name */
    const char *version;  /* of tokenring */
    const char *instance; /* service.instance.id */
};

/* Whether the record belongs to a trace that is sampled. */
bool tr_span_is_wanted(const struct tr_bill *b);

/* Whether the record is about the span's stream; then it takes it. */
bool tr_span_deliver(struct tr_span *s, const struct tr_delivery *d);

/* The body of one request to a collector; e is reset before.  e->failed: no memory. */
void tr_span_request(struct tr_emit *e, const struct tr_span *const *spans, size_t n,
                     const struct tr_span_facts *f);

#endif
