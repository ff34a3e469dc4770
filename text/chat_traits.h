/* SPDX-License-Identifier: Apache-2.0 */
/* text/chat_traits.h - what shape of messages a chat template reads, found out by rendering a few.
 *
 * Frontend, at start, once for a template.  Templates do not say whether they want the content of a
 * message as a string or as a list of parts, or the arguments of a tool call as an object or as its JSON;
 * given the other form they print Python's notation of it, or nothing, and no error says so.  So
 * conversations with words that stand nowhere else are rendered in each form, and what comes out is looked
 * at.  A template that refuses such a conversation gets the form that all zeroes stand for. */
#ifndef TR_TEXT_CHAT_TRAITS_H
#define TR_TEXT_CHAT_TRAITS_H

#include "text/chat.h"

enum tr_chat_role { TR_CHAT_SYSTEM, TR_CHAT_USER, TR_CHAT_ASSISTANT, TR_CHAT_TOOL, TR_CHAT_ROLES };

enum tr_chat_content {
    TR_CHAT_STRING, /* a string */
    TR_CHAT_EITHER, /* a string, or a list of parts {"type": "text", "text": ...}; both print the same */
    TR_CHAT_PARTS /* a list of parts; of a string nothing would be printed */
};

/* How a message of tool calls says that it has no content. */
enum tr_chat_blank { TR_CHAT_EMPTY, TR_CHAT_NONE, TR_CHAT_ABSENT };

struct tr_chat_traits {
    enum tr_chat_content content[TR_CHAT_ROLES];
    bool
        text_arguments; /* tool_calls[].function.arguments is printed as it is: JSON, not an object */
    enum tr_chat_blank blank;
    bool shows_tools;   /* prints what is in `tools` */
    bool shows_calls;   /* prints `tool_calls` of an assistant's message */
    bool shows_results; /* prints a message of the role tool */
};

void tr_chat_traits(const struct tr_chat *chat, struct tr_chat_traits *out);

#endif
