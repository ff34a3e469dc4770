/* SPDX-License-Identifier: Apache-2.0 */
/* What a body of Messages becomes, and which place of it a refusal names. */
#include "frontend/api_anthropic.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAY "{\"role\":\"user\",\"content\":\"Hi\"}"
#define HEAD "\"model\":\"m\",\"max_tokens\":4"
#define ASK HEAD ",\"messages\":[" SAY "]"

/* The chat body, or NULL with *f. */
static const char *chat_of(const char *text, bool counting, struct tr_fault *f)
{
    static char out[1 << 16];
    struct tr_json_fault jf;
    struct tr_json_doc *doc = tr_json_parse(text, strlen(text), &jf);
    struct tr_emit e;

    cr_assert(doc, "%s: %s", text, jf.why);
    *f = (struct tr_fault){0};
    tr_emit_init(&e);
    int rc = tr_anthropic_body(doc, tr_json_root(doc), counting, &e, f);
    cr_assert(!e.failed && e.len < sizeof(out));
    snprintf(out, sizeof(out), "%.*s", (int)e.len, e.buf ? e.buf : "");
    tr_emit_fini(&e);
    tr_json_free(doc);
    return rc ? NULL : out;
}

static void becomes(const char *body, const char *want)
{
    struct tr_fault f;
    const char *got = chat_of(body, false, &f);

    cr_expect(got && strcmp(got, want) == 0, "%s: %s (%s: %s), not %s", body, got ? got : "refused",
              f.param, f.message, want);
}

/* The messages of a body that has these, and nothing else that is remarkable. */
static void messages_become(const char *messages, const char *want)
{
    char body[4096], chat[4096];

    snprintf(body, sizeof(body), "{" HEAD ",\"messages\":[%s]}", messages);
    snprintf(chat, sizeof(chat), "{" HEAD ",\"messages\":[%s]}", want);
    becomes(body, chat);
}

static void is_refused(const char *body, const char *param, enum tr_err err)
{
    struct tr_fault f;
    const char *got = chat_of(body, false, &f);

    cr_expect(!got, "%s is let pass", body);
    cr_expect(strcmp(f.param, param) == 0 && f.err == err && f.message[0], "%s: %d %s %s, not %s",
              body, f.err, f.param, f.message, param);
}

Test(anthropic_body, fields_of_both_keep_their_name_and_value)
{
    becomes("{" ASK "}", "{" HEAD ",\"messages\":[" SAY "]}");
    becomes("{\"unknown\":[1],\"seed\":18446744073709551615,\"top_p\":0.50,\"stream\":true," ASK
            "}",
            "{\"seed\":18446744073709551615,\"top_p\":0.50,\"stream\":true," HEAD
            ",\"messages\":[" SAY "]}");
    becomes("{" ASK ",\"metadata\":{\"user_id\":\"u\"},\"top_k\":null,\"service_tier\":\"auto\"}",
            "{" HEAD ",\"metadata\":{\"user_id\":\"u\"},\"messages\":[" SAY "]}");
}

Test(anthropic_body, fields_of_chat_alone_are_unknown)
{
    becomes("{" ASK ",\"n\":7,\"stop\":5,\"logprobs\":true,\"max_completion_tokens\":1,"
            "\"response_format\":1,\"prompt\":\"x\"}",
            "{" HEAD ",\"messages\":[" SAY "]}");
}

Test(anthropic_body, the_system_prompt_is_the_first_message)
{
    becomes("{" ASK ",\"system\":\"Be brief.\"}",
            "{" HEAD ",\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"}," SAY "]}");
    becomes("{" ASK ",\"system\":[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{\"type\":"
            "\"ephemeral\"}},{\"type\":\"text\",\"text\":\"b\"}]}",
            "{" HEAD ",\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":"
            "\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}," SAY "]}");
    becomes("{" ASK ",\"system\":[]}", "{" HEAD ",\"messages\":[" SAY "]}");
    becomes("{" ASK ",\"system\":\"\"}", "{" HEAD ",\"messages\":[" SAY "]}");
}

