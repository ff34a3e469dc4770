/* SPDX-License-Identifier: Apache-2.0 */
/* Responses behind a scripted engine: what repeats a text while the reader is slow, what a ring may hold
 * that another process wrote, and questions that come before the engine does. */
#include "testfe/frontend_rig.h"

#include "frontend/stream.h"

#include <criterion/criterion.h>

#include <string.h>
#include <sys/socket.h>

#define ASK(extra) "{\"model\":\"sim\",\"input\":\"Hi\"" extra "}"

static struct tr_rig rig;

enum {
    LENGTH = 460, /* tokens: an event that repeats them is one piece */
    LONG = 2900   /* it is three */
};

static void start(void)
{
    tr_rig_defaults(&rig);
    rig.cfg.resume_window_ns = 30000000000ull;
    rig.cfg.hold_slots = 8;
    rig.cfg.stream_buffer = 512;
    rig.n_ctx = 4096;
    tr_rig_start(&rig, 32, false);
}

static void stop(void)
{
    tr_rig_stop(&rig);
}

TestSuite(responses, .init = start, .fini = stop);

static uint32_t slot_of(uint32_t k)
{
    uint32_t slot = tr_sengine_slot(&rig.engine, k);

    cr_assert(slot != UINT32_MAX, "request %u was not admitted", k);
    return slot;
}

