/* SPDX-License-Identifier: Apache-2.0 */
/* Answers with calls and reasoning, as clients of chat completions and native streams collect them: streamed
 * and whole, however the tokens come, and from every event on. */
#include "testfe/frontend_rig.h"

#include "base/json.h"
#include "base/sim_vocab.h"
#include "frontend/stream.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK                                                                                        \
    "{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"tools\":"          \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"
#define SECOND 1000000000ull

static const char ANSWER[] =
    "<think>\nso \"so\"\n</think>\n\nI look. <tool_call>\n{\"name\": \"get_weather\", "
    "\"arguments\": {\"city\": \"Ol\\u00e9 }\", \"n\": [1, {}]}}\n</tool_call>\n<tool_call>\n"
    "{\"name\": \"f\", \"arguments\": {}}\n</tool_call> done";

static struct tr_rig rig;

static void start_with(uint64_t coalesce_ns)
{
    tr_rig_defaults(&rig);
    rig.n_ctx = 4096;
    rig.cfg.coalesce_ns = coalesce_ns;
    rig.cfg.resume_window_ns = 30 * SECOND;
    rig.cfg.hold_slots = 8;
    tr_rig_start(&rig, 32, false);
    rig.fe.tool_format = TR_TOOLS_HERMES;
    rig.fe.reasoning_format = TR_REASONING_THINK;
}

static void start(void)
{
    start_with(0);
}

static void stop(void)
{
    tr_rig_stop(&rig);
}

TestSuite(tools, .init = start, .fini = stop);
TestSuite(tools_joined, .fini = stop); /* it chooses its own configuration */

/* ---- what a client makes of it ---- */

enum { CALLS = 4, TEXT = 1 << 14 };

struct answer {
    char text[TEXT], reasoning[TEXT];
    struct {
        char id[64], name[64], args[TEXT];
        bool done;
    } call[CALLS];
    unsigned n_calls;
    char finish[32];
    bool no_content;
    unsigned numbers; /* events with an id, which rose by one each */
};

static void add(char *to, const struct tr_json *v)
{
    if (tr_json_is(v, TR_JSON_STRING))
        strncat(to, v->u.s, v->len);
}

static const struct tr_json *get(const struct tr_json *o, const char *name)
{
    return o ? tr_json_get(o, name, strlen(name)) : NULL;
}

static unsigned number(const struct tr_json *o, const char *name)
{
    int64_t n = -1;

    cr_assert(get(o, name) && tr_json_i64(get(o, name), &n) == 0 && n >= 0, "%s", name);
    return (unsigned)n;
}

/* A call, or a piece of one, as chat has it. */
static void add_call(struct answer *a, const struct tr_json *v, bool whole)
{
    unsigned i = whole ? a->n_calls : number(v, "index");
    const struct tr_json *fn = get(v, "function");

    cr_assert(i <= a->n_calls && i < CALLS);
    if (i == a->n_calls) {
        cr_assert(get(v, "id") && TR_JSON_EQ(get(v, "type"), "function") && get(fn, "name"));
        a->n_calls++;
    } else {
        cr_assert(!get(v, "id") && !get(v, "type") && !get(fn, "name"), "once");
    }
    add(a->call[i].id, get(v, "id"));
    add(a->call[i].name, get(fn, "name"));
    add(a->call[i].args, get(fn, "arguments"));
}

/* One choice of a chunk, or of a whole answer. */
static void add_choice(struct answer *a, const struct tr_json *c)
{
    const struct tr_json *m = get(c, "delta") ? get(c, "delta") : get(c, "message");
    const struct tr_json *content = get(m, "content");

    a->no_content = content && content->type == TR_JSON_NULL;
    add(a->text, content);
    add(a->reasoning, get(m, "reasoning_content"));
    for (struct tr_json_it it = tr_json_iter(get(m, "tool_calls")); tr_json_step(&it);)
        add_call(a, it.val, get(c, "message"));
    add(a->finish, get(c, "finish_reason"));
}

