/* SPDX-License-Identifier: Apache-2.0 */
/* Streams without a reader: what the engine is told, and when, and who gets what.  The other frontend is
 * a word in the ring (area 1); the engine is a script. */
#include "testfe/frontend_rig.h"

#include "base/clock.h"
#include "base/sim_vocab.h"
#include "frontend/stream.h"
#include "shm/area.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define HELD(extra) "{\"model\":\"sim\",\"prompt\":\"x\",\"on_disconnect\":\"hold\"" extra "}"
#define SECOND 1000000000ull

static struct tr_rig rig;

static const struct tr_owner mine = {.area = 0, .epoch = 1, .confirmed = true};
static const struct tr_owner other = {.area = 1, .epoch = 1, .confirmed = true};
static const struct tr_owner given = {.area = 0, .epoch = 1, .confirmed = false};

static void begin(uint64_t window_ns, uint32_t slots, bool ledger)
{
    tr_rig_defaults(&rig);
    rig.cfg.resume_window_ns = window_ns;
    rig.cfg.hold_slots = slots;
    tr_rig_start(&rig, 32, ledger);
}

static void start(void)
{
    begin(30 * SECOND, 8, false);
}

static void stop(void)
{
    tr_rig_stop(&rig);
}

TestSuite(hold, .init = start, .fini = stop);
TestSuite(hold_own, .fini = stop); /* these choose their own configuration */

static struct tr_rig_client *send_it(const char *method, const char *path, const char *headers,
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
    return send_it("POST", "/v1/streams", "Accept: application/x-ndjson\r\n", json);
}

static uint32_t slot_of(uint32_t k)
{
    uint32_t slot = tr_sengine_slot(&rig.engine, k);

    cr_assert(slot != UINT32_MAX, "request %u was not admitted", k);
    return slot;
}

static struct tr_stream_id name_of(uint32_t slot)
{
    const struct tr_ring *r = tr_ring_at(&rig.shm, slot);

    return (struct tr_stream_id){.slot = slot, .gen = r->gen, .rand = r->stream_rand};
}

static struct tr_rig_client *ask_for(const char *method, uint32_t slot, const char *query)
{
    char path[128], id[TR_STREAM_ID_BYTES];

    tr_stream_id_format(name_of(slot), id);
    snprintf(path, sizeof(path), "/v1/streams/%s%s", id, query);
    return send_it(method, path, "Accept: application/x-ndjson\r\n", NULL);
}

static struct tr_rig_client *get(uint32_t slot, const char *query)
{
    return ask_for("GET", slot, query);
}

static void leave(struct tr_rig_client *c)
{
    tr_rig_close(c, true);
    tr_rig_run(&rig);
}

static void receive(struct tr_rig_client *c)
{
    tr_rig_run(&rig);
    tr_rig_read(c);
}

/* The contents of all "text":"..." joined. */
static const char *text_of(struct tr_rig_client *c)
{
    static char out[TR_RIG_BYTES];
    const char *body = tr_rig_body(c);
    size_t n = 0;

    for (const char *p = body; (p = strstr(p, "\"text\":\""));) {
        p += 8;
        size_t len = strcspn(p, "\"");
        memcpy(out + n, p, len);
        n += len;
    }
    out[n] = 0;
    return out;
}

static int status_of(const struct tr_rig_client *c)
{
    return c->len > 12 ? atoi(c->buf + 9) : 0;
}

static uint32_t flags_of(uint32_t slot)
{
    return tr_cmd_flags(tr_cmd_word(&rig.shm, 0, slot));
}

static const struct tr_cursor *cursor_of(uint32_t slot)
{
    return tr_cursor_at(&rig.shm, 0, slot);
}