static unsigned count(const char *text, const char *what)
{
    unsigned n = 0;

    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

/* A stream whose reader is slow, all of whose text is there: each byte of it takes six in JSON. */
static struct tr_rig_client *slow_one(uint32_t *slot, uint32_t length)
{
    struct tr_rig_client *c = tr_rig_connect(&rig, 2048);
    uint32_t said = 0;

    tr_rig_send(c, "POST", "/v1/responses", NULL, ASK(",\"stream\":true"));
    tr_rig_run(&rig);
    *slot = slot_of(0);
    for (int turn = 0; turn < 20000 && said < length; turn++) {
        uint64_t sent = atomic_load(&tr_cursor_at(&rig.shm, 0, *slot)->sent);
        uint32_t id = 1;
        if (said - sent < rig.shm.config.window)
            said += tr_sengine_say(&rig.engine, *slot, &id, 1);
        tr_rig_run(&rig);
        tr_rig_read(c);
    }
    cr_assert_eq(said, length);
    tr_sengine_end(&rig.engine, *slot, TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    return c;
}

/* It has begun to repeat its text, and the connection takes no more. */
static bool stands_in_the_middle(void)
{
    return rig.fe.streams && rig.fe.streams->closing && tr_exchange_room(rig.fe.streams->x) == 0;
}

static bool run_to_the_middle(struct tr_rig_client *c)
{
    for (int turn = 0; turn < 1000 && rig.fe.streams && !stands_in_the_middle(); turn++) {
        tr_rig_run(&rig);
        if (!stands_in_the_middle())
            tr_rig_read(c);
    }
    return stands_in_the_middle();
}

Test(responses, what_repeats_the_text_waits_until_the_connection_takes_it)
{
    uint32_t slot;
    struct tr_rig_client *c = slow_one(&slot, LENGTH);

    cr_assert(run_to_the_middle(c), "it waits in the middle: %s", tr_rig_body(c));
    cr_expect(!rig.engine.n_released, "the ring is still needed");
    for (int turn = 0; turn < 1000 && !strstr(c->buf, "[DONE]"); turn++) {
        tr_rig_run(&rig);
        tr_rig_read(c);
    }
    cr_expect_eq(count(tr_rig_body(c), "data: [DONE]"), 1);
    cr_expect_eq(count(tr_rig_body(c), "\\u0001"), 5 * LENGTH,
                 "the deltas, and four times the text");
    tr_rig_close(c, false);
}

Test(responses, a_ring_that_becomes_another_ones_meanwhile_shows_nothing_of_it)
{
    static const char secret[] = "secret";
    uint32_t slot;
    struct tr_rig_client *c = slow_one(&slot, LENGTH);

    cr_assert(run_to_the_middle(c));
    tr_role = TR_ROLE_ENGINE;
    tr_ring_reset(&rig.shm, slot);
    for (size_t i = 0; i < sizeof(secret); i++)
        tr_ring_push(&rig.shm, slot, (uint32_t)secret[i], 0);
    tr_role = TR_ROLE_FRONTEND;
    for (int turn = 0; turn < 1000 && !c->eof; turn++) {
        tr_rig_run(&rig);
        tr_rig_read(c);
    }
    cr_expect(c->eof, "it was cut");
    cr_expect_eq(count(tr_rig_body(c), "[DONE]") + count(tr_rig_body(c), "cret"), 0, "%s",
                 tr_rig_body(c));
    tr_rig_close(c, false);
}

Test(responses, nothing_comes_between_the_pieces_of_one_event)
{
    uint32_t slot;
    struct tr_rig_client *c = slow_one(&slot, LONG);

    cr_assert(run_to_the_middle(c));
    rig.cfg.heartbeat_ns = 1; /* a beat is due in each look at the clock */
    shutdown(c->fd, SHUT_WR); /* and whether the client is there would be asked */
    for (int turn = 0; turn < 1000 && !strstr(c->buf, "[DONE]"); turn++) {
        if (rig.fe.streams) {
            rig.fe.streams->rang = true;
            tr_stream_due(rig.fe.streams);
        }
        tr_rig_run(&rig);
        tr_rig_read(c);
    }
    const char *body = tr_rig_body(c);
    cr_expect_eq(count(body, "data: [DONE]"), 1);
    for (const char *p = body; (p = strstr(p, "\ndata: {"));) {
        p++;
        size_t n = strcspn(p, "\n");
        cr_expect(p[n - 1] == '}' && !memmem(p, n, ": keep", 6), "%.*s", (int)n, p);
    }
    tr_rig_close(c, false);
}

/* The id in an answer. */
static const char *id_in(const char *body)
{
    static char path[128];
    const char *p = strstr(body, "\"id\":\"resp_");

    cr_assert(p, "%s", body);
    snprintf(path, sizeof(path), "/v1/responses/%.*s", (int)strcspn(p + 6, "\""), p + 6);
    return path;
}

Test(responses, what_is_kept_in_a_ring_is_parsed_and_not_repeated_as_it_is)
{
    const char *body;

    cr_assert_eq(tr_rig_ask(&rig, "POST", "/v1/responses",
                            ASK(",\"background\":true,\"instructions\":\"Be brief.\""), &body),
                 200);
    cr_expect(strstr(body, "\"instructions\":\"Be brief.\",\"tools\":[]"), "%s", body);
    const char *path = id_in(body);
    uint8_t *extra = tr_ring_extra_rw(&rig.shm, slot_of(0));
    char *at = memmem(extra, TR_EXTRA_BYTES, "{\"instructions\"", 15);
    cr_assert(at);
    memcpy(at, "{\"inst\":1,\"x\":\"", 15); /* no JSON any more */
    cr_assert_eq(tr_rig_ask(&rig, "GET", path, NULL, &body), 200);
    cr_expect(strstr(body, "\"instructions\":null,\"tools\":[]"), "%s", body);
    cr_expect(!strstr(body, "Be brief."), "%s", body);
}

/* A background response that has ended with a text of several turns; its path. */
static void long_one(uint32_t k, uint32_t length, char path[128])
{
    const char *body;

    cr_assert_eq(tr_rig_ask(&rig, "POST", "/v1/responses", ASK(",\"background\":true"), &body),
                 200);
    snprintf(path, 128, "%s", id_in(body));
    uint32_t slot = slot_of(k);
    for (uint32_t i = 0; i < length; i++) {
        uint32_t id = 'a';
        cr_assert_eq(tr_sengine_say(&rig.engine, slot, &id, 1), 1u);
        if (i % 128 == 0)
            tr_rig_run(&rig);
    }
    tr_sengine_end(&rig.engine, slot, TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    tr_rig_run(&rig);
}

/* Who has asked first is served first, to the end: by turns none would come to its end for long, and by
 * the newest first the oldest never. */
Test(responses, questions_are_served_in_the_order_in_which_they_came)
{
    enum { N = 6 };
    struct tr_rig_client *c[N];
    char path[N][128];
    unsigned answered = 0, turns = 0;

    for (uint32_t k = 0; k < N; k++)
        long_one(k, 3900, path[k]);
    for (unsigned k = 0; k < N; k++) {
        c[k] = tr_rig_connect(&rig, 0);
        tr_rig_send(c[k], "GET", path[k], NULL, NULL);
    }
    for (; answered < N && turns < 1000; turns++) {
        tr_fe_turn(&rig.fe, false);
        for (unsigned k = 0; k < N; k++) {
            bool before = c[k]->len;
            tr_rig_read(c[k]);
            if (before || !c[k]->len)
                continue;
            cr_expect_eq(k, answered, "%u comes before %u", k, answered);
            answered++;
        }
    }
    cr_expect_eq(answered, (unsigned)N);
    cr_expect_gt(turns, 4u, "one turn does not make all texts");
    for (unsigned k = 0; k < N; k++)
        tr_rig_close(c[k], false);
}

/* The emitter gives up beyond its own depth: what would come out as null is refused instead. */
Test(responses, what_is_too_deep_to_be_copied_is_refused)
{
    static const struct {
        const char *param, *before, *after;
    } rows[] = {
        {"chat_template_kwargs", ",\"chat_template_kwargs\":{\"a\":", "}"},
        {"documents", ",\"documents\":[{\"a\":", "}]"},
        {"text", ",\"text\":{\"a\":", "}"},
        {"reasoning", ",\"reasoning\":{\"a\":", "}"},
        {"input",
         ",\"background\":true,\"input\":[{\"role\":\"user\",\"content\":\"Hi\",\"x\":", "}]"}};
    const char *body;

    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int n = 40; n < 64; n += 20) {
            char deep[128] = "", json[512], want[64];
            memset(deep, '[', (size_t)n);
            memset(deep + n, ']', (size_t)n);
            snprintf(json, sizeof(json), "{\"model\":\"sim\"%s%s%s%s}",
                     i == 4 ? "" : ",\"input\":\"Hi\"", rows[i].before, deep, rows[i].after);
            snprintf(want, sizeof(want), "\"param\":\"%s\"", rows[i].param);
            cr_expect_eq(tr_rig_ask(&rig, "POST", "/v1/responses/input_tokens", json, &body),
                         n == 40 ? 200 : 400, "%s %d: %s", rows[i].param, n, body);
            cr_expect_eq(strstr(body, want) != NULL, n > 40, "%s %d: %s", rows[i].param, n, body);
        }
    }
}

Test(responses, one_that_no_engine_has_come_to_is_told_after_a_second)
{
    struct tr_rig_client *c = tr_rig_connect(&rig, 0);

    rig.engine.deaf = true;
    tr_rig_send(c, "POST", "/v1/responses", NULL, ASK(",\"background\":true"));
    for (int turn = 0; turn < 600 && !strstr(c->buf, "resp_"); turn++) {
        tr_rig_run_ms(&rig, 50);
        tr_rig_read(c);
    }
    cr_expect(strstr(tr_rig_body(c), "\"status\":\"queued\""), "%s", tr_rig_body(c));
    cr_expect(strstr(tr_rig_body(c), "\"background\":true"), "%s", tr_rig_body(c));
    tr_rig_close(c, false);
}

Test(responses, a_question_about_another_frontends_stream_is_told_to_the_engine)
{
    const struct tr_owner other = {.area = 1, .epoch = 1, .confirmed = true};
    const char *body;

    cr_assert_eq(tr_rig_ask(&rig, "POST", "/v1/responses", ASK(",\"background\":true"), &body),
                 200);
    const char *path = id_in(body);
    uint32_t slot = slot_of(0);
    tr_sengine_give(&rig.engine, slot, other);
    tr_rig_run(&rig);
    cr_expect_eq(atomic_load(&tr_ring_at(&rig.shm, slot)->asked_ns), 0);
    cr_assert_eq(tr_rig_ask(&rig, "GET", path, NULL, &body), 200, "%s", body);
    tr_rig_run(&rig);
    cr_expect_neq(atomic_load(&tr_ring_at(&rig.shm, slot)->asked_ns), 0);
    cr_expect(tr_ring_owner(tr_ring_at(&rig.shm, slot)).area == 1, "nobody took it away");
    tr_sengine_text(&rig.engine, slot, "ab");
    tr_sengine_end(&rig.engine, slot, TR_COMPLETED, TR_FINISH_EOG, TR_OK);
    cr_assert_eq(tr_rig_ask(&rig, "GET", path, NULL, &body), 200);
    cr_expect(strstr(body, "\"text\":\"a\""), "the end-of-turn token is no text: %s", body);
    cr_expect(strstr(body, "\"output_tokens\":2"), "%s", body);
}
