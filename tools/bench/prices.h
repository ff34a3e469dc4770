/* SPDX-License-Identifier: Apache-2.0 */
/* tools/bench/prices.h - what the parts of a step cost with a model on this machine: passes of several
 * shapes are timed and given to the engine's own cost model (engine/cost.h). */
#ifndef TR_TOOLS_BENCH_PRICES_H
#define TR_TOOLS_BENCH_PRICES_H

#include "engine/backend.h"
#include "engine/cost.h"

/* Fills price [TR_COST_PARTS], ns, and what the model's info says of the bytes of its weights.  Takes
 * some seconds.  0, or -1 and a sentence. */
int tr_prices_measure(const char *model, uint32_t threads, double *price, uint64_t *weight_bytes,
                      struct tr_errbuf *err);

#endif
