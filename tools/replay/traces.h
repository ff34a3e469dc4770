/* SPDX-License-Identifier: Apache-2.0 */
/* replay/traces.h - the traces that come with the program, made from a seed: the same seed, the
 * same trace.  --show-trace prints them as JSON lines. */
#ifndef TR_REPLAY_TRACES_H
#define TR_REPLAY_TRACES_H

#include "replay/trace.h"

/* Fills *t with the trace of that name.  0; -ENOENT when there is none; -ENOMEM.  tr_trace_fini in
 * any case. */
int tr_traces_make(struct tr_trace *t, const char *name, uint64_t seed);

/* For --help: a line for each. */
void tr_traces_help(FILE *out);

/* A fixed random sequence: the next 64 bits after the state *s. */
uint64_t tr_traces_random(uint64_t *s);

#endif
