/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_openai.h - what OpenAI's two dialects have in common: the frame of an answer or chunk
 * around its choices, and the end of a stream.
 *
 * Frontend only, for api_chat.c and api_completions.c. */
#ifndef TR_FRONTEND_API_OPENAI_H
#define TR_FRONTEND_API_OPENAI_H

#include "frontend/api.h"

/* Opens an answer or chunk of the kind `object`, up to and with its array of choices. */
void tr_openai_open(struct tr_stream *s, struct tr_emit *e, const char *object);

/* After the other members of a choice of a whole answer: closes it. */
void tr_openai_close_choice(struct tr_stream *s, struct tr_emit *e, struct tr_choice *ch);

/* Closes the array of choices and the answer, with its usage. */
void tr_openai_close(struct tr_stream *s, struct tr_emit *e);

/* After the other members of the one choice of a chunk in fe->json: closes it and sends it.
 * `finish` NULL: null. */
void tr_openai_send(struct tr_stream *s, const char *finish);
/* The same for a choice with neither logprobs nor finish_reason, which most chunks are. */
void tr_openai_send_plain(struct tr_stream *s);

/* The events USAGE (a chunk of the kind `object` without choices, if it was asked for), FAIL (the
 * error, then [DONE]) and END ([DONE]). */
void tr_openai_end(struct tr_stream *s, const struct tr_event *ev, const char *object);

#endif
