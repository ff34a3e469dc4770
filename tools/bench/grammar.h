/* SPDX-License-Identifier: Apache-2.0 */
/* tools/bench/grammar.h - `tokenring bench grammar`: what an answer that obeys a grammar costs.
 *
 * A few schemas, each with an answer, cut into tokens by the model's vocabulary.  One CSV line per schema,
 * twice: with nothing remembered of it, then again.
 *   schema,memory,states,bytes,compile_us,check_us,tokens,mask_us,mask_max_us,match_us
 * states, bytes: of the program; compile_us: schema to program (frontend); check_us: once in the engine;
 * All times are the thread's processor time.  mask_us: mean over the answer's tokens; match_us: the matcher, per token.
 *
 * Returns the exit code: 0, 1 for a model that cannot be read, 2 for a fault of the arguments. */
#ifndef TR_TOOLS_BENCH_GRAMMAR_H
#define TR_TOOLS_BENCH_GRAMMAR_H

int tr_bench_grammar_main(int argc, char **argv);

#endif
