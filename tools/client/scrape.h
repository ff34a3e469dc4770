/* SPDX-License-Identifier: Apache-2.0 */
/* client/scrape.h - histograms out of a /metrics page.
 *
 * Reads the Prometheus text format 0.0.4 and what OpenMetrics adds to it (exemplars, timestamps
 * and # EOF are skipped).  A histogram with several label sets (one per frontend, one per model) is
 * summed over them, bucket by bucket.  The page is input: what does not parse is skipped. */
#ifndef TR_CLIENT_SCRAPE_H
#define TR_CLIENT_SCRAPE_H

#include <stddef.h>

#define TR_HIST_BUCKETS 128

struct tr_hist {
    size_t len;
    double le[TR_HIST_BUCKETS];  /* ascending; the last is +Inf */
    double cum[TR_HIST_BUCKETS]; /* observations <= le */
    double count, sum;
};

/* 0; -ENOENT when the page has no such histogram; -E2BIG when it has more than TR_HIST_BUCKETS
 * bounds.  *out is untouched on failure. */
int tr_scrape_hist(const char *page, size_t len, const char *name, struct tr_hist *out);

/* The sum of all series of `name` whose labels contain `label` (`kind="prompt"`; NULL: any).
 * 0, or -ENOENT and *out untouched. */
int tr_scrape_value(const char *page, size_t len, const char *name, const char *label, double *out);

/* after - before.  A histogram that did not exist before counts as empty (pass NULL).  0, or
 * -ERANGE when a count went backwards: the server was restarted in between. */
int tr_hist_diff(const struct tr_hist *before, const struct tr_hist *after, struct tr_hist *out);

/* The q-quantile, linear within its bucket as Prometheus' histogram_quantile: as coarse as the
 * buckets are.  In the +Inf bucket, the highest finite bound.  0 when empty. */
double tr_hist_quantile(const struct tr_hist *h, double q);

#endif
