/* SPDX-License-Identifier: Apache-2.0 */
/* text/tool_format.h - how models write tool calls and reasoning: one table each.
 *
 * A *tool format* says between which words of the answer a call stands.  Each has a way in which it is
 * written (`write`, for a grammar that forces one), and the splitter (text/split.h) reads that and what
 * models make of it besides.
 *
 * The formats are those of the models' own chat templates:
 *   hermes    <tool_call>\n{"name": N, "arguments": A}\n</tool_call>; Hermes 2 Pro, Qwen 2.5 and 3
 *   llama3    {"name": N, "parameters": A}, also behind <|python_tag|>; Llama 3.1 to 3.3
 *   mistral   [TOOL_CALLS][{"name": N, "arguments": A}, ...]; tokenisers v3 to v7
 *   mistral11 [TOOL_CALLS]N[ARGS]A; tokenisers v11 and later
 *   deepseek  <|tool_calls_begin|> ... function<|tool_sep|>N\n```json\nA\n``` (with U+FF5C and U+2581);
 *             V3 and R1
 *   deepseek31 the same with N<|tool_sep|>A; V3.1
 *   gemma     ```tool_code\n{"name": N, "parameters": A}\n```
 *   json      {"name": N, "arguments": A} or a list of them, and nothing else */
#ifndef TR_TEXT_TOOL_FORMAT_H
#define TR_TEXT_TOOL_FORMAT_H

#include "text/vocab.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tr_tool_format {
    TR_TOOLS_NONE, /* calls are not looked for */
    TR_TOOLS_HERMES,
    TR_TOOLS_LLAMA3,
    TR_TOOLS_MISTRAL,
    TR_TOOLS_MISTRAL11,
    TR_TOOLS_DEEPSEEK,
    TR_TOOLS_DEEPSEEK31,
    TR_TOOLS_GEMMA,
    TR_TOOLS_JSON,
    TR_TOOL_FORMATS
};

enum tr_reasoning_format {
    TR_REASONING_NONE,
    TR_REASONING_THINK,   /* <think> </think>: Qwen 3, DeepSeek R1 */
    TR_REASONING_MISTRAL, /* [THINK] [/THINK]: Magistral */
    TR_REASONING_COHERE,  /* <|START_THINKING|> <|END_THINKING|>: Command A */
    TR_REASONING_FORMATS
};

/* A text with calls, as a grammar has to write it: begin, then calls with `sep` between, then end; each call
 * is name_before NAME name_after ARGUMENTS args_after.  Arguments are a JSON object. */
struct tr_tool_writing {
    const char *begin, *name_before, *name_after, *args_after, *sep, *end;
    const char *one_begin, *one_end; /* begin and end where there is exactly one call */
};

enum { TR_TOOL_MARKERS = 6 };

struct tr_tool_syntax {
    const char *name;    /* of --tool-format */
    bool bare;           /* an answer that begins with a brace is a call */
    bool bare_list;      /* one that begins with a bracket too */
    const char *open[2]; /* what begins calls in the midst of text */
    const char *next;    /* what then begins each of them; NULL: nothing */
    const char *sep;     /* behind a name that stands by itself; NULL: calls are objects */
    const char
        *fence; /* what stands before `sep` is a type, and the name goes on to this; or NULL */
    const char *args_end;                /* what closes a call; NULL: nothing */
    const char *close;                   /* what ends calls; NULL: nothing */
    const char *marker[TR_TOOL_MARKERS]; /* words of all these that may be tokens of their own */
    struct tr_tool_writing write;
};

struct tr_reasoning_syntax {
    const char *name; /* of --reasoning */
    const char *open, *close;
    bool
        anywhere; /* its opening is a control token, which no model writes to speak of it; else reasoning
                    * begins where nothing has been said yet, or behind other reasoning or calls */
};

extern const struct tr_tool_syntax tr_tool_syntax[TR_TOOL_FORMATS];
extern const struct tr_reasoning_syntax tr_reasoning_syntax[TR_REASONING_FORMATS];

/* What a chat template tells of its model: the first of the formats whose words stand in it, NONE if there
 * is none.  *tools_known says whether the template shows tools to the model at all. */
enum tr_tool_format tr_tool_format_of(const char *tmpl, size_t len, bool *tools_known);
enum tr_reasoning_format tr_reasoning_format_of(const char *tmpl, size_t len);

/* By the name of an option; -1: there is none of that name. */
int tr_tool_format_named(const char *name);
int tr_reasoning_format_named(const char *name);

/* Whether a prompt ends inside reasoning: only blanks follow its opening.  The last `own` bytes of it are the
 * beginning of the answer itself: there anything may, but the closing. */
bool tr_reasoning_is_open(enum tr_reasoning_format f, const char *prompt, size_t len, size_t own);

/* The tokens that are markers of these formats, and control tokens, which give no text otherwise: the
 * splitter needs them (tr_scan).  Ascending; returns how many, at most TR_MARKER_IDS. */
enum { TR_MARKER_IDS = TR_TOOL_MARKERS + 2 };
uint32_t tr_marker_ids(const struct tr_vocab *v, enum tr_tool_format tools,
                       enum tr_reasoning_format reasoning, int32_t ids[TR_MARKER_IDS]);

#endif
