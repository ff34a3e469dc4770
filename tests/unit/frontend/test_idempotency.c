/* SPDX-License-Identifier: Apache-2.0 */
/* Requests with an Idempotency-Key: what their clients get before and after the engine has come to them,
 * and what is told again out of a ring that may go.  The engine is a script. */
#include "testfe/frontend_rig.h"

#include "frontend/stream.h"
#include "shm/area.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define PROMPT(extra) "{\"model\":\"sim\",\"prompt\":\"x\"" extra "}"
#define STREAM ",\"stream\":true"
#define KEY "Idempotency-Key: \"k\"\r\n"
#define SECOND 1000000000ull

static struct tr_rig rig;

static void start(void)
{
    tr_rig_defaults(&rig);
    rig.cfg.idempotency_ns = 300 * SECOND;
    rig.cfg.idempotency_seed = 42;
    rig.cfg.hold_slots = 16;
    tr_rig_start(&rig, 32, false);
}

static void stop(void)
{
    tr_rig_stop(&rig);
}

TestSuite(idempotency, .init = start, .fini = stop);

static struct tr_rig_client *send_it(const char *json, int rcvbuf)
{
    struct tr_rig_client *c = tr_rig_connect(&rig, rcvbuf);

    tr_rig_send(c, "POST", "/v1/completions", KEY, json);
    tr_rig_run(&rig);
    tr_rig_read(c);
    return c;
}