Test(anthropic_body, content_is_a_string_or_blocks_of_text)
{
    messages_become(SAY ",{\"role\":\"assistant\",\"content\":\"Ho\"}," SAY,
                    SAY ",{\"role\":\"assistant\",\"content\":\"Ho\"}," SAY);
    messages_become("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\\u0000\\n\"},"
                    "{\"text\":\"b\",\"type\":\"text\",\"citations\":null}]}",
                    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\\u0000\\n\"},"
                    "{\"type\":\"text\",\"text\":\"b\"}]}");
    messages_become("{\"role\":\"user\",\"content\":[]}", "{\"role\":\"user\",\"content\":[]}");
    messages_become("{\"role\":\"system\",\"content\":\"x\"}," SAY,
                    "{\"role\":\"system\",\"content\":\"x\"}," SAY);
}

Test(anthropic_body, tools_of_the_history_are_chat_s_tool_messages)
{
    messages_become(
        SAY
        ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"Hm\","
        "\"signature\":\"s\"},{\"type\":\"redacted_thinking\",\"data\":\"x\"},{\"type\":"
        "\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":{\"a\":[1,{\"b\":null}]}},{\"type\":"
        "\"text\",\"text\":\"So\"}]},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
        "\"1\"},{\"type\":\"tool_result\",\"tool_use_id\":\"t1\",\"content\":\"42\"},{\"type\":"
        "\"tool_result\",\"tool_use_id\":\"t2\",\"is_error\":true},{\"type\":\"text\",\"text\":"
        "\"2\"},{\"type\":\"text\",\"text\":\"3\"},{\"type\":\"tool_result\",\"tool_use_id\":"
        "\"t3\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}]}",
        SAY ",{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"So\"}],"
            "\"reasoning_content\":\"Hm\",\"tool_calls\":[{\"id\":\"t1\",\"type\":\"function\","
            "\"function\":{\"name\":\"f\",\"arguments\":{\"a\":[1,{\"b\":null}]}}}]},"
            "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"1\"}]},"
            "{\"role\":\"tool\",\"tool_call_id\":\"t1\",\"content\":\"42\"},"
            "{\"role\":\"tool\",\"tool_call_id\":\"t2\",\"content\":\"\"},"
            "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"2\"},{\"type\":\"text\","
            "\"text\":\"3\"}]},"
            "{\"role\":\"tool\",\"tool_call_id\":\"t3\",\"content\":[{\"type\":\"text\",\"text\":"
            "\"x\"}]}");
}

Test(anthropic_body, tools_and_their_choice)
{
    becomes(
        "{" ASK ",\"tools\":[{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":"
        "\"object\"}},{\"type\":\"custom\",\"name\":\"g\",\"input_schema\":{}}],\"tool_choice\":"
        "{\"type\":\"any\",\"disable_parallel_tool_use\":true}}",
        "{" HEAD ",\"messages\":[" SAY "],\"tools\":[{\"type\":\"function\",\"function\":{"
        "\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\":\"object\"}}},{\"type\":"
        "\"function\",\"function\":{\"name\":\"g\",\"parameters\":{}}}],"
        "\"parallel_tool_calls\":false,\"tool_choice\":\"required\"}");
    becomes("{" ASK ",\"tool_choice\":{\"type\":\"none\"}}",
            "{" HEAD ",\"messages\":[" SAY "],\"tool_choice\":\"none\"}");
    becomes("{" ASK ",\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"}}",
            "{" HEAD ",\"messages\":[" SAY "],\"tool_choice\":{\"type\":\"function\",\"function\":{"
            "\"name\":\"f\"}}}");
}

