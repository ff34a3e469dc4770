/* SPDX-License-Identifier: Apache-2.0 */
/* What a client of Messages receives, byte for byte, for every way an answer can go. */
#include "testfe/frontend_rig.h"

#include "base/sim_vocab.h"
#include "frontend/conn.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#define BODY(extra)                                                                                \
    "{\"model\":\"sim\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}"     \
    "]" extra "}"
#define STREAM ",\"stream\":true"
#define EVENT(type, rest) "event: " type "\ndata: {\"type\":\"" type "\"" rest "}\n\n"

#define USAGE(in, cached, out)                                                                     \
    "\"input_tokens\":" in                                                                         \
    ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":" cached                       \
    ",\"output_tokens\":" out ",\"output_tokens_details\":null,\"server_tool_use\":null"
#define WHY(reason, sequence)                                                                      \
    "\"stop_reason\":" reason ",\"stop_sequence\":" sequence                                       \
    ",\"stop_details\":null,\"container\":null"
#define MESSAGE(content, why, usage)                                                               \
    "{\"id\":#,\"type\":\"message\",\"role\":\"assistant\",\"model\":\"sim\",\"content\":" content \
    "," why ",\"usage\":{" usage                                                                   \
    ",\"cache_creation\":null,\"inference_geo\":null,\"service_tier\":null}}"
#define TEXT(text) "[{\"type\":\"text\",\"text\":\"" text "\",\"citations\":[]}]"

#define START(in, cached)                                                                          \
    EVENT("message_start",                                                                         \
          ",\"message\":" MESSAGE("[]", WHY("null", "null"), USAGE(in, cached, "0")))
#define BLOCK                                                                                      \
    EVENT("content_block_start",                                                                   \
          ",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\","                       \
          "\"citations\":[]}")
#define DELTA(text)                                                                                \
    EVENT("content_block_delta",                                                                   \
          ",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"" text "\"}")
#define BLOCK_END EVENT("content_block_stop", ",\"index\":0")
#define END(why, usage)                                                                            \
    EVENT("message_delta", ",\"delta\":{" why "},\"usage\":{" usage "}") EVENT("message_stop", "")
#define ERROR(type, message, details)                                                              \
    "{\"type\":\"error\",\"error\":{\"type\":\"" type "\",\"message\":\"" message                  \
    "\",\"details\":{" details "}},\"request_id\":#}"

static struct tr_rig rig;

static void start(void)
{
    tr_rig_defaults(&rig);
    tr_rig_start(&rig, 4, false);
}

static void stop(void)
{
    tr_rig_stop(&rig);
}

TestSuite(anthropic, .init = start, .fini = stop);

static struct tr_rig_client *ask(const char *method, const char *path, const char *headers,
                                 const char *json)
{
    struct tr_rig_client *c = tr_rig_connect(&rig, 0);

    tr_rig_send(c, method, path, headers, json);
    tr_rig_run(&rig);
    tr_rig_read(c);
    return c;
}

static struct tr_rig_client *post(const char *json)
{
    return ask("POST", "/v1/messages", NULL, json);
}

/* The slot of the request that is being asked, the last one. */
static uint32_t slot(void)
{
    cr_assert(rig.engine.n_order, "nothing was admitted");
    return rig.engine.order[rig.engine.n_order - 1];
}

static void end(enum tr_state state, enum tr_finish finish, enum tr_err err)
{
    tr_sengine_end(&rig.engine, slot(), state, finish, err);
    tr_rig_run(&rig);
}

/* Ids differ from run to run: what follows "id": or "request_id": is made `#`. */
static const char *mask(const char *in)
{
    static char out[1 << 14];
    size_t n = 0;

    while (*in && n < sizeof(out) - 2) {
        bool id = n >= 5 && memcmp(out + n - 5, "\"id\":", 5) == 0;
        bool rid = n >= 13 && memcmp(out + n - 13, "\"request_id\":", 13) == 0;
        if (id || rid) {
            in += strcspn(in, ",}");
            out[n++] = '#';
        } else {
            out[n++] = *in++;
        }
    }
    out[n] = 0;
    return out;
}

