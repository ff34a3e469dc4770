/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/admit.h - from a checked request to slots: claim all or none, write, submit.
 *
 * Path: http > tokens > [subq] > engine > step > ring > detok > event > socket
 *
 * Frontend only.  The decision falls here and at once, also while the engine stands still: a slot is
 * open or it is not.
 *
 * None open, engine gone, draining: the error to answer (503); nothing is held then. */
#ifndef TR_FRONTEND_ADMIT_H
#define TR_FRONTEND_ADMIT_H

#include "frontend/ask.h"

struct tr_admitted {
    uint32_t n; /* slots, prompt * n + choice */
    uint64_t rand;
    uint64_t
        submitted; /* the count of messages (tr_subq_is_heard); 0: somebody else submitted it */
    uint32_t slot[TR_MAX_CHOICES], gen[TR_MAX_CHOICES];
};

/* TR_OK, or why no slot could be had now.  Nothing is held: it is asked before the work that a refused
 * request should not cost, and tr_admit decides. */
enum tr_err tr_admit_look(const struct tr_fe *fe);

/* TR_OK and *out, or why not. */
enum tr_err tr_admit(struct tr_fe *fe, const struct tr_ask *a, struct tr_admitted *out);

#endif
