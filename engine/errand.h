/* SPDX-License-Identifier: Apache-2.0 */
/* engine/errand.h - one thread that does what the engine's own should not stop for (backend.h: errand).
 *
 * Path: http > tokens > subq > engine > step > [ring] > detok > event > socket
 *
 * A backend whose threads compute has one of them ring the frontends' bells; one with a device has none to
 * spare, and each bell of a sleeping frontend is a system call and an interrupt between two launches.
 *
 * One errand at a time; who brings another one meanwhile does it himself.  Opened after the fork. */
#ifndef TR_ENGINE_ERRAND_H
#define TR_ENGINE_ERRAND_H

#include <stdbool.h>
#include <stdint.h>

struct tr_errand;

/* NULL without memory or thread. */
struct tr_errand *tr_errand_open(void);

/* Has fn(arg, what) done.  False: the last one is not done yet, and this one is not taken. */
bool tr_errand_give(struct tr_errand *e, void (*fn)(void *arg, uint64_t what), void *arg,
                    uint64_t what);

/* Waits for what was given.  NULL is fine. */
void tr_errand_close(struct tr_errand *e);

#endif
