/* SPDX-License-Identifier: Apache-2.0 */
/* tools/bench/kernels.h - how fast the CPU's kernels run here: `tokenring bench kernels`.
 *
 * One CSV line per operation, shape, number of rows, instruction level and number of threads:
 *   op,shape,rows,level,threads,us,gb_s,read_percent,gmac_s,mac_percent
 * us: time of one call, the best of several turns (others share the machine); gb_s: weights, or K
 * and V, read per second, 10^9 bytes; gmac_s: multiply-adds per second, 10^9.  Weights are taken
 * from a pool larger than the caches, as a model's are.  read_percent: of what these threads read at
 * most from as large a pool; mac_percent: of the multiply-adds that they do at most, of floats or
 * int8 as the operation uses (bench/limits.h).  No model is needed.
 *
 * Returns the exit code: 0, 1 if the kernels cannot be started, 2 for a fault of the arguments. */
#ifndef TR_TOOLS_BENCH_KERNELS_H
#define TR_TOOLS_BENCH_KERNELS_H

int tr_bench_kernels_main(int argc, char **argv);

#endif
