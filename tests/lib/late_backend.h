/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/late_backend.h - a backend that works like a device, over one that does not.
 *
 * `forward` notes the batch and comes back; nothing is computed before `collect`, which passes the batch on
 * and picks with the host's sampler.  So whatever the scheduler does between the two is done while the pass
 * is, as far as anybody can tell, under way, and blocks that it gives away too early hold something else by
 * then.  Calls out of their order end the program with a sentence. */
#ifndef TR_TESTS_LATE_BACKEND_H
#define TR_TESTS_LATE_BACKEND_H

#include "engine/backend.h"

enum tr_late_call { TR_LATE_FORWARD, TR_LATE_PICK, TR_LATE_COLLECT };

struct tr_late {
    const struct tr_backend_ops *over; /* set before open */
    /* Told of each call when it begins, with the rows of the pass; NULL: nobody asks. */
    void (*told)(enum tr_late_call call, const struct tr_batch *batch);
};

/* One for the program. */
extern struct tr_late tr_late;
extern const struct tr_backend_ops tr_backend_late;

#endif