Test(anthropic_body, stop_sequences_formats_and_thinking)
{
    becomes("{" ASK ",\"stop_sequences\":[\"a\",\"\\n\"]}",
            "{" HEAD ",\"messages\":[" SAY "],\"stop\":[\"a\",\"\\n\"]}");
    becomes("{" ASK ",\"output_config\":{\"effort\":\"low\"}}",
            "{" HEAD ",\"messages\":[" SAY "],\"reasoning_effort\":\"low\"}");
    becomes("{" ASK
            ",\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"x\":1}}}}",
            "{" HEAD ",\"messages\":[" SAY "],\"response_format\":{\"type\":\"json_schema\","
            "\"schema\":{\"x\":1}}}");
    becomes("{" ASK ",\"thinking\":{\"type\":\"adaptive\"}}", "{" HEAD ",\"messages\":[" SAY "]}");
    becomes("{" ASK ",\"thinking\":{\"type\":\"disabled\"}}",
            "{" HEAD ",\"messages\":[" SAY
            "],\"chat_template_kwargs\":{\"enable_thinking\":false}}");
    becomes("{\"chat_template_kwargs\":{\"a\":1}," ASK ",\"thinking\":{\"type\":\"disabled\"}}",
            "{" HEAD ",\"messages\":[" SAY
            "],\"chat_template_kwargs\":{\"a\":1,\"enable_thinking\":false}}");
    becomes("{\"chat_template_kwargs\":{\"enable_thinking\":true}," ASK
            ",\"thinking\":{\"type\":\"disabled\"}}",
            "{" HEAD ",\"messages\":[" SAY
            "],\"chat_template_kwargs\":{\"enable_thinking\":true}}");
    becomes("{\"chat_template_kwargs\":{\"a\":1}," ASK "}",
            "{" HEAD ",\"messages\":[" SAY "],\"chat_template_kwargs\":{\"a\":1}}");
    becomes("{" ASK ",\"mcp_servers\":[],\"container\":null}", "{" HEAD ",\"messages\":[" SAY "]}");
}

Test(anthropic_body, a_refusal_names_the_place_in_the_client_s_body)
{
    static const struct {
        const char *body, *param;
        enum tr_err err;
    } rows[] = {
        {"{}", "messages", TR_ERR_BAD_PARAM},
        {"{\"model\":\"m\",\"messages\":[" SAY "]}", "max_tokens", TR_ERR_BAD_PARAM},
        {"{" HEAD ",\"messages\":{}}", "messages", TR_ERR_BAD_PARAM},
        {"{" HEAD ",\"messages\":[]}", "messages", TR_ERR_BAD_PARAM},
        {"{" HEAD ",\"messages\":[\"Hi\"]}", "messages[0]", TR_ERR_BAD_PARAM},
        {"{" HEAD ",\"messages\":[{}]}", "messages[0]", TR_ERR_BAD_PARAM},
        {"{" HEAD ",\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}", "messages[0].role",
         TR_ERR_BAD_PARAM},
        {"{" HEAD ",\"system\":\"s\",\"messages\":[" SAY ",{\"role\":\"user\"}]}", "messages[1]",
         TR_ERR_BAD_PARAM},
        {"{" HEAD ",\"system\":\"s\",\"messages\":[{\"role\":\"user\",\"content\":5}]}",
         "messages[0].content", TR_ERR_BAD_PARAM},
        {"{" HEAD ",\"messages\":[{\"role\":\"user\",\"content\":[5]}]}", "messages[0].content[0]",
         TR_ERR_BAD_PARAM},
        {"{" HEAD
         ",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":5}]}]}",
         "messages[0].content[0].text", TR_ERR_BAD_PARAM},
        {"{" HEAD ",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]}",
         "messages[0].content[0].type", TR_ERR_UNSUPPORTED_PARAM},
        {"{" HEAD ",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
         "\"tool_use_id\":\"t\",\"content\":[{\"type\":\"image\"}]}]}]}",
         "messages[0].content[0].content[0].type", TR_ERR_UNSUPPORTED_PARAM},
        {"{" HEAD ",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\"}]}]}",
         "messages[0].content[0]", TR_ERR_BAD_PARAM},
        {"{" HEAD ",\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\","
         "\"id\":\"t\",\"name\":\"f\",\"input\":\"{}\"}]}," SAY "]}",
         "messages[0].content[0].input", TR_ERR_BAD_PARAM},
        {"{" HEAD
         ",\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_result\"}]}," SAY
         "]}",
         "messages[0].content[0].type", TR_ERR_UNSUPPORTED_PARAM},
        {"{" HEAD ",\"messages\":[" SAY ",{\"role\":\"assistant\",\"content\":\"The\"}]}",
         "messages[1].role", TR_ERR_UNSUPPORTED_PARAM},
        {"{" ASK ",\"system\":5}", "system", TR_ERR_BAD_PARAM},
        {"{" ASK ",\"system\":[\"x\"]}", "system[0]", TR_ERR_BAD_PARAM},
        {"{" ASK ",\"stop_sequences\":\"x\"}", "stop_sequences", TR_ERR_BAD_PARAM},
        {"{" ASK ",\"stop_sequences\":[\"x\",5]}", "stop_sequences[1]", TR_ERR_BAD_PARAM},
        {"{" ASK ",\"tools\":{}}", "tools", TR_ERR_BAD_PARAM},
        {"{" ASK ",\"tools\":[5]}", "tools[0]", TR_ERR_BAD_PARAM},
        {"{" ASK ",\"tools\":[{\"name\":\"f\"}]}", "tools[0]", TR_ERR_BAD_PARAM},
        {"{" ASK ",\"tools\":[{\"type\":\"bash_20250124\",\"name\":\"bash\"}]}", "tools[0].type",
         TR_ERR_UNSUPPORTED_PARAM},
        {"{" ASK ",\"tool_choice\":\"auto\"}", "tool_choice", TR_ERR_BAD_PARAM},
        {"{" ASK ",\"tool_choice\":{\"type\":\"all\"}}", "tool_choice.type", TR_ERR_BAD_PARAM},
        {"{" ASK ",\"tool_choice\":{\"type\":\"tool\"}}", "tool_choice", TR_ERR_BAD_PARAM},
        {"{" ASK ",\"thinking\":true}", "thinking", TR_ERR_BAD_PARAM},
        {"{" ASK ",\"tools\":[{\"name\":\"f\",\"input_schema\":{},\"strict\":1}]}",
         "tools[0].strict", TR_ERR_BAD_PARAM},
        {"{" ASK ",\"output_config\":{\"format\":{\"type\":\"xml\"}}}", "output_config.format.type",
         TR_ERR_BAD_PARAM},
        {"{" ASK ",\"mcp_servers\":[{}]}", "mcp_servers", TR_ERR_UNSUPPORTED_PARAM},
        {"{" ASK ",\"container\":\"c\"}", "container", TR_ERR_UNSUPPORTED_PARAM},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        is_refused(rows[i].body, rows[i].param, rows[i].err);
}

