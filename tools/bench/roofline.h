/* SPDX-License-Identifier: Apache-2.0 */
/* tools/bench/roofline.h - what this machine can do at most: `tokenring bench roofline`.
 *
 * With 1, 2, 4 ... N threads: reading memory that no cache holds, reading as many bytes as the
 * model's weights over and over (what decode does), multiply-adds of floats and of bytes, and what
 * it costs the threads to meet.  A table, or CSV, or JSON on stdout.
 *
 * Returns the exit code: 0, 1 if it cannot be measured, 2 for a fault of the arguments. */
#ifndef TR_TOOLS_BENCH_ROOFLINE_H
#define TR_TOOLS_BENCH_ROOFLINE_H

int tr_bench_roofline_main(int argc, char **argv);

#endif
