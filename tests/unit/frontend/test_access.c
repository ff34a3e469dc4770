/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/access.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "frontend/route.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- a carrier that takes everything, and is told when the last byte has arrived ---- */

static uint64_t accepted = 1000, acked = 1000;
static struct tr_delivered *waits;

static int x_header(struct tr_exchange *x, const char *name, const char *value)
{
    (void)x, (void)name, (void)value;
    return 0;
}

static void x_reply(struct tr_exchange *x, int status, const char *type, const char *body,
                    size_t len)
{
    (void)x, (void)status, (void)type, (void)body;
    accepted += len;
}

static uint64_t x_accepted(const struct tr_exchange *x)
{
    (void)x;
    return accepted;
}

static uint64_t x_acked(struct tr_exchange *x)
{
    (void)x;
    return acked;
}

static void x_stream_begin(struct tr_exchange *x, const char *type)
{
    (void)x, (void)type;
}

static void x_stream_end(struct tr_exchange *x)
{
    (void)x;
}

static void x_deliver(struct tr_exchange *x, struct tr_delivered *d)
{
    (void)x;
    waits = d;
}

static const struct tr_exchange_ops ops = {.header = x_header,
                                           .reply = x_reply,
                                           .accepted = x_accepted,
                                           .acked = x_acked,
                                           .stream_begin = x_stream_begin,
                                           .stream_end = x_stream_end,
                                           .deliver = x_deliver};

static struct tr_exchange x;
static struct tr_access_log list;
static struct tr_http head;

/* ---- what is logged ---- */

static int reader;
static char text[65536];
static struct tr_json_doc *doc;

static void setup(void)
{
    int fds[2];

    cr_assert_eq(pipe(fds), 0);
    reader = fds[0];
    fcntl(reader, F_SETFL, O_NONBLOCK);
    dup2(fds[1], STDERR_FILENO);
    tr_log_init("frontend 0", true);
    x = (struct tr_exchange){.ops = &ops, .request_id = "id-1"};
    list = (struct tr_access_log){.lines = true, .addresses = true};
}

static void teardown(void)
{
    tr_json_free(doc);
    tr_http_fini(&head);
    tr_access_log_fini(&list);
}