static void end_it(uint32_t slot)
{
    tr_sengine_end(&rig.engine, slot, TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
}

/* A stream that said "ab" and whose reader has gone. */
static uint32_t held_stream(const char *json)
{
    struct tr_rig_client *c = post(json);
    uint32_t slot = slot_of(rig.engine.n_order - 1), before = rig.fe.n_held;

    tr_sengine_text(&rig.engine, slot, "ab");
    receive(c);
    leave(c);
    cr_assert_eq(rig.fe.n_held, before + 1, "held");
    return slot;
}

/* ---- here ---- */

Test(hold, without_a_reader_it_is_scanned_and_never_parks)
{
    uint32_t slot = held_stream(HELD(",\"stop\":[\"xyz\"]"));

    tr_sengine_text(&rig.engine, slot, "cdxy");
    tr_rig_run(&rig);
    cr_expect_eq(cursor_of(slot)->scanned, 6u);
    cr_expect_eq(cursor_of(slot)->sent, 6u, "though \"xy\" is held back");
    cr_expect_eq(flags_of(slot), 0u, "nothing was said to the engine");
    tr_sengine_text(&rig.engine, slot, "zz");
    tr_rig_run(&rig);
    cr_expect(rig.engine.slot[slot].finish_at, "the stop string is found");
    cr_expect_eq(rig.engine.n_released, 0u);
    struct tr_rig_client *c = get(slot, "?after=2");
    cr_expect_str_eq(text_of(c), "cd");
    cr_expect(strstr(tr_rig_body(c), "response.completed"), "%s", tr_rig_body(c));
    cr_expect_eq(rig.fe.n_held, 1u, "kept: the last bytes may be lost");
    tr_rig_close(c, false);
}

Test(hold, the_newest_reader_has_it_and_the_older_one_is_cut)
{
    struct tr_rig_client *a = post(HELD("")), *b;
    uint32_t slot = slot_of(0);

    tr_sengine_text(&rig.engine, slot, "ab");
    receive(a);
    b = get(slot, "?after=1");
    tr_rig_read(a);
    cr_expect(a->eof, "cut");
    cr_expect(!strstr(a->buf, "\r\n0\r\n\r\n"), "so that it shows");
    cr_expect_str_eq(text_of(b), "b");
    tr_sengine_text(&rig.engine, slot, "c");
    end_it(slot);
    receive(b);
    cr_expect_str_eq(text_of(b), "bc");
    cr_expect_eq(rig.fe.n_streams, 1u);
    tr_rig_close(a, false);
    tr_rig_close(b, false);
}

Test(hold, positions_beyond_what_there_is_are_refused_and_the_last_one_gets_nothing)
{
    uint32_t slot = held_stream(HELD(""));
    struct tr_rig_client *c = get(slot, "?after=3");

    cr_expect_eq(status_of(c), 400, "%s", c->buf);
    cr_expect_eq(rig.fe.n_held, 1u, "still there");
    tr_rig_close(c, false);
    c = get(slot, "?after=2");
    cr_expect_eq(status_of(c), 200, "up to date: it waits for more");
    cr_expect_str_eq(tr_rig_body(c), "");
    end_it(slot);
    receive(c);
    cr_expect(strstr(tr_rig_body(c), "response.incomplete"));
    tr_rig_close(c, false);
    c = get(slot, "?after=4");
    cr_expect_eq(status_of(c), 204, "%s", c->buf);
    tr_rig_close(c, false);
    c = get(slot, "?after=5");
    cr_expect_eq(status_of(c), 400, "%s", c->buf);
    tr_rig_close(c, false);
}

Test(hold, what_was_cancelled_by_request_is_let_go)
{
    uint32_t running = held_stream(HELD("")), ended = held_stream(HELD(""));
    const uint32_t slots[] = {running, ended};

    end_it(ended);
    tr_rig_run(&rig);
    for (int i = 0; i < 2; i++) {
        struct tr_rig_client *c = ask_for("DELETE", slots[i], "");
        cr_expect(strstr(c->buf, i ? "\"status\":\"incomplete\"" : "\"status\":\"cancelled\""));
        tr_rig_close(c, false);
        c = get(slots[i], "");
        cr_expect_eq(status_of(c), 410, "%s", c->buf);
        tr_rig_close(c, false);
    }
    cr_expect_eq(rig.engine.n_released, 2u);
    cr_expect_eq(rig.fe.n_streams, 0u);
}

/* Should this process die with the answer, the command word says what is to become of it. */
Test(hold, a_cancel_by_request_is_in_the_command_word_before_it_is_answered)
{
    uint32_t running = held_stream(HELD("")), ended = held_stream(HELD(""));
    const uint32_t slots[] = {running, ended};

    end_it(ended);
    tr_rig_run(&rig);
    rig.engine.deaf = true;
    for (int i = 0; i < 2; i++) {
        struct tr_rig_client *c = ask_for("DELETE", slots[i], "");
        uint32_t flags = flags_of(slots[i]);
        cr_expect(flags & TR_CMD_CANCEL, "%d: %x", i, flags);
        cr_expect(flags & TR_CMD_UNWANTED, "%d: %x", i, flags);
        tr_rig_close(c, false);
    }
}

Test(hold, a_drain_lets_go_what_has_ended_and_lets_run_what_runs)
{
    uint32_t running = held_stream(HELD("")), ended = held_stream(HELD(""));

    end_it(ended);
    tr_rig_run(&rig);
    cr_expect_eq(rig.engine.n_released, 0u);
    tr_sengine_drain(&rig.engine, TR_DRAIN_CLOSED);
    tr_rig_run(&rig);
    cr_expect(rig.engine.slot[ended].released);
    cr_expect_eq(rig.fe.n_streams, 1u);
    end_it(running);
    tr_rig_run(&rig);
    cr_expect(rig.engine.slot[running].released);
    cr_expect_eq(rig.fe.n_streams, 0u);
}

Test(hold_own, the_window_ends_with_the_time_of_the_close)
{
    begin(SECOND / 4, 8, false);
    uint64_t before = tr_now_ns();
    uint32_t slot = held_stream(HELD(""));
    uint64_t after = tr_now_ns();

    for (int i = 0; i < 500 && !rig.engine.slot[slot].cancelled; i++)
        tr_rig_run_ms(&rig, 10);
    cr_expect_eq(rig.engine.slot[slot].cancelled, (uint32_t)TR_ERR_CLIENT_GONE);
    cr_expect(rig.engine.slot[slot].disconnect_ns >= before &&
              rig.engine.slot[slot].disconnect_ns <= after);
    tr_rig_run(&rig);
    cr_expect(rig.engine.slot[slot].released);
    cr_expect_eq(rig.fe.n_streams, 0u);
    cr_expect_eq(rig.fe.stat->value[TR_STAT_RESUME_EXPIRED], 1u);
}

Test(hold_own, without_a_place_a_close_cancels_unless_one_that_has_ended_gives_way)
{
    begin(30 * SECOND, 1, false);
    uint32_t first = held_stream(HELD(""));
    struct tr_rig_client *c = post(HELD(""));
    uint32_t second = slot_of(1);

    leave(c);
    cr_expect_eq(rig.engine.slot[second].cancelled, (uint32_t)TR_ERR_CLIENT_GONE);
    cr_expect_eq(rig.fe.n_held, 1u);
    end_it(first);
    tr_rig_run(&rig);
    cr_expect(!rig.engine.slot[first].released);
    c = post(HELD(""));
    leave(c);
    cr_expect(rig.engine.slot[first].released, "it has ended: it makes place");
    cr_expect_eq(rig.engine.slot[slot_of(2)].cancelled, 0u);
    cr_expect_eq(rig.fe.n_held, 1u);
    /* As many as another frontend says that it holds. */
    tr_stat_set(rig.shm.stat[TR_STAT_AREA0 + 1], TR_STAT_STREAMS_HELD, 1);
    atomic_store(&rig.shm.control->area_alive[1], 1);
    rig.fe.cfg = &rig.cfg;
    rig.cfg.hold_slots = 2;
    c = post(HELD(""));
    leave(c);
    cr_expect_eq(rig.engine.slot[slot_of(3)].cancelled, (uint32_t)TR_ERR_CLIENT_GONE);
}

/* The last of those that are due in a turn is ended by another one's look, and what does not get through
 * in one turn is due again. */
Test(hold_own, a_position_beyond_the_end_is_refused_though_there_is_no_place_to_hold_it)
{
    begin(30 * SECOND, 1, false);
    held_stream(HELD(""));
    struct tr_rig_client *a = post(HELD(""));
    uint32_t slot = slot_of(1);
    struct tr_rig_client *b = get(slot, "?after=7");

    cr_expect_eq(status_of(b), 400, "%s", b->buf);
    cr_expect(strstr(b->buf, "\"param\":\"after\""), "%s", b->buf);
    cr_expect_eq(rig.engine.slot[slot].cancelled, (uint32_t)TR_ERR_CLIENT_GONE);
    tr_rig_close(a, false);
    tr_rig_close(b, false);
}

Test(hold_own, a_turn_ends_though_one_makes_place_for_another, .timeout = 60)
{
    enum { MANY = 10, TOKENS = 450 };
    static char many_a[TOKENS + 1];
    struct tr_rig_client *whole[MANY], *a;

    begin(30 * SECOND, 1, false);
    memset(many_a, 'a', TOKENS);
    a = post(HELD(""));
    for (int i = 0; i < MANY; i++)
        whole[i] = send_it("POST", "/v1/completions", "", "{\"model\":\"sim\",\"prompt\":\"x\"}");
    uint32_t last = held_stream(HELD(""));
    end_it(last);
    tr_rig_run(&rig);
    cr_assert(rig.fe.n_held == 1 && !rig.engine.slot[last].released);
    end_it(slot_of(0));
    for (uint32_t i = 1; i <= MANY; i++) {
        tr_sengine_text(&rig.engine, slot_of(i), many_a);
        end_it(slot_of(i));
    }
    tr_sengine_give(&rig.engine, last, mine);
    tr_streams_pump(&rig.fe);
    cr_expect_eq(rig.fe.n_due, 1u, "more text than a turn makes");
    tr_rig_run(&rig);
    cr_expect(rig.engine.slot[last].released);
    cr_expect_eq(rig.fe.n_held, 1u, "the other one");
    for (int i = 0; i < MANY; i++) {
        tr_rig_read(whole[i]);
        cr_expect_eq(status_of(whole[i]), 200);
        tr_rig_close(whole[i], false);
    }
    tr_rig_close(a, false);
}

Test(hold_own, without_a_window_nothing_is_held)
{
    begin(0, 8, false);
    leave(post(HELD("")));
    cr_expect_eq(rig.engine.slot[slot_of(0)].cancelled, (uint32_t)TR_ERR_CLIENT_GONE);
    cr_expect_eq(rig.fe.n_streams, 0u);
}

/* ---- records ---- */

static unsigned records(struct tr_delivery *last)
{
    enum tr_role before = tr_role;
    unsigned n = 0;

    tr_role = TR_ROLE_LEDGER;
    while (tr_delivery_pop(&rig.shm, 0, last) == 0)
        n++;
    tr_role = before;
    return n;
}

Test(hold, one_record_for_all_readers)
{
    struct tr_delivery d;
    uint32_t slot = held_stream(HELD(""));

    cr_expect_eq(records(&d), 0u, "somebody may come back");
    struct tr_rig_client *c = get(slot, "?after=2");
    tr_sengine_text(&rig.engine, slot, "cde");
    receive(c);
    end_it(slot);
    receive(c);
    for (int i = 0; i < 300 && rig.fe.n_deliveries; i++)
        tr_rig_run_ms(&rig, 10);
    cr_expect_eq(records(&d), 1u, "he has all of it");
    cr_expect_eq(d.delivered_tokens, 5u);
    tr_rig_close(c, false);
    c = get(slot, "");
    cr_expect_str_eq(text_of(c), "abcde");
    leave(c);
    tr_sengine_drain(&rig.engine, TR_DRAIN_CLOSED);
    tr_rig_run_ms(&rig, 50);
    cr_expect_eq(rig.fe.n_streams, 0u);
    cr_expect_eq(records(&d), 0u, "and no other record");
}

Test(hold, nobody_comes_back_and_what_the_first_reader_has_counts)
{
    struct tr_delivery d;
    uint32_t slot = held_stream(HELD(""));

    tr_sengine_text(&rig.engine, slot, "cde");
    end_it(slot);
    tr_rig_run(&rig);
    tr_sengine_drain(&rig.engine, TR_DRAIN_CLOSED);
    tr_rig_run(&rig);
    cr_expect_eq(records(&d), 1u);
    cr_expect_eq(d.delivered_tokens, 2u);
    cr_expect(d.closed_ns && d.closed_ns < tr_now_ns());
}

/* ---- another frontend ---- */

Test(hold, a_stream_that_another_frontend_has_is_dropped_without_a_word)
{
    struct tr_rig_client *c = post(HELD("")), *whole;
    uint32_t slot = slot_of(0), held = 0;

    tr_sengine_text(&rig.engine, slot, "ab");
    receive(c);
    tr_sengine_give(&rig.engine, slot, other);
    receive(c);
    cr_expect(c->eof && !strstr(c->buf, "\r\n0\r\n\r\n"), "its reader sees a cut");
    held = held_stream(HELD(""));
    tr_sengine_give(&rig.engine, held, other);
    tr_rig_run(&rig);
    cr_expect_eq(rig.fe.n_streams, 0u);
    cr_expect_eq(rig.fe.n_held, 0u);
    cr_expect_eq(flags_of(slot), 0u);
    cr_expect_eq(flags_of(held), 0u);
    tr_rig_close(c, false);
    /* It can come back. */
    whole = get(slot, "");
    cr_expect_str_eq(text_of(whole), "ab", "%s", whole->buf);
    cr_expect_eq(rig.engine.n_adopted, 1u);
    tr_rig_close(whole, false);
}

/* The same stream, built from the ring alone: nothing in this process knows it any more. */
static uint32_t strange_stream(const char *json)
{
    uint32_t slot = held_stream(json);

    tr_sengine_give(&rig.engine, slot, other);
    tr_rig_run(&rig);
    cr_assert_eq(rig.fe.n_streams, 0u);
    return slot;
}

/* All clients have the empty key.  A stream of another one is as good as none, here and elsewhere. */
Test(hold, with_another_key_there_is_no_such_stream)
{
    static const char *const methods[] = {"GET", "HEAD", "DELETE"};
    uint32_t there = strange_stream(HELD("")), here = held_stream(HELD(""));
    const uint32_t slots[] = {there, here};

    for (int i = 0; i < 2; i++)
        memcpy(tr_ring_at(&rig.shm, slots[i])->key, "k", 2);
    memcpy(rig.fe.by_slot[here]->ask->key, "k", 2);
    for (int i = 0; i < 6; i++) {
        struct tr_rig_client *c = ask_for(methods[i / 2], slots[i % 2], "");
        cr_expect_eq(status_of(c), 404, "%s %d: %s", methods[i / 2], i % 2, c->buf);
        tr_rig_close(c, false);
    }
    cr_expect_eq(rig.engine.n_adopted, 0u);
    cr_expect_eq(rig.engine.slot[there].cancelled | rig.engine.slot[here].cancelled, 0u);
    cr_expect_eq(rig.fe.n_held, 1u);
}

Test(hold, a_given_stream_is_built_from_its_ring_and_says_nothing_before_it_is_ours)
{
    uint32_t slot = strange_stream(HELD(",\"stop\":[\"bcd\"]"));

    rig.engine.deaf = true;
    tr_sengine_text(&rig.engine, slot, "cdef");
    tr_sengine_give(&rig.engine, slot, given);
    tr_rig_run(&rig);
    cr_expect_eq(rig.fe.n_held, 1u);
    cr_expect_eq(cursor_of(slot)->scanned, 0u);
    cr_expect_eq(flags_of(slot), 0u, "no command");
    rig.engine.deaf = false;
    tr_rig_run(&rig);
    cr_expect_eq(rig.engine.n_adopted, 1u);
    cr_expect(rig.engine.slot[slot].finish_at, "the stop string was found");
    cr_expect_eq(tr_ring_at(&rig.shm, slot)->finish_index, 4u);
    struct tr_rig_client *c = get(slot, "");
    cr_expect_str_eq(text_of(c), "a");
    tr_rig_close(c, false);
}

Test(hold, a_long_stream_of_another_frontend_is_gone_through_in_several_turns)
{
    enum { TOKENS = 450 };
    static char many_a[TOKENS + 1];
    uint32_t slot = strange_stream(HELD(",\"stop\":[\"xyz\"]"));

    memset(many_a, 'a', TOKENS);
    tr_sengine_text(&rig.engine, slot, many_a);
    end_it(slot);
    tr_sengine_give(&rig.engine, slot, given);
    struct tr_rig_client *c = tr_rig_connect(&rig, 0);
    char path[128], id[TR_STREAM_ID_BYTES];
    tr_stream_id_format(name_of(slot), id);
    snprintf(path, sizeof(path), "/v1/streams/%s?after=%d", id, TOKENS + 1);
    tr_rig_send(c, "GET", path, "Accept: application/x-ndjson\r\n", NULL);
    uint64_t scanned = 0, most = 0;
    for (int i = 0; i < 40; i++) {
        tr_fe_turn(&rig.fe, false);
        uint64_t now = cursor_of(slot)->scanned;
        most = now - scanned > most ? now - scanned : most;
        scanned = now;
        tr_sengine_step(&rig.engine);
    }
    cr_expect_gt(scanned, (uint64_t)TOKENS - 1);
    cr_expect_lt(most, (uint64_t)TOKENS - 1, "not in one");
    receive(c);
    cr_expect_eq(status_of(c), 200, "%s", c->buf);
    cr_expect_str_eq(text_of(c), "a", "what was not scanned yet is not missing");
    cr_expect(strstr(tr_rig_body(c), "response.incomplete"));
    tr_rig_close(c, false);
}

Test(hold, what_a_reader_says_that_he_has_was_delivered)
{
    static char many_a[401];
    struct tr_delivery d;
    uint32_t slot = strange_stream(HELD(""));

    memset(many_a, 'a', 400);
    tr_sengine_text(&rig.engine, slot, many_a);
    tr_sengine_give(&rig.engine, slot, given);
    tr_rig_run(&rig);
    records(&d);
    char path[128], id[TR_STREAM_ID_BYTES];
    struct tr_rig_client *c = tr_rig_connect(&rig, 1024);
    tr_stream_id_format(name_of(slot), id);
    snprintf(path, sizeof(path), "/v1/streams/%s?after=300", id);
    tr_rig_send(c, "GET", path, "Accept: application/x-ndjson\r\n", NULL);
    tr_rig_run(&rig);
    leave(c);
    tr_sengine_drain(&rig.engine, TR_DRAIN_CLOSED);
    end_it(slot);
    tr_rig_run(&rig);
    cr_expect_eq(records(&d), 1u);
    cr_expect_geq(d.delivered_tokens, 300u, "%u", d.delivered_tokens);
    cr_expect_lt(d.delivered_tokens, 402u, "he did not read");
}

Test(hold, a_given_stream_for_which_there_is_no_place_is_cancelled)
{
    uint32_t slot = strange_stream(HELD(""));

    rig.cfg.hold_slots = 0;
    tr_sengine_give(&rig.engine, slot, given);
    tr_rig_run(&rig);
    cr_expect_eq(rig.engine.slot[slot].cancelled, (uint32_t)TR_ERR_CLIENT_GONE);
    cr_expect(rig.engine.slot[slot].released);
}

Test(hold, a_given_stream_that_makes_no_sense_is_ended)
{
    uint32_t slot = strange_stream(HELD(""));
    enum tr_role before = tr_role;

    tr_role = TR_ROLE_ENGINE;
    memset(tr_ring_extra_rw(&rig.shm, slot), 0xff, 4);
    tr_role = before;
    tr_sengine_give(&rig.engine, slot, given);
    for (int i = 0; i < 500 && !rig.engine.slot[slot].released; i++)
        tr_rig_run_ms(&rig, 10);
    cr_expect_eq(rig.engine.slot[slot].cancelled, (uint32_t)TR_ERR_INTERNAL);
    cr_expect(rig.engine.slot[slot].released);
    cr_expect_eq(rig.fe.n_streams, 0u);
}

/* News of it has not been looked at: it is ours, and nobody here has let it go. */
Test(hold, a_stream_that_is_ours_and_was_not_noticed_is_not_over)
{
    uint32_t slot = strange_stream(HELD(""));
    enum tr_role before = tr_role;

    tr_role = TR_ROLE_ENGINE;
    tr_ring_set_owner(tr_ring_at(&rig.shm, slot), mine);
    tr_role = before;
    struct tr_rig_client *c = get(slot, "?after=0");
    cr_expect_eq(status_of(c), 200, "%s", c->buf);
    cr_expect_str_eq(text_of(c), "ab");
    leave(c);
    cr_expect_eq(rig.fe.n_held, 1u);
}

/* Who asked for it elsewhere has died since, or has it without having asked: the reader here is the only
 * one. */
Test(hold, a_reader_who_waits_asks_again_when_it_went_to_somebody_who_does_not_have_it)
{
    uint32_t slot = strange_stream(HELD(""));
    const struct tr_owner dead = {.area = 2, .epoch = 1, .confirmed = true};
    enum tr_role before = tr_role;

    rig.engine.deaf = true;
    struct tr_rig_client *c = get(slot, "?after=0");
    tr_role = TR_ROLE_ENGINE;
    tr_subq_consume(&rig.shm, 0, 1);
    tr_role = before;
    tr_sengine_give(&rig.engine, slot, dead);
    tr_rig_run(&rig);
    cr_expect_eq(c->len, 0u, "%s", c->buf);
    rig.engine.deaf = false;
    for (int i = 0; i < 500 && !c->len; i++) {
        tr_rig_run_ms(&rig, 10);
        tr_rig_read(c);
    }
    cr_expect_eq(status_of(c), 200, "%s", c->buf);
    cr_expect_str_eq(text_of(c), "ab");
    leave(c);
}

/* What is heard and not given was let go by who had it: nobody waits for that. */
Test(hold, a_reader_learns_at_once_that_its_owner_has_let_it_go)
{
    uint32_t slot = strange_stream(HELD(""));
    enum tr_role before = tr_role;

    end_it(slot);
    rig.engine.deaf = true;
    struct tr_rig_client *c = get(slot, "?after=0");
    tr_role = TR_ROLE_ENGINE;
    tr_subq_consume(&rig.shm, 0, 1);
    tr_news_post(&rig.shm, 0, slot / 64, 1ull << (slot % 64));
    tr_role = before;
    receive(c);
    cr_expect_eq(status_of(c), 410, "%s", c->buf);
    cr_expect_eq(rig.fe.n_streams, 0u);
    tr_rig_close(c, false);
}

/* An engine that does not hear says nothing about it. */
Test(hold, a_reader_who_was_not_heard_is_told_to_come_again, .timeout = 60)
{
    uint32_t slot = strange_stream(HELD(""));

    end_it(slot);
    rig.engine.deaf = true;
    struct tr_rig_client *c = get(slot, "?after=0");
    for (int i = 0; i < 4000 && !c->len; i++) {
        tr_rig_run_ms(&rig, 10);
        tr_rig_read(c);
    }
    cr_expect_eq(status_of(c), 503, "%s", c->buf);
    tr_rig_close(c, false);
}

Test(hold, who_was_given_a_stream_loses_it_to_who_asked)
{
    uint32_t slot = strange_stream(HELD(""));

    rig.engine.deaf = true;
    tr_sengine_give(&rig.engine, slot, given);
    tr_rig_run(&rig);
    cr_expect_eq(rig.fe.n_held, 1u);
    tr_sengine_give(&rig.engine, slot, other);
    tr_rig_run(&rig);
    cr_expect_eq(rig.fe.n_streams, 0u);
    cr_expect_eq(flags_of(slot), 0u);
}

/* Adopted, read to its end and let go by another frontend, all of it before this one looks. */
Test(hold, a_stream_that_another_frontend_had_and_let_go_is_dropped_without_a_word)
{
    uint32_t ended = held_stream(HELD("")), running = held_stream(HELD(""));
    const uint32_t slots[] = {ended, running};
    enum tr_role before = tr_role;

    end_it(ended);
    tr_rig_run(&rig);
    cr_expect_eq(rig.fe.n_held, 2u);
    for (int i = 0; i < 2; i++) {
        tr_role = TR_ROLE_ENGINE;
        tr_ring_reset(&rig.shm, slots[i]);
        tr_news_post(&rig.shm, 0, slots[i] / 64, 1ull << (slots[i] % 64));
        tr_role = before;
        tr_rig_run(&rig);
        cr_expect_eq(rig.fe.n_streams, 1u - (unsigned)i, "%d", i);
        cr_expect_eq(rig.fe.n_held, 1u - (unsigned)i, "%d", i);
        cr_expect_eq(flags_of(slots[i]), 0u, "%d", i);
    }
}

/* It was lost, and before that was noticed the other frontend died. */
Test(hold, a_stream_that_is_given_once_more_is_taken_once_more)
{
    uint32_t slot = held_stream(HELD(",\"stop\":[\"bcd\"]"));

    tr_sengine_text(&rig.engine, slot, "cde");
    tr_sengine_give(&rig.engine, slot, given);
    tr_rig_run(&rig);
    cr_expect_eq(rig.engine.n_adopted, 1u);
    cr_expect_eq(rig.fe.n_held, 1u);
    cr_expect(rig.engine.slot[slot].finish_at, "what it had found before was void");
}

Test(hold, who_asks_waits_until_the_engine_gives_it)
{
    uint32_t slot = strange_stream(HELD(""));
    struct tr_rig_client *a, *b, *c;

    rig.engine.deaf = true;
    a = get(slot, "?after=1");
    cr_expect_eq(a->len, 0u, "no answer yet");
    b = get(slot, "?after=0");
    tr_rig_read(a);
    cr_expect_eq(status_of(a), 410, "the newest one waits: %s", a->buf);
    c = get(slot, "");
    tr_rig_close(b, true);
    tr_rig_close(c, true);
    tr_rig_run(&rig);
    cr_expect_eq(rig.fe.n_streams, 1u, "it may come any moment");
    b = get(slot, "?after=0");
    rig.engine.deaf = false;
    receive(b);
    cr_expect_eq(status_of(b), 200, "%s", b->buf);
    cr_expect_str_eq(text_of(b), "ab");
    leave(b);
    cr_expect_eq(rig.fe.n_held, 1u);
    tr_rig_close(a, false);
}

Test(hold, a_cancel_counts_whoever_has_the_stream_in_the_end)
{
    uint32_t slot = strange_stream(HELD(""));

    rig.engine.deaf = true;
    tr_sengine_give(&rig.engine, slot, given);
    tr_rig_run(&rig);
    struct tr_rig_client *c = ask_for("DELETE", slot, "");
    tr_sengine_give(&rig.engine, slot, other);
    tr_rig_run(&rig);
    cr_expect_eq(rig.fe.n_streams, 0u);
    rig.engine.deaf = false;
    for (int i = 0; i < 500 && !c->len; i++) {
        tr_rig_run_ms(&rig, 10);
        tr_rig_read(c);
    }
    cr_expect(strstr(c->buf, "\"status\":\"cancelled\""), "%s", c->buf);
    cr_expect_eq(tr_ring_at(&rig.shm, slot)->state, (uint32_t)TR_CANCELLED);
    tr_rig_close(c, false);
}

Test(hold, a_waiting_reader_is_told_when_the_process_ends)
{
    uint32_t slot = strange_stream(HELD(""));

    rig.engine.deaf = true;
    struct tr_rig_client *a = get(slot, "");
    tr_sengine_drain(&rig.engine, TR_DRAIN_CUT);
    tr_rig_run(&rig);
    tr_streams_end_all(&rig.fe, TR_ERR_DRAIN_LIMIT);
    receive(a);
    cr_expect_eq(status_of(a), 503, "%s", a->buf);
    cr_expect_eq(rig.fe.n_streams, 0u);
    tr_rig_close(a, false);
}

Test(hold_own, a_process_that_ends_leaves_its_held_streams_to_others)
{
    struct tr_errbuf err;

    begin(30 * SECOND, 8, false);
    uint32_t slot = held_stream(HELD(""));
    tr_fe_close(&rig.fe);
    tr_sengine_step(&rig.engine);
    cr_expect_eq(flags_of(slot), 0u);
    cr_expect_eq(rig.engine.n_released, 0u);
    cr_assert_eq(tr_fe_open(&rig.fe, &rig.shm, &rig.cfg, &err), 0);
    tr_fe_start_workers(&rig.fe, 1, &err);
}

Test(hold, logprobs_that_came_while_nobody_read_are_null)
{
    uint32_t slot = held_stream(HELD(",\"logprobs\":1"));

    for (int i = 0; i < 40; i++) {
        cr_assert_eq(tr_sengine_text(&rig.engine, slot, "cdef"), 4u, "the ring never fills");
        tr_rig_run(&rig);
    }
    struct tr_rig_client *c = get(slot, "?after=160");
    tr_sengine_text(&rig.engine, slot, "g");
    receive(c);
    end_it(slot);
    receive(c);
    const char *body = tr_rig_body(c);
    cr_expect_str_eq(text_of(c), "efg", "%s", body);
    cr_expect(!strstr(strstr(body, ":161\""), "token_logprobs") ||
                  strstr(strstr(body, ":161\""), "token_logprobs") > strstr(body, ":163\""),
              "none for what came before: %s", body);
    cr_expect(strstr(strstr(body, ":163\""), "token_logprobs"), "one for what came after: %s",
              body);
    tr_rig_close(c, false);
}
