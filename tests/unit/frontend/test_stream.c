/* SPDX-License-Identifier: Apache-2.0 */
/* What a client receives, byte for byte, and what the engine is told, for every way a request can
 * go.  The engine is a script; ids of the sim vocabulary below 256 are bytes. */
#include "testfe/frontend_rig.h"

#include "base/clock.h"
#include "base/sim_vocab.h"
#include "frontend/stream.h"
#include "frontend/worker.h"

#include <criterion/criterion.h>

#include <semaphore.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PROMPT(extra) "{\"model\":\"sim\",\"prompt\":\"x\"" extra "}"
#define CHAT(extra)                                                                                \
    "{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]" extra "}"

static struct tr_rig rig;

static void start(void)
{
    tr_rig_defaults(&rig);
    tr_rig_start(&rig, 32, false);
}

static void stop(void)
{
    tr_rig_stop(&rig);
}

TestSuite(stream, .init = start, .fini = stop);
TestSuite(stream_clock, .fini = stop); /* these choose their own configuration */

static struct tr_rig_client *post(const char *path, const char *json)
{
    struct tr_rig_client *c = tr_rig_connect(&rig, 0);

    tr_rig_send(c, "POST", path, NULL, json);
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

static void receive(struct tr_rig_client *c)
{
    tr_rig_run(&rig);
    tr_rig_read(c);
}

/* Ids and times differ from run to run: what follows "key": is made `#`. */
static const char *mask(const char *in)
{
    static char out[TR_RIG_BYTES + 1];
    static const char *const keys[] = {
        "\"id\":", "\"created\":", "\"stream_id\":", "\"request_id\":", "id: "};
    size_t n = 0;

    while (*in) {
        bool hit = false;
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]) && !hit; k++) {
            size_t len = strlen(keys[k]);
            if (strncmp(in, keys[k], len) != 0)
                continue;
            memcpy(out + n, keys[k], len);
            n += len;
            in += len;
            in += strcspn(in, ",}\n");
            out[n++] = '#';
            hit = true;
        }
        if (!hit)
            out[n++] = *in++;
    }
    out[n] = 0;
    return out;
}