static const char *logged(void)
{
    ssize_t n = read(reader, text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = '\0';
    return text;
}

static const struct tr_json *line(void)
{
    struct tr_json_fault f;
    const char *nl = strchr(logged(), '\n');

    cr_assert(nl && !nl[1], "one line: %s", text);
    tr_json_free(doc);
    doc = tr_json_parse(text, (size_t)(nl - text), &f);
    cr_assert(doc, "JSON: %s", text);
    return tr_json_root(doc);
}

static bool is(const struct tr_json *o, const char *key, const char *s)
{
    const struct tr_json *v = tr_json_get(o, key, strlen(key));

    return s ? tr_json_eq(v, s, strlen(s)) : tr_json_is(v, TR_JSON_NULL);
}

static int64_t number(const struct tr_json *o, const char *key)
{
    int64_t n = -1;
    const struct tr_json *v = tr_json_get(o, key, strlen(key));

    return v && tr_json_i64(v, &n) == 0 ? n : -1;
}

static void begin(const char *lines)
{
    static char request[4096];
    struct tr_peer peer = {.family = AF_INET, .port = 77};
    struct tr_slice body;
    size_t used;
    int n = snprintf(request, sizeof(request), "POST /x HTTP/1.1\r\nHost: a\r\n%s\r\n", lines);

    inet_pton(AF_INET, "192.0.2.1", peer.addr);
    tr_http_init(&head, sizeof(request));
    cr_assert_eq(tr_http_feed(&head, request, (size_t)n, &used, &body), TR_HTTP_HEAD);
    tr_access_begin(&x, &list, &head, "http/1.1", &peer, tr_now_ns());
}

TestSuite(access, .init = setup, .fini = teardown);

Test(access, an_answer_is_told_when_its_last_byte_has_arrived)
{
    begin("traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00\r\n");
    tr_access_route(&x, &(struct tr_route){.pattern = "/tokenize"});
    tr_exchange_reply(&x, 200, "application/json", "{}", 2);
    cr_expect_null(x.access);
    cr_expect_str_eq(logged(), "", "not yet");
    cr_assert(waits);
    cr_expect_eq(waits->upto, 1002);
    waits->done(waits, 1002);
    const struct tr_json *o = line();
    cr_expect(is(o, "msg", "access") && is(o, "process", "frontend 0") && is(o, "level", "info"));
    cr_expect(is(o, "request_id", "id-1") && is(o, "route", "/tokenize") &&
              is(o, "method", "POST"));
    cr_expect(is(o, "trace_id", "0af7651916cd43dd8448eb211c80319c"));
    cr_expect(is(o, "parent_id", "b7ad6b7169203331"));
    cr_expect(is(o, "end", "answered") && is(o, "reason", NULL) && is(o, "stream", NULL));
    cr_expect(is(o, "peer", "192.0.2.1"));
    cr_expect_eq(number(o, "status"), 200);
    cr_expect_eq(number(o, "bytes"), 2);
    cr_expect_eq(number(o, "peer_port"), 77);
    const struct tr_json *ms = TR_JSON_GET(o, "ms");
    cr_expect(tr_json_is(TR_JSON_GET(ms, "head"), TR_JSON_NUMBER));
    cr_expect(tr_json_is(TR_JSON_GET(ms, "closed"), TR_JSON_NUMBER));
    cr_expect(is(ms, "first_token", NULL), "what did not happen");
}

Test(access, what_clients_say_cannot_forge_a_line)
{
    x.request_id = "\",\"end\":\"completed\"}\n{\x01\x7f\xff";
    begin("x-stainless-retry-count: 1}\r\nx-stainless-read-timeout: 0x10\r\n");
    tr_exchange_error(&x, TR_ERR_OVERLOADED, NULL, NULL);
    waits->done(waits, accepted);
    const struct tr_json *o = line();
    cr_expect(is(o, "end", "refused") && is(o, "reason", tr_err_info(TR_ERR_OVERLOADED)->code));
    cr_expect_eq(number(o, "status"), 503);
    cr_expect(is(o, "retry", NULL) && is(o, "read_timeout_s", NULL), "checked digits");
}

Test(access, a_client_library_s_own_counts_are_told)
{
    begin("x-stainless-retry-count: 2\r\nx-stainless-read-timeout: 600.5\r\n");
    tr_exchange_reply(&x, 200, NULL, NULL, 0);
    waits->done(waits, accepted);
    const struct tr_json *o = line();
    cr_expect_eq(number(o, "retry"), 2);
    cr_expect_not_null(strstr(text, "\"read_timeout_s\":600.5"));
}

Test(access, a_request_that_never_was_whole_is_told_when_its_peer_goes)
{
    begin("");
    tr_access_gone(&x, TR_GONE_RESET);
    const struct tr_json *o = line();
    cr_expect(is(o, "end", "aborted") && is(o, "reason", "client_disconnected") &&
              is(o, "status", NULL));
}

Test(access, addresses_can_be_left_out_and_probes_are_for_debug)
{
    list.addresses = false;
    begin("");
    tr_exchange_reply(&x, 200, NULL, NULL, 0);
    waits->done(waits, accepted);
    cr_expect_null(strstr(logged(), "192.0.2.1"));
    cr_expect_null(strstr(text, "peer"));
    tr_http_fini(&head);
    begin("");
    tr_access_route(&x, &(struct tr_route){.pattern = "/health", .flags = TR_ROUTE_OPEN});
    tr_exchange_reply(&x, 200, NULL, NULL, 0);
    waits->done(waits, accepted);
    cr_expect_str_eq(logged(), "");
}

Test(access, what_was_before_the_request_is_null)
{
    begin("");
    uint64_t arrived = x.access->arrived_ns;
    tr_access_at(&x, TR_AT_STARTED, arrived - 1);
    tr_access_at(&x, TR_AT_FIRST_TOKEN, arrived + 1234567);
    tr_access_at(&x, TR_AT_FIRST_TOKEN, arrived + 9999999);
    tr_exchange_stream_begin(&x, "text/event-stream");
    tr_exchange_stream_end(&x);
    waits->done(waits, accepted);
    const struct tr_json *ms = TR_JSON_GET(line(), "ms");
    cr_expect(is(ms, "started", NULL));
    cr_expect_not_null(strstr(text, "\"first_token\":1.234,"), "the first time of it: %s", text);
}

Test(access, delivered_tokens_are_those_before_an_acknowledged_byte)
{
    begin("");
    struct tr_access *a = x.access;
    a->counted = true;
    a->completion = 9;
    a->receipt.mark[0] = (struct tr_mark){.bytes = 1010, .tokens = 3};
    a->receipt.mark[1] = (struct tr_mark){.bytes = 1020, .tokens = 5};
    a->receipt.n_marks = 2;
    tr_exchange_stream_begin(&x, "text/event-stream");
    acked = 1015;
    tr_access_gone(&x, TR_GONE_SLOW);
    const struct tr_json *o = line();
    cr_expect_eq(number(o, "delivered_tokens"), 3);
    cr_expect_eq(number(o, "completion_tokens"), 9);
    cr_expect(is(o, "reason", "slow_client"));
}

/* The longest that may come still fits into one line. */
Test(access, the_longest_line_is_whole)
{
    static char id[TR_CARRIER_ID_BYTES + 1];
    static char route[300];

    memset(id, '"', sizeof(id) - 1);
    memset(route, 'r', sizeof(route) - 1);
    x.request_id = id;
    begin("traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n");
    struct tr_access *a = x.access;
    memset(a->key, '\\', sizeof(a->key) - 1);
    memset(a->stream_id, 's', sizeof(a->stream_id) - 1);
    a->route = route;
    a->counted = true;
    a->prompt = a->cached = a->completion = UINT64_MAX;
    for (unsigned i = 0; i < TR_AT_COUNT; i++)
        a->at[i] = UINT64_MAX;
    tr_exchange_reply(&x, 200, NULL, NULL, 0);
    waits->done(waits, accepted);
    const struct tr_json *o = line();
    cr_expect(is(o, "request_id", id));
    cr_expect_eq(tr_log_dropped(), 0);
}

Test(access, of_too_many_that_wait_one_more_is_told_at_its_end)
{
    begin("");
    list.waiting = TR_ACCESS_WAITING - 1;
    tr_exchange_reply(&x, 200, NULL, NULL, 0);
    cr_expect_str_eq(logged(), "");
    cr_expect_eq(list.waiting, TR_ACCESS_WAITING);
    tr_http_fini(&head);
    struct tr_delivered *first = waits;
    begin("");
    tr_exchange_reply(&x, 200, NULL, NULL, 0);
    cr_expect_eq(waits, first, "nothing more waits");
    (void)line();
    first->done(first, accepted);
    (void)line();
    cr_expect_eq(list.waiting, TR_ACCESS_WAITING - 1);
}
