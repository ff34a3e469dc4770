/* SPDX-License-Identifier: Apache-2.0 */
#include "text/split.h"

#include <criterion/criterion.h>
#include <string.h>

static struct tr_parts parts;

static void push_all(struct tr_split *s, const char *text, char *out)
{
    *out = '\0';
    for (size_t from = 0, len = strlen(text); from < len;) {
        size_t n = 1;
        while ((text[from + n] & 0xc0) == 0x80)
            n++;
        tr_split_push(s, text + from, n, &parts);
        for (uint32_t i = 0; i < parts.n; i++) {
            strncat(out, parts.text + parts.part[i].at, parts.part[i].len);
            strcat(out, parts.part[i].kind == TR_PART_CALL_DONE ? ")" : "");
            strcat(out, parts.part[i].kind == TR_PART_CALL ? "(" : "");
        }
        from += n;
    }
}

Test(tool_format, what_is_written_is_read_again)
{
    for (int f = 1; f < TR_TOOL_FORMATS; f++) {
        const struct tr_tool_writing *w = &tr_tool_syntax[f].write;
        for (int n = 1; n < 4; n++) {
            char text[2048], got[2048], want[2048] = "";
            strcpy(text, n == 1 ? w->one_begin : w->begin);
            for (int i = 0; i < n; i++) {
                strcat(text, i ? w->sep : "");
                strcat(text, w->name_before);
                strcat(text, "get_weather");
                strcat(text, w->name_after);
                strcat(text, "{\"city\": \"}\"}");
                strcat(text, w->args_after);
                strcat(want, "get_weather({\"city\": \"}\"})");
            }
            strcat(text, n == 1 ? w->one_end : w->end);
            struct tr_split s;
            tr_split_init(&s, (enum tr_tool_format)f, TR_REASONING_NONE, false);
            push_all(&s, text, got);
            cr_assert_str_eq(got, want, "%s: \"%s\"", tr_tool_syntax[f].name, text);
            cr_assert_eq(s.calls, (uint32_t)n);
            tr_split_flush(&s, &parts);
            cr_assert_eq(parts.n, 0, "%s", tr_tool_syntax[f].name);
        }
    }
}

Test(tool_format, a_template_tells_its_format)
{
    static const struct {
        const char *tmpl;
        enum tr_tool_format format;
        bool known;
    } ROW[] = {
        {"{{ messages }}", TR_TOOLS_NONE, false},
        {"{% if tools %}{{ tools }}{% endif %}", TR_TOOLS_JSON, true},
        {"{% if tools %}<tool_call>{% endif %}", TR_TOOLS_HERMES, true},
        {"{% if tools %}[TOOL_CALLS]{% endif %}", TR_TOOLS_MISTRAL, true},
        {"{% if tools %}[TOOL_CALLS]{{ name }}[ARGS]{% endif %}", TR_TOOLS_MISTRAL11, true},
        {"{% if tools %}Environment: ipython {\"parameters\": x}{% endif %}", TR_TOOLS_LLAMA3,
         true},
        {"{% if tools %}<\uff5ctool\u2581calls\u2581begin\uff5c>{% endif %}", TR_TOOLS_DEEPSEEK31,
         true},
        {"{% if tools %}<\uff5ctool\u2581calls\u2581begin\uff5c>```json{% endif %}",
         TR_TOOLS_DEEPSEEK, true},
        {"<start_of_turn>", TR_TOOLS_GEMMA, false},
    };

    for (size_t i = 0; i < sizeof(ROW) / sizeof(*ROW); i++) {
        bool known;
        cr_assert_eq(tr_tool_format_of(ROW[i].tmpl, strlen(ROW[i].tmpl), &known), ROW[i].format,
                     "%s", ROW[i].tmpl);
        cr_assert_eq(known, ROW[i].known, "%s", ROW[i].tmpl);
    }
    cr_assert_eq(tr_reasoning_format_of("a</think>", 9), TR_REASONING_THINK);
    cr_assert_eq(tr_reasoning_format_of("[/THINK]", 8), TR_REASONING_MISTRAL);
    cr_assert_eq(tr_reasoning_format_of("<think>", 7), TR_REASONING_NONE);
}

Test(tool_format, a_prompt_may_end_inside_reasoning)
{
    cr_assert(tr_reasoning_is_open(TR_REASONING_THINK, "a<think>\n", 9, 0));
    cr_assert(tr_reasoning_is_open(TR_REASONING_THINK, "<think>", 7, 0));
    cr_assert_not(tr_reasoning_is_open(TR_REASONING_THINK, "<think> x", 9, 0));
    cr_assert_not(tr_reasoning_is_open(TR_REASONING_THINK, "", 0, 0));
    cr_assert_not(tr_reasoning_is_open(TR_REASONING_NONE, "<think>", 7, 0));
}

Test(tool_format, the_beginning_of_an_answer_may_end_inside_reasoning)
{
    static const char IN[] = "say <think>\nOkay so", OUT[] = "<think>a</think>so",
                      AGAIN[] = "<think>a</think>\n<think>so";
    size_t n = sizeof(IN) - 1;

    cr_assert(tr_reasoning_is_open(TR_REASONING_THINK, IN, n, n));
    cr_assert(tr_reasoning_is_open(TR_REASONING_THINK, IN, n, n + 5));
    cr_assert_not(tr_reasoning_is_open(TR_REASONING_THINK, IN, n, 7), "said by others");
    cr_assert_not(tr_reasoning_is_open(TR_REASONING_THINK, OUT, sizeof(OUT) - 1, 99));
    cr_assert(tr_reasoning_is_open(TR_REASONING_THINK, AGAIN, sizeof(AGAIN) - 1, 99));
    cr_assert_not(tr_reasoning_is_open(TR_REASONING_NONE, IN, n, n));
}

Test(tool_format, names_are_those_of_the_options)
{
    cr_assert_eq(tr_tool_format_named("hermes"), TR_TOOLS_HERMES);
    cr_assert_eq(tr_tool_format_named("none"), TR_TOOLS_NONE);
    cr_assert_eq(tr_tool_format_named("auto"), -1);
    cr_assert_eq(tr_reasoning_format_named("think"), TR_REASONING_THINK);
    cr_assert_eq(tr_reasoning_format_named(""), -1);
}
