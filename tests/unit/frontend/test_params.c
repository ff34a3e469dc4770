/* SPDX-License-Identifier: Apache-2.0 */
/* Every known field: wrong types, ranges and shapes are refused by name.  Through the whole way of
 * a request (HTTP, JSON, checks, tokens, admission), so that nothing is let through further down. */
#include "frontend/params_priv.h"
#include "testfe/frontend_rig.h"

#include "base/clock.h"

#include <criterion/criterion.h>

#include <string.h>

#define M "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":1"
#define m "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
#define FN(function) "{\"type\":\"function\",\"function\":" function "}"
#define F FN("{\"name\":\"f\"}")
#define SIM ",\"model\":\"sim\"}"

static struct tr_rig rig;

static void start(void)
{
    tr_rig_defaults(&rig);
    rig.cfg.ledger_wait_ns = 0;
    tr_rig_start(&rig, 16, false);
    rig.engine.free_slots = true;
}

static void stop(void)
{
    tr_rig_stop(&rig);
}

TestSuite(params, .init = start, .fini = stop);

struct row {
    const char *body;
    int status;
    const char *param; /* NULL: not looked at */
};

/* Ends whatever was admitted, so that a 200 comes back. */
static int ask(const char *path, const char *body, const char **answer)
{
    struct tr_rig_client *c = tr_rig_connect(&rig, 0);
    static char keep[TR_RIG_BYTES + 1];
    int status = 0;
    uint32_t before = rig.engine.n_order = 0;

    tr_rig_send(c, "POST", path, "Connection: close\r\n", body);
    /* A worker that compiles a grammar gets its turn when it gets it. */
    for (uint64_t end = tr_now_ns() + 60000000000u; !c->eof && tr_now_ns() < end;) {
        tr_rig_run(&rig);
        for (; before < rig.engine.n_order; before++) {
            uint32_t slot = rig.engine.order[before];
            if (!tr_state_terminal(tr_ring_at(&rig.shm, slot)->state))
                tr_sengine_end(&rig.engine, slot, TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
        }
        tr_rig_read(c);
    }
    sscanf(c->buf, "HTTP/1.1 %d", &status);
    strcpy(keep, tr_rig_body(c));
    if (answer)
        *answer = keep;
    tr_rig_close(c, false);
    return status;
}

static void check(const char *path, const struct row *r)
{
    const char *answer;
    int status = ask(path, r->body, &answer);
    char param[256];

    cr_expect(status == r->status, "%s: %d, expected %d: %s", r->body, status, r->status, answer);
    if (r->status != 400)
        return;
    cr_expect(strstr(answer, "\"type\":\"invalid_request_error\""), "%s: %s", r->body, answer);
    cr_expect(rig.engine.n_order == 0, "%s reached the engine", r->body);
    if (!r->param)
        return;
    snprintf(param, sizeof(param), "\"param\":\"%s\"", r->param);
    cr_expect(strstr(answer, param), "%s: no %s in %s", r->body, param, answer);
}

Test(params, shapes_of_chat_bodies)
{
    static const struct row rows[] = {
        {"{}", 400, NULL},
        {"[]", 400, NULL},
        {"null", 400, NULL},
        {"\"x\"", 400, NULL},
        {"", 400, NULL},
        {"{\"messages\":{}" SIM, 400, "messages"},
        {"{\"messages\":\"Hi\"" SIM, 400, "messages"},
        {"{\"messages\":null" SIM, 400, "messages"},
        {"{\"messages\":[]" SIM, 400, "messages"},
        {"{\"messages\":[null]" SIM, 400, "messages[0]"},
        {"{\"messages\":[\"Hi\"]" SIM, 400, "messages[0]"},
        {"{\"messages\":[{}]" SIM, 400, "messages[0]"},
        {"{\"messages\":[{\"role\":\"user\"}]" SIM, 400, "messages[0]"},
        {"{\"messages\":[{\"role\":1,\"content\":\"Hi\"}]" SIM, 400, "messages[0].role"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":5}]" SIM, 400, "messages[0].content"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[5]}]" SIM, 400, "messages[0].content[0]"},
        {"{" M ",\"stream\":\"true\"" SIM, 400, "stream"},
        {"{" M ",\"stream\":1" SIM, 400, "stream"},
        {"{" M ",\"stream\":null" SIM, 200, NULL},
        {"{" m ",\"max_tokens\":\"10\"" SIM, 400, "max_tokens"},
        {"{" m ",\"max_tokens\":1.5" SIM, 400, "max_tokens"},
        {"{" m ",\"max_tokens\":null" SIM, 200, NULL},
        {"{" M ",\"temperature\":\"hot\"" SIM, 400, "temperature"},
        {"{" M ",\"temperature\":-1" SIM, 400, "temperature"},
        {"{" M ",\"temperature\":NaN" SIM, 400, NULL},
        {"{" M ",\"top_p\":1.5" SIM, 400, "top_p"},
        {"{" M ",\"top_p\":\"1\"" SIM, 400, "top_p"},
        {"{" M ",\"stop\":\"\"" SIM, 400, "stop"},
        {"{" M ",\"stop\":[\"\"]" SIM, 400, "stop"},
        {"{" M ",\"stop\":5" SIM, 400, "stop"},
        {"{" M ",\"stop\":null" SIM, 200, NULL},
        {"{" M ",\"seed\":\"x\"" SIM, 400, "seed"},
        {"{" M ",\"n\":0" SIM, 400, "n"},
        {"{" M ",\"logit_bias\":[]" SIM, 400, "logit_bias"},
        {"{" M ",\"model\":5}", 400, "model"},
        {"{" M SIM "garbage", 400, NULL},
        {"{" M SIM "{" M SIM, 400, NULL},
        {"{" M ",\"model\":\"sim\",}", 400, NULL},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check("/v1/chat/completions", &rows[i]);
}

Test(params, ranges_and_sizes)
{
    static const struct row rows[] = {
        {"{" M "}", 400, "model"},
        {"{" M ",\"model\":\"sim-stem\"}", 200, NULL},
        {"{" M ",\"model\":\"other\"}", 404, NULL},
        {"{" M ",\"model\":\"sim\\u0000x\"}", 404, NULL},
        {"{" M ",\"temperature\":2.0" SIM, 200, NULL},
        {"{" M ",\"temperature\":2.01" SIM, 400, "temperature"},
        {"{" M ",\"temperature\":1e15" SIM, 400, "temperature"},
        {"{" M ",\"temperature\":-0.0" SIM, 200, NULL},
        {"{" M ",\"temperature\":1e-400" SIM, 200, NULL},
        {"{" m ",\"max_tokens\":-1" SIM, 400, "max_tokens"},
        {"{" m ",\"max_tokens\":0" SIM, 200, NULL},
        {"{" m ",\"max_tokens\":32000" SIM, 200, NULL},
        {"{" m ",\"max_tokens\":4294967297" SIM, 200, NULL},
        {"{" m ",\"max_tokens\":9223372036854775807" SIM, 200, NULL},
        {"{" m ",\"max_tokens\":1e20" SIM, 200, NULL},
        {"{" m ",\"max_tokens\":1e400" SIM, 400, "max_tokens"},
        {"{" m ",\"max_tokens\":10.0" SIM, 200, NULL},
        {"{" m ",\"max_tokens\":10.5" SIM, 400, "max_tokens"},
        {"{" M ",\"n\":17" SIM, 400, "n"},
        {"{" M ",\"n\":2147483647" SIM, 400, "n"},
        {"{" M ",\"best_of\":100000" SIM, 400, "best_of"},
        {"{" M ",\"n\":2,\"best_of\":3" SIM, 400, "best_of"},
        {"{" M ",\"n\":2,\"best_of\":2" SIM, 200, NULL},
        {"{" M ",\"top_logprobs\":5" SIM, 400, "top_logprobs"},
        {"{" M ",\"logprobs\":true,\"top_logprobs\":21" SIM, 400, "top_logprobs"},
        {"{" M ",\"logprobs\":true,\"top_logprobs\":-1" SIM, 400, "top_logprobs"},
        {"{" M ",\"logprobs\":true,\"top_logprobs\":20" SIM, 200, NULL},
        {"{" M ",\"logprobs\":1" SIM, 400, "logprobs"},
        {"{" M ",\"min_tokens\":2" SIM, 400, "min_tokens"},
        {"{" M ",\"top_k\":-2" SIM, 400, "top_k"},
        {"{" M ",\"timeout_s\":0" SIM, 400, "timeout_s"},
        {"{" M ",\"priority\":32767" SIM, 200, NULL},
        {"{" M ",\"priority\":-32768" SIM, 400, "priority"},
        {"{" M ",\"priority\":\"high\"" SIM, 400, "priority"},
        {"{" M ",\"priority\":0.5" SIM, 400, "priority"},
        {"{" M ",\"stream_options\":{}" SIM, 400, "stream_options"},
        {"{" M ",\"stream\":true,\"stream_options\":{\"include_usage\":1}" SIM, 400,
         "stream_options.include_usage"},
        {"{" M ",\"stop_token_ids\":[1e9]" SIM, 400, "stop_token_ids"},
        {"{" M ",\"unknown_field\":[{}],\"user\":\"a\\u0000b\"" SIM, 200, NULL},
        {"{" M ",\"user\":5" SIM, 400, "user"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check("/v1/chat/completions", &rows[i]);
}

#define SCHEMA                                                                                     \
    "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":"

Test(params, what_an_answer_obeys_is_one_thing_that_can_be_compiled)
{
    static const struct row rows[] = {
        {"{" M ",\"guided_choice\":[\"a\",\"b\"]" SIM, 200, NULL},
        {"{" M ",\"guided_choice\":[]" SIM, 400, "guided_choice"},
        {"{" M ",\"guided_choice\":\"a\"" SIM, 400, "guided_choice"},
        {"{" M ",\"guided_choice\":[\"a\",1]" SIM, 400, "guided_choice"},
        {"{" M ",\"guided_choice\":[\"a\",\"\"]" SIM, 400, "guided_choice"},
        {"{" M ",\"response_format\":{\"type\":\"json_object\"}" SIM, 200, NULL},
        {"{" M "," SCHEMA "{\"type\":\"integer\"}}}" SIM, 200, NULL},
        {"{" M "," SCHEMA "true}}" SIM, 200, NULL},
        {"{" M "," SCHEMA "7}}" SIM, 400, "response_format.json_schema.schema"},
        {"{" M "," SCHEMA "{\"items\":[7],\"properties\":{\"a\":{\"type\":\"foo\"}}}}}" SIM, 400,
         NULL},
        {"{" M "," SCHEMA "{\"properties\":{\"a\":{\"type\":\"foo\"}}}}}" SIM, 400,
         "response_format.json_schema.schema.properties.a.type"},
        {"{" M ",\"response_format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"foo\"}}" SIM,
         400, "response_format.schema.type"},
        {"{" M ",\"guided_json\":\"{\\\"type\\\":\\\"foo\\\"}\"" SIM, 400, "guided_json.type"},
        {"{" M ",\"guided_json\":\"{\"" SIM, 400, "guided_json"},
        {"{" M ",\"guided_json\":\"{\\\"type\\\":\\\"null\\\"}\"" SIM, 200, NULL},
        {"{" M ",\"guided_json\":7" SIM, 400, "guided_json"},
        {"{" M ",\"guided_regex\":\"a+\"" SIM, 200, NULL},
        {"{" M ",\"guided_regex\":\"\"" SIM, 400, "guided_regex"},
        {"{" M ",\"guided_regex\":\"(\"" SIM, 400, "guided_regex"},
        {"{" M ",\"grammar\":\"root ::= [a-z]+\"" SIM, 200, NULL},
        {"{" M ",\"guided_grammar\":\"root\"" SIM, 400, "guided_grammar"},
        {"{" M
         ",\"structured_outputs\":{\"regex\":\"a\",\"choice\":null,\"json_object\":false}" SIM,
         200, NULL},
        {"{" M ",\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"a\"]}" SIM, 400,
         "structured_outputs.choice"},
        {"{" M ",\"structured_outputs\":{\"xml\":1}" SIM, 400, "structured_outputs"},
        {"{" M ",\"structured_outputs\":{\"json_object\":1}" SIM, 400,
         "structured_outputs.json_object"},
        {"{" M ",\"guided_regex\":\"a\",\"guided_choice\":[\"a\"]" SIM, 400, "guided_choice"},
        {"{" M ",\"guided_regex\":\"a\",\"response_format\":{\"type\":\"text\"}" SIM, 200, NULL},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check("/v1/chat/completions", &rows[i]);
}

Test(params, what_is_not_supported_is_named)
{
    static const struct row rows[] = {
        {"{" M ",\"tools\":{}" SIM, 400, "tools"},
        {"{" M ",\"tools\":5" SIM, 400, "tools"},
        {"{" M ",\"tools\":[5]" SIM, 400, "tools[0]"},
        {"{" M ",\"tools\":[{}]" SIM, 400, "tools[0]"},
        {"{" M ",\"tools\":[{\"type\":5}]" SIM, 400, "tools[0].type"},
        {"{" M ",\"tools\":[{\"type\":\"custom\"}]" SIM, 400, "tools[0].type"},
        {"{" M ",\"tools\":[{\"type\":\"function\"}]" SIM, 400, "tools[0]"},
        {"{" M ",\"tools\":[" FN("{}") "]" SIM, 400, "tools[0].function"},
        {"{" M ",\"tools\":[" FN("{\"name\":\"\"}") "]" SIM, 400, "tools[0].function.name"},
        {"{" M ",\"tools\":[" FN("{\"name\":\"a b\"}") "]" SIM, 400, "tools[0].function.name"},
        {"{" M ",\"tools\":[" F "," F "]" SIM, 400, "tools[1].function.name"},
        {"{" M ",\"tools\":[" FN("{\"name\":\"f\",\"description\":5}") "]" SIM, 400,
         "tools[0].function.description"},
        {"{" M ",\"tools\":[" FN("{\"name\":\"f\",\"parameters\":[]}") "]" SIM, 400,
         "tools[0].function.parameters"},
        {"{" M ",\"tools\":[" FN("{\"name\":\"f\",\"strict\":1}") "]" SIM, 400,
         "tools[0].function.strict"},
        {"{" M ",\"tools\":[" FN("{\"name\":\"f\",\"parameters\":null,\"strict\":null}") "]" SIM,
         200, NULL},
        {"{" M ",\"tools\":[" F "],\"tool_choice\":\"auto\",\"parallel_tool_calls\":false" SIM, 200,
         NULL},
        {"{" M ",\"tools\":[" F "],\"tool_choice\":\"none\"" SIM, 200, NULL},
        {"{" M ",\"tools\":[" F "],\"tool_choice\":\"any\"" SIM, 400, "tool_choice"},
        {"{" M ",\"tools\":[" F "],\"tool_choice\":5" SIM, 400, "tool_choice"},
        {"{" M ",\"tools\":[" F "],\"tool_choice\":{}" SIM, 400, "tool_choice"},
        {"{" M ",\"tools\":[" F "],\"tool_choice\":{\"type\":\"function\"}" SIM, 400,
         "tool_choice"},
        {"{" M ",\"tools\":[" F "],\"tool_choice\":" FN("{\"name\":\"g\"}") SIM, 400,
         "tool_choice.function.name"},
        {"{" M ",\"tools\":[" F "],\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":"
         "{\"mode\":\"auto\",\"tools\":[" F "]}}" SIM,
         200, NULL},
        {"{" M ",\"tools\":[" F "],\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":"
         "{\"mode\":\"auto\",\"tools\":[]}}" SIM,
         400, "tool_choice.allowed_tools.tools"},
        {"{" M ",\"tools\":[" F "],\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":"
         "{\"tools\":[" F "]}}" SIM,
         400, "tool_choice.allowed_tools"},
        {"{" M ",\"tool_choice\":\"required\"" SIM, 400, "tool_choice"},
        {"{" M ",\"tools\":[],\"tool_choice\":" F SIM, 400, "tool_choice"},
        {"{" M ",\"tools\":[]" SIM, 200, NULL},
        {"{" M ",\"tool_choice\":\"required\"" SIM, 400, "tool_choice"},
        {"{" M ",\"tool_choice\":\"none\"" SIM, 200, NULL},
        {"{" M ",\"response_format\":{\"type\":\"json_schema\"}" SIM, 400, "response_format"},
        {"{" M ",\"response_format\":{\"type\":\"text\"}" SIM, 200, NULL},
        {"{" M ",\"response_format\":{\"type\":5}" SIM, 400, "response_format"},
        {"{" M ",\"modalities\":[\"text\",\"audio\"]" SIM, 400, "modalities"},
        {"{" M ",\"audio\":{\"voice\":\"x\"}" SIM, 400, "audio"},
        {"{" M ",\"store\":true" SIM, 400, "store"},
        {"{" M ",\"store\":false" SIM, 200, NULL},
        {"{" M ",\"suffix\":\"x\"" SIM, 400, "suffix"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]" SIM, 400,
         "messages[0].content[0].type"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check("/v1/chat/completions", &rows[i]);
}

/* The sim vocabulary ends at TR_SIM_VOCAB_SIZE. */
Test(params, ids_outside_the_vocabulary)
{
    static const char *const bad[] = {"-1", "99999999999", "1.5", "abc", "", "007", "+1", " 1"};
    static const char *const values[] = {"101", "-101", "null", "\"5\""};
    static const char *const prompts[] = {
        "[-1]",        "[2147483648]", "[4294967297]", "[1.5]",         "[1,\"a\"]", "[]",
        "[[]]",        "[\"\"]",       "\"\"",         "[[1],[99999]]", "{}",        "5",
        "[[1],\"a\"]", "[true]",       "[[1.0,[2]]]"};
    char body[512];
    struct row r = {body, 400, "logit_bias"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(body, sizeof(body), "{" M ",\"logit_bias\":{\"%s\":1}" SIM, bad[i]);
        check("/v1/chat/completions", &r);
    }
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        snprintf(body, sizeof(body), "{" M ",\"logit_bias\":{\"5\":%s}" SIM, values[i]);
        check("/v1/chat/completions", &r);
    }
    snprintf(body, sizeof(body), "{" M ",\"logit_bias\":{\"%u\":1}" SIM, rig.shm.config.n_vocab);
    check("/v1/chat/completions", &r);
    snprintf(body, sizeof(body), "{" M ",\"logit_bias\":{\"%u\":-100}" SIM,
             rig.shm.config.n_vocab - 1);
    r.status = 200;
    check("/v1/chat/completions", &r);
    r = (struct row){body, 400, "prompt"};
    for (size_t i = 0; i < sizeof(prompts) / sizeof(prompts[0]); i++) {
        snprintf(body, sizeof(body), "{\"prompt\":%s,\"max_tokens\":1" SIM, prompts[i]);
        check("/v1/completions", &r);
    }
    snprintf(body, sizeof(body), "{\"prompt\":[1,%u],\"max_tokens\":1" SIM, rig.shm.config.n_vocab);
    check("/v1/completions", &r);
    snprintf(body, sizeof(body), "{\"prompt\":[%u],\"max_tokens\":1" SIM,
             rig.shm.config.n_vocab - 1);
    r.status = 200;
    check("/v1/completions", &r);
}

/* n_ctx of the rig is 512. */
Test(params, the_context_is_the_limit_and_is_told)
{
    static char body[8192];
    const char *answer;

    for (int n = 511; n <= 513; n++) {
        char *p = body + sprintf(body, "{\"prompt\":[97");
        for (int i = 1; i < n; i++)
            p += sprintf(p, ",97");
        sprintf(p, "],\"max_tokens\":1" SIM);
        int status = ask("/v1/completions", body, &answer);
        cr_expect(status == (n == 511 ? 200 : 400), "%d tokens: %d", n, status);
        if (n == 511)
            continue;
        char count[16];
        snprintf(count, sizeof(count), "%d", n);
        cr_expect(strstr(answer, "\"code\":\"context_length_exceeded\""), "%s", answer);
        cr_expect(strstr(answer, "512") && strstr(answer, count), "%s", answer);
    }
}

Test(params, what_is_admitted_has_its_values)
{
    const struct tr_ring *r;

    rig.engine.free_slots = false;
    cr_expect(
        ask("/v1/completions",
            "{\"prompt\":[97,98],\"max_tokens\":4294967297,\"seed\":7,\"temperature\":0,"
            "\"top_p\":0.5,\"top_k\":3,\"presence_penalty\":-2,\"logprobs\":2,\"priority\":-5" SIM,
            NULL) == 200);
    r = tr_ring_at(&rig.shm, rig.engine.order[0]);
    cr_expect(r->params.max_tokens == 510, "%u", r->params.max_tokens);
    cr_expect(r->params.seed == 7 && r->params.temperature == 0 && r->params.top_p == 0.5 &&
              r->params.top_k == 3 && r->params.presence_penalty == -2 && r->params.n_top == 2);
    cr_expect(r->params.priority == -5);
    cr_expect(r->params.flags == TR_REQ_LOGPROBS, "%x", r->params.flags);
    cr_expect(r->prompt_len == 2 && tr_ring_ids(&rig.shm, rig.engine.order[0])[1] == 98);
}

Test(params, known_fields_stand_in_the_order_of_the_search)
{
    for (int k = 1; k < F_COUNT; k++)
        cr_expect(strcmp(tr_param_row[k - 1].name, tr_param_row[k].name) < 0, "%s",
                  tr_param_row[k].name);
}