static void add_native(struct answer *a, const struct tr_json *e)
{
    const struct tr_json *type = get(e, "type"), *id = get(e, "id");

    a->numbers += id != NULL;
    if (TR_JSON_EQ(type, "output_text.delta")) {
        add(a->text, get(e, "text"));
    } else if (TR_JSON_EQ(type, "reasoning.delta")) {
        add(a->reasoning, get(e, "text"));
    } else if (TR_JSON_EQ(type, "tool_call.delta")) {
        unsigned i = number(e, "call");
        cr_assert(i < CALLS);
        a->n_calls = i + 1;
        cr_assert(!get(e, "name") == !get(e, "call_id"));
        add(a->call[i].id, get(e, "call_id"));
        add(a->call[i].name, get(e, "name"));
        add(a->call[i].args, get(e, "arguments"));
    } else if (TR_JSON_EQ(type, "tool_call.done")) {
        a->call[number(e, "call")].done = true;
    } else if (!TR_JSON_EQ(type, "choice.finished")) {
        add(a->finish, get(e, "finish_reason"));
    }
}

static void add_event(struct answer *a, const char *json, size_t len)
{
    struct tr_json_fault f;
    struct tr_json_doc *doc = tr_json_parse(json, len, &f);

    cr_assert(doc, "%.*s: %s", (int)len, json, f.why);
    const struct tr_json *root = tr_json_root(doc), *c = get(root, "choices");
    if (get(root, "type"))
        add_native(a, root);
    for (struct tr_json_it it = tr_json_iter(c); tr_json_step(&it);)
        if (number(it.val, "index") == 0)
            add_choice(a, it.val);
    tr_json_free(doc);
}

static struct answer *collect(const char *body)
{
    static struct answer a;

    memset(&a, 0, sizeof(a));
    if (strncmp(body, "data: ", 6) != 0 && !strstr(body, "\n{")) {
        add_event(&a, body, strlen(body));
        return &a;
    }
    while (*body) {
        size_t len = strcspn(body, "\n");
        const char *p = body + (strncmp(body, "data: ", 6) == 0 ? 6 : 0);
        if (*p == '{')
            add_event(&a, p, (size_t)(body + len - p));
        body += len + (body[len] == '\n');
    }
    return &a;
}

static bool parses(const char *json)
{
    struct tr_json_fault f;
    struct tr_json_doc *doc = tr_json_parse(json, strlen(json), &f);

    tr_json_free(doc);
    return doc;
}

static void is_all_of_it(const struct answer *a)
{
    cr_expect_str_eq(a->reasoning, "so \"so\"");
    cr_expect_str_eq(a->text, "I look.  done");
    cr_assert(a->n_calls == 2);
    cr_expect_str_eq(a->call[0].name, "get_weather");
    cr_expect_str_eq(a->call[0].args, "{\"city\": \"Ol\\u00e9 }\", \"n\": [1, {}]}");
    cr_expect_str_eq(a->call[1].name, "f");
    cr_expect_str_eq(a->call[1].args, "{}");
    cr_expect(parses(a->call[0].args) && parses(a->call[1].args));
    cr_expect(strcmp(a->call[0].id, a->call[1].id) != 0 && strlen(a->call[0].id) == 23);
    cr_expect_str_eq(a->finish, "tool_calls");
}

/* ---- requests ---- */

static struct tr_rig_client *send_it(const char *method, const char *path, const char *json)
{
    struct tr_rig_client *c = tr_rig_connect(&rig, 0);

    tr_rig_send(c, method, path, "Accept: application/x-ndjson\r\n", json);
    tr_rig_run(&rig);
    tr_rig_read(c);
    return c;
}

static uint32_t slot_of(uint32_t k)
{
    uint32_t slot = tr_sengine_slot(&rig.engine, k);

    cr_assert(slot != UINT32_MAX, "request %u was not admitted", k);
    return slot;
}

