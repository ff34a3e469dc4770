/* SPDX-License-Identifier: Apache-2.0 */
/* tools/bench/model.h - how fast a model runs here: `tokenring bench model`.
 *
 * Prefill of one prompt and decode of several numbers of sequences together, through the backend
 * that the engine uses, without sampling or delivery.  Writes CSV to stdout and what was chosen to
 * stderr.  Returns the exit code: 0, 1 for a fault of the model, 2 for a fault of the arguments. */
#ifndef TR_TOOLS_BENCH_MODEL_H
#define TR_TOOLS_BENCH_MODEL_H

int tr_bench_model_main(int argc, char **argv);

#endif
