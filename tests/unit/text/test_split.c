/* SPDX-License-Identifier: Apache-2.0 */
#include "testlib/rand.h"
#include "text/split.h"

#include <criterion/criterion.h>
#include <stdio.h>

/* What came, in short: text plain, ~reasoning~, @name( arguments ), and no ) for a call that was cut. */
struct told {
    char text[8192];
    size_t len;
    int last;
};

static void tell(struct told *t, const char *p, size_t n)
{
    cr_assert_leq(t->len + n + 1, sizeof(t->text));
    memcpy(t->text + t->len, p, n);
    t->len += n;
    t->text[t->len] = '\0';
}

static void tell_parts(struct told *t, const struct tr_parts *parts)
{
    for (uint32_t i = 0; i < parts->n; i++) {
        const struct tr_part *p = &parts->part[i];
        if (t->last == TR_PART_REASONING && p->kind != TR_PART_REASONING)
            tell(t, "~", 1);
        if (p->kind == TR_PART_REASONING && t->last != TR_PART_REASONING)
            tell(t, "~", 1);
        if (p->kind == TR_PART_CALL)
            tell(t, "@", 1);
        tell(t, parts->text + p->at, p->len);
        if (p->kind == TR_PART_CALL)
            tell(t, "(", 1);
        if (p->kind == TR_PART_CALL_DONE)
            tell(t, ")", 1);
        t->last = (int)p->kind;
    }
}

static struct tr_parts parts;

/* The parts of a text that is cut behind each character for which `cut` says so. */
static struct told take(enum tr_tool_format tools, enum tr_reasoning_format reasoning, bool open,
                        const char *text, uint64_t *seed, uint32_t every)
{
    struct told t = {.last = -1};
    struct tr_split s;
    size_t from = 0, len = strlen(text);

    tr_split_init(&s, tools, reasoning, open);
    for (size_t i = 1; i <= len; i++) {
        bool whole = (text[i] & 0xc0) != 0x80;
        if (i < len && (!whole || tiny_rand(seed) % every))
            continue;
        tr_split_push(&s, text + from, i - from, &parts);
        tell_parts(&t, &parts);
        from = i;
    }
    tr_split_flush(&s, &parts);
    tell_parts(&t, &parts);
    cr_assert_not(tr_split_holds(&s));
    if (t.last == TR_PART_REASONING)
        tell(&t, "~", 1);
    return t;
}

static void expect(enum tr_tool_format tools, enum tr_reasoning_format reasoning, bool open,
                   const char *text, const char *want)
{
    uint64_t seed = 7;

    for (uint32_t i = 0; i < 40; i++) {
        uint32_t every = i == 0 ? 1u << 30 : i == 1 ? 1 : 2 + i % 9;
        struct told t = take(tools, reasoning, open, text, &seed, every);
        cr_assert_str_eq(t.text, want, "\"%s\" cut %u: \"%s\"", text, every, t.text);
    }
}

#define NONE TR_REASONING_NONE, false
#define CALLS_BEGIN "<\uff5ctool\u2581calls\u2581begin\uff5c>"
#define CALLS_END "<\uff5ctool\u2581calls\u2581end\uff5c>"
#define CALL_BEGIN "<\uff5ctool\u2581call\u2581begin\uff5c>"
#define CALL_END "<\uff5ctool\u2581call\u2581end\uff5c>"
#define SEP "<\uff5ctool\u2581sep\uff5c>"