/* The tokens of `text`, so many at a time, and the end. */
static void say(uint32_t slot, const char *text, size_t at_once, bool length)
{
    uint32_t eos = TR_SIM_IM_END;
    char piece[4096];

    for (size_t n = strlen(text), i = 0; i < n; i += at_once) {
        snprintf(piece, sizeof(piece), "%.*s", (int)at_once, text + i);
        for (const char *p = piece; *p; tr_rig_run(&rig))
            p += tr_sengine_text(&rig.engine, slot, p);
    }
    if (!length)
        tr_sengine_say(&rig.engine, slot, &eos, 1);
    tr_sengine_end(&rig.engine, slot, length ? TR_INCOMPLETE : TR_COMPLETED,
                   length ? TR_FINISH_LENGTH : TR_FINISH_EOG, TR_OK);
    tr_rig_run(&rig);
}

static const char *answer_to(const char *path, const char *json, const char *text, size_t at_once,
                             bool length)
{
    static char body[TR_RIG_BYTES + 1];
    uint32_t k = rig.engine.n_order;
    struct tr_rig_client *c = send_it("POST", path, json);

    for (int i = 0; i < 60000 && rig.engine.n_order == k; i++) /* a worker compiles its grammar */
        tr_rig_run_ms(&rig, 1);
    say(slot_of(k), text, at_once, length);
    tr_rig_read(c);
    strcpy(body, tr_rig_body(c));
    tr_rig_close(c, false);
    return body;
}

/* ---- tests ---- */

Test(tools, chat_streamed_however_the_tokens_come)
{
    for (size_t at_once = 1; at_once < 400; at_once = at_once * 3 + 1) {
        const char *body =
            answer_to("/v1/chat/completions", ASK ",\"stream\":true}", ANSWER, at_once, false);
        is_all_of_it(collect(body));
        cr_expect(!strstr(body, "tool_call>") && !strstr(body, "think>"), "no marker");
    }
}

Test(tools, chat_whole)
{
    struct answer *a = collect(answer_to("/v1/chat/completions", ASK "}", ANSWER, 64, false));

    is_all_of_it(a);
    cr_expect(!a->no_content);
}

Test(tools, native_says_what_is_complete)
{
    struct answer *a = collect(answer_to("/v1/streams", ASK "}", ANSWER, 7, false));

    is_all_of_it(a);
    cr_expect(a->call[0].done && a->call[1].done);
}

Test(tools_joined, events_of_many_tokens_hold_the_same)
{
    start_with(3600 * SECOND);
    const char *body = answer_to("/v1/streams", ASK "}", ANSWER, 8, false);
    struct answer *a = collect(body);

    is_all_of_it(a);
    cr_expect(a->numbers < 40, "joined: %u events", a->numbers);
}

Test(tools, a_message_of_calls_alone_has_no_content)
{
    static const char call[] =
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";
    const char *body = answer_to("/v1/chat/completions", ASK ",\"stream\":true}", call, 1, false);

    cr_expect(strstr(body, "{\"role\":\"assistant\",\"content\":null}"), "%s", body);
    cr_expect_str_eq(collect(body)->text, "");
    struct answer *a = collect(answer_to("/v1/chat/completions", ASK "}", call, 64, false));
    cr_expect(a->no_content);
    cr_expect_str_eq(a->call[0].args, "{\"a\": 1}");
    cr_expect_str_eq(a->finish, "tool_calls");
}

Test(tools, a_call_that_is_cut_is_shown_as_far_as_it_came)
{
    static const char cut[] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, 2";
    struct answer *a = collect(answer_to("/v1/streams", ASK "}", cut, 1, true));

    cr_assert(a->n_calls == 1);
    cr_expect_str_eq(a->call[0].args, "{\"a\": [1, 2");
    cr_expect(!a->call[0].done);
    cr_expect_str_eq(a->finish, "length");
    a = collect(answer_to("/v1/chat/completions", ASK "}", cut, 1, true));
    cr_expect_str_eq(a->call[0].args, "{\"a\": [1, 2");
    cr_expect_str_eq(a->finish, "length");
}

