/* SPDX-License-Identifier: Apache-2.0 */
/* engine/fair.h - how much each key has been served: virtual token counters.
 *
 * Path: http > tokens > subq > [engine] > step > ring > detok > event > socket
 *
 * After Sheng et al., Fairness in Serving Large Language Models (OSDI 2024).  Every key has a counter of
 * what was computed for it: a prompt token counts once, an answer's token twice.  Among requests of
 * equal priority those go first whose key has the least (plan.h, rule 5).  Two keys that always have
 * something to do are so served alike, however many requests one of them sends; or by their weights: what
 * a key has had is divided by its weight, so one of weight 3 is served three times as much.
 *
 * A key that comes back after a rest is lifted to the least of those at work: a rest earns nothing that
 * could be spent against the others.  If nobody is at work, to the counter of whoever was last.
 *
 * Requests without a key have the key "": all of a service without API keys are equal, and age decides.
 *
 * One table of the scheduler, sized for as many keys as there are slots; a key without requests is
 * forgotten when its place is needed, first the one that was served least: it loses nothing but what it
 * had in hand. */
#ifndef TR_ENGINE_FAIR_H
#define TR_ENGINE_FAIR_H

#include "shm/layout.h"

#include <stddef.h>
#include <stdint.h>

enum { TR_FAIR_PROMPT = 1, TR_FAIR_ANSWER = 2 }; /* what a token counts */

struct tr_fair;

/* For at most n requests at a time.  NULL without memory; *bytes grows by what was taken. */
struct tr_fair *tr_fair_new(uint32_t n, uint64_t *bytes);
void tr_fair_free(struct tr_fair *f); /* NULL is fine */

/* A request of this key (NUL-ended) is there; returns the number of the key, good until the matching
 * tr_fair_give.  The weight is that of the last request that came. */
uint32_t tr_fair_take(struct tr_fair *f, const char *key, uint32_t weight);
void tr_fair_give(struct tr_fair *f, uint32_t k);

/* The key has had n more. */
void tr_fair_serve(struct tr_fair *f, uint32_t k, uint64_t n);

/* By number of key; NULL while there are requests of one key at most: nobody to compare with. */
const uint64_t *tr_fair_served(const struct tr_fair *f);

#endif
