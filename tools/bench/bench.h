/* SPDX-License-Identifier: Apache-2.0 */
/* tools/bench/bench.h - `tokenring bench`: what this machine does, kernel by kernel and as a whole. */
#ifndef TR_TOOLS_BENCH_BENCH_H
#define TR_TOOLS_BENCH_BENCH_H

/* argv[1] names the bench.  Exit status of the process. */
int tr_bench_main(int argc, char **argv);

#endif
