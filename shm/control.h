/* SPDX-License-Identifier: Apache-2.0 */
/* shm/control.h - the supervisor's page: who lives, who retires, and whether the service is draining.
 *
 * Written by the supervisor alone, read by everybody.  A reader keeps the last `change` it saw and
 * looks at the rest only when it moved. */
#ifndef TR_SHM_CONTROL_H
#define TR_SHM_CONTROL_H

#include "shm/layout.h"

enum tr_drain {
    TR_DRAIN_NO,     /* serving */
    TR_DRAIN_GRACE,  /* not ready any more, still accepting */
    TR_DRAIN_CLOSED, /* no new connection, no new request; open streams go on */
    TR_DRAIN_CUT     /* what still runs ends now with drain_limit */
};

/* How the last engine that died did so, for the one after it (engine/suspect.c). */
enum tr_death {
    TR_DEATH_NONE,    /* none has died */
    TR_DEATH_OUTSIDE, /* it ended, or somebody killed it */
    TR_DEATH_CRASHED, /* by a signal that its own code brought about */
    TR_DEATH_STALLED  /* the supervisor killed it: it gave no sign of life */
};

struct tr_control {
    struct tr_region_head head;
    /* All: supervisor, release (through `change`).  Readers acquire `change`, then read relaxed.  A
     * reader may see part of the next change: so a new owner's area_alive is stored before its
     * area_epoch (release), and who reads both reads the epoch first (acquire). */
    TR_LINE _Atomic uint32_t change;           /* bumped after each change of the fields below */
    _Atomic uint32_t drain;                    /* enum tr_drain */
    _Atomic uint32_t engine_epoch;             /* the engine process this is about, 1, 2, ... */
    _Atomic uint32_t engine_alive;             /* 0 from the moment its death was seen */
    _Atomic uint32_t engine_death;             /* enum tr_death; stored before engine_alive is 0 */
    _Atomic uint32_t engine_gone;              /* 1: it keeps dying, and none comes any more */
    _Atomic uint32_t area_epoch[TR_MAX_AREAS]; /* 0: never used; else the frontend that has it */
    _Atomic uint32_t area_alive[TR_MAX_AREAS]; /* 0: that frontend is dead */
    /* = area_epoch: that frontend accepts nothing more and ends after its last connection.  The
     * epoch, so that the area's next owner is not meant. */
    _Atomic uint32_t area_retire[TR_MAX_AREAS];
};

/* Supervisor: publishes what was stored (relaxed) before.  Release; pairs with tr_control_seen. */
void tr_control_publish(struct tr_control *c);

/* Reader: true when something changed since *seen, which is then updated. */
int tr_control_seen(const struct tr_control *c, uint32_t *seen);

#endif
