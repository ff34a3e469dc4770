/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/exposition.h - writes metrics as Prometheus reads them.
 *
 * Two formats, which differ in a few lines: the text format 0.0.4 (prometheus.io, "Exposition formats")
 * and OpenMetrics 1.0 (github.com/OpenObservability/OpenMetrics).  Names of samples and values of labels
 * are the same in both, so that a series does not change with what was negotiated.
 *
 * Names come with their suffix as samples have it: `_total` of a counter, `_info` of an info.  Out of
 * memory: the emitter's `failed`. */
#ifndef TR_FRONTEND_EXPOSITION_H
#define TR_FRONTEND_EXPOSITION_H

#include "base/emit.h"
#include "shm/stat.h"

struct tr_expo {
    struct tr_emit *e;
    bool open;          /* OpenMetrics */
    const char *prefix; /* of every name: "tokenring_" */
    const char *common; /* labels of every sample, written out; "" if none */
};

enum tr_expo_kind { TR_EXPO_COUNTER, TR_EXPO_GAUGE, TR_EXPO_HISTOGRAM, TR_EXPO_INFO };

/* A histogram added up: not cumulative; `sum` as in shm/stat.h. */
struct tr_expo_hist {
    uint64_t bucket[TR_HIST_BUCKETS + 1], sum;
};

/* HELP, TYPE and, in OpenMetrics, UNIT; its samples follow. */
void tr_expo_family(const struct tr_expo *x, const char *name, enum tr_expo_kind kind,
                    const char *help);

/* `labels` written out, or "". */
void tr_expo_count(const struct tr_expo *x, const char *name, const char *labels, uint64_t value);
void tr_expo_real(const struct tr_expo *x, const char *name, const char *labels, double value);
void tr_expo_hist(const struct tr_expo *x, const char *name, enum tr_hist_scale scale,
                  const struct tr_expo_hist *h);

/* The end of the page: `# EOF` in OpenMetrics. */
void tr_expo_end(const struct tr_expo *x);

/* `name="value"`, the value escaped and made UTF-8, at to[0, cap); what has no room is left out, in whole
 * characters.  Returns the length. */
size_t tr_expo_label(char *to, size_t cap, const char *name, const char *value);

#endif
