/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/tools.h - the tools of a request, and which of them may or must be called.
 *
 * Path: http > [ask] > tokens > subq > engine > step > ring > detok > event > socket
 *
 * Frontend, any thread, pure.  The fields of chat completions (tools, tool_choice, parallel_tool_calls), which
 * the other dialects are written as.  A tool is a function of the client's: its name is taken apart from
 * text, so it is letters, digits and `_ - . : /`. */
#ifndef TR_FRONTEND_TOOLS_H
#define TR_FRONTEND_TOOLS_H

#include "base/json.h"
#include "frontend/fault.h"

enum {
    TR_TOOL_LIST_MAX = 128, /* tools of a request */
    TR_TOOL_NAME_MAX = 64   /* bytes */
};

struct tr_tools {
    const struct tr_json *list;              /* the array, not empty; NULL: nothing may be called */
    bool forced;                             /* a call must come */
    bool one;                                /* no more than one may */
    uint64_t allowed[TR_TOOL_LIST_MAX / 64]; /* bit i: list[i] may be called */
};

/* Reads the fields, each NULL if it is absent.  0, or -EINVAL with *f. */
int tr_tools_read(const struct tr_json_doc *doc, const struct tr_json *tools,
                  const struct tr_json *choice, struct tr_tools *out, struct tr_fault *f);

static inline bool tr_tools_allow(const struct tr_tools *t, uint32_t i)
{
    return t->allowed[i / 64] >> i % 64 & 1;
}

/* Of a tool that was checked: its name; the schema of its arguments, of type object or empty, NULL if there
 * is none; whether it must be obeyed to the letter. */
const struct tr_json *tr_tool_name(const struct tr_json *tool);
const struct tr_json *tr_tool_parameters(const struct tr_json *tool);
bool tr_tool_is_strict(const struct tr_json *tool);

#endif
