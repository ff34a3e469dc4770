/* SPDX-License-Identifier: Apache-2.0 */
/* tools/bench/text.h - `tokenring bench text`: how fast texts become tokens, good ones and the worst.
 *
 * One CSV line per text (or, with --words, per pre-tokeniser, for cutting alone):
 *   text,bytes,tokens,ms,mb_s
 * ms: the best of some tries, on one thread; mb_s: 10^6 bytes of text in a second.
 *
 * Returns the exit code: 0, 1 for a file that cannot be read, 2 for a fault of the arguments. */
#ifndef TR_TOOLS_BENCH_TEXT_H
#define TR_TOOLS_BENCH_TEXT_H

int tr_bench_text_main(int argc, char **argv);

#endif
