/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/threads.h - a small pool that shares out the work of one operation at a time.
 *
 * The caller works too.  Each thread has a range of the operation of its own, which it takes from
 * the front in ever smaller chunks; who has finished takes from the end of the others' ranges.  So
 * a thread whose core is busy with something else just does less, and a worker that has not woken
 * up by the time all is taken is not waited for.
 *
 * What can be waited for is a worker that lost its core in the middle of a chunk: for as long as
 * the kernel keeps it off, some milliseconds.  It is then left out for a while, longer each time it
 * happens again at once, so a neighbour that takes a core for good costs that core and little more.
 *
 * Idle workers look for work for some microseconds, because the next operation of a forward pass
 * follows at once, then sleep in the kernel.  With more threads than processors they do not look.
 *
 * One caller at a time: the thread that started the pool, after the fork. */
#ifndef TR_CPU_KERNELS_THREADS_H
#define TR_CPU_KERNELS_THREADS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { TR_THREADS_MAX = 256 };

struct tr_threads;

/* Starts n - 1 workers; with n = 1 there are none and everything runs in the caller.
 * NULL and a sentence if n is not in 1..TR_THREADS_MAX or a thread cannot be started. */
struct tr_threads *tr_threads_start(uint32_t n, struct tr_errbuf *err);

/* Binds each thread, the caller's too, to one of the processors that the caller may run on, in
 * turn.  0 or -Exxx. */
int tr_threads_pin(struct tr_threads *t);

/* Ends the workers and joins them.  NULL is fine. */
void tr_threads_stop(struct tr_threads *t);

uint32_t tr_threads_count(const struct tr_threads *t);

/* fn(arg, i) once for each 0 <= i < n, in any order, on any of the threads.  What the tasks wrote
 * is visible to the caller afterwards, what the caller wrote before is visible to them. */
void tr_threads_for(struct tr_threads *t, uint32_t n, void (*fn)(void *arg, uint32_t i), void *arg);

/* The same for neighbours together: fn(arg, first, end) for ranges that cover 0..n-1 once, none
 * longer than it takes to keep the threads busy, nor shorter than `grain` where there is a choice.
 * With one thread it is one call. */
void tr_threads_ranges(struct tr_threads *t, uint32_t n, uint32_t grain,
                       void (*fn)(void *arg, uint32_t first, uint32_t end), void *arg);

/* Offers fn(arg, what) to a worker that looks for work at this very moment.  True: one runs it, or has
 * run it, beside whatever the caller does next; what the caller wrote before is visible to it.
 * False: none looks, and the caller does it itself if it wants it done.  For what is to happen beside
 * the next operation rather than before it, such as a system call that wakes somebody: what is woken
 * then takes the core of a thread that has nothing in hand. */
bool tr_threads_errand(struct tr_threads *t, void (*fn)(void *arg, uint64_t what), void *arg,
                       uint64_t what);

/* How often a worker was left out so far, because it lost its core in the middle of a chunk. */
uint64_t tr_threads_left_out(const struct tr_threads *t);

#endif
