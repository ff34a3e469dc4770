/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/timer.h - a timer of libevent at a point of our clock.
 *
 * Frontend only, event loop only. */
#ifndef TR_FRONTEND_TIMER_H
#define TR_FRONTEND_TIMER_H

#include "base/clock.h"

#include <event2/event.h>

/* It fires when tr_now_ns has passed `at_ns`, never before it; when it was to fire so far is forgotten.
 * 0, or -1: out of memory, and it is as it was. */
static inline int tr_timer_at(struct event *ev, uint64_t at_ns)
{
    uint64_t now = tr_now_ns(), us = at_ns > now ? (at_ns - now) / 1000 + 1 : 1;

    return event_add(ev, &(struct timeval){(time_t)(us / 1000000), (suseconds_t)(us % 1000000)});
}

#endif
