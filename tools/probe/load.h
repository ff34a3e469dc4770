/* SPDX-License-Identifier: Apache-2.0 */
/* probe/load.h - all the streams of a run, in one epoll loop of one thread.
 *
 * At most `parallel` are open at a time; the next one starts when one has ended, and not before
 * `stagger_ms` have passed since the last start. */
#ifndef TR_PROBE_LOAD_H
#define TR_PROBE_LOAD_H

#include "base/err.h"
#include "probe/options.h"
#include "client/samples.h"
#include "client/stream.h"

struct tr_load {
    struct tr_record *records; /* [n], in the order of their starts */
    size_t n;
    struct tr_samples gaps; /* ms, over all streams */
    uint64_t delay_max_ns;  /* ready socket seen -> its bytes read: the probe's own lateness */
    uint64_t start_ns, end_ns;
};

/* Runs to the end.  0, or -errno and a sentence when the machine gives no memory or descriptors;
 * what servers do ends in the records.  tr_load_fini in any case. */
int tr_load_run(struct tr_load *l, const struct tr_probe_opts *o, const char *model,
                struct tr_errbuf *err);
void tr_load_fini(struct tr_load *l);

#endif