Test(split, a_call_of_each_format_is_found)
{
    expect(TR_TOOLS_HERMES, NONE,
           "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
           "@f({\"a\": 1})");
    expect(TR_TOOLS_LLAMA3, NONE, "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}",
           "@f({\"a\": \"b\"})");
    expect(TR_TOOLS_LLAMA3, NONE,
           "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "@f({})");
    expect(TR_TOOLS_MISTRAL, NONE, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": [1]}}]",
           "@f({\"a\": [1]})");
    expect(TR_TOOLS_MISTRAL11, NONE, "[TOOL_CALLS]f[ARGS]{\"a\": 1}", "@f({\"a\": 1})");
    expect(TR_TOOLS_MISTRAL11, NONE, "[TOOL_CALLS]f[CALL_ID]abc[ARGS]{\"a\": 1}", "@f({\"a\": 1})");
    expect(TR_TOOLS_DEEPSEEK, NONE,
           CALLS_BEGIN CALL_BEGIN "function" SEP "f\n```json\n{\"a\": 1}\n```" CALL_END CALLS_END,
           "@f({\"a\": 1})");
    expect(TR_TOOLS_DEEPSEEK31, NONE,
           CALLS_BEGIN CALL_BEGIN "f" SEP "{\"a\": 1}" CALL_END CALLS_END, "@f({\"a\": 1})");
    expect(TR_TOOLS_GEMMA, NONE, "```tool_code\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}\n```",
           "@f({\"a\": 1})");
    expect(TR_TOOLS_JSON, NONE, "{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "@f({\"a\": 1})");
}

Test(split, several_calls_are_counted)
{
    expect(TR_TOOLS_HERMES, NONE,
           "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n"
           "{\"name\": \"g\", \"arguments\": {\"b\": {}}}\n</tool_call>",
           "@f({})@g({\"b\": {}})");
    expect(TR_TOOLS_HERMES, NONE,
           "<tool_call>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": "
           "{}}]</tool_call>",
           "@f({})@g({})");
    expect(TR_TOOLS_LLAMA3, NONE,
           "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
           "@f({})@g({})");
    expect(TR_TOOLS_LLAMA3, NONE,
           "{\"name\": \"f\", \"parameters\": {}}\n{\"name\": \"g\", \"parameters\": {}}",
           "@f({})@g({})");
    expect(TR_TOOLS_MISTRAL, NONE,
           "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}, \"id\": \"x}\"}, {\"name\": \"g\", "
           "\"arguments\": {}}]",
           "@f({})@g({})");
    expect(TR_TOOLS_MISTRAL11, NONE, "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g{}", "@f({})@g({})");
    expect(TR_TOOLS_DEEPSEEK, NONE,
           CALLS_BEGIN CALL_BEGIN "function" SEP "f\n```json\n{}\n```" CALL_END "\n" CALL_BEGIN
                                  "function" SEP "g\n```json\n{}\n```" CALL_END CALLS_END,
           "@f({})@g({})");
    expect(TR_TOOLS_DEEPSEEK31, NONE,
           CALLS_BEGIN CALL_BEGIN "f" SEP "{}" CALL_END CALL_BEGIN "g" SEP "{}" CALL_END CALLS_END,
           "@f({})@g({})");
    expect(
        TR_TOOLS_GEMMA, NONE,
        "```tool_code\n[{\"name\": \"f\", \"parameters\": {}}, {\"name\": \"g\", \"parameters\": "
        "{}}]\n```",
        "@f({})@g({})");
    expect(TR_TOOLS_JSON, NONE,
           "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]",
           "@f({})@g({})");
}

Test(split, text_before_between_and_behind_is_kept)
{
    expect(TR_TOOLS_HERMES, NONE,
           "I look. <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\nand "
           "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call> done <3",
           "I look. @f({})\nand @g({}) done <3");
    expect(TR_TOOLS_DEEPSEEK, NONE,
           "So: " CALLS_BEGIN CALL_BEGIN "function" SEP "f\n```json\n{}\n```" CALL_END CALLS_END
           "\nThat was it <\uff5c",
           "So: @f({})\nThat was it <\uff5c");
    expect(TR_TOOLS_LLAMA3, NONE, "{\"name\": \"f\", \"parameters\": {}}\n\nDone.",
           "@f({})\n\nDone.");
    expect(TR_TOOLS_MISTRAL, NONE, "a[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}], b]",
           "a@f({}), b]");
}

Test(split, arguments_may_hold_anything)
{
    expect(TR_TOOLS_HERMES, NONE,
           "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"}</tool_call>\\\"{\", \"b\": "
           "[{\"c\": \"\\\\\"}]}}</tool_call>",
           "@f({\"a\": \"}</tool_call>\\\"{\", \"b\": [{\"c\": \"\\\\\"}]})");
}

Test(split, a_call_without_arguments_has_none)
{
    expect(TR_TOOLS_HERMES, NONE, "<tool_call>{\"name\": \"now\"}</tool_call>", "@now({})");
    expect(TR_TOOLS_LLAMA3, NONE, "<|python_tag|>{\"name\": \"now\"}", "@now({})");
}

Test(split, data_with_a_name_is_no_call)
{
    static const char DATA[] = "{\"name\": \"Ada\", \"city\": \"Rome\"}";
    char list[128], fenced[128];

    snprintf(list, sizeof(list), "[%s, %s]", DATA, DATA);
    snprintf(fenced, sizeof(fenced), "```json\n%s\n```", DATA);
    expect(TR_TOOLS_LLAMA3, NONE, DATA, DATA);
    expect(TR_TOOLS_JSON, NONE, DATA, DATA);
    expect(TR_TOOLS_JSON, NONE, list, list);
    expect(TR_TOOLS_GEMMA, NONE, fenced, fenced);
}

Test(split, what_is_no_call_is_text)
{
    static const char *TEXT[] = {"",
                                 " ",
                                 "\n\n",
                                 "{",
                                 "{\"a\": 1}",
                                 "[1, 2]",
                                 " {\"name\": 1}",
                                 "{\"name\": \"a\\u0062\", \"arguments\": {}}",
                                 "{\"arguments\": {\"a\": 1}, \"name\": \"f\"}",
                                 "{\"name\": \"f\", \"arguments\": \"x\"}",
                                 "if (a) { b }",
                                 "```c\nint x;\n```",
                                 "a < b, [TOOL, <tool_ca"};

    for (size_t i = 0; i < sizeof(TEXT) / sizeof(*TEXT); i++)
        for (int f = 0; f < TR_TOOL_FORMATS; f++)
            expect((enum tr_tool_format)f, TR_REASONING_THINK, false, TEXT[i], TEXT[i]);
    expect(TR_TOOLS_HERMES, NONE, "<tool_call>oh</tool_call>", "<tool_call>oh</tool_call>");
    expect(TR_TOOLS_HERMES, NONE, "<tool_call><tool_call>{\"name\": \"f\", \"arguments\": {}}",
           "<tool_call>@f({})");
    expect(TR_TOOLS_HERMES, NONE, "<tool_call>{\"name\": \"\", \"arguments\": {}}",
           "<tool_call>{\"name\": \"\", \"arguments\": {}}");
    expect(TR_TOOLS_HERMES, NONE, "x {\"name\": \"f\", \"arguments\": {}}",
           "x {\"name\": \"f\", \"arguments\": {}}");
}

Test(split, an_answer_that_is_cut_shows_as_much_of_a_call_as_there_is)
{
    expect(TR_TOOLS_HERMES, NONE, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b",
           "@f({\"a\": \"b");
    expect(TR_TOOLS_HERMES, NONE, "Yes. <tool_call>\n{\"name\": \"f\", \"argum", "Yes. ");
    expect(TR_TOOLS_HERMES, NONE, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool",
           "@f({})");
    expect(TR_TOOLS_LLAMA3, NONE, "{\"name\": \"f\", \"par", "{\"name\": \"f\", \"par");
    expect(TR_TOOLS_JSON, NONE, "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"f", "@f({})");
}

Test(split, reasoning_is_told_apart)
{
    expect(TR_TOOLS_NONE, TR_REASONING_THINK, false,
           "<think>\nI wonder.\n\nYes.\n</think>\n\nHello", "~I wonder.\n\nYes.~Hello");
    expect(TR_TOOLS_NONE, TR_REASONING_THINK, true, "I wonder.\n</think>\n\nHello <think",
           "~I wonder.~Hello <think");
    expect(TR_TOOLS_NONE, TR_REASONING_THINK, false, "<think>\n\n</think>\n\nHello", "Hello");
    expect(TR_TOOLS_NONE, TR_REASONING_MISTRAL, false, "[THINK]a </think> b[/THINK]c",
           "~a </think> b~c");
    expect(TR_TOOLS_NONE, TR_REASONING_THINK, true, "cut </thi", "~cut </thi~");
    expect(TR_TOOLS_HERMES, TR_REASONING_THINK, true,
           "a <tool_call></think>\n\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
           "~a <tool_call>~@f({})");
    expect(TR_TOOLS_LLAMA3, TR_REASONING_THINK, false,
           "<think>hm</think>\n{\"name\": \"f\", \"parameters\": {}}", "~hm~@f({})");
}

Test(split, an_answer_may_speak_of_how_reasoning_is_written)
{
    static const char ABOUT[] = "Models write <think> and </think> around it.",
                      JSON[] = "{\"tag\": \"<think>\", \"ends\": \"</think>\"}";

    for (int f = 0; f < TR_TOOL_FORMATS; f++) {
        expect((enum tr_tool_format)f, TR_REASONING_THINK, false, ABOUT, ABOUT);
        expect((enum tr_tool_format)f, TR_REASONING_THINK, false, JSON, JSON);
    }
    expect(TR_TOOLS_NONE, TR_REASONING_THINK, false, " <think>a</think>\n<think>b</think>c <think>",
           "~ab~c <think>");
    expect(TR_TOOLS_HERMES, TR_REASONING_THINK, false,
           "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<think>b</think>c",
           "@f({})~b~c");
    /* Control tokens are never spoken of. */
    expect(TR_TOOLS_NONE, TR_REASONING_MISTRAL, false, "a[THINK]b[/THINK]c", "a~b~c");
}

/* Texts made of what means something, in any order: the parts do not depend on the cut, nothing that is
 * no marker is lost, and every call is complete but the last. */
Test(split, any_cut_of_any_text_gives_the_same_parts)
{
    static const char *WORDS[] = {"<tool_call>",
                                  "</tool_call>",
                                  "{",
                                  "}",
                                  "\"name\": \"f\"",
                                  ", ",
                                  "\"arguments\": {",
                                  "\"a\"",
                                  "[",
                                  "]",
                                  "<think>",
                                  "</think>",
                                  "\n",
                                  " ",
                                  "x",
                                  "[TOOL_CALLS]",
                                  "[ARGS]",
                                  CALLS_BEGIN,
                                  CALL_BEGIN,
                                  SEP,
                                  CALL_END,
                                  CALLS_END,
                                  "function",
                                  "\n```json\n",
                                  "```",
                                  "\\",
                                  "<",
                                  "{\"name\": \"g\", \"parameters\": {",
                                  "}}",
                                  "\u00e9",
                                  ";"};
    uint64_t seed = 3;
    char text[2048];

    for (int round = 0; round < 20000; round++) {
        size_t len = 0;
        for (uint32_t i = tiny_rand(&seed) % 30; i; i--) {
            const char *w = WORDS[tiny_rand(&seed) % (sizeof(WORDS) / sizeof(*WORDS))];
            memcpy(text + len, w, strlen(w));
            len += strlen(w);
        }
        text[len] = '\0';
        enum tr_tool_format f = (enum tr_tool_format)(tiny_rand(&seed) % TR_TOOL_FORMATS);
        enum tr_reasoning_format r =
            (enum tr_reasoning_format)(tiny_rand(&seed) % TR_REASONING_FORMATS);
        bool open = tiny_rand(&seed) % 2;
        struct told whole = take(f, r, open, text, &seed, 1u << 30);
        struct told cut = take(f, r, open, text, &seed, 1 + tiny_rand(&seed) % 4);
        cr_assert_str_eq(whole.text, cut.text, "\"%s\" as %s", text, tr_tool_syntax[f].name);
    }
}

Test(split, a_header_without_end_is_text_in_the_end)
{
    char text[4096];

    strcpy(text, "<tool_call>{\"name\": \"");
    memset(text + strlen(text), 'x', 3000);
    text[3021] = '\0';
    expect(TR_TOOLS_HERMES, NONE, text, text);
    memset(text + 11, ' ', 3000);
    expect(TR_TOOLS_HERMES, NONE, text, text);
    expect(TR_TOOLS_NONE, TR_REASONING_THINK, false, text + 11, text + 11);
}
