/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/messages.h - chat messages as a client sends them to the values a template sees.
 *
 * Path: http > [messages] > tokens > subq > engine > step > ring > detok > event > socket
 *
 * Frontend, any thread, pure.  Everything from the request is marked as the user's, so no text of it
 * can become a control token.
 *
 * Rules:
 *   - content is a string, an array of parts of text, or null.  Which of the two a template reads is known
 *     (text/chat_traits.h): parts are joined by a line end where it wants strings, a string becomes a part
 *     where it wants parts.  Parts that are no text are refused.
 *   - null or absent content is the empty string where the message is the assistant's and an error
 *     elsewhere; with tool calls it is what the template reads as none.
 *   - the role developer is system.
 *   - tool_calls: each has a function with a name, and arguments that are a JSON object or the text of one;
 *     the template gets the object, or the text if it prints it as it is.  None are the same as no tool_calls.
 *   - reasoning_content, or what some clients call reasoning or thinking, is there by the first and the last
 *     name, as in transformers.
 *   - members that are null are not there; all others go to the template as they are. */
#ifndef TR_FRONTEND_MESSAGES_H
#define TR_FRONTEND_MESSAGES_H

#include "base/json.h"
#include "frontend/fault.h"
#include "text/chat_traits.h"
#include "text/jinja_value.h"

struct tr_vocab;

/* What a template may see of a request; members are of `doc`, NULL where there is nothing. */
struct tr_messages {
    const struct tr_json_doc *doc;
    const struct tr_json *messages;  /* an array that is not empty */
    const struct tr_json *tools;     /* an array as OpenAI has it: `tools` of the template */
    const struct tr_json *documents; /* an array */
    const struct tr_json *args;      /* chat_template_kwargs, an object */
    const struct tr_json *effort;    /* reasoning_effort, a string */
    bool generation_prompt;
    bool continue_final; /* the text ends where the last message's does */
};

/* Renders them in `ctx`, which borrows from the document.
 * 0, or -EINVAL with *f. */
int tr_messages_render(const struct tr_messages *m, const struct tr_chat *chat,
                       const struct tr_chat_traits *traits, const struct tr_vocab *vocab,
                       struct tr_jctx *ctx, struct tr_chat_text *out, struct tr_fault *f);

/* A list of dicts in `ctx`, which borrows from the document.  TR_CHAT_CONTINUE is put behind the text of
 * the last one if `continued`.  NULL and *f. */
struct tr_jv *tr_messages_read(struct tr_jctx *ctx, const struct tr_json_doc *doc,
                               const struct tr_json *messages, const struct tr_chat_traits *traits,
                               bool continued, struct tr_fault *f);

/* The text of the last message, which is continued: its string, or its last part.  After a rendering that
 * continued it. */
const struct tr_json *tr_messages_final(const struct tr_json *messages);

/* Any JSON value as a value of the request; NULL when the context's memory is at its limit.  `copied`:
 * the document need not live as long as the context. */
struct tr_jv *tr_messages_value(struct tr_jctx *ctx, const struct tr_json_doc *doc,
                                const struct tr_json *v, bool copied);

#endif