Test(tools, ids_are_the_same_for_every_reader_and_differ_between_choices)
{
    const char *body =
        answer_to("/v1/streams", ASK ",\"on_disconnect\":\"hold\"}", ANSWER, 1, false);
    char path[160], id[64] = "";
    const char *name = strstr(body, "\"stream_id\":\"");

    cr_assert(name);
    strcpy(id, collect(body)->call[1].id);
    snprintf(path, sizeof(path), "/v1/streams/%.*s?format=chat", (int)strcspn(name + 13, "\""),
             name + 13);
    struct tr_rig_client *c = send_it("GET", path, NULL);
    tr_rig_run(&rig);
    tr_rig_read(c);
    struct answer *a = collect(tr_rig_body(c));
    is_all_of_it(a);
    cr_expect_str_eq(a->call[1].id, id);
    tr_rig_close(c, false);
}

Test(tools, from_every_event_on_the_rest_is_the_same)
{
    static char whole[TR_RIG_BYTES + 1];
    char name[TR_STREAM_ID_BYTES] = "", path[160];

    strcpy(whole, answer_to("/v1/streams", ASK ",\"on_disconnect\":\"hold\"}", ANSWER, 1, false));
    const char *p = strstr(whole, "\"stream_id\":\"");
    cr_assert(p);
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(p + 13, "\""), p + 13);
    unsigned n = collect(whole)->numbers;
    cr_assert(n > 60);
    for (unsigned after = 0; after + 1 < n; after++) {
        snprintf(path, sizeof(path), "/v1/streams/%s?after=%u", name, after);
        struct tr_rig_client *c = send_it("GET", path, NULL);
        tr_rig_run(&rig);
        tr_rig_read(c);
        snprintf(path, sizeof(path), "\"id\":\"%s:%u\"", name, after);
        const char *rest = strstr(whole, path);
        cr_assert(rest, "%s", path);
        rest += strcspn(rest, "\n") + 1;
        cr_assert_str_eq(tr_rig_body(c), rest, "after %u", after);
        tr_rig_close(c, false);
        tr_rig_run(&rig);
    }
}

Test(tools, reasoning_may_be_hidden_or_left_in_the_text)
{
    struct answer *a =
        collect(answer_to("/v1/chat/completions",
                          ASK ",\"stream\":true,\"include_reasoning\":false}", ANSWER, 1, false));

    cr_expect_str_eq(a->reasoning, "");
    cr_expect_str_eq(a->text, "I look.  done");
    a = collect(
        answer_to("/v1/chat/completions", ASK ",\"separate_reasoning\":false}", ANSWER, 1, false));
    cr_expect_str_eq(a->text, "<think>\nso \"so\"\n</think>\n\nI look.  done");
}

Test(tools, without_them_markers_are_text)
{
    struct answer *a = collect(answer_to(
        "/v1/chat/completions", ASK ",\"tool_choice\":\"none\",\"separate_reasoning\":false}",
        ANSWER, 64, false));

    cr_expect_str_eq(a->text, ANSWER);
    cr_expect_str_eq(a->finish, "stop");
}

Test(tools, every_token_has_its_log_probability)
{
    for (int whole = 0; whole < 2; whole++) {
        const char *body =
            answer_to("/v1/chat/completions",
                      whole ? ASK ",\"logprobs\":true}" : ASK ",\"logprobs\":true,\"stream\":true}",
                      ANSWER, 16, false);
        unsigned n = 0;
        for (const char *p = body; (p = strstr(p, "\"logprob\":")); p++)
            n++;
        cr_expect(n == sizeof(ANSWER) - 1 || n == sizeof(ANSWER), "%u of %zu", n, sizeof(ANSWER));
        is_all_of_it(collect(body));
    }
}
