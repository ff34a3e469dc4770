/* SPDX-License-Identifier: Apache-2.0 */
/* base/fault.h - named points at which a test kills or stops the process that reaches them.
 *
 * Only in builds with TOKENRING_FAULTS (CMake); in all others the macros are nothing and no name is in
 * the binary.  The points stand in fault.def.  A point that nobody has armed costs one relaxed load.
 *
 * The environment variable TOKENRING_FAULT names a file which the supervisor maps, shared, before it
 * forks: every child has it whatever its sandbox says, also one that is started again.  A test writes
 * into that file at any time, tests/system/lib.py (class Faults) does.  The file is one struct
 * tr_fault_table, and nothing else; an empty one is filled in at the start.
 *
 * What happens at an armed point, in this order:
 *   value    one for which `matching` is set is passed by every other value than `match`
 *   hits     counts
 *   skip     is counted down to 0 first; so many are let pass
 *   left     is counted down to 0; at 0 nothing happens, so 1 means once, whichever process comes first
 *   action   kill, segv, abort, stop: the signal, by the calling thread; exit: without any last word;
 *            count: nothing
 * Counting down is one atomic operation, exact over all processes. */
#ifndef TR_BASE_FAULT_H
#define TR_BASE_FAULT_H

#ifdef TR_FAULTS

#include "base/err.h"

#include <stdatomic.h>
#include <stdint.h>

enum tr_fault_id {
#define X(id, name, what) TR_FAULT_##id,
#include "base/fault.def"
#undef X
    TR_FAULT_POINTS
};

enum tr_fault_action {
    TR_FAULT_NONE, /* not armed */
    TR_FAULT_COUNT,
    TR_FAULT_KILL,
    TR_FAULT_SEGV,
    TR_FAULT_ABORT,
    TR_FAULT_STOP,
    TR_FAULT_EXIT /* with TR_FAULT_STATUS */
};

enum { TR_FAULT_NAME = 48, TR_FAULT_STATUS = 70 };

#define TR_FAULT_MAGIC 0x31544c5541465254ull /* "TRFAULT1" */

/*                                      written by              what */
struct tr_fault_point {
    char name[TR_FAULT_NAME]; /* supervisor              as in fault.def */
    _Atomic uint32_t action;  /* test, the last field    enum tr_fault_action */
    uint32_t matching;        /* test                    0 or 1 */
    uint64_t match;           /* test                    the value that is meant */
    _Atomic uint64_t skip;    /* test; counted down */
    _Atomic uint64_t left;    /* test; counted down */
    _Atomic uint64_t hits;    /* whoever gets there      since the test set it to 0 */
    _Atomic uint64_t fired;   /* the same                how often the action was taken */
    _Atomic uint64_t pid;     /* the same                who took it last */
    uint64_t spare[3];
};

struct tr_fault_table {
    uint64_t magic; /* TR_FAULT_MAGIC */
    uint32_t n_points, point_bytes;
    uint64_t spare[6];
    struct tr_fault_point point[TR_FAULT_POINTS];
};

_Static_assert(sizeof(struct tr_fault_point) == 128, "tests/system/lib.py knows the layout");
_Static_assert(sizeof(struct tr_fault_table) == 64 + 128 * TR_FAULT_POINTS, "the same");

/* Never NULL: without a file a table of this process, in which nothing is armed. */
extern struct tr_fault_table *tr_fault_table;

/* Supervisor, before the first fork.  0, also when the environment names no file; -errno and a sentence
 * for a file that cannot be mapped or is of another build. */
int tr_fault_map(struct tr_errbuf *err);

/* An armed point was reached.  May not come back. */
void tr_fault_reach(enum tr_fault_id id, uint64_t value);

static inline void tr_fault_at(enum tr_fault_id id, uint64_t value)
{
    /* Relaxed: only whether somebody armed it. */
    if (__builtin_expect(
            atomic_load_explicit(&tr_fault_table->point[id].action, memory_order_relaxed) != 0, 0))
        tr_fault_reach(id, value);
}

#define TR_FAULT(id) tr_fault_at(TR_FAULT_##id, 0)
#define TR_FAULT_FOR(id, value) tr_fault_at(TR_FAULT_##id, (uint64_t)(value))

#else

#define TR_FAULT(id) ((void)0)
#define TR_FAULT_FOR(id, value) ((void)sizeof(value))

#endif

#endif
