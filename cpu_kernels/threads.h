/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/threads.h - a small pool that shares out the tasks of one operation at a time.
 *
 * The caller works too.  Tasks are taken one by one, so a thread whose core is busy with something
 * else just takes fewer, and a worker that has not woken up by the time all tasks are taken is
 * not waited for.  Idle workers look for work for a few microseconds, because the next operation
 * of a forward pass follows at once, then sleep in the kernel.
 *
 * One caller at a time: the thread that started the pool, after the fork. */
#ifndef TR_CPU_KERNELS_THREADS_H
#define TR_CPU_KERNELS_THREADS_H

#include "base/err.h"

#include <stdint.h>

enum { TR_THREADS_MAX = 256 };

struct tr_threads;

/* Starts n - 1 workers; with n = 1 there are none and everything runs in the caller.
 * NULL and a sentence if n is not in 1..TR_THREADS_MAX or a thread cannot be started. */
struct tr_threads *tr_threads_start(uint32_t n, struct tr_errbuf *err);

/* Ends the workers and joins them.  NULL is fine. */
void tr_threads_stop(struct tr_threads *t);

uint32_t tr_threads_count(const struct tr_threads *t);

/* fn(arg, i) once for each 0 <= i < n, in any order, on any of the threads.  What the tasks wrote
 * is visible to the caller afterwards, what the caller wrote before is visible to them. */
void tr_threads_for(struct tr_threads *t, uint32_t n, void (*fn)(void *arg, uint32_t i), void *arg);

#endif
