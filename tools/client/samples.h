/* SPDX-License-Identifier: Apache-2.0 */
/* client/samples.h - a bag of measurements and what is said about it.
 *
 * Percentiles are exact over the samples kept (sorted, linear between the two nearest ranks, rank
 * p * (n - 1): the default of numpy).  A bag keeps at most TR_SAMPLES_MAX values; later ones still
 * count for n, mean, min and max and are told as `left_out`. */
#ifndef TR_CLIENT_SAMPLES_H
#define TR_CLIENT_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

#define TR_SAMPLES_MAX ((size_t)4 << 20)

/* All zero is an empty bag. */
struct tr_samples {
    double *v;
    size_t len, cap;
    uint64_t n; /* added, kept or not */
    uint64_t zeros;
    double sum, min, max;
};

struct tr_summary {
    uint64_t n, left_out;
    double min, mean, p50, p90, p99, max; /* all 0 when n is 0 */
};

/* Never fails: without memory the value is left out. */
void tr_samples_add(struct tr_samples *s, double v);
void tr_samples_fini(struct tr_samples *s);

/* Sorts the bag. */
struct tr_summary tr_samples_summary(struct tr_samples *s);

#endif
