/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/marks.h - how far the answers on a connection that several share have been acknowledged.
 *
 * Frontend only, pure.  The kernel counts the connection's bytes; an answer counts its own.  For each
 * run of an answer's bytes that stand side by side a mark says where the run ends in both counts.  There
 * are few marks: those of bytes that were acknowledged are given back, and when all are in use the last
 * one is moved on.  What is told is then coarser, and never higher than what was acknowledged. */
#ifndef TR_FRONTEND_MARKS_H
#define TR_FRONTEND_MARKS_H

#include <stdint.h>

enum { TR_MARKS = 8 };

struct tr_marks {
    uint64_t own;   /* of the answer so far */
    uint64_t acked; /* of it; never falls */
    struct tr_marks_run {
        uint64_t own_end, conn_end;
    } mark[TR_MARKS]; /* oldest first */
    unsigned n;
};

/* The answer has written `len` bytes; the connection's count is `conn_end` now. */
void tr_marks_add(struct tr_marks *m, uint64_t len, uint64_t conn_end);

/* How many of the answer's bytes are among the connection's first `conn`, such as those that the kernel
 * has taken.  Never less than what was acknowledged. */
uint64_t tr_marks_upto(const struct tr_marks *m, uint64_t conn);

/* The connection's acknowledged bytes are `conn_acked`: how many of the answer's are. */
uint64_t tr_marks_acked(struct tr_marks *m, uint64_t conn_acked);

#endif
