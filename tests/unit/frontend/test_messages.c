/* SPDX-License-Identifier: Apache-2.0 */
/* What a template sees of messages: which forms they have, and that what is wrong is named. */
#include "frontend/messages.h"

#include "text/vocab.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

/* Prints everything as JSON; takes strings alone (a list would be printed, but as a list). */
#define ALL "{{ messages | tojson }}"
#define EACH "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
/* Reads parts alone. */
#define PARTS                                                                                      \
    "{% for m in messages %}[{{ m.role }}:{% for p in m.content %}{% if p.type == 'text' %}"       \
    "({{ p.text }}){% endif %}{% endfor %}]{% endfor %}"
/* Reads both. */
#define BOTH                                                                                       \
    "{% for m in messages %}[{% if m.content is string %}{{ m.content }}{% else %}"                \
    "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}]{% endfor %}"
/* Calls, with arguments as an object, as text, and only where content is none. */
#define CALLS(args)                                                                                \
    "{% for m in messages %}[{{ m.content }}{% for c in m.tool_calls %}<{{ c.function.name }} "    \
    "{{ c.function.arguments" args " }}>{% endfor %}]{% endfor %}"
#define NONE                                                                                       \
    "{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}<"                \
    "{{ c.function.name }}>{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}"

static char text[4096];
static struct tr_fault fault;

/* Renders the request `body`: the text, or NULL and `fault`. */
static const char *render(const char *tmpl, const char *body, bool continued)
{
    static struct tr_vocab *vocab;
    struct tr_json_fault jf;
    struct tr_errbuf err;
    struct tr_chat_traits traits;
    struct tr_chat_text out;

    if (!vocab)
        vocab = tr_vocab_sim();
    struct tr_chat *chat = tr_chat_open(tmpl, strlen(tmpl), &err);
    cr_assert(chat, "%s", err.msg);
    tr_chat_traits(chat, &traits);
    struct tr_json_doc *doc = tr_json_parse(body, strlen(body), &jf);
    cr_assert(doc, "%s", body);
    const struct tr_json *root = tr_json_root(doc);
    const struct tr_messages m = {.doc = doc,
                                  .messages = TR_JSON_GET(root, "messages"),
                                  .tools = TR_JSON_GET(root, "tools"),
                                  .documents = TR_JSON_GET(root, "documents"),
                                  .args = TR_JSON_GET(root, "args"),
                                  .effort = TR_JSON_GET(root, "effort"),
                                  .generation_prompt = true,
                                  .continue_final = continued};
    struct tr_jctx *ctx = tr_jctx_open(NULL);
    fault = (struct tr_fault){0};
    int rc = tr_messages_render(&m, chat, &traits, vocab, ctx, &out, &fault);
    if (!rc) {
        cr_assert(out.len < sizeof(text));
        memcpy(text, out.text, out.len);
        text[out.len] = '\0';
    }
    tr_jctx_close(ctx);
    tr_json_free(doc);
    tr_chat_close(chat);
    return rc ? NULL : text;
}

static const char *say(const char *tmpl, const char *messages)
{
    char body[2048];

    snprintf(body, sizeof(body), "{\"messages\":[%s]}", messages);
    return render(tmpl, body, false);
}

#define SAYS(tmpl, messages, want)                                                                 \
    do {                                                                                           \
        const char *got = say(tmpl, messages);                                                     \
        cr_expect(got && !strcmp(got, want), "%s: %s", messages, got ? got : fault.message);       \
    } while (0)

#define REFUSED(messages, at)                                                                      \
    do {                                                                                           \
        cr_expect_null(say(ALL, messages), "%s", messages);                                        \
        cr_expect_str_eq(fault.param, at, "%s: %s", messages, fault.param);                        \
    } while (0)

#define U(content) "{\"role\":\"user\",\"content\":" content "}"
#define TWO "[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"input_text\",\"text\":\"b\"}]"
#define CALL(args)                                                                                 \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":"            \
    "\"function\",\"function\":{\"name\":\"f\",\"arguments\":" args "}}]}"

Test(messages, parts_have_the_form_that_the_template_reads)
{
    SAYS(EACH, U(TWO), "[user:a\nb]");
    SAYS(EACH, U("\"a\""), "[user:a]");
    SAYS(PARTS, U(TWO), "[user:(a)(b)]");
    SAYS(PARTS, U("\"a\""), "[user:(a)]");
    SAYS(BOTH, U(TWO), "[ab]");
    SAYS(BOTH, U("\"a\""), "[a]");
    SAYS(EACH, U("[]"), "[user:]");
    SAYS(PARTS, "{\"role\":\"system\",\"content\":\"s\"}," U("\"a\"") ",{\"role\":\"assistant\"}",
         "[system:(s)][user:(a)][assistant:]");
}

