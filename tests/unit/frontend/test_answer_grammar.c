/* SPDX-License-Identifier: Apache-2.0 */
/* What an answer may be, for each way of writing calls: told by the program that a request brings. */
#include "testfe/frontend_rig.h"

#include "frontend/ask.h"
#include "frontend/params.h"
#include "grammar/match.h"

#include <criterion/criterion.h>

#include <string.h>

#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"     \
    "\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],"               \
    "\"additionalProperties\":false}}},{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]"
#define NAMED ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"
#define REQUIRED ",\"tool_choice\":\"required\""

static struct tr_rig rig;
static struct tr_ask *ask;
static struct tr_gprog prog;

static void start(void)
{
    tr_rig_defaults(&rig);
    rig.n_ctx = 4096;
    tr_rig_start(&rig, 4, false);
}

static void drop(void)
{
    tr_ask_close(ask);
    ask = NULL;
}

static void stop(void)
{
    drop();
    tr_rig_stop(&rig);
}

TestSuite(answer_grammar, .init = start, .fini = stop);

/* 0 with the program, or -EINVAL with *f. */
static int make(enum tr_tool_format format, const char *fields, struct tr_fault *f)
{
    static const char head[] =
        "{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],";
    char *body = malloc(1 << 16);

    drop();
    snprintf(body, 1 << 16, "%s%s}", head, fields);
    rig.fe.tool_format = format;
    ask = tr_ask_new(&rig.fe, body, strlen(body));
    cr_assert(ask && tr_ask_parse(ask, f) == 0);
    if (tr_params_read(ask, TR_API_CHAT, f) || tr_ask_encode(ask, f))
        return -1;
    struct tr_errbuf err;
    cr_assert(ask->extra->grammar);
    cr_assert(tr_gprog_open(&prog, ask->extra->grammar, ask->extra->grammar_len,
                            rig.shm.config.n_vocab, &err) == 0,
              "%s", err.msg);
    return 0;
}

static void must(enum tr_tool_format format, const char *fields)
{
    struct tr_fault f = {.param = ""};

    cr_assert(make(format, fields, &f) == 0, "%s: %s", f.param, f.message);
}

static bool takes(const char *text)
{
    struct tr_gmatch m;

    tr_gmatch_start(&m, &prog);
    return tr_gmatch_bytes(&m, &prog, text, strlen(text)) && tr_gmatch_may_end(&m, &prog);
}

/* A call as this format writes it; the first of several, the next, the end. */
static const char *written(enum tr_tool_format format, const char *name, const char *args)
{
    static char out[1024];
    const struct tr_tool_writing *w = &tr_tool_syntax[format].write;

    snprintf(out, sizeof(out), "%s%s%s%s%s%s%s", w->one_begin, w->name_before, name, w->name_after,
             args, w->args_after, w->one_end);
    return out;
}

static const char *two(enum tr_tool_format format)
{
    static char out[1024];
    const struct tr_tool_writing *w = &tr_tool_syntax[format].write;

    snprintf(out, sizeof(out), "%s%sf%s{\"a\": 1}%s%s%sg%s{\"b\": []}%s%s", w->begin,
             w->name_before, w->name_after, w->args_after, w->sep, w->name_before, w->name_after,
             w->args_after, w->end);
    return out;
}

Test(answer_grammar, a_named_function_is_called_with_arguments_that_obey_its_schema)
{
    for (enum tr_tool_format k = TR_TOOLS_NONE + 1; k < TR_TOOL_FORMATS; k++) {
        must(k, TOOLS NAMED);
        cr_expect(takes(written(k, "f", "{\"a\": 1}")), "%s", tr_tool_syntax[k].name);
        cr_expect(!takes(written(k, "f", "{\"a\": \"1\"}")));
        cr_expect(!takes(written(k, "f", "{}")));
        cr_expect(!takes(written(k, "g", "{}")), "another function");
        cr_expect(!takes(""));
        cr_expect(!takes("text"));
        cr_expect(!takes(two(k)), "one call");
    }
}

