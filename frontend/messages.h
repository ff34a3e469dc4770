/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/messages.h - chat messages as a client sends them to the values a template sees.
 *
 * Path: http > [messages] > tokens > subq > engine > step > ring > detok > event > socket
 *
 * Frontend, any thread, pure.  Everything from the request is marked as the user's, so no text of it
 * can become a control token.
 *
 * Rules: content is a string, an array of parts or null; the texts of parts are joined by a line
 * end; parts that are no text are refused; null or absent content is the empty string where the
 * message is the assistant's and an error elsewhere; the role developer is system.  All other fields
 * of a message (name, tool_calls, tool_call_id, ...) go to the template as they are. */
#ifndef TR_FRONTEND_MESSAGES_H
#define TR_FRONTEND_MESSAGES_H

#include "frontend/fault.h"
#include "base/json.h"
#include "text/jinja_value.h"

/* A list of dicts in `ctx`, which borrows from the document.  NULL and *f. */
struct tr_jv *tr_messages_read(struct tr_jctx *ctx, const struct tr_json_doc *doc,
                               const struct tr_json *messages, struct tr_fault *f);

/* Checks only, without building anything: 0 or -EINVAL with *f. */
int tr_messages_check(const struct tr_json_doc *doc, const struct tr_json *messages,
                      struct tr_fault *f);

/* Any JSON value as a value of the request; NULL when the context's memory is at its limit. */
struct tr_jv *tr_messages_value(struct tr_jctx *ctx, const struct tr_json_doc *doc,
                                const struct tr_json *v);

#endif
