/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/span.h"

#include "base/json.h"
#include "shm/ring.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct tr_span_facts facts = {.model = "m\"o", .version = "1.2", .instance = "i"};
static struct tr_emit e;
static struct tr_json_doc *doc;

static void fini(void)
{
    tr_json_free(doc);
    tr_emit_fini(&e);
}

TestSuite(span, .fini = fini);

static struct tr_span request(void)
{
    struct tr_span s = {.bill = {.request_id = "r-1",
                                 .slot = 3,
                                 .gen = 4,
                                 .stream_rand = 5,
                                 .choices = 1,
                                 .arrival_ns = 1000000000,
                                 .first_token_ns = 1200000000,
                                 .finished_ns = 1500000000,
                                 .prompt_tokens = 7,
                                 .completion_tokens = 9,
                                 .state = TR_INCOMPLETE,
                                 .finish = TR_FINISH_LENGTH,
                                 .temperature = 0.5,
                                 .top_p = 1,
                                 .max_tokens = 9,
                                 .flags = TR_REQ_STREAM}};
    s.bill.trace.flags = TR_TRACE_SAMPLED;
    s.bill.trace.operation = TR_OPERATION_CHAT;
    memset(s.bill.trace.trace_id, 0xab, TR_TRACE_ID);
    memset(s.bill.trace.span_id, 0xcd, TR_SPAN_ID);
    return s;
}

static const struct tr_json *first(const struct tr_json *v, const char *key)
{
    v = tr_json_get(v, key, strlen(key));
    struct tr_json_it it = tr_json_iter(v);
    cr_assert(tr_json_step(&it), "%s", key);
    return it.val;
}

/* The first span of the request to the collector. */
static const struct tr_json *rendered(const struct tr_span *s)
{
    struct tr_json_fault f;
    tr_span_request(&e, &s, 1, &facts);
    tr_json_free(doc);
    doc = tr_json_parse(e.buf, e.len, &f);
    cr_assert(doc, "%.*s", (int)e.len, e.buf);
    return first(first(first(tr_json_root(doc), "resourceSpans"), "scopeSpans"), "spans");
}

static bool is(const struct tr_json *o, const char *key, const char *s)
{
    const struct tr_json *v = tr_json_get(o, key, strlen(key));
    return s ? tr_json_eq(v, s, strlen(s)) : v == NULL;
}

/* The value of an attribute; NULL: there is none. */
static const struct tr_json *attribute(const struct tr_json *span, const char *name)
{
    for (struct tr_json_it it = tr_json_iter(TR_JSON_GET(span, "attributes")); tr_json_step(&it);)
        if (is(it.val, "key", name))
            return TR_JSON_GET(it.val, "value");
    return NULL;
}

Test(span, ids_are_hexadecimal_and_64_bits_are_strings)
{
    struct tr_span s = request();
    const struct tr_json *o = rendered(&s);
    cr_expect(is(o, "traceId", "abababababababababababababababab"));
    cr_expect(is(o, "spanId", "cdcdcdcdcdcdcdcd") && is(o, "parentSpanId", NULL));
    cr_expect(is(o, "traceState", NULL), "none");
    cr_expect(is(o, "name", "chat m\"o"));
    const struct tr_json *from = TR_JSON_GET(o, "startTimeUnixNano"),
                         *to = TR_JSON_GET(o, "endTimeUnixNano");
    cr_assert(tr_json_is(from, TR_JSON_STRING) && tr_json_is(to, TR_JSON_STRING));
    cr_expect_eq(strtoull(to->u.s, NULL, 10) - strtoull(from->u.s, NULL, 10), 500000000);
    cr_expect(is(attribute(o, "gen_ai.usage.input_tokens"), "intValue", "7"));
    cr_expect(is(attribute(o, "gen_ai.usage.output_tokens"), "intValue", "9"));
    cr_expect_null(attribute(o, "error.type"));
    cr_expect_null(attribute(o, "gen_ai.request.choice.count"));
}

Test(span, a_parent_and_a_state_are_passed_on)
{
    struct tr_span s = request();
    memset(s.bill.trace.parent_id, 0x12, TR_SPAN_ID);
    strcpy(s.bill.trace.state, "a=1,b=2");
    const struct tr_json *o = rendered(&s);
    int64_t flags = 0;
    cr_expect(is(o, "parentSpanId", "1212121212121212") && is(o, "traceState", "a=1,b=2"));
    cr_expect(tr_json_i64(TR_JSON_GET(o, "flags"), &flags) == 0 && flags == 0x301);
}

Test(span, what_became_of_its_bytes_ends_it)
{
    struct tr_span s = request();
    struct tr_delivery d = {.slot = 3, .gen = 4, .stream_rand = 6, .closed_ns = 1600000000};
    cr_expect_not(tr_span_deliver(&s, &d), "somebody else's");
    d.stream_rand = 5;
    d.first_byte_ns = 1250000000;
    d.delivered_tokens = 8;
    cr_expect(tr_span_deliver(&s, &d));
    cr_expect_not(tr_span_deliver(&s, &d), "once");
    const struct tr_json *o = rendered(&s);
    cr_expect_eq(strtoull(TR_JSON_GET(o, "endTimeUnixNano")->u.s, NULL, 10) -
                     strtoull(TR_JSON_GET(o, "startTimeUnixNano")->u.s, NULL, 10),
                 600000000);
    cr_expect(is(attribute(o, "tokenring.delivered_tokens"), "intValue", "8"));
    cr_expect_not_null(strstr(e.buf, "\"doubleValue\":0.25"), "seconds to the first chunk");
    cr_expect_not_null(strstr(e.buf, "tokenring.closed"));
}

Test(span, a_fault_of_the_service_is_an_error_and_a_client_that_leaves_is_none)
{
    struct tr_span s = request();
    int64_t code = 0;
    s.bill.state = TR_ERROR;
    s.bill.finish = TR_FINISH_NONE;
    s.bill.err = TR_ERR_ENGINE_LOST;
    const struct tr_json *o = rendered(&s);
    cr_expect(is(attribute(o, "error.type"), "stringValue", "engine_lost"));
    cr_expect(tr_json_i64(TR_JSON_GET(TR_JSON_GET(o, "status"), "code"), &code) == 0 && code == 2);
    s.bill.state = TR_CANCELLED;
    s.bill.err = TR_ERR_CLIENT_GONE;
    o = rendered(&s);
    cr_expect_null(attribute(o, "error.type"));
    cr_expect_null(TR_JSON_GET(TR_JSON_GET(o, "status"), "code"));
}

Test(span, garbage_of_another_process_makes_whole_json)
{
    struct tr_span s;
    memset(&s, 0xff, sizeof(s));
    s.bill.request_id[TR_ID_BYTES - 1] = s.bill.key[TR_KEY_BYTES - 1] = '\0';
    s.bill.trace.state[TR_TRACE_STATE_BYTES - 1] = '\0';
    s.delivered = false;
    s.bill.temperature = NAN;
    s.bill.top_p = INFINITY;
    (void)rendered(&s);
}

Test(span, what_is_not_sampled_or_belongs_to_no_trace_is_not_wanted)
{
    struct tr_span s = request();
    cr_expect(tr_span_is_wanted(&s.bill));
    s.bill.trace.flags = TR_TRACE_RANDOM;
    cr_expect_not(tr_span_is_wanted(&s.bill));
    s.bill.trace.flags = TR_TRACE_SAMPLED;
    memset(s.bill.trace.trace_id, 0, TR_TRACE_ID);
    cr_expect_not(tr_span_is_wanted(&s.bill));
}
