/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/ws_call.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tr_ws_call call;
static struct tr_fault fault;

/* In memory of exactly its size. */
static int read_n(const char *text, size_t len)
{
    char *exact = malloc(len ? len : 1);
    memcpy(exact, text, len);
    int rc = tr_ws_call_read(exact, len, &call, &fault);
    if (rc == 0 && call.request.p)
        call.request.p = text + (call.request.p - exact);
    free(exact);
    return rc;
}

static int read(const char *text)
{
    return read_n(text, strlen(text));
}

static void request_is(const char *want)
{
    cr_expect(call.request.len == strlen(want) &&
                  memcmp(call.request.p, want, call.request.len) == 0,
              "%.*s", (int)call.request.len, call.request.p);
}

Test(ws_call, a_start_has_a_label_and_the_request_as_it_was_written)
{
    cr_assert_eq(read("{\"type\":\"start\",\"stream\":\"a\",\"request\":{\"prompt\":\"}\\\"]\"}}"),
                 0);
    cr_expect(call.type == TR_WS_START && call.credit == UINT64_MAX);
    cr_expect_str_eq(call.label, "a");
    request_is("{\"prompt\":\"}\\\"]\"}");
    cr_assert_eq(read(" { \"request\" : { } , \"x\":[1,{\"request\":{}}], \"credit\":7,\n"
                      "\"stream\":\"\\u00fc\", \"type\":\"start\" } "),
                 0);
    request_is("{ }");
    cr_expect_eq(call.credit, 7);
    cr_expect_str_eq(call.label, "\xc3\xbc");
    /* A member of that name inside another value is not it. */
    cr_expect(read("{\"type\":\"start\",\"stream\":\"a\",\"x\":{\"request\":{}}}") && fault.err &&
              strcmp(fault.param, "request") == 0);
}

Test(ws_call, cancel_resume_and_credit_are_read)
{
    struct tr_stream_id id = {.slot = 3, .gen = 4, .rand = 5};
    char name[TR_STREAM_ID_BYTES], text[256];
    tr_stream_id_format(id, name);
    snprintf(text, sizeof(text), "{\"type\":\"cancel\",\"id\":\"%s\"}", name);
    cr_assert_eq(read(text), 0);
    cr_expect(call.type == TR_WS_CANCEL && call.id.slot == 3 && call.id.rand == 5);
    snprintf(text, sizeof(text),
             "{\"type\":\"resume\",\"id\":\"%s\",\"stream\":\"r\",\"after\":12}", name);
    cr_assert_eq(read(text), 0);
    cr_expect(call.type == TR_WS_RESUME && call.after == 12 && call.credit == UINT64_MAX);
    snprintf(text, sizeof(text), "{\"type\":\"resume\",\"id\":\"%s\",\"stream\":\"r\"}", name);
    cr_assert_eq(read(text), 0);
    cr_expect_eq(call.after, -1);
    cr_assert_eq(read("{\"type\":\"credit\",\"stream\":\"r\",\"tokens\":3}"), 0);
    cr_expect(call.type == TR_WS_CREDIT && call.credit == 3);
}

Test(ws_call, what_is_wrong_is_named)
{
#define LONG "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    static const struct {
        const char *text, *param;
        enum tr_err e;
    } row[] = {
        {"", "", TR_ERR_BAD_JSON},
        {"{", "", TR_ERR_BAD_JSON},
        {"[]", "", TR_ERR_BAD_REQUEST},
        {"{\"type\":\"start\"}}", "", TR_ERR_BAD_JSON},
        {"{}", "type", TR_ERR_BAD_PARAM},
        {"{\"type\":\"stop\"}", "type", TR_ERR_BAD_PARAM},
        {"{\"type\":1}", "type", TR_ERR_BAD_PARAM},
        {"{\"type\":\"start\",\"request\":{}}", "stream", TR_ERR_BAD_PARAM},
        {"{\"type\":\"start\",\"stream\":\"\",\"request\":{}}", "stream", TR_ERR_BAD_PARAM},
        {"{\"type\":\"start\",\"stream\":\"a\\nb\",\"request\":{}}", "stream", TR_ERR_BAD_PARAM},
        {"{\"type\":\"start\",\"stream\":\"a\\u0000\",\"request\":{}}", "stream", TR_ERR_BAD_PARAM},
        {"{\"type\":\"start\",\"stream\":\"" LONG LONG "x\",\"request\":{}}", "stream",
         TR_ERR_BAD_PARAM},
        {"{\"type\":\"start\",\"stream\":\"a\"}", "request", TR_ERR_BAD_PARAM},
        {"{\"type\":\"start\",\"stream\":\"a\",\"request\":[{}]}", "request", TR_ERR_BAD_PARAM},
        {"{\"type\":\"start\",\"stream\":\"a\",\"request\":{},\"credit\":-1}", "credit",
         TR_ERR_BAD_PARAM},
        {"{\"type\":\"start\",\"stream\":\"a\",\"request\":{},\"request\":{}}", "",
         TR_ERR_BAD_JSON},
        {"{\"type\":\"cancel\"}", "id", TR_ERR_BAD_PARAM},
        {"{\"type\":\"cancel\",\"id\":\"st_nonsense\"}", "id", TR_ERR_NOT_FOUND},
        {"{\"type\":\"resume\",\"stream\":\"a\"}", "id", TR_ERR_BAD_PARAM},
        {"{\"type\":\"credit\",\"stream\":\"a\"}", "tokens", TR_ERR_BAD_PARAM},
        {"{\"type\":\"credit\",\"stream\":\"a\",\"tokens\":0}", "tokens", TR_ERR_BAD_PARAM},
        {"{\"type\":\"credit\",\"stream\":\"a\",\"tokens\":1.5}", "tokens", TR_ERR_BAD_PARAM},
    };
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        cr_expect_eq(read(row[i].text), -EINVAL, "%s", row[i].text);
        cr_expect_eq(fault.err, row[i].e, "%s", row[i].text);
        cr_expect_str_eq(fault.param, row[i].param, "%s", row[i].text);
    }
    cr_expect(read("{\"type\":\"what\",\"stream\":\"l\"}") && strcmp(call.label, "l") == 0,
              "the answer can carry the label");
}

Test(ws_call, an_empty_message_is_no_json)
{
    cr_expect_eq(tr_ws_call_read(NULL, 0, &call, &fault), -EINVAL);
    cr_expect_eq(fault.err, TR_ERR_BAD_JSON);
}

Test(ws_call, beside_the_request_a_message_is_short)
{
    size_t n = 64 << 10;
    char *text = malloc(n);
    memset(text, ' ', n);
    memcpy(text, "{\"type\":", 8);
    cr_expect_eq(read_n(text, n), -EINVAL);
    cr_expect_eq(fault.err, TR_ERR_BAD_REQUEST);
    /* Inside it, not. */
    static const char head[] = "{\"type\":\"start\",\"stream\":\"a\",\"request\":{", tail[] = "}}";
    memcpy(text, head, sizeof(head) - 1);
    memset(text + sizeof(head) - 1, ' ', 8);
    memcpy(text + n - 2, tail, 2);
    cr_expect_eq(read_n(text, n), 0);
    cr_expect_eq(call.request.len, n - sizeof(head) + 1);
    free(text);
}
