/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/balance.h - which of the frontends takes the next connection.
 *
 * Frontend only.  All accept from one queue, and all are woken.  Whoever has clearly more to do than
 * the least loaded of them leaves the connection to that one for a moment.  Each says its load in
 * its statistics (shm/stat.h): connections + streams.
 *
 *   I1  nobody waits for a frontend that does not take: when it has taken none for 5 ms, and after
 *       20 ms in any case, the leaver takes one itself and does not ask that one again for a while.
 *       One whose loop has not turned for half a second is not asked at all.  So a stopped frontend
 *       costs its siblings a few such waits, a lying one no more than that
 *   I2  a full one (--max-connections) leaves longer, as long as another one has room; it answers 503
 *       when none has */
#ifndef TR_FRONTEND_BALANCE_H
#define TR_FRONTEND_BALANCE_H

#include "frontend/conn.h"
#include "shm/region.h"
#include "shm/stat.h"

#include <stdbool.h>

struct tr_balance {
    const struct tr_shm *shm;
    uint32_t max;     /* connections, over all ports: full from here on */
    uint64_t streams; /* of this process, as fe.c counts them */
    bool closed;      /* takes none: not yet, not now, not any more */
    /* Not asked before: by us with room, and by us when full, which is asked with more patience. */
    uint64_t distrust_ns[2][TR_MAX_AREAS];
};

/* A listening socket's connection that is left to others; zero: none. */
struct tr_balance_left {
    uint64_t since_ns;
    uint64_t moved_ns; /* when the asked one was last seen to take one */
    uint64_t taken;    /* what it had taken then */
    uint32_t asked;    /* its area */
};

/* Closed at first. */
void tr_balance_init(struct tr_balance *b, const struct tr_shm *s, uint32_t max_connections);

/* Tells the others. */
void tr_balance_tell(struct tr_balance *b, const struct tr_httpd_stats *st);

/* A connection waits: true when it is ours to take. */
bool tr_balance_is_ours(struct tr_balance *b, struct tr_balance_left *left, uint64_t now_ns);

#endif
