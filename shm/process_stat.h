/* SPDX-License-Identifier: Apache-2.0 */
/* shm/process_stat.h - the processes of the service as their supervisor knows them.
 *
 * Written by the supervisor, all relaxed; nobody in the service reads it, `tokenring top` does
 * (shm/observe.h).  One row for each statistics region: rows and regions have the same index, so
 * that the heartbeat of a row's process is in the region of that index. */
#ifndef TR_SHM_PROCESS_STAT_H
#define TR_SHM_PROCESS_STAT_H

#include "shm/layout.h"

enum tr_process_state {
    TR_PROCESS_NONE,     /* there never was one */
    TR_PROCESS_STARTING, /* has a pid, does not serve yet */
    TR_PROCESS_SERVING,
    TR_PROCESS_RETIRED, /* ends its streams and then itself */
    TR_PROCESS_DEAD     /* not there, to be replaced, or ended */
};

struct tr_process_stat {
    /*                                  supervisor, relaxed */
    _Atomic uint32_t state;  /* enum tr_process_state */
    _Atomic uint32_t pid;    /* of the present or last one; 0 never */
    _Atomic uint32_t number; /* frontends: as in its title */
    _Atomic uint32_t pad;
    _Atomic uint64_t started_ns; /* monotonic */
};

struct tr_processes {
    struct tr_region_head head;
    TR_LINE _Atomic uint32_t drain; /* enum tr_drain, as in the control page */
    TR_LINE struct tr_process_stat row[TR_MAX_STATS];
};

#endif
