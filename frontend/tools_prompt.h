/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/tools_prompt.h - tools in the messages themselves, for chat templates that do not show them.
 *
 * Path: http > [messages] > tokens > subq > engine > step > ring > detok > event > socket
 *
 * Such a template would leave out `tools`, or the calls of earlier turns, and say nothing.  So what it does
 * not show becomes text: the tools, and how a call of one is written (tr_tool_writing), behind the first
 * system message or in one of their own; calls as the model would have written them; results, where the
 * role tool is unknown, as a user's message.
 *
 * Frontend only, pure, any thread. */
#ifndef TR_FRONTEND_TOOLS_PROMPT_H
#define TR_FRONTEND_TOOLS_PROMPT_H

#include "frontend/messages.h"
#include "text/tool_format.h"

/* Whether something of it would not be shown. */
bool tr_tools_prompt_wanted(const struct tr_messages *m, const struct tr_chat_traits *t);

/* Checks the messages, and writes all that *m has anew: *doc is the document that it points to then, to be
 * freed when the text was used.  0, or -EINVAL with *f; *m is then as it was. */
int tr_tools_prompt(struct tr_messages *m, const struct tr_chat_traits *t,
                    enum tr_tool_format format, struct tr_json_doc **doc, char **text,
                    struct tr_fault *f);

#endif
