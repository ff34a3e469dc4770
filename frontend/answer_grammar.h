/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/answer_grammar.h - what an answer with tools or reasoning may be: the whole of it.
 *
 * Path: http > [ask] > tokens > subq > engine > step > ring > detok > event > socket
 *
 *   answer   = reasoning? said                what is thought is free text
 *   forced     said = calls                   tool_choice required, or one that is named
 *   auto       said = text (calls text)*      free until a call is opened
 *              said = calls | text            where calls have no opening of their own: text does not begin
 *                                             with a brace then
 *   with a wish (grammar.h)
 *              said = calls | wish            or the wish alone, without tools
 *
 * A call is one of the functions that may be called, and its arguments obey its schema.  A schema that
 * cannot be obeyed exactly makes them any object, unless the function is `strict`: then it is refused.
 *
 * Frontend only, pure, any thread. */
#ifndef TR_FRONTEND_ANSWER_GRAMMAR_H
#define TR_FRONTEND_ANSWER_GRAMMAR_H

#include "frontend/fault.h"

struct tr_ask;

/* Gives the ask its program, if there is something to say.  After the prompt was made (reasoning_open), while
 * the document is there.  0, or -EINVAL with *f. */
int tr_answer_grammar(struct tr_ask *a, struct tr_fault *f);

#endif