Test(answer_grammar, required_is_one_call_or_more)
{
    for (enum tr_tool_format k = TR_TOOLS_NONE + 1; k < TR_TOOL_FORMATS; k++) {
        must(k, TOOLS REQUIRED);
        cr_expect(takes(written(k, "f", "{\"a\": 1}")), "%s", tr_tool_syntax[k].name);
        cr_expect(takes(written(k, "g", "{\"x\": [1, {}]}")));
        cr_expect(takes(two(k)), "%s: %s", tr_tool_syntax[k].name, two(k));
        cr_expect(!takes("text"));
        must(k, TOOLS REQUIRED ",\"parallel_tool_calls\":false");
        cr_expect(takes(written(k, "g", "{}")));
        cr_expect(!takes(two(k)));
    }
}

Test(answer_grammar, auto_is_text_until_a_call_is_opened)
{
    for (enum tr_tool_format k = TR_TOOLS_NONE + 1; k < TR_TOOL_FORMATS; k++) {
        char text[1024];
        must(k, TOOLS);
        cr_expect(takes("") && takes("any text { \"a\": 1 }"), "%s", tr_tool_syntax[k].name);
        cr_expect(takes(written(k, "f", "{\"a\": 1}")), "%s", tr_tool_syntax[k].name);
        cr_expect(takes(two(k)));
        cr_expect(!takes(written(k, "f", "{\"a\": 1.5}")));
        cr_expect(!takes(written(k, "h", "{}")), "%s: no such function", tr_tool_syntax[k].name);
        snprintf(text, sizeof(text), "first %s then", written(k, "g", "{}"));
        cr_expect(takes(text), "%s: %s", tr_tool_syntax[k].name, text);
    }
}

Test(answer_grammar, what_is_thought_comes_first)
{
    rig.fe.reasoning_format = TR_REASONING_THINK;
    must(TR_TOOLS_HERMES, TOOLS NAMED);
    cr_expect(takes("<think>\n<tool_call> no\n</think>\n\n"
                    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"));
    cr_expect(takes(written(TR_TOOLS_HERMES, "f", "{\"a\": 1}")), "or not at all");
    cr_expect(!takes("<think>\nno call\n</think>\n\n"));
    must(TR_TOOLS_HERMES, "\"guided_choice\":[\"yes\"]");
    cr_expect(takes(" \r\n\t<think>hm</think> \r\n\tyes"));
    cr_expect(!takes("\v<think>hm</think>yes"), "for the splitter it is text by then");
    cr_expect(!takes("<think>hm</think>\fyes"), "and this would be shown");
}

Test(answer_grammar, a_wish_beside_tools_is_the_alternative)
{
    must(TR_TOOLS_HERMES, TOOLS ",\"guided_choice\":[\"yes\",\"no\"]");
    cr_expect(takes("yes") && takes("no") && !takes("maybe") && !takes(""));
    cr_expect(takes(written(TR_TOOLS_HERMES, "g", "{}")));
    must(TR_TOOLS_HERMES, TOOLS REQUIRED ",\"guided_choice\":[\"yes\",\"no\"]");
    cr_expect(!takes("yes"));
    rig.fe.reasoning_format = TR_REASONING_THINK;
    must(TR_TOOLS_HERMES, "\"guided_choice\":[\"yes\",\"no\"]");
    cr_expect(takes("yes") && takes("<think>hm</think>no"));
}

#define ONE(schema, more)                                                                          \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":" schema more   \
    "}}]" NAMED

Test(answer_grammar, a_schema_that_cannot_be_obeyed_is_refused_if_it_is_strict)
{
    struct tr_fault f = {.param = ""};

    must(TR_TOOLS_HERMES, ONE("{\"type\":\"object\",\"not\":{\"required\":[\"a\"]}}", ""));
    cr_expect(takes(written(TR_TOOLS_HERMES, "f", "{\"a\": null}")), "any object then");
    cr_expect(make(TR_TOOLS_HERMES,
                   ONE("{\"type\":\"object\",\"not\":{\"required\":[\"a\"]}}", ",\"strict\":true"),
                   &f));
    cr_expect(strncmp(f.param, "tools[0].function.parameters", 28) == 0, "%s: %s", f.param,
              f.message);
    cr_expect(make(TR_TOOLS_HERMES, ONE("{\"type\":\"string\"}", ""), &f));
    cr_expect_str_eq(f.param, "tools[0].function.parameters.type");
}
