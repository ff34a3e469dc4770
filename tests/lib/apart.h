/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/apart.h - a device whose memory is not the host's, for tests of who computes on one.
 *
 * The CPU's operations, as a GPU would do them: nothing is done until it is waited for (download, give), and
 * then in the order in which it was asked for, with the numbers that were given by value at that time and what
 * lies in memory only then.  While the host runs, the device's memory cannot be touched: it faults.  An
 * operation that is given memory of the host's ends the program with a sentence, and so does an upload or a
 * download while a pass is recorded, or memory that is never given back.
 *
 * Passes of 1, 2, 4, ... TR_APART_BUCKET rows are recorded.
 *
 * One thread, the one that opened it. */
#ifndef TR_TESTS_APART_H
#define TR_TESTS_APART_H

#include "cpu_kernels/ops.h"

enum { TR_APART_BUCKET = 64 };

extern const struct tr_ops tr_ops_apart;

/* Of the devices of a process, one at a time. */
struct tr_dev *tr_apart_open(const struct tr_cpu_config *c, struct tr_errbuf *err);

/* From now on there are so many bytes that can be taken or made resident. */
void tr_apart_limit(struct tr_dev *dev, size_t bytes);

struct tr_apart_count {
    uint32_t uploads, downloads;
    uint32_t recorded, replayed; /* passes */
    uint32_t waiting;            /* operations that are not done */
};
struct tr_apart_count tr_apart_count(const struct tr_dev *dev);

#endif
