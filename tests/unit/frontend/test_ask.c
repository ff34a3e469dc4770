/* SPDX-License-Identifier: Apache-2.0 */
/* Which requests are resumable, and that another frontend makes of their rings what the first one had
 * made of the body. */
#include "frontend/ask.h"
#include "frontend/stream.h"
#include "testfe/frontend_rig.h"

#include <criterion/criterion.h>

#include <string.h>

#define CHAT "/v1/chat/completions"
#define COMPLETIONS "/v1/completions"
#define NATIVE "/v1/streams"
#define HEADER "X-Tokenring-Resume: 1\r\n"
#define P "{\"model\":\"sim\",\"max_tokens\":4,\"prompt\":\"Hi\""
#define M                                                                                          \
    "{\"model\":\"sim\",\"max_tokens\":4,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
#define STREAM ",\"stream\":true"

static struct tr_rig rig;
static struct tr_rig_client *client;

static void start(void)
{
    tr_rig_defaults(&rig);
    tr_rig_start(&rig, 32, false);
}

static void stop(void)
{
    if (client)
        tr_rig_close(client, true);
    tr_rig_stop(&rig);
}

TestSuite(ask, .init = start, .fini = stop);

static void post(const char *path, const char *headers, const char *body)
{
    if (client)
        tr_rig_close(client, true);
    client = tr_rig_connect(&rig, 0);
    rig.engine.n_order = 0;
    tr_rig_send(client, "POST", path, headers, body);
    tr_rig_run(&rig);
    tr_rig_read(client);
}

static const struct tr_ring *ring(void)
{
    cr_assert_eq(rig.engine.n_order, 1, "%s", client->buf);
    return tr_ring_at(&rig.shm, rig.engine.order[0]);
}

static bool is_resumable(const char *path, const char *headers, const char *body)
{
    post(path, headers, body);
    return ring()->params.flags & TR_REQ_RESUMABLE;
}

static bool is_refused(const char *path, const char *headers, const char *body, const char *param)
{
    char want[64];

    post(path, headers, body);
    snprintf(want, sizeof(want), "\"param\":\"%s\"", param);
    return rig.engine.n_order == 0 && strstr(client->buf, "HTTP/1.1 400") &&
           strstr(client->buf, want);
}

Test(ask, resumable_is_what_asks_for_it)
{
    cr_expect(!is_resumable(CHAT, "", M STREAM "}"));
    cr_expect(is_resumable(CHAT, HEADER, M STREAM "}"));
    cr_expect(!is_resumable(CHAT, "X-Tokenring-Resume: 0\r\n", M STREAM "}"));
    cr_expect(is_resumable(COMPLETIONS, HEADER, P STREAM "}"));
    cr_expect(!is_resumable(NATIVE, "", P "}"));
    cr_expect(is_resumable(NATIVE, "", P ",\"on_disconnect\":\"hold\"}"));
    cr_expect(is_resumable(NATIVE, HEADER, P "}"));
    cr_expect(!is_resumable(NATIVE, HEADER, P ",\"on_disconnect\":\"cancel\"}"));
}

Test(ask, the_default_is_for_native_streams_of_one_choice)
{
    rig.cfg.hold_on_disconnect = true;
    cr_expect(is_resumable(NATIVE, "", P "}"));
    cr_expect(!is_resumable(NATIVE, "", P ",\"on_disconnect\":\"cancel\"}"));
    cr_expect(!is_resumable(CHAT, "", M STREAM "}"));
    post(NATIVE, "", P ",\"n\":2}");
    cr_expect(rig.engine.n_order == 2 &&
              !(tr_ring_at(&rig.shm, rig.engine.order[0])->params.flags & TR_REQ_RESUMABLE));
}

Test(ask, what_cannot_be_resumed_is_refused_by_name)
{
    cr_expect(is_refused(NATIVE, "", P ",\"n\":2,\"on_disconnect\":\"hold\"}", "n"));
    cr_expect(is_refused(NATIVE, "",
                         "{\"model\":\"sim\",\"prompt\":[\"a\",\"b\"],\"on_disconnect\":\"hold\"}",
                         "prompt"));
    cr_expect(is_refused(CHAT, HEADER, M STREAM ",\"n\":2}", "n"));
    cr_expect(is_refused(CHAT, HEADER, M "}", "X-Tokenring-Resume"));
    cr_expect(is_refused(CHAT, "X-Tokenring-Resume: yes\r\n", M STREAM "}", "X-Tokenring-Resume"));
    cr_expect(is_refused(CHAT, "", M STREAM ",\"on_disconnect\":\"hold\"}", "on_disconnect"));
    cr_expect(is_refused(NATIVE, "", P ",\"on_disconnect\":\"stay\"}", "on_disconnect"));
    cr_expect(is_refused(NATIVE, "", P ",\"on_disconnect\":true}", "on_disconnect"));
}

