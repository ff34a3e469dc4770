/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/spool_priv.h - what the two files of a spool share: spool.c (main thread), spool_take.c (sink
 * thread). */
#ifndef TR_LEDGER_SPOOL_PRIV_H
#define TR_LEDGER_SPOOL_PRIV_H

#include "ledger/spool.h"

#include <pthread.h>
#include <unistd.h>

enum { TR_SPOOL_CHUNK = 256 << 10 }; /* bytes that the sink thread reads at once */

struct tr_spool_segment {
    uint64_t number, len;
};

struct tr_spool {
    /* main thread */
    int dir, lock, fd; /* fd: of the segment that is written to, -1 when there is none */
    uint8_t *group;
    size_t used;
    uint64_t max, segment_max, next;
    uint64_t open_len; /* of the segment that is written to */
    bool named;        /* its name in the folder outlives a power cut */
    /* either, under the mutex */
    pthread_mutex_t mutex;
    struct tr_spool_segment *seg; /* oldest first */
    size_t n_seg;
    bool open;                  /* the last of them is written to */
    struct tr_spool_place done; /* all before it is in the database */
    uint64_t bytes;
    /* sink thread */
    int in;             /* of the oldest segment, -1 when not open */
    uint64_t in_number; /* whose it is */
    uint8_t *chunk;
    uint64_t told; /* anomalies before this place of it have been reported */
    bool damaged;  /* it is to be set aside */
};

/* Never held across a call of the kernel. */
static inline void tr_spool_lock(struct tr_spool *p)
{
    pthread_mutex_lock(&p->mutex);
}

static inline void tr_spool_unlock(struct tr_spool *p)
{
    pthread_mutex_unlock(&p->mutex);
}

static inline void tr_spool_close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* The oldest segment is in the database: it is removed, or set aside.  Sink thread, or after its end. */
void tr_spool_drop_oldest(struct tr_spool *p);

#endif