static struct tr_rig_client *post(const char *json)
{
    return send_it(json, 0);
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

static int status_of(const struct tr_rig_client *c)
{
    return c->len > 12 ? atoi(c->buf + 9) : 0;
}

static bool is_replay(const struct tr_rig_client *c)
{
    return strstr(c->buf, "Idempotency-Replayed: true\r\n");
}

static void end_it(uint32_t slot)
{
    tr_sengine_end(&rig.engine, slot, TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
}

/* The first request with the key: `n` times "ab", ended. */
static struct tr_rig_client *first(const char *json, unsigned n, int rcvbuf)
{
    struct tr_rig_client *c = send_it(json, rcvbuf);

    while (n--)
        tr_sengine_text(&rig.engine, slot_of(0), "ab");
    end_it(slot_of(0));
    receive(c);
    return c;
}

/* The engine gives the slot to others, whatever its frontend says. */
static void wipe(uint32_t slot)
{
    rig.engine.free_slots = rig.engine.slot[slot].released = true;
    tr_rig_run(&rig);
}

Test(idempotency, no_byte_goes_before_the_engine_has_come_to_it)
{
    rig.engine.deaf = true;
    struct tr_rig_client *c = post(PROMPT(STREAM));
    cr_expect_eq(c->len, 0u, "%s", c->buf);
    rig.engine.deaf = false;
    receive(c);
    cr_expect_eq(status_of(c), 200, "%s", c->buf);
    cr_expect(!is_replay(c));
    tr_rig_close(c, false);
}

Test(idempotency, of_two_that_wait_one_is_admitted_and_the_other_told_that_it_runs)
{
    rig.engine.deaf = true;
    struct tr_rig_client *a = post(PROMPT("")), *b = post(PROMPT(""));
    rig.engine.deaf = false;
    receive(b);
    cr_expect_eq(status_of(b), 409, "%s", b->buf);
    cr_expect(strstr(b->buf, "x-should-retry: false\r\n"));
    tr_sengine_text(&rig.engine, slot_of(0), "ab");
    end_it(slot_of(0));
    receive(a);
    cr_expect(status_of(a) == 200 && strstr(a->buf, "\"text\":\"ab\""), "%s", a->buf);
    cr_expect_eq(rig.engine.n_order, 1u);
    cr_expect_eq(rig.fe.stat->value[TR_STAT_KEY_BUSY], 1u);
    tr_rig_close(a, false);
    tr_rig_close(b, false);
}

Test(idempotency, a_client_that_goes_before_the_engines_word_is_cancelled)
{
    rig.engine.deaf = true;
    tr_rig_close(post(PROMPT(STREAM)), true);
    tr_rig_run(&rig);
    cr_expect_eq(rig.fe.n_streams, 0u);
    rig.engine.deaf = false;
    tr_rig_run(&rig);
    cr_expect_eq(rig.engine.slot[slot_of(0)].cancelled, (uint32_t)TR_ERR_CLIENT_GONE);
    cr_expect(rig.engine.slot[slot_of(0)].released);
    struct tr_rig_client *c = post(PROMPT(STREAM));
    cr_expect(status_of(c) == 200 && !is_replay(c), "it left no trace: %s", c->buf);
    tr_rig_close(c, false);
}

/* What closed its sending side is heard when there is a stream: one in one piece ends then. */
Test(idempotency, a_half_closed_client_is_looked_at_when_the_engine_has_come)
{
    rig.engine.deaf = true;
    struct tr_rig_client *c = post(PROMPT(""));
    shutdown(c->fd, SHUT_WR);
    receive(c);
    rig.engine.deaf = false;
    for (int i = 0; i < 200 && !c->eof; i++)
        receive(c);
    cr_expect(c->eof);
    cr_expect_eq(rig.engine.slot[slot_of(0)].cancelled, (uint32_t)TR_ERR_CLIENT_GONE);
    cr_expect_eq(rig.fe.n_streams, 0u);
    tr_rig_close(c, false);
}

Test(idempotency, one_that_waits_is_answered_when_no_engine_comes_any_more)
{
    rig.engine.deaf = true;
    struct tr_rig_client *c = post(PROMPT(STREAM));
    tr_streams_end_all(&rig.fe, TR_ERR_ENGINE_LOST);
    receive(c);
    cr_expect_eq(status_of(c), 503, "%s", c->buf);
    cr_expect_eq(rig.fe.n_streams, 0u);
    tr_rig_close(c, false);
}

/* Slots that were turned away go to others, and are turned away again, before their frontend has looked. */
static void turn_away_others(const uint32_t gens[], uint32_t n)
{
    enum tr_role before = tr_role;

    tr_role = TR_ROLE_ENGINE;
    for (uint32_t slot = 0; slot < n; slot++)
        if (tr_ring_at(&rig.shm, slot)->gen != gens[slot])
            tr_ring_reset(&rig.shm, slot);
    tr_role = before;
}

Test(idempotency, turned_away_is_told_however_many_had_the_slot_since)
{
    uint32_t gens[32];

    rig.engine.deaf = true;
    struct tr_rig_client *a = post(PROMPT("")), *b = post(PROMPT(""));
    rig.engine.deaf = false;
    for (uint32_t slot = 0; slot < 32; slot++)
        gens[slot] = tr_ring_at(&rig.shm, slot)->gen;
    tr_sengine_step(&rig.engine);
    turn_away_others(gens, 32);
    receive(b);
    cr_expect_eq(status_of(b), 409, "%s", b->buf);
    tr_sengine_text(&rig.engine, slot_of(0), "ab");
    end_it(slot_of(0));
    receive(a);
    cr_expect_eq(status_of(a), 200, "%s", a->buf);
    tr_rig_close(a, false);
    tr_rig_close(b, false);
}

Test(idempotency, turned_away_for_one_that_has_gone_since_it_may_try_again)
{
    rig.engine.deaf = true;
    struct tr_rig_client *a = post(PROMPT("")), *b = post(PROMPT(""));
    rig.engine.deaf = false;
    tr_sengine_step(&rig.engine);
    tr_sengine_end(&rig.engine, slot_of(0), TR_ERROR, TR_FINISH_NONE, TR_ERR_INTERNAL);
    receive(b);
    cr_expect_eq(status_of(b), 503, "%s", b->buf);
    receive(a);
    cr_expect_eq(status_of(a), 500, "%s", a->buf);
    tr_rig_close(a, false);
    tr_rig_close(b, false);
}

Test(idempotency, a_slow_reader_of_the_first_answer_is_not_disturbed_by_others)
{
    struct tr_rig_client *a = first(PROMPT(STREAM), 200, 2048), *b, *c;

    cr_assert(!strstr(a->buf, "[DONE]"), "it is still being written");
    b = post(PROMPT(STREAM));
    c = post(PROMPT(STREAM));
    receive(b);
    receive(c);
    cr_expect(is_replay(b) && strstr(b->buf, "[DONE]"), "%s", b->buf);
    cr_expect(is_replay(c) && strstr(c->buf, "[DONE]"));
    for (int i = 0; i < 200 && !strstr(a->buf, "[DONE]"); i++)
        receive(a);
    cr_expect(strstr(a->buf, "[DONE]"), "the first one has all");
    cr_expect_eq(rig.engine.n_order, 1u);
    cr_expect_eq(rig.fe.n_streams, 1u, "kept, once");
    cr_expect_eq(rig.engine.n_released, 0u);
    tr_rig_close(a, false);
    tr_rig_close(b, false);
    tr_rig_close(c, false);
}

Test(idempotency, a_replay_says_nothing_to_the_engine)
{
    tr_rig_close(first(PROMPT(STREAM ",\"stop\":[\"zz\"]"), 300, 0), false);
    uint64_t word = tr_cmd_word(&rig.shm, 0, slot_of(0));
    uint64_t scanned = tr_cursor_at(&rig.shm, 0, slot_of(0))->scanned;
    struct tr_rig_client *c = send_it(PROMPT(STREAM ",\"stop\":[\"zz\"]"), 2048);

    cr_assert(is_replay(c), "%s", c->buf);
    tr_rig_close(c, true);
    tr_rig_run(&rig);
    cr_expect_eq(tr_cmd_word(&rig.shm, 0, slot_of(0)), word);
    cr_expect_eq(tr_cursor_at(&rig.shm, 0, slot_of(0))->scanned, scanned);
    cr_expect_eq(rig.fe.n_streams, 1u);
    cr_expect_eq(rig.engine.n_released, 0u);
}

Test(idempotency, an_answer_that_goes_while_it_is_told_again_is_cut_so_that_it_shows)
{
    tr_rig_close(first(PROMPT(STREAM), 240, 0), false);
    struct tr_rig_client *c = send_it(PROMPT(STREAM), 2048);

    cr_assert(is_replay(c) && !strstr(c->buf, "[DONE]"));
    wipe(slot_of(0));
    for (int i = 0; i < 200 && !c->eof; i++)
        receive(c);
    cr_expect(c->eof);
    cr_expect(!strstr(c->buf, "[DONE]") && !strstr(c->buf, "\r\n0\r\n\r\n"));
    cr_expect(!strstr(c->buf, "\\u0000"), "nothing of what was wiped");
    cr_expect_eq(rig.fe.n_streams, rig.fe.n_held);
    tr_rig_close(c, false);
}

Test(idempotency, what_makes_no_sense_in_a_ring_is_an_error)
{
    tr_rig_close(first(PROMPT(""), 1, 0), false);
    memset(tr_ring_extra_rw(&rig.shm, slot_of(0)), 0xff, 16);
    struct tr_rig_client *c = post(PROMPT(""));
    cr_expect_eq(status_of(c), 500, "%s", c->buf);
    tr_rig_close(c, false);
}

Test(idempotency, when_all_places_are_taken_an_answer_is_still_told_again)
{
    tr_rig_close(first(PROMPT(""), 1, 0), false);
    for (uint32_t i = 0; i < TR_SENGINE_SLOTS; i++)
        if (tr_claim_get(&rig.shm, i).state == TR_CLAIM_OPEN) {
            uint32_t slot, gen;
            cr_assert_eq(tr_claim_take(&rig.shm, 1, &slot, &gen), 0);
        }
    struct tr_rig_client *c = post(PROMPT("")), *other = post(PROMPT(",\"seed\":1"));
    cr_expect(status_of(c) == 200 && is_replay(c), "%s", c->buf);
    cr_expect_eq(status_of(other), 422, "%s", other->buf);
    tr_rig_close(c, false);
    tr_rig_close(other, false);
}
