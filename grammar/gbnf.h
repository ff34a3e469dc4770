/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/gbnf.h - grammars in the notation of llama.cpp (GBNF) into a node of the builder.
 *
 *     root  ::= "yes" | "no" ", because " reason   # the answer is a text of this rule
 *     reason ::= [^\n]{1,200}
 *
 * Rules `name ::= alternatives`; literals "..." and classes [a-z], [^...] with the escapes \n \r \t \\ \"
 * \[ \] \xHH \uHHHH \UHHHHHHHH; `.`, groups (...), | * + ? {m} {m,} {m,n}; comments from # on.  A
 * rule ends with its line, but for lines inside a group, after ::= or |, and lines that begin with |.
 *
 * Refused, with the line: a rule that is not defined, defined twice, or begins with itself; no `root`;
 * names of tokens (<...>).
 *
 * Bounded in memory, steps and depth.  Pure, any thread. */
#ifndef TR_GRAMMAR_GBNF_H
#define TR_GRAMMAR_GBNF_H

#include "base/err.h"
#include "grammar/build.h"

#include <stddef.h>

enum { TR_GBNF_DEPTH = 100, TR_GBNF_COUNT = 10000 };

/* 0 and *out, or -EINVAL (refused), -E2BIG (a bound), -ENOMEM with a sentence. */
int tr_gbnf(struct tr_gbuild *b, const char *text, size_t len, tr_gnode *out,
            struct tr_errbuf *err);

#endif
