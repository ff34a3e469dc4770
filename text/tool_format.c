/* SPDX-License-Identifier: Apache-2.0 */
/* text/tool_format.c - see tool_format.h. */
#include "text/tool_format.h"

#include <string.h>

/* DeepSeek's markers: fullwidth bars and lower one eighth blocks. */
#define DS(words) "<\uff5c" words "\uff5c>"
#define DS_CALLS_BEGIN DS("tool\u2581calls\u2581begin")
#define DS_CALLS_END DS("tool\u2581calls\u2581end")
#define DS_CALL_BEGIN DS("tool\u2581call\u2581begin")
#define DS_CALL_END DS("tool\u2581call\u2581end")
#define DS_SEP DS("tool\u2581sep")
#define DS_MARKERS                                                                                 \
    {                                                                                              \
        DS_CALLS_BEGIN, DS_CALLS_END, DS_CALL_BEGIN, DS_CALL_END, DS_SEP                           \
    }

#define NAME_BEFORE "{\"name\": \""
#define ARGUMENTS "\", \"arguments\": "
#define PARAMETERS "\", \"parameters\": "

const struct tr_tool_syntax tr_tool_syntax[TR_TOOL_FORMATS] = {
    [TR_TOOLS_NONE] = {.name = "none"},
    [TR_TOOLS_HERMES] = {.name = "hermes",
                         .open = {"<tool_call>"},
                         .close = "</tool_call>",
                         .marker = {"<tool_call>", "</tool_call>"},
                         .write = {"", "<tool_call>\n" NAME_BEFORE, ARGUMENTS, "}\n</tool_call>",
                                   "\n", "", "", ""}},
    [TR_TOOLS_LLAMA3] = {.name = "llama3",
                         .bare = true,
                         .open = {"<|python_tag|>"},
                         .marker = {"<|python_tag|>"},
                         .write = {"", NAME_BEFORE, PARAMETERS, "}", "; ", "", "", ""}},
    [TR_TOOLS_MISTRAL] = {.name = "mistral",
                          .open = {"[TOOL_CALLS]"},
                          .sep = "[ARGS]",
                          .marker = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
                          .write = {"[TOOL_CALLS][", NAME_BEFORE, ARGUMENTS, "}", ", ", "]",
                                    "[TOOL_CALLS][", "]"}},
    [TR_TOOLS_MISTRAL11] = {.name = "mistral11",
                            .open = {"[TOOL_CALLS]"},
                            .sep = "[ARGS]",
                            .marker = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
                            .write = {"", "[TOOL_CALLS]", "[ARGS]", "", "", "", "", ""}},
    [TR_TOOLS_DEEPSEEK] = {.name = "deepseek",
                           .open = {DS_CALLS_BEGIN},
                           .next = DS_CALL_BEGIN,
                           .sep = DS_SEP,
                           .fence = "\n```json\n",
                           .args_end = "\n```" DS_CALL_END,
                           .close = DS_CALLS_END,
                           .marker = DS_MARKERS,
                           .write = {DS_CALLS_BEGIN, DS_CALL_BEGIN "function" DS_SEP, "\n```json\n",
                                     "\n```" DS_CALL_END, "\n", DS_CALLS_END, DS_CALLS_BEGIN,
                                     DS_CALLS_END}},
    [TR_TOOLS_DEEPSEEK31] = {.name = "deepseek31",
                             .open = {DS_CALLS_BEGIN},
                             .next = DS_CALL_BEGIN,
                             .sep = DS_SEP,
                             .args_end = DS_CALL_END,
                             .close = DS_CALLS_END,
                             .marker = DS_MARKERS,
                             .write = {DS_CALLS_BEGIN, DS_CALL_BEGIN, DS_SEP, DS_CALL_END, "",
                                       DS_CALLS_END, DS_CALLS_BEGIN, DS_CALLS_END}},
    [TR_TOOLS_GEMMA] = {.name = "gemma",
                        .open = {"```tool_code"},
                        .close = "```",
                        .write = {"```tool_code\n[", NAME_BEFORE, PARAMETERS, "}", ", ", "]\n```",
                                  "```tool_code\n", "\n```"}},
    [TR_TOOLS_JSON] = {.name = "json",
                       .bare = true,
                       .bare_list = true,
                       .write = {"[", NAME_BEFORE, ARGUMENTS, "}", ", ", "]", "", ""}},
};

const struct tr_reasoning_syntax tr_reasoning_syntax[TR_REASONING_FORMATS] = {
    [TR_REASONING_NONE] = {.name = "none"},
    [TR_REASONING_THINK] = {.name = "think", .open = "<think>", .close = "</think>"},
    [TR_REASONING_MISTRAL] = {.name = "mistral",
                              .open = "[THINK]",
                              .close = "[/THINK]",
                              .anywhere = true},
    [TR_REASONING_COHERE] = {.name = "cohere",
                             .open = "<|START_THINKING|>",
                             .close = "<|END_THINKING|>",
                             .anywhere = true},
};