Test(messages, arguments_of_calls_have_the_form_that_the_template_prints)
{
    SAYS(CALLS(" | tojson"), U("\"u\"") "," CALL("\"{\\\"k\\\": [1, null]}\""),
         "[u][<f {\"k\": [1, null]}>]");
    SAYS(CALLS(" | tojson"), U("\"u\"") "," CALL("{\"k\":\"v\"}"), "[u][<f {\"k\": \"v\"}>]");
    SAYS(CALLS(" | tojson"), U("\"u\"") "," CALL("\"\""), "[u][<f {}>]");
    SAYS(CALLS(""), U("\"u\"") "," CALL("\"{\\\"k\\\": 1}\""), "[u][<f {\"k\": 1}>]");
    SAYS(CALLS(""), U("\"u\"") "," CALL("{\"k\":1}"), "[u][<f {\"k\":1}>]");
    SAYS(CALLS(" + ''"), U("\"u\"") "," CALL("{\"k\":1}"), "[u][<f {\"k\":1}>]");
}

Test(messages, content_beside_calls_is_none_where_the_template_looks_for_that)
{
    SAYS(NONE, U("\"u\"") "," CALL("\"{}\""), "u<f>");
    SAYS(NONE, U("\"u\"") ",{\"role\":\"assistant\",\"content\":null}", "u");
    SAYS(CALLS(" | tojson"), U("\"u\"") "," CALL("\"{}\""), "[u][<f {}>]");
}

Test(messages, what_is_null_is_not_there_and_the_rest_is)
{
    SAYS(ALL,
         "{\"role\":\"user\",\"content\":\"a\",\"name\":\"n\",\"tool_calls\":null,\"x\":[1.5]}",
         "[{\"role\": \"user\", \"content\": \"a\", \"name\": \"n\", \"x\": [1.5]}]");
    SAYS(ALL, "{\"role\":\"developer\",\"content\":\"a\"}",
         "[{\"role\": \"system\", \"content\": \"a\"}]");
    SAYS(ALL, "{\"role\":\"assistant\",\"tool_calls\":[]}",
         "[{\"role\": \"assistant\", \"content\": \"\"}]");
    SAYS(ALL, "{\"role\":\"tool\",\"content\":\"4\",\"tool_call_id\":\"c\"}",
         "[{\"role\": \"tool\", \"content\": \"4\", \"tool_call_id\": \"c\"}]");
}

Test(messages, reasoning_goes_by_all_its_names)
{
    static const char tmpl[] = "{{ messages[0].reasoning_content }}/{{ messages[0].thinking }}";

    SAYS(tmpl, "{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"r\"}", "r/r");
    SAYS(tmpl, "{\"role\":\"assistant\",\"content\":\"a\",\"reasoning\":\"r\"}", "r/r");
    SAYS(tmpl, "{\"role\":\"assistant\",\"content\":\"a\",\"thinking\":\"r\"}", "r/r");
    SAYS(tmpl, "{\"role\":\"assistant\",\"content\":\"a\",\"thinking\":\"t\",\"reasoning\":\"r\"}",
         "t/t");
    SAYS(tmpl, "{\"role\":\"assistant\",\"content\":\"a\"}", "/");
}

Test(messages, what_is_wrong_is_named_by_its_path)
{
    REFUSED("5", "messages[0]");
    REFUSED("{}", "messages[0]");
    REFUSED("{\"role\":1,\"content\":\"\"}", "messages[0].role");
    REFUSED("{\"role\":\"user\"}", "messages[0]");
    REFUSED(U("null"), "messages[0].content");
    REFUSED(U("5"), "messages[0].content");
    REFUSED(U("[5]"), "messages[0].content[0]");
    REFUSED(U("[{\"type\":\"text\"}]"), "messages[0].content[0]");
    REFUSED(U("\"\"") "," U("[{\"type\":\"text\",\"text\":\"\"},{\"type\":\"image_url\"}]"),
            "messages[1].content[1].type");
    cr_expect_eq(fault.err, TR_ERR_UNSUPPORTED_PARAM);
    REFUSED(U("[{\"type\":\"input_audio\"}]"), "messages[0].content[0].type");
    REFUSED("{\"role\":\"user\",\"content\":\"\",\"name\":5}", "messages[0].name");
    REFUSED("{\"role\":\"tool\",\"content\":\"\",\"tool_call_id\":5}", "messages[0].tool_call_id");
    REFUSED("{\"role\":\"assistant\",\"reasoning\":{}}", "messages[0].reasoning");
    REFUSED("{\"role\":\"assistant\",\"tool_calls\":{}}", "messages[0].tool_calls");
    REFUSED("{\"role\":\"assistant\",\"tool_calls\":[1]}", "messages[0].tool_calls[0]");
    REFUSED("{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"custom\"}]}",
            "messages[0].tool_calls[0].type");
    REFUSED("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":1}]}", "messages[0].tool_calls[0].id");
    REFUSED("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":null}}]}",
            "messages[0].tool_calls[0].function.name");
    REFUSED(CALL("5"), "messages[0].tool_calls[0].function.arguments");
    REFUSED(CALL("\"[1]\""), "messages[0].tool_calls[0].function.arguments");
    REFUSED(CALL("\"{\\\"a\\\": \""), "messages[0].tool_calls[0].function.arguments");
}