static unsigned count(const char *text, const char *what)
{
    unsigned n = 0;

    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

/* The contents of all "key":"..." joined; no escapes in these tests. */
static const char *joined(const char *body, const char *key)
{
    static char out[TR_RIG_BYTES];
    size_t n = 0;
    char start_of[32];

    snprintf(start_of, sizeof(start_of), "\"%s\":\"", key);
    for (const char *p = body; (p = strstr(p, start_of));) {
        p += strlen(start_of);
        size_t len = strcspn(p, "\"");
        memcpy(out + n, p, len);
        n += len;
    }
    out[n] = 0;
    return out;
}

#define HEAD "data: {\"id\":#,\"object\":\"chat.completion.chunk\",\"created\":#,\"model\":\"sim\","
#define CHOICE(delta, finish)                                                                      \
    HEAD "\"choices\":[{\"index\":0,\"delta\":" delta                                              \
         ",\"logprobs\":null,\"finish_reason\":" finish "}],\"usage\":null}\n\n"

static const char *const chat_chunks[] = {
    CHOICE("{\"role\":\"assistant\",\"content\":\"\"}", "null"),
    CHOICE("{\"content\":\"a\"}", "null"),
    CHOICE("{\"content\":\"b\"}", "null"),
    CHOICE("{}", "\"stop\""),
    HEAD
    "\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":3,\"total_tokens\":23,"
    "\"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\n",
    "data: [DONE]\n\n",
};

Test(stream, chat_events_in_order_byte_for_byte)
{
    struct tr_rig_client *c =
        post("/v1/chat/completions",
             CHAT(",\"stream\":true,\"stream_options\":{\"include_usage\":true}"));
    uint32_t slot = slot_of(0), eos = TR_SIM_IM_END;

    cr_expect(strstr(c->buf, "HTTP/1.1 200 OK\r\n"), "headers at admission: %s", c->buf);
    cr_expect(strstr(c->buf, "Content-Type: text/event-stream"));
    cr_expect(strstr(c->buf, "X-Accel-Buffering: no\r\n"));
    cr_expect_str_eq(tr_rig_body(c), "");
    tr_sengine_text(&rig.engine, slot, "ab");
    receive(c);
    cr_expect(count(tr_rig_body(c), "data: ") == 3, "a token is an event: %s", tr_rig_body(c));
    tr_sengine_say(&rig.engine, slot, &eos, 1);
    tr_sengine_end(&rig.engine, slot, TR_COMPLETED, TR_FINISH_EOG, TR_OK);
    receive(c);
    const char *got = mask(tr_rig_body(c));
    for (size_t i = 0; i < sizeof(chat_chunks) / sizeof(chat_chunks[0]); i++) {
        size_t len = strlen(chat_chunks[i]);
        cr_assert(strncmp(got, chat_chunks[i], len) == 0, "chunk %zu: %s", i, got);
        got += len;
    }
    cr_expect_str_eq(got, "");
    cr_expect(strstr(c->buf, "\r\n0\r\n\r\n"), "the chunked end");
    receive(c);
    cr_expect(rig.engine.n_released == 1);
    cr_expect(rig.fe.n_streams == 0);
    tr_rig_close(c, false);
}

Test(stream, completions_streamed_and_whole_are_the_same_text)
{
    const char *whole = NULL;
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true"));

    tr_sengine_text(&rig.engine, slot_of(0), "hello");
    tr_sengine_end(&rig.engine, slot_of(0), TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    receive(c);
    cr_expect_str_eq(joined(tr_rig_body(c), "text"), "hello");
    cr_expect(count(tr_rig_body(c), "\"finish_reason\":\"length\"") == 1);
    cr_expect(count(tr_rig_body(c), "\"usage\"") == 0, "no usage unasked");
    tr_rig_close(c, false);

    c = post("/v1/completions", PROMPT(""));
    cr_expect_str_eq(c->buf, "", "no head before the answer");
    tr_sengine_text(&rig.engine, slot_of(1), "hello");
    tr_sengine_end(&rig.engine, slot_of(1), TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    receive(c);
    whole = mask(tr_rig_body(c));
    cr_expect_str_eq(whole,
                     "{\"id\":#,\"object\":\"text_completion\",\"created\":#,\"model\":\"sim\","
                     "\"choices\":[{\"index\":0,\"text\":\"hello\",\"logprobs\":null,"
                     "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":1,"
                     "\"completion_tokens\":5,\"total_tokens\":6,\"prompt_tokens_details\":"
                     "{\"cached_tokens\":0}}}");
    tr_rig_close(c, false);
}

/* 16 choices of 500 tokens are more than a turn may make. */
static struct tr_rig_client *many_whole(void)
{
    struct tr_rig_client *c =
        post("/v1/completions",
             PROMPT(",\"n\":16,\"echo\":true,\"ignore_eos\":true,\"max_tokens\":500"));
    char text[501];

    for (uint32_t k = 0; k < 16; k++) {
        memset(text, 'a' + (int)k, 500);
        text[500] = 0;
        for (const char *p = text; *p;) {
            p += tr_sengine_text(&rig.engine, slot_of(k), p);
            if (k == 15 && !*p)
                break;
            receive(c);
        }
    }
    for (uint32_t k = 0; k < 16; k++)
        tr_sengine_end(&rig.engine, slot_of(k), TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    tr_fe_turn(&rig.fe, false);
    cr_assert(rig.fe.streams && rig.fe.streams->whole, "begun, and not in one turn");
    return c;
}

Test(stream, large_whole_answers_are_made_in_several_turns)
{
    struct tr_rig_client *c = many_whole();
    const char *p;
    char want[600];

    tr_rig_read(c);
    cr_expect_eq(c->len, 0u);
    receive(c);
    p = tr_rig_body(c);
    for (int k = 0; k < 16; k++) {
        size_t n = (size_t)sprintf(want, "\"index\":%d,\"text\":\"x", k);
        memset(want + n, 'a' + k, 500);
        memcpy(want + n + 500, "\"", 2);
        cr_expect(strstr(p, want), "choice %d: %.2000s", k, p);
    }
    tr_rig_close(c, false);
}

Test(stream, a_client_may_leave_while_its_answer_is_made)
{
    struct tr_rig_client *c = many_whole();

    tr_rig_close(c, true);
    tr_rig_run(&rig);
    cr_expect_eq(rig.fe.n_streams, 0u);
}

Test(stream, end_of_turn_as_the_first_token_is_an_empty_answer)
{
    uint32_t eos = TR_SIM_IM_END;
    struct tr_rig_client *c = post("/v1/chat/completions", CHAT(",\"stream\":true"));

    tr_sengine_say(&rig.engine, slot_of(0), &eos, 1);
    tr_sengine_end(&rig.engine, slot_of(0), TR_COMPLETED, TR_FINISH_EOG, TR_OK);
    receive(c);
    cr_expect(count(tr_rig_body(c), "\"role\":\"assistant\"") == 1, "%s", tr_rig_body(c));
    cr_expect(count(tr_rig_body(c), "\"finish_reason\":\"stop\"") == 1);
    cr_expect_str_eq(joined(tr_rig_body(c), "content"), "");
    cr_expect(count(tr_rig_body(c), "[DONE]") == 1);
    tr_rig_close(c, false);
}

Test(stream, stop_string_is_never_shown_and_is_reported_at_once)
{
    static const char *const paths[] = {"/v1/completions", "/v1/chat/completions"};

    for (uint32_t i = 0; i < 2; i++) {
        const char *json = i ? CHAT(",\"stream\":true,\"stop\":[\"baba\"]")
                             : PROMPT(",\"stream\":true,\"stop\":[\"baba\"]");
        struct tr_rig_client *c = post(paths[i], json);
        uint32_t slot = slot_of(i);

        tr_sengine_text(&rig.engine, slot, "aba");
        receive(c);
        cr_expect(!strstr(joined(tr_rig_body(c), i ? "content" : "text"), "b"));
        tr_sengine_text(&rig.engine, slot, "babab");
        tr_rig_run(&rig);
        cr_expect(rig.engine.slot[slot].finish_at, "the engine was told");
        receive(c);
        cr_expect_str_eq(joined(tr_rig_body(c), i ? "content" : "text"), "a");
        cr_expect(count(tr_rig_body(c), "\"finish_reason\":\"stop\"") == 1);
        cr_expect(tr_ring_at(&rig.shm, slot)->finish_index == 5, "counted up to its last token");
        tr_rig_close(c, false);
    }
}

Test(stream, halves_of_characters_wait)
{
    static const uint32_t euro[] = {0xe2, 0x82, 0xac};
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true"));
    uint32_t slot = slot_of(0);

    tr_sengine_say(&rig.engine, slot, euro, 2);
    receive(c);
    cr_expect_str_eq(tr_rig_body(c), "");
    tr_sengine_say(&rig.engine, slot, euro + 2, 1);
    tr_sengine_say(&rig.engine, slot, euro, 1);
    tr_sengine_end(&rig.engine, slot, TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    receive(c);
    cr_expect_str_eq(joined(tr_rig_body(c), "text"), "\u20ac\ufffd", "cut inside a character");
    tr_rig_close(c, false);
}

Test(stream, choices_have_their_own_index_and_one_finish_each)
{
    struct tr_rig_client *c =
        post("/v1/completions", "{\"model\":\"sim\",\"prompt\":[\"x\",\"yz\"],\"n\":2,"
                                "\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    const char *body;

    cr_assert(rig.engine.n_order == 4);
    for (uint32_t k = 0; k < 4; k++) {
        const struct tr_ring *r = tr_ring_at(&rig.shm, slot_of(k));
        cr_expect(r->group_n == 4 && r->group_k == k && r->group_lead == slot_of(0));
        cr_expect(r->params.choice == k % 2 && r->prompt_len == (k < 2 ? 1 : 2));
        cr_expect(r->group_bill_prompt == (k % 2 == 0));
        tr_sengine_text(&rig.engine, slot_of(k), (const char *[]){"a", "b", "c", "d"}[k]);
    }
    tr_sengine_end(&rig.engine, slot_of(2), TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    receive(c);
    cr_expect(count(tr_rig_body(c), "\"finish_reason\":\"length\"") == 1, "ends when it ends");
    for (uint32_t k = 0; k < 4; k++)
        if (k != 2)
            tr_sengine_end(&rig.engine, slot_of(k), TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    receive(c);
    body = tr_rig_body(c);
    cr_expect(count(body, "\"finish_reason\":\"length\"") == 4);
    for (uint32_t k = 0; k < 4; k++) {
        char want[64];
        snprintf(want, sizeof(want), "\"index\":%u,\"text\":\"%c\"", k, 'a' + (int)k);
        cr_expect(count(body, want) == 1, "%s in %s", want, body);
    }
    cr_expect(strstr(body, "\"prompt_tokens\":3,\"completion_tokens\":4,"), "%s", body);
    cr_expect(rig.engine.n_released == 4);
    tr_rig_close(c, false);
}

Test(stream, a_closed_connection_cancels_every_choice_at_once)
{
    for (int reset = 0; reset < 2; reset++) {
        struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true,\"n\":2"));
        uint32_t first = rig.engine.n_order - 2;

        tr_sengine_text(&rig.engine, slot_of(first), "a");
        receive(c);
        tr_rig_close(c, reset);
        /* A FIN alone may come from a client that still reads: the probe and the next token find
         * out. */
        for (int i = 0; i < 5; i++) {
            tr_rig_run(&rig);
            usleep(2000);
        }
        for (uint32_t k = 0; k < 2; k++) {
            const struct tr_sslot *s = &rig.engine.slot[slot_of(first + k)];
            cr_expect(s->cancelled == TR_ERR_CLIENT_GONE && s->released, "reset %d, choice %u",
                      reset, k);
            cr_expect(s->disconnect_ns != 0);
        }
        cr_expect(rig.fe.n_streams == 0);
    }
}

Test(stream, a_closed_connection_cancels_an_answer_that_is_not_streamed)
{
    struct tr_rig_client *c = post("/v1/completions", PROMPT(""));

    tr_rig_close(c, false);
    tr_rig_run(&rig);
    cr_expect(rig.engine.slot[slot_of(0)].cancelled == TR_ERR_CLIENT_GONE);
}

Test(stream, a_half_closed_client_keeps_its_stream)
{
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true"));

    shutdown(c->fd, SHUT_WR);
    for (int i = 0; i < 5; i++) {
        receive(c);
        usleep(2000);
    }
    cr_expect(count(tr_rig_body(c), ": keepalive\n\n") == 1, "a probe: %s", tr_rig_body(c));
    tr_sengine_text(&rig.engine, slot_of(0), "abc");
    tr_sengine_end(&rig.engine, slot_of(0), TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    receive(c);
    cr_expect_str_eq(joined(tr_rig_body(c), "text"), "abc");
    cr_expect(strstr(tr_rig_body(c), "data: [DONE]\n\n"));
    tr_rig_close(c, false);
}

Test(stream, errors_after_admission_are_in_the_stream)
{
    struct tr_rig_client *c =
        post("/v1/chat/completions",
             CHAT(",\"stream\":true,\"stream_options\":{\"include_usage\":true}"));
    const char *body;

    tr_sengine_text(&rig.engine, slot_of(0), "a");
    tr_sengine_end(&rig.engine, slot_of(0), TR_ERROR, TR_FINISH_NONE, TR_ERR_ENGINE_LOST);
    receive(c);
    body = tr_rig_body(c);
    cr_expect(count(body, "\"code\":\"engine_lost\"") == 1, "%s", body);
    cr_expect(count(body, "\"finish_reason\":\"") == 0);
    cr_expect(count(body, "prompt_tokens") == 0);
    cr_expect(strstr(body, "}}\n\ndata: [DONE]\n\n"));
    tr_rig_close(c, false);

    c = post("/v1/chat/completions", CHAT(""));
    tr_sengine_end(&rig.engine, slot_of(1), TR_ERROR, TR_FINISH_NONE, TR_ERR_ENGINE_LOST);
    receive(c);
    cr_expect(strstr(c->buf, "HTTP/1.1 503 ") && strstr(c->buf, "Retry-After: 1"), "%s", c->buf);
    tr_rig_close(c, false);
}

/* ---- another frontend's nonsense in the owner words ---- */

/* The slot that was claimed and not yet admitted. */
static uint32_t claimed_slot(void)
{
    for (uint32_t i = 0; i < rig.shm.config.n_slots; i++)
        if (tr_claim_get(&rig.shm, i).state == TR_CLAIM_CLAIMED)
            return i;
    cr_assert(false, "nothing is claimed");
    return 0;
}

/* As the engine does for whoever claimed, submitted or owns a slot. */
static void tell(uint32_t slot)
{
    tr_role = TR_ROLE_ENGINE;
    tr_news_post(&rig.shm, rig.shm.my_area, slot / 64, 1ull << (slot % 64));
    tr_role = TR_ROLE_FRONTEND;
}

Test(stream, a_slot_given_to_somebody_else_in_the_same_generation_shows_nothing_of_his)
{
    static const char secret[] = "secret";
    rig.engine.deaf = true;
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true"));
    uint32_t slot = claimed_slot();
    struct tr_ring *r = tr_ring_at(&rig.shm, slot);

    tr_role = TR_ROLE_ENGINE;
    r->prompt_len = 5;
    tr_ring_set_owner(r, (struct tr_owner){.area = 1, .epoch = 1, .confirmed = true});
    r->stream_rand = 4711;
    r->finish_index = 6;
    for (size_t i = 0; i < strlen(secret); i++)
        tr_ring_push(&rig.shm, slot, (uint32_t)secret[i], 0);
    atomic_store(&r->state, TR_RUNNING);
    tell(slot);
    receive(c);
    cr_expect(count(tr_rig_body(c), "\"code\":\"engine_lost\"") == 1, "%s", tr_rig_body(c));
    cr_expect_str_eq(joined(tr_rig_body(c), "text"), "");
    tr_rig_close(c, false);
}

Test(stream, a_claim_that_was_overwritten_is_noticed_before_admission)
{
    rig.engine.deaf = true;
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true"));

    uint32_t slot = claimed_slot();
    atomic_store(&rig.shm.claims->word[slot], UINT64_MAX);
    tell(slot);
    receive(c);
    cr_expect(count(tr_rig_body(c), "\"code\":\"engine_lost\"") == 1, "%s", tr_rig_body(c));
    tr_rig_close(c, false);
}

Test(stream, usage_of_a_stream_that_lost_its_slot_tells_nothing_of_the_next_request)
{
    struct tr_rig_client *c =
        post("/v1/streams", "{\"model\":\"sim\",\"prompt\":\"abc\",\"max_tokens\":9}");
    uint32_t slot = slot_of(0);
    struct tr_ring *r = tr_ring_at(&rig.shm, slot);

    tr_sengine_text(&rig.engine, slot, "xy");
    receive(c);
    tr_role = TR_ROLE_ENGINE;
    tr_ring_reset(&rig.shm, slot);
    r->prompt_len = 77;
    r->group_bill_prompt = 1;
    r->finish_index = 66;
    atomic_store(&r->state, TR_COMPLETED);
    tell(slot);
    receive(c);
    cr_expect(count(tr_rig_body(c), "engine_lost") >= 1, "%s", tr_rig_body(c));
    cr_expect(!strstr(tr_rig_body(c), "tokens\":66") && !strstr(tr_rig_body(c), "tokens\":77"),
              "%s", tr_rig_body(c));
    cr_expect(strstr(tr_rig_body(c), "\"prompt_tokens\":3"), "%s", tr_rig_body(c));
    cr_expect(strstr(tr_rig_body(c), "\"completion_tokens\":2"), "%s", tr_rig_body(c));
    tr_rig_close(c, false);
}

Test(stream, one_failed_choice_ends_the_others)
{
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true,\"n\":2"));

    tr_sengine_end(&rig.engine, slot_of(0), TR_ERROR, TR_FINISH_NONE, TR_ERR_INTERNAL);
    receive(c);
    cr_expect(rig.engine.slot[slot_of(1)].cancelled == TR_ERR_INTERNAL);
    receive(c);
    cr_expect(count(tr_rig_body(c), "\"error\"") == 1, "%s", tr_rig_body(c));
    tr_rig_close(c, false);
}

Test(stream, native_events_are_numbered_and_name_their_end)
{
    struct tr_rig_client *c = post("/v1/streams", PROMPT(""));
    uint32_t slot = slot_of(0);

    tr_sengine_state(&rig.engine, slot, TR_WAITING, 3, 0);
    receive(c);
    tr_sengine_state(&rig.engine, slot, TR_PREFILL, 0, 1);
    receive(c);
    tr_sengine_text(&rig.engine, slot, "ab");
    tr_sengine_end(&rig.engine, slot, TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    receive(c);
    const char *body = tr_rig_body(c);
    static const char *const order[] = {
        "event: response.started",       "event: response.queued",       "event: response.prefill",
        ":1\nevent: output_text.delta",  ":2\nevent: output_text.delta", ":3\nevent: usage",
        ":4\nevent: response.incomplete"};
    const char *at = body;
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        const char *p = strstr(at, order[i]);
        cr_assert(p, "%s is missing, or out of order: %s", order[i], body);
        at = p + 1;
    }
    cr_expect(strstr(body, "\"type\":\"response.queued\",\"position\":3}"));
    cr_expect(strstr(body, "\"done\":1,\"total\":1}"));
    cr_expect(strstr(body, "\"index\":0,\"text\":\"a\",\"tokens\":1}"));
    cr_expect(count(body, "id: tr-") == 5, "lifecycle events have no number: %s", body);
    tr_rig_close(c, false);
}

Test(stream, ndjson_by_accept)
{
    struct tr_rig_client *c = tr_rig_connect(&rig, 0);

    tr_rig_send(c, "POST", "/v1/streams", "Accept: application/x-ndjson\r\n", PROMPT(""));
    tr_rig_run(&rig);
    tr_sengine_text(&rig.engine, slot_of(0), "a");
    tr_sengine_end(&rig.engine, slot_of(0), TR_COMPLETED, TR_FINISH_STOP_ID, TR_OK);
    receive(c);
    const char *body = tr_rig_body(c);
    cr_expect(strstr(c->buf, "ndjson"), "%s", c->buf);
    cr_expect(count(body, "event:") == 0 && count(body, "data:") == 0, "%s", body);
    cr_expect(strncmp(body, "{\"type\":\"response.started\",\"id\":\"tr-", 36) == 0, "%s", body);
    tr_rig_close(c, false);
}

/* The stream id from a native stream's first event. */
static void id_of(struct tr_rig_client *c, char id[64])
{
    const char *p = strstr(tr_rig_body(c), "\"stream_id\":\"");

    cr_assert(p);
    snprintf(id, 64, "%.*s", (int)strcspn(p + 13, "\""), p + 13);
}

Test(stream, delete_ends_a_stream_and_tells_its_last_token)
{
    struct tr_rig_client *c = post("/v1/streams", PROMPT(""));
    char id[64], path[96];
    const char *answer;

    tr_sengine_text(&rig.engine, slot_of(0), "abc");
    receive(c);
    id_of(c, id);
    snprintf(path, sizeof(path), "/v1/streams/%s", id);
    cr_expect(tr_rig_ask(&rig, "DELETE", path, NULL, &answer) == 200, "%s", answer);
    cr_expect(strstr(answer, "\"status\":\"cancelled\",\"reason\":\"cancelled\",\"last_token\":2"),
              "%s", answer);
    receive(c);
    cr_expect(strstr(tr_rig_body(c), "\"reason\":\"cancelled\",\"last_token\":2}"), "%s",
              tr_rig_body(c));
    path[strlen(path) - 1] ^= 1; /* other random bits */
    cr_expect(tr_rig_ask(&rig, "DELETE", path, NULL, &answer) == 404);
    cr_expect(tr_rig_ask(&rig, "DELETE", "/v1/streams/nonsense", NULL, &answer) == 404);
    cr_expect(tr_rig_ask(&rig, "GET", path, NULL, &answer) == 404);
    tr_rig_close(c, false);
}

Test(stream, a_stream_of_another_frontend_is_cancelled_by_a_message)
{
    struct tr_rig_client *c = post("/v1/streams", PROMPT(""));
    char id[64], path[96];
    const char *answer;

    id_of(c, id);
    /* As if somebody else had it: this frontend no longer knows the name. */
    rig.fe.streams->name.rand ^= 1;
    snprintf(path, sizeof(path), "/v1/streams/%s", id);
    cr_expect(tr_rig_ask(&rig, "DELETE", path, NULL, &answer) == 200, "%s", answer);
    cr_expect(strstr(answer, "\"status\":\"cancelled\""), "%s", answer);
    tr_rig_close(c, false);
}

Test(stream, a_delete_that_waits_looks_more_and_more_seldom)
{
    struct tr_rig_client *c = post("/v1/streams", PROMPT("")), *d = tr_rig_connect(&rig, 0);
    char id[64], path[96];
    unsigned turns = 0;

    id_of(c, id);
    rig.fe.streams->name.rand ^= 1; /* another frontend's */
    snprintf(path, sizeof(path), "/v1/streams/%s", id);
    rig.engine.deaf = true;
    tr_rig_send(d, "DELETE", path, NULL, NULL);
    tr_rig_run(&rig);
    uint64_t begin = tr_now_ns();
    for (; tr_now_ns() - begin < 500000000; turns++)
        tr_fe_turn(&rig.fe, true);
    uint64_t most = 16 + (tr_now_ns() - begin) / 20000000;
    cr_expect_leq(turns, most, "%u turns", turns);
    cr_expect(rig.fe.cancel_wait);
    rig.engine.deaf = false;
    tr_rig_run_ms(&rig, 200);
    tr_rig_read(d);
    cr_expect(strstr(tr_rig_body(d), "\"status\":\"cancelled\""), "%s", tr_rig_body(d));
    tr_rig_close(d, false);
    tr_rig_close(c, false);
}

static char too_long_json[70000];

/* A prompt of more tokens than the context has. */
static char *too_long(size_t n)
{
    char *p =
        too_long_json + sprintf(too_long_json, "{\"model\":\"sim\",\"max_tokens\":1,\"prompt\":\"");

    memset(p, 'a', n);
    memcpy(p + n, "\"}", 3);
    return too_long_json;
}

/* What is answered to a body that a worker makes. */
static const char *ask_worker(const char *json)
{
    static char out[1000];
    struct tr_rig_client *c = tr_rig_connect(&rig, 0);

    tr_rig_send(c, "POST", "/v1/completions", NULL, json);
    for (int i = 0; i < 2000 && !strstr(c->buf, "\"error\""); i++) {
        receive(c);
        usleep(1000);
    }
    snprintf(out, sizeof(out), "%s", tr_rig_body(c));
    tr_rig_close(c, false);
    return out;
}

Test(stream, nothing_open_is_503_at_once_also_while_the_engine_stands_still)
{
    const char *answer;

    struct tr_rig_client *c[32];

    rig.engine.deaf = true;
    for (int i = 0; i < 32; i++)
        c[i] = post("/v1/completions", PROMPT(",\"stream\":true"));
    cr_expect(tr_rig_ask(&rig, "POST", "/v1/completions", PROMPT(""), &answer) == 503);
    cr_expect(strstr(answer, "\"code\":\"engine_overloaded\""), "%s", answer);
    /* It costs no encoding, which would find more tokens than fit; nonsense is told all the same. */
    tr_rig_ask(&rig, "POST", "/v1/completions", too_long(2000), &answer);
    cr_expect(strstr(answer, "\"code\":\"engine_overloaded\""), "short: %s", answer);
    tr_rig_ask(&rig, "POST", "/v1/completions", PROMPT(",\"top_p\":7"), &answer);
    cr_expect(strstr(answer, "\"param\":\"top_p\""), "%s", answer);
    cr_expect(strstr(ask_worker(too_long(60000)), "\"code\":\"engine_overloaded\""), "long");
    static const char more[] = "\",\"top_p\":7}";
    memcpy(strrchr(too_long(60000), '"'), more, sizeof(more));
    cr_expect(strstr(ask_worker(too_long_json), "\"param\":\"top_p\""), "long");
    cr_expect_eq(atomic_load(&rig.fe.stat->value[TR_STAT_REFUSED_OVERLOAD]), 3u);
    for (int i = 0; i < 32; i++)
        tr_rig_close(c[i], true);
}

Test(stream, a_group_gets_all_its_slots_or_none)
{
    const char *answer;

    struct tr_rig_client *c[4];

    for (int i = 0; i < 3; i++)
        c[i] = post("/v1/completions", PROMPT(",\"stream\":true,\"n\":10"));
    cr_expect(tr_rig_ask(&rig, "POST", "/v1/completions", PROMPT(",\"n\":3"), &answer) == 503);
    c[3] = post("/v1/completions", PROMPT(",\"stream\":true,\"n\":2"));
    cr_expect(rig.engine.n_order == 32, "the refused group holds nothing");
    for (int i = 0; i < 4; i++)
        tr_rig_close(c[i], true);
}

Test(stream, engine_down_and_draining_refuse_and_health_tells)
{
    const char *answer;

    cr_expect(tr_rig_ask(&rig, "GET", "/health", NULL, &answer) == 200);
    tr_sengine_alive(&rig.engine, false);
    cr_expect(tr_rig_ask(&rig, "GET", "/health", NULL, &answer) == 200, "another comes soon");
    rig.fe.beat_ns -= 6 * 1000000000ull;
    cr_expect(tr_rig_ask(&rig, "GET", "/health", NULL, &answer) == 503, "it has not come");
    cr_expect(strstr(answer, "engine_unavailable"), "%s", answer);
    cr_expect(tr_rig_ask(&rig, "GET", "/livez", NULL, &answer) == 200);
    tr_sengine_alive(&rig.engine, true);
    cr_expect(tr_rig_ask(&rig, "GET", "/health", NULL, &answer) == 200);
    tr_sengine_drain(&rig.engine, TR_DRAIN_GRACE);
    cr_expect(tr_rig_ask(&rig, "GET", "/health", NULL, &answer) == 503);
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true"));
    cr_expect(rig.engine.n_order == 1, "still accepting in the grace");
    tr_sengine_drain(&rig.engine, TR_DRAIN_CLOSED);
    cr_expect(tr_rig_ask(&rig, "POST", "/v1/completions", PROMPT(""), &answer) == 503);
    cr_expect(strstr(answer, "\"code\":\"draining\""), "%s", answer);
    tr_rig_close(c, false);
}

/* Of another frontend's, which the engine has not admitted: it is there, and cannot be cancelled yet. */
Test(stream, a_stream_that_is_to_come_is_not_unknown)
{
    char name[TR_STREAM_ID_BYTES], path[100];
    const char *answer;
    uint32_t slot, gen;

    cr_assert(tr_claim_take(&rig.shm, 1, &slot, &gen) == 0);
    tr_stream_id_format((struct tr_stream_id){.slot = slot, .gen = gen, .rand = 4711}, name);
    snprintf(path, sizeof(path), "/v1/streams/%s", name);
    cr_expect(tr_rig_ask(&rig, "DELETE", path, NULL, &answer) == 503, "%s", answer);
    cr_expect(strstr(answer, "engine_unavailable"), "%s", answer);
    tr_claim_give(&rig.shm, slot, gen);
    cr_expect(tr_rig_ask(&rig, "DELETE", path, NULL, &answer) == 404, "%s", answer);
}

/* The events of one choice move the place at which the next turn begins, not that of this one. */
Test(stream, each_choice_is_looked_at_in_each_turn)
{
    for (uint32_t n = 2; n <= 5; n++) {
        char more[64], text[2] = {0};
        uint32_t first = rig.engine.n_order;
        snprintf(more, sizeof(more), PROMPT(",\"stream\":true,\"n\":%u"), n);
        struct tr_rig_client *c = post("/v1/completions", more);
        for (uint32_t round = 0; round < 4; round++) {
            for (uint32_t k = 0; k < n; k++)
                for (uint32_t i = 0; i <= (k + round) % 3; i++) {
                    text[0] = (char)('a' + k);
                    tr_sengine_text(&rig.engine, slot_of(first + k), text);
                }
            if (round < 3)
                receive(c);
        }
        uint32_t said[5];
        for (uint32_t k = 0; k < n; k++) {
            said[k] = (uint32_t)atomic_load(&tr_ring_at(&rig.shm, slot_of(first + k))->published);
            tr_sengine_end(&rig.engine, slot_of(first + k), TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
        }
        receive(c);
        for (uint32_t k = 0; k < n; k++) {
            char event[16];
            snprintf(event, sizeof(event), "\"text\":\"%c\"", 'a' + k);
            cr_expect(count(tr_rig_body(c), event) == said[k], "%u of %u: %u: %s", k, n, said[k],
                      tr_rig_body(c));
        }
        tr_rig_close(c, false);
    }
}

Test(stream, requests_wait_for_the_next_engine_as_far_as_there_are_places)
{
    const char *answer;

    tr_sengine_alive(&rig.engine, false);
    rig.engine.deaf = true;
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true"));
    cr_expect(rig.fe.n_streams == 1, "it is taken");
    tr_role = TR_ROLE_ENGINE;
    for (uint32_t slot = 0; slot < rig.shm.config.n_slots; slot++)
        if (tr_claim_get(&rig.shm, slot).state == TR_CLAIM_OPEN)
            tr_claim_set(&rig.shm, slot, (struct tr_claim){.state = TR_CLAIM_CLOSED, .gen = 1});
    tr_role = TR_ROLE_FRONTEND;
    cr_expect(tr_rig_ask(&rig, "POST", "/v1/completions", PROMPT(""), &answer) == 503);
    cr_expect(strstr(answer, "engine_unavailable"), "nobody opens a place: %s", answer);
    tr_sengine_alive(&rig.engine, true);
    cr_expect(tr_rig_ask(&rig, "POST", "/v1/completions", PROMPT(""), &answer) == 503);
    cr_expect(strstr(answer, "engine_overloaded"), "%s", answer);
    rig.engine.deaf = false;
    tr_rig_run(&rig);
    tr_sengine_text(&rig.engine, slot_of(0), "ab");
    tr_sengine_end(&rig.engine, slot_of(0), TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    receive(c);
    cr_expect(count(tr_rig_body(c), "data: [DONE]\n\n") == 1, "%s", tr_rig_body(c));
    tr_rig_close(c, false);
}

Test(stream, metrics_are_prometheus_text)
{
    const char *answer;

    cr_expect(tr_rig_ask(&rig, "GET", "/metrics", NULL, &answer) == 200);
    cr_expect(strstr(
        answer,
        "tokenring_info{version=\"0\",backend=\"sim\",model=\"sim\",deterministic=\"1\"} 1\n"));
    cr_expect(count(answer, "# TYPE tokenring_kv_blocks gauge\n") == 1);
    cr_expect(strstr(answer, "tokenring_queue_seconds_bucket{le=\"+Inf\"} 0\n"));
    cr_expect(strstr(answer, "# TYPE tokenring_ledger_lag_seconds gauge\n"));
}

Test(stream, tokens_there_and_back)
{
    const char *answer;

    cr_expect(tr_rig_ask(&rig, "POST", "/tokenize", "{\"prompt\":\"x\\u0000y\"}", &answer) == 200);
    cr_expect_str_eq(answer, "{\"count\":3,\"max_model_len\":512,\"tokens\":[120,0,121],"
                             "\"token_strs\":null}");
    cr_expect(tr_rig_ask(&rig, "POST", "/detokenize", "{\"tokens\":[120,226,121]}", &answer) ==
              200);
    cr_expect_str_eq(answer, "{\"prompt\":\"x\ufffdy\"}");
    cr_expect(tr_rig_ask(&rig, "POST", "/detokenize", "{\"tokens\":[-1]}", &answer) == 400);
    cr_expect(tr_rig_ask(&rig, "POST", "/tokenize",
                         "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}",
                         &answer) == 200);
    cr_expect(strstr(answer, "\"count\":20,"), "%s", answer);
}

/* ---- logprobs ---- */

#define ENTRY                                                                                      \
    "{\"token\":\"%c\",\"logprob\":-0.5,\"bytes\":[%d],\"top_logprobs\":["                         \
    "{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97]}]}"

Test(stream, logprobs_are_the_same_streamed_and_whole)
{
    char want[1024];
    struct tr_rig_client *c =
        post("/v1/chat/completions", CHAT(",\"stream\":true,\"logprobs\":true,\"top_logprobs\":1"));

    tr_sengine_text(&rig.engine, slot_of(0), "xy");
    tr_sengine_end(&rig.engine, slot_of(0), TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    receive(c);
    snprintf(want, sizeof(want),
             "\"content\":\"x\"},\"logprobs\":{\"content\":[" ENTRY "],\"refusal\":null}", 'x',
             'x');
    cr_expect(strstr(tr_rig_body(c), want), "%s", tr_rig_body(c));
    tr_rig_close(c, false);
    c = post("/v1/chat/completions", CHAT(",\"logprobs\":true,\"top_logprobs\":1"));
    tr_sengine_text(&rig.engine, slot_of(1), "xy");
    tr_sengine_end(&rig.engine, slot_of(1), TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    receive(c);
    snprintf(want, sizeof(want),
             "\"logprobs\":{\"content\":[" ENTRY "," ENTRY "],\"refusal\":null}", 'x', 'x', 'y',
             'y');
    cr_expect(strstr(tr_rig_body(c), want), "%s", tr_rig_body(c));
    tr_rig_close(c, false);
}

Test(stream, logprobs_of_a_stop_string_are_not_shown)
{
    struct tr_rig_client *c =
        post("/v1/completions", PROMPT(",\"stream\":true,\"logprobs\":0,\"stop\":\"bc\""));

    tr_sengine_text(&rig.engine, slot_of(0), "abbc");
    receive(c);
    receive(c);
    const char *body = tr_rig_body(c);
    cr_expect_str_eq(joined(body, "text"), "ab");
    cr_expect(count(body, "\"tokens\":[\"a\"]") == 1 && count(body, "\"tokens\":[\"b\"]") == 1,
              "%s", body);
    cr_expect(count(body, "\"token_logprobs\":[-0.5]") == 2, "%s", body);
    cr_expect(strstr(body, "\"text_offset\":[1]"), "%s", body);
    tr_rig_close(c, false);
}

Test(stream, echo_gives_the_prompt_and_its_logprobs)
{
    static const char *const want =
        "\"text\":\"hiab\",\"logprobs\":{\"tokens\":[\"h\",\"i\",\"a\",\"b\"],"
        "\"token_logprobs\":[null,-0.5,-0.5,-0.5],"
        "\"top_logprobs\":[null,{\"a\":-0.5},{\"a\":-0.5},{\"a\":-0.5}],"
        "\"text_offset\":[0,1,2,3]}";
    struct tr_rig_client *c = post(
        "/v1/completions", "{\"model\":\"sim\",\"prompt\":\"hi\",\"echo\":true,\"logprobs\":1}");

    tr_sengine_echo(&rig.engine, slot_of(0), 0);
    receive(c);
    tr_sengine_text(&rig.engine, slot_of(0), "ab");
    tr_sengine_end(&rig.engine, slot_of(0), TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    receive(c);
    cr_expect(strstr(tr_rig_body(c), want), "%s", tr_rig_body(c));
    tr_rig_close(c, false);
    c = post("/v1/completions",
             "{\"model\":\"sim\",\"prompt\":\"hi\",\"echo\":true,\"stream\":true}");
    tr_sengine_text(&rig.engine, slot_of(1), "ab");
    tr_sengine_end(&rig.engine, slot_of(1), TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    receive(c);
    cr_expect_str_eq(joined(tr_rig_body(c), "text"), "hiab");
    tr_rig_close(c, false);
}

Test(stream, an_answer_that_cannot_fit_is_refused_before_it_begins)
{
    rig.cfg.max_body = 4096;
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"logprobs\":20"));

    cr_expect(strstr(c->buf, "HTTP/1.1 400 ") && strstr(c->buf, "\"param\":\"logprobs\""), "%s",
              c->buf);
    cr_expect(rig.engine.n_order == 0);
    tr_rig_close(c, false);
}

/* ---- readers that do not read ---- */

Test(stream, a_reader_that_does_not_read_stops_its_own_sequence_and_loses_nothing)
{
    struct tr_rig_client *c = tr_rig_connect(&rig, 4096);
    static char want[512];
    uint32_t said = 0;

    tr_rig_send(c, "POST", "/v1/completions", NULL, PROMPT(",\"stream\":true,\"logprobs\":20"));
    tr_rig_run(&rig);
    uint32_t slot = slot_of(0);
    /* About 1 KB an event; the engine parks by the window (here: it asks the cursors). */
    for (int turn = 0; turn < 2000 && said < 480; turn++) {
        uint64_t sent = atomic_load(&tr_cursor_at(&rig.shm, 0, slot)->sent);
        cr_assert(sent <= said);
        if (said - sent < rig.shm.config.window) {
            uint32_t id = 'a' + said % 26;
            said += tr_sengine_say(&rig.engine, slot, &id, 1);
        }
        tr_rig_run(&rig);
    }
    cr_assert(said < 480, "the window closed (%u said)", said);
    cr_expect(tr_cursor_at(&rig.shm, 0, slot)->scanned == said, "scanned whatever the socket does");
    cr_expect(tr_httpd_stats(rig.fe.httpd)->unsent_bytes < 2 * rig.cfg.stream_buffer + 4096);
    for (int turn = 0; turn < 3000 && said < 480; turn++) {
        uint64_t sent = atomic_load(&tr_cursor_at(&rig.shm, 0, slot)->sent);
        if (said - sent < rig.shm.config.window) {
            uint32_t id = 'a' + said % 26;
            said += tr_sengine_say(&rig.engine, slot, &id, 1);
        }
        receive(c);
    }
    tr_sengine_end(&rig.engine, slot, TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    for (int turn = 0; turn < 200; turn++)
        receive(c);
    for (uint32_t i = 0; i < said; i++)
        want[i] = (char)('a' + i % 26);
    cr_expect_str_eq(joined(tr_rig_body(c), "text"), want);
    cr_expect(count(tr_rig_body(c), "\"text\":") < said, "what waited was put together");
    cr_expect(strstr(tr_rig_body(c), "data: [DONE]\n\n"));
    tr_rig_close(c, false);
}

/* ---- clocks and the ledger ---- */

Test(stream_clock, the_end_waits_for_the_ledger)
{
    tr_rig_defaults(&rig);
    tr_rig_start(&rig, 32, true);
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true"));
    struct tr_rig_client *w = post("/v1/completions", PROMPT(""));

    for (uint32_t k = 0; k < 2; k++) {
        tr_sengine_text(&rig.engine, slot_of(k), "ab");
        tr_sengine_end(&rig.engine, slot_of(k), TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    }
    receive(c);
    receive(w);
    cr_expect_str_eq(joined(tr_rig_body(c), "text"), "ab", "tokens never wait");
    cr_expect(count(tr_rig_body(c), "\"finish_reason\":\"length\"") == 0);
    cr_expect(w->len == 0);
    cr_expect(rig.engine.n_released == 0);
    tr_sengine_durable(&rig.engine);
    receive(c);
    receive(w);
    cr_expect(count(tr_rig_body(c), "\"finish_reason\":\"length\"") == 1);
    cr_expect(strstr(w->buf, "\"text\":\"ab\""));
    cr_expect(rig.fe.stat->value[TR_STAT_LEDGER_UNCONFIRMED] == 0);
    cr_expect(rig.engine.n_released == 2);
    tr_rig_close(c, false);
    tr_rig_close(w, false);
}

Test(stream_clock, a_ledger_that_says_nothing_is_waited_for_so_long_and_counted)
{
    tr_rig_defaults(&rig);
    rig.cfg.ledger_wait_ns = 300 * 1000000ull;
    tr_rig_start(&rig, 32, true);
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true"));

    tr_sengine_end(&rig.engine, slot_of(0), TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    receive(c);
    cr_expect(count(tr_rig_body(c), "[DONE]") == 0);
    tr_rig_run_ms(&rig, 320);
    receive(c);
    cr_expect(count(tr_rig_body(c), "[DONE]") == 1);
    cr_expect(rig.fe.stat->value[TR_STAT_LEDGER_UNCONFIRMED] == 1);
    tr_rig_close(c, false);
}

Test(stream_clock, silence_is_kept_alive)
{
    tr_rig_defaults(&rig);
    rig.cfg.heartbeat_ns = 100 * 1000000ull;
    tr_rig_start(&rig, 32, false);
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true"));
    struct tr_rig_client *n = post("/v1/streams", PROMPT(""));
    uint64_t begin = tr_now_ns();
    unsigned beats = 0;

    for (int i = 0; i < 100 && (beats < 3 || count(tr_rig_body(n), ": keepalive\n") < 2); i++) {
        tr_rig_run_ms(&rig, 50);
        receive(c);
        receive(n);
        beats = count(tr_rig_body(c), ": keepalive\n\n");
    }
    uint64_t most = (tr_now_ns() - begin) / rig.cfg.heartbeat_ns + 1;
    cr_expect(beats >= 3 && beats <= most, "%u: %s", beats, tr_rig_body(c));
    cr_expect(count(tr_rig_body(n), ": keepalive\n") >= 2);
    cr_expect(count(tr_rig_body(n), ": keepalive\n\n") == 0, "an id has been sent: no blank line");
    tr_rig_close(c, false);
    tr_rig_close(n, false);
}

Test(stream, a_deadline_ends_it_by_name)
{
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true,\"timeout_s\":0.1"));
    struct tr_rig_client *w = post("/v1/completions", PROMPT(",\"timeout_s\":0.1"));

    tr_rig_run_ms(&rig, 250);
    receive(c);
    receive(w);
    cr_expect(count(tr_rig_body(c), "\"code\":\"deadline_exceeded\"") == 1, "%s", tr_rig_body(c));
    cr_expect(strstr(w->buf, "HTTP/1.1 504 "), "%s", w->buf);
    cr_expect(rig.engine.slot[slot_of(0)].cancelled == TR_ERR_DEADLINE);
    tr_rig_close(c, false);
    tr_rig_close(w, false);
}

/* No tick is waited for: the loop wakes for it, and the next look at the streams posts the command. */
Test(stream, a_deadline_is_seen_in_any_turn)
{
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true,\"timeout_s\":0.3"));
    uint32_t slot = slot_of(0);

    tr_streams_pump(&rig.fe);
    cr_expect(!(tr_cmd_flags(tr_cmd_word(&rig.shm, 0, slot)) & TR_CMD_CANCEL));
    usleep(310000);
    tr_fe_turn(&rig.fe, false);
    tr_streams_pump(&rig.fe);
    uint64_t word = tr_cmd_word(&rig.shm, 0, slot);
    cr_expect((tr_cmd_flags(word) & TR_CMD_CANCEL) && tr_cmd_arg(word) == TR_ERR_DEADLINE);
    tr_rig_close(c, false);
}

/* However many streams are open, a turn reads the rings that have news and no other. */
Test(stream, a_ring_is_read_when_the_engine_has_posted_news)
{
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true"));
    uint32_t slot = slot_of(0);

    tr_sengine_text(&rig.engine, slot, "a");
    receive(c);
    tr_role = TR_ROLE_ENGINE;
    tr_ring_push(&rig.shm, slot, 'b', 0);
    tr_role = TR_ROLE_FRONTEND;
    receive(c);
    cr_expect_str_eq(joined(tr_rig_body(c), "text"), "a");
    tr_role = TR_ROLE_ENGINE;
    tr_news_post_all(&rig.shm, 0); /* as a new engine does */
    tr_role = TR_ROLE_FRONTEND;
    receive(c);
    cr_expect_str_eq(joined(tr_rig_body(c), "text"), "ab");
    tr_rig_close(c, false);
}

Test(stream, a_shorter_prompt_leaves_nothing_of_the_one_before)
{
    for (uint32_t slot = 0; slot < rig.shm.config.n_slots; slot++) {
        tr_request_at(&rig.shm, slot)->prompt_len = 9;
        for (uint32_t i = 0; i < 9; i++)
            tr_request_prompt(&rig.shm, slot)[i] = 7;
    }
    struct tr_rig_client *c =
        post("/v1/completions", "{\"model\":\"sim\",\"prompt\":[5],\"stream\":true}");
    const uint32_t *ids = tr_request_prompt(&rig.shm, slot_of(0));
    cr_expect(ids[0] == 5);
    for (uint32_t i = 1; i < 9; i++)
        cr_expect(ids[i] == 0, "%u", i);
    tr_rig_close(c, false);
}

Test(stream, long_text_is_encoded_by_a_worker)
{
    static char json[70000];
    char *p = json + sprintf(json, "{\"model\":\"sim\",\"max_tokens\":1,\"prompt\":\"");

    memset(p, 'a', 60000);
    strcpy(p + 60000, "\"}");
    struct tr_rig_client *c = tr_rig_connect(&rig, 0);
    tr_rig_send(c, "POST", "/v1/completions", NULL, json);
    for (int i = 0; i < 20000 && !strstr(c->buf, "context_length"); i++) {
        receive(c);
        usleep(1000);
    }
    cr_expect(strstr(c->buf, "HTTP/1.1 400 ") && strstr(c->buf, "at least 5000"), "%.300s", c->buf);
    tr_rig_close(c, false);
}

/* Keeps the rig's only worker busy until it is let go. */
struct block {
    struct tr_job job;
    sem_t let_go;
    bool done;
};

static void block_work(struct tr_job *j)
{
    struct block *b = (struct block *)j;

    while (sem_wait(&b->let_go) < 0)
        ;
}

static void block_done(struct tr_job *j)
{
    ((struct block *)j)->done = true;
}

/* Whatever the route, a long body waits for a worker; the loop, with all streams, does not. */
Test(stream, while_workers_are_busy_others_feel_nothing)
{
    static const struct {
        const char *path;
        const char *before; /* 20,000 letters, and what is behind them */
        const char *behind;
        int status;
    } LONG[] = {
        {"/v1/completions", "{\"model\":\"sim\",\"max_tokens\":1,\"prompt\":\"", "\"}", 400},
        {"/v1/chat/completions",
         "{\"model\":\"sim\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"",
         "\"}]}", 400},
        {"/v1/streams", "{\"model\":\"sim\",\"max_tokens\":1,\"prompt\":\"", "\"}", 400},
        {"/v1/responses", "{\"model\":\"sim\",\"max_output_tokens\":1,\"input\":\"", "\"}", 400},
        {"/v1/responses/input_tokens", "{\"model\":\"sim\",\"input\":\"", "\"}", 200},
        {"/v1/messages",
         "{\"model\":\"sim\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"",
         "\"}]}", 400},
        {"/v1/messages/count_tokens",
         "{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"", "\"}]}", 200},
        {"/tokenize", "{\"prompt\":\"", "\"}", 200},
        {"/detokenize", "{\"pad\":\"", "\",\"tokens\":[97,98]}", 200},
    };
    enum { N = sizeof(LONG) / sizeof(LONG[0]), LETTERS = 20000 };
    static struct block b = {.job = {.work = block_work, .done = block_done}};
    static char json[LETTERS + 500];
    struct tr_rig_client *c[N];
    const char *answer;

    sem_init(&b.let_go, 0, 0);
    cr_assert_eq(tr_workers_push(rig.fe.workers, &b.job), 0);
    struct tr_rig_client *stream =
        post("/v1/completions", "{\"model\":\"sim\",\"prompt\":\"x\",\"stream\":true}");
    uint32_t slot = slot_of(0);
    for (size_t i = 0; i < N; i++) {
        size_t n = strlen(LONG[i].before);
        memcpy(json, LONG[i].before, n);
        memset(json + n, 'a', LETTERS);
        strcpy(json + n + LETTERS, LONG[i].behind);
        c[i] = post(LONG[i].path, json);
        for (int k = 0; k < 1000 && rig.fe.n_asks == i; k++) /* all of the body has come */
            receive(c[i]);
        cr_assert_eq(rig.fe.n_asks, i + 1, "%s is at a worker", LONG[i].path);
        /* One token is said and received, and another request answered. */
        tr_sengine_text(&rig.engine, slot, "z");
        receive(stream);
        cr_expect_eq(strlen(joined(tr_rig_body(stream), "text")), i + 1, "%s", LONG[i].path);
        cr_expect_eq(tr_rig_ask(&rig, "POST", "/tokenize", "{\"prompt\":\"ab\"}", &answer), 200);
        cr_expect_eq(c[i]->len, 0u, "%s: nothing said before it is made", LONG[i].path);
    }
    sem_post(&b.let_go);
    for (int k = 0; k < 20000 && rig.fe.n_asks; k++)
        tr_rig_run_ms(&rig, 1);
    for (size_t i = 0; i < N; i++) {
        char want[32];
        receive(c[i]);
        snprintf(want, sizeof(want), "HTTP/1.1 %d ", LONG[i].status);
        cr_expect(strstr(c[i]->buf, want), "%s: %.300s", LONG[i].path, c[i]->buf);
        tr_rig_close(c[i], false);
    }
    cr_expect(b.done);
    tr_rig_close(stream, true);
}

Test(stream, a_client_may_leave_while_a_worker_encodes)
{
    static char json[400000];
    char *p = json + sprintf(json, "{\"model\":\"sim\",\"max_tokens\":1,\"prompt\":\"");

    memset(p, 'a', 390000);
    strcpy(p + 390000, "\"}");
    for (int i = 0; i < 10; i++) {
        struct tr_rig_client *c = tr_rig_connect(&rig, 0);
        int one = 1 << 20;
        setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &one, sizeof(one));
        tr_rig_send(c, "POST", "/v1/completions", NULL, json);
        if (i % 2)
            tr_rig_run(&rig);
        tr_rig_close(c, i % 3 == 0);
    }
    for (int i = 0; i < 6000 && rig.fe.n_asks; i++)
        tr_rig_run_ms(&rig, 5);
    cr_expect(rig.fe.n_asks == 0);
    cr_expect(rig.fe.n_streams == 0);
}

Test(stream, delivery_is_recorded_when_the_last_byte_is_acknowledged)
{
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true"));
    uint32_t eos = TR_SIM_IM_END;
    struct tr_delivery d;

    tr_sengine_text(&rig.engine, slot_of(0), "abc");
    tr_sengine_say(&rig.engine, slot_of(0), &eos, 1);
    tr_sengine_end(&rig.engine, slot_of(0), TR_COMPLETED, TR_FINISH_EOG, TR_OK);
    for (int i = 0; i < 100; i++) {
        receive(c);
        usleep(1000);
    }
    tr_role = TR_ROLE_LEDGER;
    int rc = tr_delivery_pop(&rig.shm, 0, &d);
    tr_role = TR_ROLE_FRONTEND;
    cr_assert(rc == 0);
    cr_expect(d.delivered_tokens == 4, "the end of turn too: %u", d.delivered_tokens);
    cr_expect(d.first_byte_ns && d.closed_ns >= d.first_byte_ns);
    cr_expect(d.request_id[0]);
    tr_rig_close(c, false);
}

Test(stream_clock, coalescing_gathers_tokens_that_come_close_together)
{
    tr_rig_defaults(&rig);
    rig.cfg.coalesce_ns = 400 * 1000000ull;
    tr_rig_start(&rig, 32, false);
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true"));

    for (const char *p = "abcd"; *p; p++) {
        tr_sengine_text(&rig.engine, slot_of(0), (char[]){*p, 0});
        receive(c);
    }
    cr_expect_str_eq(joined(tr_rig_body(c), "text"), "a", "the first one waits for nothing");
    tr_rig_run_ms(&rig, 430);
    receive(c);
    cr_expect(count(tr_rig_body(c), "\"text\":\"bcd\"") == 1, "%s", tr_rig_body(c));
    tr_sengine_text(&rig.engine, slot_of(0), "e");
    tr_sengine_end(&rig.engine, slot_of(0), TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    receive(c);
    cr_expect_str_eq(joined(tr_rig_body(c), "text"), "abcde", "the end waits for nothing");
    tr_rig_close(c, false);
}

/* As if their timers had fired then. */
static void look_at_clocks(uint64_t now)
{
    struct tr_stream *next;

    for (struct tr_stream *st = rig.fe.streams; st; st = next) {
        next = st->next;
        tr_stream_clock(st, now);
    }
}

/* A stream whose reader has stopped, cancelled for its rate; `now` is when its bytes began to wait. */
static struct tr_rig_client *too_slow(uint64_t *now)
{
    tr_rig_defaults(&rig);
    rig.cfg.min_drain_bps = 1000000;
    rig.cfg.write_deadline_ns = 10000 * 1000000ull;
    tr_rig_start(&rig, 32, false);
    struct tr_rig_client *c = tr_rig_connect(&rig, 4096);

    tr_rig_send(c, "POST", "/v1/completions", NULL, PROMPT(",\"stream\":true,\"logprobs\":20"));
    tr_rig_run(&rig);
    for (int i = 0; i < 300; i++) {
        tr_sengine_text(&rig.engine, slot_of(0), "a");
        tr_rig_run(&rig);
    }
    *now = tr_now_ns();
    look_at_clocks(*now);
    look_at_clocks(*now + 5000 * 1000000ull);
    tr_rig_run(&rig);
    cr_expect(rig.engine.slot[slot_of(0)].cancelled == 0);
    look_at_clocks(*now + 10001 * 1000000ull);
    tr_rig_run(&rig);
    cr_expect(rig.engine.slot[slot_of(0)].cancelled == TR_ERR_SLOW_CLIENT);
    return c;
}

Test(stream_clock, a_reader_below_the_least_rate_is_told_if_it_reads_on)
{
    uint64_t now;
    struct tr_rig_client *c = too_slow(&now);

    for (int i = 0; i < 20000 && !strstr(tr_rig_body(c), "[DONE]"); i++) {
        receive(c);
        usleep(1000);
    }
    const char *body = tr_rig_body(c);
    cr_expect(count(body, "\"code\":\"slow_client\"") == 1 && count(body, "[DONE]") == 1 &&
                  count(body, "\"finish_reason\":\"") == 0,
              "%.300s", body);
    cr_expect(rig.engine.slot[slot_of(0)].released);
    cr_expect(rig.fe.stat->value[TR_STAT_NO_TERMINAL] == 0);
    tr_rig_close(c, false);
}

Test(stream_clock, a_reader_below_the_least_rate_is_cut_if_it_does_not)
{
    uint64_t now;
    struct tr_rig_client *c = too_slow(&now);

    look_at_clocks(tr_now_ns() + 4000 * 1000000ull);
    tr_rig_run(&rig);
    cr_expect(!rig.engine.slot[slot_of(0)].released);
    look_at_clocks(tr_now_ns() + 6000 * 1000000ull);
    tr_rig_run(&rig);
    cr_expect(rig.engine.slot[slot_of(0)].released);
    cr_expect(rig.fe.n_streams == 0);
    cr_expect(rig.fe.stat->value[TR_STAT_NO_TERMINAL] == 0, "it took nothing");
    char left[65536];
    ssize_t n;
    while ((n = recv(c->fd, left, sizeof(left), 0)) > 0)
        ;
    cr_expect(n < 0, "a reset, not an end");
    tr_rig_close(c, false);
}

Test(stream, a_connection_is_used_again_after_a_stream)
{
    struct tr_rig_client *c = post("/v1/completions", PROMPT(",\"stream\":true"));

    tr_sengine_text(&rig.engine, slot_of(0), "a");
    tr_sengine_end(&rig.engine, slot_of(0), TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    receive(c);
    size_t before = c->len;
    tr_rig_send(c, "GET", "/livez", NULL, NULL);
    receive(c);
    cr_expect(strstr(c->buf + before, "HTTP/1.1 200 OK"), "%s", c->buf + before);
    tr_rig_close(c, false);
}

Test(stream, gauges_of_the_engine_end_with_it)
{
    struct tr_stat *engine = rig.shm.stat[TR_STAT_ENGINE];
    const char *body;

    tr_role = TR_ROLE_ENGINE;
    tr_stat_set(engine, TR_STAT_RUNNING, 3);
    tr_stat_set(engine, TR_STAT_KV_USED, 5);
    tr_stat_add(engine, TR_STAT_TOK_COMPLETION, 7);
    tr_role = TR_ROLE_FRONTEND;
    cr_expect(tr_rig_ask(&rig, "GET", "/metrics", NULL, &body) == 200);
    cr_expect(strstr(body, "tokenring_requests_running 3\n"));
    cr_expect(strstr(body, "tokenring_kv_blocks{state=\"used\"} 5\n"));
    cr_expect(strstr(body, "\ntokenring_ledger_lag_seconds "));
    tr_sengine_alive(&rig.engine, false);
    cr_expect(tr_rig_ask(&rig, "GET", "/metrics", NULL, &body) == 200);
    cr_expect(strstr(body, "tokenring_requests_running 0\n"));
    cr_expect(strstr(body, "tokenring_kv_blocks{state=\"used\"} 0\n"));
    cr_expect(!strstr(body, "\ntokenring_ledger_lag_seconds "));
    cr_expect(strstr(body, "tokenring_tokens_total{kind=\"completion\"} 7\n"));
}