/* All of the body is this; then it is closed. */
static void expect(struct tr_rig_client *c, const char *status, const char *want)
{
    tr_rig_run(&rig);
    tr_rig_read(c);
    cr_expect(strncmp(c->buf + 9, status, 3) == 0, "%s: %.40s", status, c->buf);
    cr_expect(strstr(c->buf, "\r\nRequest-Id: "), "%s", c->buf);
    cr_expect_str_eq(mask(tr_rig_body(c)), want);
    tr_rig_close(c, false);
}

Test(anthropic, events_in_order_byte_for_byte)
{
    uint32_t eos = TR_SIM_IM_END;
    struct tr_rig_client *c = post(BODY(STREAM));

    cr_expect(strstr(c->buf, "HTTP/1.1 200 OK\r\n"), "headers at admission: %s", c->buf);
    cr_expect(strstr(c->buf, "Content-Type: text/event-stream"));
    cr_expect_str_eq(tr_rig_body(c), "");
    tr_sengine_text(&rig.engine, slot(), "a\"");
    tr_rig_run(&rig);
    tr_rig_read(c);
    cr_expect_str_eq(mask(tr_rig_body(c)), START("20", "0") BLOCK DELTA("a") DELTA("\\\""));
    tr_sengine_say(&rig.engine, slot(), &eos, 1);
    end(TR_COMPLETED, TR_FINISH_EOG, TR_OK);
    expect(c, "200",
           START("20", "0") BLOCK DELTA("a") DELTA("\\\"")
               BLOCK_END END(WHY("\"end_turn\"", "null"), USAGE("20", "0", "3")));
    cr_expect_eq(rig.engine.n_released, 1u);
}

Test(anthropic, the_stop_sequence_that_was_met_is_named)
{
    const char *const stream[] = {STREAM, ""};

    for (int i = 0; i < 2; i++) {
        char body[512];
        snprintf(body, sizeof(body), BODY("%s,\"stop_sequences\":[\"zz\",\"b\\n\",\"bc\"]"),
                 stream[i]);
        struct tr_rig_client *c = post(body);
        tr_sengine_text(&rig.engine, slot(), "ab\nd");
        tr_rig_run(&rig);
        cr_expect(rig.engine.slot[slot()].finish_at, "the engine was told");
        if (i == 0)
            expect(c, "200",
                   START("20", "0") BLOCK DELTA("a")
                       BLOCK_END END(WHY("\"stop_sequence\"", "\"b\\n\""), USAGE("20", "0", "3")));
        else
            expect(c, "200",
                   MESSAGE(TEXT("a"), WHY("\"stop_sequence\"", "\"b\\n\""), USAGE("20", "0", "3")));
    }
}

Test(anthropic, an_answer_without_text_has_no_block)
{
    uint32_t eos = TR_SIM_IM_END;
    struct tr_rig_client *c = post(BODY(STREAM));

    tr_sengine_say(&rig.engine, slot(), &eos, 1);
    end(TR_COMPLETED, TR_FINISH_EOG, TR_OK);
    expect(c, "200", START("20", "0") END(WHY("\"end_turn\"", "null"), USAGE("20", "0", "1")));
    c = post(BODY(""));
    tr_sengine_say(&rig.engine, slot(), &eos, 1);
    end(TR_COMPLETED, TR_FINISH_EOG, TR_OK);
    expect(c, "200", MESSAGE("[]", WHY("\"end_turn\"", "null"), USAGE("20", "0", "1")));
}