static bool has(const char *text, size_t len, const char *word)
{
    return memmem(text, len, word, strlen(word)) != NULL;
}

enum tr_tool_format tr_tool_format_of(const char *tmpl, size_t len, bool *tools_known)
{
    static const struct {
        const char *word, *with; /* both stand in it; with NULL: the one */
        enum tr_tool_format format;
    } SIGNS[] = {
        {DS_CALLS_BEGIN, "```json", TR_TOOLS_DEEPSEEK}, {DS_CALLS_BEGIN, NULL, TR_TOOLS_DEEPSEEK31},
        {"[TOOL_CALLS]", "[ARGS]", TR_TOOLS_MISTRAL11}, {"[TOOL_CALLS]", NULL, TR_TOOLS_MISTRAL},
        {"<tool_call>", NULL, TR_TOOLS_HERMES},         {"<|python_tag|>", NULL, TR_TOOLS_LLAMA3},
        {"ipython", "\"parameters\"", TR_TOOLS_LLAMA3}, {"<start_of_turn>", NULL, TR_TOOLS_GEMMA},
    };
    enum tr_tool_format f = TR_TOOLS_NONE;

    for (size_t i = 0; i < sizeof(SIGNS) / sizeof(*SIGNS) && !f; i++)
        if (has(tmpl, len, SIGNS[i].word) && (!SIGNS[i].with || has(tmpl, len, SIGNS[i].with)))
            f = SIGNS[i].format;
    *tools_known = has(tmpl, len, "tools");
    return f || !*tools_known ? f : TR_TOOLS_JSON;
}

enum tr_reasoning_format tr_reasoning_format_of(const char *tmpl, size_t len)
{
    for (int i = 1; i < TR_REASONING_FORMATS; i++)
        if (has(tmpl, len, tr_reasoning_syntax[i].close))
            return (enum tr_reasoning_format)i;
    return TR_REASONING_NONE;
}

int tr_tool_format_named(const char *name)
{
    for (int i = 0; i < TR_TOOL_FORMATS; i++)
        if (strcmp(name, tr_tool_syntax[i].name) == 0)
            return i;
    return -1;
}

int tr_reasoning_format_named(const char *name)
{
    for (int i = 0; i < TR_REASONING_FORMATS; i++)
        if (strcmp(name, tr_reasoning_syntax[i].name) == 0)
            return i;
    return -1;
}

/* Whether the last opening in the text has no closing behind it. */
static bool goes_on(const struct tr_reasoning_syntax *r, const char *text, size_t len)
{
    const char *end = text + len, *at, *open = NULL;

    for (const char *p = text; (at = memmem(p, (size_t)(end - p), r->open, strlen(r->open)));
         p = open)
        open = at + strlen(r->open);
    return open && !has(open, (size_t)(end - open), r->close);
}

bool tr_reasoning_is_open(enum tr_reasoning_format f, const char *prompt, size_t len, size_t own)
{
    const char *open = tr_reasoning_syntax[f].open;

    if (!open)
        return false;
    if (own > len)
        own = len;
    if (own && goes_on(&tr_reasoning_syntax[f], prompt + len - own, own))
        return true;
    while (len && strchr(" \t\r\n", prompt[len - 1]) && prompt[len - 1])
        len--;
    size_t n = strlen(open);
    return len >= n && memcmp(prompt + len - n, open, n) == 0;
}

static void add_marker(const struct tr_vocab *v, const char *name, int32_t *ids, uint32_t *n)
{
    int32_t id = name ? tr_vocab_find(v, name, strlen(name)) : -1;
    uint32_t at = *n;

    if (id < 0 || !tr_vocab_is_control(v, id))
        return;
    while (at && ids[at - 1] > id) {
        ids[at] = ids[at - 1];
        at--;
    }
    ids[at] = id;
    ++*n;
}

uint32_t tr_marker_ids(const struct tr_vocab *v, enum tr_tool_format tools,
                       enum tr_reasoning_format reasoning, int32_t ids[TR_MARKER_IDS])
{
    uint32_t n = 0;

    for (size_t i = 0; i < TR_TOOL_MARKERS; i++)
        add_marker(v, tr_tool_syntax[tools].marker[i], ids, &n);
    add_marker(v, tr_reasoning_syntax[reasoning].open, ids, &n);
    add_marker(v, tr_reasoning_syntax[reasoning].close, ids, &n);
    return n;
}