Test(ask, a_request_that_is_not_resumable_packs_nothing)
{
    post(CHAT, "", M STREAM ",\"stop\":\"END\"}");
    cr_expect_eq(ring()->extra_len, 0);
    cr_expect_null(tr_ask_from_ring(&rig.fe, rig.engine.order[0], ring()->of_gen));
}

Test(ask, the_ring_tells_all_of_it)
{
    post(COMPLETIONS, HEADER "x-request-id: me\r\nX-Request-Timeout: 7\r\n",
         P STREAM ",\"echo\":true,\"logprobs\":3,\"stop\":[\"END\",\"\xe7\x8c\xab\"],\"seed\":9,"
                  "\"include_stop_str_in_output\":true,\"skip_special_tokens\":false,"
                  "\"stop_token_ids\":[5],\"logit_bias\":{\"6\":1},"
                  "\"stream_options\":{\"include_usage\":true}}");
    const struct tr_ring *r = ring();
    struct tr_ask *a = tr_ask_from_ring(&rig.fe, rig.engine.order[0], r->of_gen);
    cr_assert_not_null(a);
    cr_expect(a->api == TR_API_COMPLETIONS && !a->chat && a->stream && a->echo && a->logprobs);
    cr_expect(a->include_usage && a->include_stop && !a->skip_special);
    cr_expect(a->params.n_top == 3 && a->params.seed == 9 && a->params.max_tokens == 4);
    cr_expect(a->n == 1 && a->n_prompts == 1 && a->max_tokens == 4);
    cr_expect_str_eq(a->request_id, "me");
    cr_expect(a->timeout_ns == 7000000001ull && a->arrival_ns == r->arrival_ns);
    cr_expect_eq(a->created, rig.fe.streams->created);
    cr_assert(tr_stopset_n(a->stops) == 2);
    cr_expect(tr_stopset_at(a->stops, 0).len == 3 &&
              !memcmp(tr_stopset_at(a->stops, 1).p, "\xe7\x8c\xab", 3));
    cr_assert(a->extra && a->extra->n_stop == 1 && a->extra->stop_ids[0] == 5);
    tr_ask_close(a);
}

Test(ask, another_generation_or_garbage_makes_none)
{
    post(NATIVE, "", P ",\"on_disconnect\":\"hold\"}");
    struct tr_ring *r = tr_ring_at(&rig.shm, rig.engine.order[0]);
    uint32_t slot = rig.engine.order[0], gen = r->of_gen, len = r->extra_len;
    uint8_t *packed = tr_ring_extra_rw(&rig.shm, slot);

    cr_expect_null(tr_ask_from_ring(&rig.fe, rig.shm.config.n_slots, 1));
    cr_expect_null(tr_ask_from_ring(&rig.fe, slot, gen + 1));
    cr_expect_null(tr_ask_from_ring(&rig.fe, slot + 1, 1));
    for (uint32_t cut = 0; cut < len; cut++) {
        r->extra_len = cut;
        cr_expect_null(tr_ask_from_ring(&rig.fe, slot, gen));
    }
    r->extra_len = UINT32_MAX;
    cr_expect_null(tr_ask_from_ring(&rig.fe, slot, gen));
    r->extra_len = len;
    for (uint32_t i = 0; i < len; i++) { /* each byte, garbled: none, or one inside its bounds */
        uint8_t was = packed[i];
        for (int v = 0; v < 256; v++) {
            packed[i] = (uint8_t)v;
            struct tr_ask *a = tr_ask_from_ring(&rig.fe, slot, gen);
            cr_assert(!a || (tr_dialect_of(a->api) && a->n == 1));
            tr_ask_close(a);
        }
        packed[i] = was;
    }
    r->group_n = 2;
    cr_expect_null(tr_ask_from_ring(&rig.fe, slot, gen));
}
