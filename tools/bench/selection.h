/* SPDX-License-Identifier: Apache-2.0 */
/* tools/bench/selection.h - what choosing a token costs: `tokenring bench selection`.
 *
 * One CSV line per size of vocabulary and way of choosing:
 *   vocabulary,how,us
 * us: time of one row, the best of many.  Logits are normal with a deviation of 3 and three larger
 * ones; what has to be sorted depends on that.  No model is needed.
 *
 * Returns the exit code: 0, 1 without memory, 2 for a fault of the arguments. */
#ifndef TR_TOOLS_BENCH_SELECTION_H
#define TR_TOOLS_BENCH_SELECTION_H

int tr_bench_selection_main(int argc, char **argv);

#endif