Test(anthropic_body, counting_needs_no_limit)
{
    struct tr_fault f;
    const char *got = chat_of("{\"model\":\"m\",\"messages\":[" SAY "]}", true, &f);

    cr_expect_str_eq(got ? got : "refused", "{\"model\":\"m\",\"messages\":[" SAY "]}");
}

/* The emitter gives up beyond its own depth: what would come out as null is refused instead. */
Test(anthropic_body, what_is_too_deep_to_be_copied_is_refused)
{
    char body[4096], deep[256];
    struct tr_fault f;

    for (int n = 46; n < 60; n++) {
        memset(deep, '[', (size_t)n);
        memset(deep + n, ']', (size_t)n);
        deep[2 * n] = '\0';
        snprintf(body, sizeof(body),
                 "{" HEAD
                 ",\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\","
                 "\"id\":\"t\",\"name\":\"f\",\"input\":{\"a\":%s}}]}," SAY "]}",
                 deep);
        const char *got = chat_of(body, false, &f);
        cr_expect(got ? strstr(got, deep) != NULL
                      : strcmp(f.param, "messages[0].content[0].input") == 0,
                  "%d: %s %s", n, f.param, got);
        cr_expect_eq(got != NULL, n < 48);
    }
}

Test(anthropic_body, rows_are_sorted_since_they_are_searched_by_halves)
{
    for (size_t i = 1; i < tr_anthropic_n_fields; i++)
        cr_expect_lt(strcmp(tr_anthropic_fields[i - 1].theirs, tr_anthropic_fields[i].theirs), 0,
                     "%s", tr_anthropic_fields[i].theirs);
}
