/* SPDX-License-Identifier: Apache-2.0 */
/* tools/bench/plan.h - `tokenring bench plan`: what the scheduler makes of a trace, without a server.
 *
 * A trace of `tokenring replay` (a file or a built-in one) is played against the engine's plan in virtual
 * time (bench/playback.h), with prices of steps that are given or measured from a model, and first-token
 * times and gaps are told per class.  Returns the exit code: 0, 1 for a fault of trace or model, 2 for a
 * fault of the arguments. */
#ifndef TR_TOOLS_BENCH_PLAN_H
#define TR_TOOLS_BENCH_PLAN_H

int tr_bench_plan_main(int argc, char **argv);

#endif