Test(anthropic, tokens_from_the_cache_are_not_input_tokens_but_both_are_the_prompt)
{
    struct tr_rig_client *c = post(BODY(STREAM));

    atomic_store(&tr_ring_at(&rig.shm, slot())->cached_tokens, 16);
    tr_sengine_text(&rig.engine, slot(), "a");
    end(TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    expect(c, "200",
           START("4", "16") BLOCK DELTA("a")
               BLOCK_END END(WHY("\"max_tokens\"", "null"), USAGE("4", "16", "1")));
}

Test(anthropic, a_full_context_is_no_limit_of_the_client_s)
{
    static const char *const why[] = {"\"max_tokens\"", "\"model_context_window_exceeded\""};
    char text[512];

    memset(text, 'a', sizeof(text));
    for (int i = 0; i < 2; i++) {
        struct tr_rig_client *c = post("{\"model\":\"sim\",\"max_tokens\":9999,\"messages\":[{"
                                       "\"role\":\"user\",\"content\":\"Hi\"}]}");
        size_t n = 512 - 20 - (i == 0); /* of n_ctx */
        for (size_t at = 0; at < n; at += 41) {
            size_t piece = n - at < 41 ? n - at : 41;
            text[piece] = 0;
            tr_sengine_text(&rig.engine, slot(), text);
            text[piece] = 'a';
            tr_rig_run(&rig);
        }
        end(TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
        tr_rig_read(c);
        cr_expect(strstr(c->buf, why[i]), "%d: %s", i, c->buf);
        tr_rig_close(c, false);
    }
}

Test(anthropic, a_failure_is_one_error_event_and_nothing_after_it)
{
    struct tr_rig_client *c = post(BODY(STREAM));

    tr_sengine_text(&rig.engine, slot(), "a");
    end(TR_CANCELLED, TR_FINISH_NONE, TR_ERR_DEADLINE);
    expect(c, "200",
           START("20", "0") BLOCK DELTA("a") "event: error\ndata: " ERROR(
               "timeout_error", "The deadline of the request passed.",
               "\"error_code\":\"deadline_exceeded\"") "\n\n");
    c = post(BODY(STREAM));
    end(TR_ERROR, TR_FINISH_NONE, TR_ERR_ENGINE_CRASHED);
    expect(c, "200",
           "event: error\ndata: " ERROR("api_error", "The engine crashed on this request.",
                                        "\"error_code\":\"engine_crashed\"") "\n\n");
    c = post(BODY(""));
    end(TR_ERROR, TR_FINISH_NONE, TR_ERR_ENGINE_CRASHED);
    expect(c, "500",
           ERROR("api_error", "The engine crashed on this request.",
                 "\"error_code\":\"engine_crashed\""));
}

Test(anthropic, every_refusal_has_the_shape_that_these_clients_read)
{
    static const struct {
        const char *method, *path, *headers, *body, *status, *want;
    } rows[] = {
        {"POST", "/v1/messages", "", BODY(",\"temperature\":7"), "400",
         ERROR("invalid_request_error", "temperature must be between 0 and 2.",
               "\"error_code\":\"invalid_value\",\"param\":\"temperature\"")},
        {"POST", "/v1/messages", "", BODY(",\"stop_sequences\":[\"\"]"), "400",
         ERROR("invalid_request_error", "stop_sequences: A stop string must not be empty.",
               "\"error_code\":\"invalid_value\",\"param\":\"stop_sequences\"")},
        {"POST", "/v1/messages", "", BODY(",\"mcp_servers\":[{}]"), "400",
         ERROR("invalid_request_error", "mcp_servers is not supported. Tools are not called.",
               "\"error_code\":\"unsupported_parameter\",\"param\":\"mcp_servers\"")},
        {"POST", "/v1/messages", "", "{", "400", NULL},
        {"GET", "/v1/messages", "", NULL, "405",
         ERROR("invalid_request_error", "This path does not take that method.",
               "\"error_code\":\"method_not_allowed\"")},
        {"POST", "/v1/messages/batches", "", "{}", "404",
         ERROR("not_found_error", "There is nothing at this path.",
               "\"error_code\":\"not_found\"")},
        {"GET", "/v1/models/other", "anthropic-version: 2023-06-01\r\n", NULL, "404",
         ERROR("not_found_error", "model: This model is not served here.",
               "\"error_code\":\"model_not_found\",\"param\":\"model\"")},
        {"POST", "/v1/messages", "Content-Type: text/plain\r\n", "{}", "415", NULL},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tr_rig_client *c = ask(rows[i].method, rows[i].path, rows[i].headers, rows[i].body);
        if (rows[i].want) {
            expect(c, rows[i].status, rows[i].want);
            continue;
        }
        cr_expect(strncmp(c->buf + 9, rows[i].status, 3) == 0 &&
                      strstr(c->buf, "{\"type\":\"error\",\"error\":{\"type\":\"") &&
                      strstr(c->buf, "\r\nRequest-Id: "),
                  "%zu: %s", i, c->buf);
        tr_rig_close(c, false);
    }
    cr_expect_eq(rig.engine.n_order, 0u);
}

Test(anthropic, no_place_is_overloaded)
{
    struct tr_rig_client *c[4], *last;

    for (int i = 0; i < 4; i++)
        c[i] = post(BODY(STREAM));
    last = post(BODY(""));
    cr_expect(strstr(last->buf, "\r\nRetry-After: 1\r\n"), "%s", last->buf);
    expect(last, "503",
           ERROR("overloaded_error", "All places are taken; try again soon.",
                 "\"error_code\":\"engine_overloaded\""));
    for (int i = 0; i < 4; i++)
        tr_rig_close(c[i], true);
}

Test(anthropic, counted_is_what_the_same_request_would_have)
{
    static const char *const bodies[] = {BODY(""), BODY(",\"system\":\"Be brief.\""),
                                         BODY(",\"system\":[{\"type\":\"text\",\"text\":"
                                              "\"\xe7\x8c\xab\"}],\"stop_sequences\":[\"x\"]")};

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        char want[64];
        struct tr_rig_client *c = post(bodies[i]);
        snprintf(want, sizeof(want), "{\"input_tokens\":%u}",
                 tr_ring_at(&rig.shm, slot())->prompt_len);
        tr_rig_close(c, true);
        expect(ask("POST", "/v1/messages/count_tokens", NULL, bodies[i]), "200", want);
    }
    cr_expect_eq(rig.engine.n_order, 3u, "nothing is admitted for it");
}

Test(anthropic, a_prompt_beyond_the_context_is_counted_all_the_same)
{
    char body[2048], text[1001];

    memset(text, 'a', 1000);
    text[1000] = 0;
    snprintf(body, sizeof(body),
             "{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", text);
    expect(ask("POST", "/v1/messages/count_tokens", NULL, body), "200", "{\"input_tokens\":1018}");
}

Test(anthropic, the_keep_alive_is_a_ping)
{
    struct tr_rig_client *c = post(BODY(STREAM));

    shutdown(c->fd, SHUT_WR); /* which makes it ask whether anybody is there */
    tr_rig_run(&rig);
    tr_rig_read(c);
    cr_expect_str_eq(tr_rig_body(c), EVENT("ping", ""));
    tr_rig_close(c, true);
}

Test(anthropic, a_stream_that_can_be_resumed_says_where_its_reader_is)
{
    struct tr_rig_client *c =
        ask("POST", "/v1/messages", "X-Tokenring-Resume: 1\r\n", BODY(STREAM));
    char want[64];

    tr_sengine_text(&rig.engine, slot(), "ab");
    tr_rig_run(&rig);
    tr_rig_read(c);
    const char *at = tr_rig_body(c);
    for (int i = 0; i < 4; i++) {
        snprintf(want, sizeof(want), ":%d\"}}\n\n", i);
        at = at ? strstr(at, "\"tokenring\":{\"cursor\":\"") : NULL;
        cr_assert(at && strstr(at, want) == strchr(at, '\n') - strlen(want) + 2, "%d: %s", i,
                  tr_rig_body(c));
        at++;
    }
    tr_rig_close(c, true);
}
