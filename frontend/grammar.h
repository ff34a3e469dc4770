/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/grammar.h - what the answer to a request must obey: from its fields to a program.
 *
 * Path: http > [ask] > tokens > subq > engine > step > ring > detok > event > socket
 *
 * Fields of many names ask for one of five things (params_grammar.c reads them into the ask's `wish`); it
 * is compiled with the prompt, on a worker, into the image that goes to the engine (grammar/program.h).
 * Whoever has more to say about the form of an answer (tools) makes a node of the wish, puts it beside
 * his own, and installs the whole.
 *
 * Faults name the field, and in a schema the place in it, as the body has it.  Frontend only, pure, any
 * thread. */
#ifndef TR_FRONTEND_GRAMMAR_H
#define TR_FRONTEND_GRAMMAR_H

#include "base/json.h"
#include "frontend/fault.h"
#include "grammar/build.h"

enum tr_wish_kind {
    TR_WISH_NONE,
    TR_WISH_OBJECT, /* any JSON object */
    TR_WISH_SCHEMA, /* a JSON Schema, or the text of one */
    TR_WISH_REGEX,
    TR_WISH_GBNF,
    TR_WISH_CHOICE /* one of some strings */
};

struct tr_wish {
    enum tr_wish_kind kind;
    const struct tr_json *value; /* in the ask's document; of OBJECT nothing is looked at */
    const char *field;           /* what asks for it, for faults; static */
};

struct tr_ask;

/* Of the wish, which is one: 0 and *out, or -EINVAL with *f. */
int tr_ask_grammar_node(const struct tr_ask *a, struct tr_gbuild *b, tr_gnode *out,
                        struct tr_fault *f);

/* Finishes the builder and gives its program to the ask, in place of any other.  `param` is the field that a
 * fault is about: it is too large, or nothing can obey it.  0, or -EINVAL with *f. */
int tr_ask_grammar_take(struct tr_ask *a, struct tr_gbuild *b, tr_gnode start, const char *param,
                        struct tr_fault *f);

#endif