Test(messages, tools_documents_and_arguments_reach_the_template)
{
    const char *got =
        render("{{ tools | tojson }} {{ documents[0].title }} {{ enable_thinking }} "
               "{{ reasoning_effort }} {{ add_generation_prompt }}",
               "{\"messages\":[" U("\"a\"") "],\"tools\":[{\"b\":1,\"a\":2}],"
                                            "\"documents\":[{\"title\":\"T\"}],\"effort\":\"low\","
                                            "\"args\":{\"enable_thinking\":false}}",
               false);
    cr_expect_str_eq(got, "[{\"b\": 1, \"a\": 2}] T False low True");
    got = render("{{ tools is none }}{{ documents is none }}{{ reasoning_effort is defined }}",
                 "{\"messages\":[" U("\"a\"") "]}", false);
    cr_expect_str_eq(got, "TrueTrueFalse");
    got = render("{{ reasoning_effort }}",
                 "{\"messages\":[" U("\"a\"") "],\"effort\":\"low\",\"args\":{"
                                              "\"reasoning_effort\":\"high\"}}",
                 false);
    cr_expect_str_eq(got, "high");
    cr_expect_null(
        render(ALL, "{\"messages\":[" U("\"a\"") "],\"args\":{\"messages\":[]}}", false));
    cr_expect_eq(fault.err, TR_ERR_BAD_PARAM);
    cr_expect_str_eq(fault.param, "args.messages");
}

#define TURNS                                                                                      \
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>\n{% endfor %}"                       \
    "{% if add_generation_prompt %}<assistant>{% endif %}"
#define TRIMMED "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</s>{% endfor %}"
#define FINAL(content)                                                                             \
    "{\"messages\":[" U("\"u\"") ",{\"role\":\"assistant\",\"content\":" content "}]}"

Test(messages, the_last_one_is_continued_where_its_text_ends)
{
    cr_expect_str_eq(render(TURNS, FINAL("\"So \""), true), "<user>u</s>\n<assistant>So ");
    cr_expect_str_eq(render(TURNS, FINAL("\"\""), true), "<user>u</s>\n<assistant>");
    cr_expect_str_eq(render(TURNS, FINAL(TWO), true), "<user>u</s>\n<assistant>a\nb");
    cr_expect_str_eq(render(PARTS, FINAL(TWO), true), "[user:(u)][assistant:(a)(b");
    cr_expect_str_eq(render(TRIMMED, FINAL("\" So \""), true), "<user>u</s><assistant>So");
    cr_expect_str_eq(render(TURNS, "{\"messages\":[" U("\"u\"") "]}", true), "<user>u");
    cr_expect_str_eq(render(TURNS, FINAL("\"" TR_CHAT_CONTINUE "x\""), true),
                     "<user>u</s>\n<assistant>" TR_CHAT_CONTINUE "x");
}

Test(messages, what_cannot_be_continued_is_refused)
{
    cr_expect_null(render(TURNS, FINAL("null"), true));
    cr_expect_str_eq(fault.param, "messages[1]");
    cr_expect_null(render(TURNS, FINAL("[]"), true));
    cr_expect_null(render("{{ messages[0].content }}", FINAL("\"a\""), true));
    cr_expect(fault.err == TR_ERR_TEMPLATE && !strcmp(fault.param, "continue_final_message"));
    cr_expect_null(render("{% for m in messages %}{{ m.content | replace('a', 'b') }}{% endfor %}",
                          FINAL("\"a\""), true));
}
