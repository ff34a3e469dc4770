/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/ws_accept.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#define GOOD_LINE "GET /v1/ws HTTP/1.1\r\nHost: h:1\r\n"
#define GOOD_UP "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
#define GOOD_KEY "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
#define GOOD_VER "Sec-WebSocket-Version: 13\r\n"

static struct tr_http h;

static enum tr_err ask(const char *head, const char *cors, char *accept)
{
    char text[2048];
    size_t used;
    struct tr_slice body;
    const char *why = NULL;
    snprintf(text, sizeof(text), "%s\r\n", head);
    tr_http_init(&h, 8192);
    cr_assert_eq(tr_http_feed(&h, text, strlen(text), &used, &body), TR_HTTP_HEAD, "%s", head);
    enum tr_err e = tr_ws_accept(&h, cors, accept, &why);
    cr_expect_eq(e == TR_OK, why == NULL);
    return e;
}

Test(ws_accept, the_sample_of_the_rfc_gets_its_answer)
{
    char accept[TR_WS_ACCEPT_BYTES];
    cr_assert_eq(ask(GOOD_LINE GOOD_UP GOOD_KEY GOOD_VER, NULL, accept), TR_OK);
    cr_expect_str_eq(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    cr_expect_not(tr_ws_wants_protocol(&h));
    tr_http_fini(&h);
    cr_assert_eq(ask(GOOD_LINE "Upgrade: h2c, WebSocket\r\nConnection: upgrade\r\n"
                               "Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n" GOOD_VER,
                     NULL, accept),
                 TR_OK);
    cr_expect_str_eq(accept, "HSmrc0sMlYUkAGmm5OPpG2HaGWk=");
    tr_http_fini(&h);
}

Test(ws_accept, what_is_missing_or_wrong_is_refused)
{
    static const struct {
        const char *head;
        enum tr_err e;
    } row[] = {
        {"GET /v1/ws HTTP/1.0\r\nHost: h\r\n" GOOD_UP GOOD_KEY GOOD_VER, TR_ERR_UPGRADE},
        {"HEAD /v1/ws HTTP/1.1\r\nHost: h\r\n" GOOD_UP GOOD_KEY GOOD_VER, TR_ERR_UPGRADE},
        {GOOD_LINE GOOD_KEY GOOD_VER, TR_ERR_UPGRADE},
        {GOOD_LINE "Upgrade: websocket\r\n" GOOD_KEY GOOD_VER, TR_ERR_UPGRADE},
        {GOOD_LINE "Upgrade: h2c\r\nConnection: Upgrade\r\n" GOOD_KEY GOOD_VER, TR_ERR_UPGRADE},
        {GOOD_LINE GOOD_UP GOOD_KEY, TR_ERR_UPGRADE},
        {GOOD_LINE GOOD_UP GOOD_KEY "Sec-WebSocket-Version: 8\r\n", TR_ERR_UPGRADE},
        {GOOD_LINE GOOD_UP GOOD_KEY "Sec-WebSocket-Version: 130\r\n", TR_ERR_UPGRADE},
        {GOOD_LINE GOOD_UP GOOD_KEY GOOD_VER GOOD_VER, TR_ERR_UPGRADE},
        {GOOD_LINE GOOD_UP GOOD_VER, TR_ERR_BAD_HTTP},
        {GOOD_LINE GOOD_UP GOOD_VER GOOD_KEY GOOD_KEY, TR_ERR_BAD_HTTP},
        {GOOD_LINE GOOD_UP GOOD_VER "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ\r\n",
         TR_ERR_BAD_HTTP},
        {GOOD_LINE GOOD_UP GOOD_VER "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZR==\r\n",
         TR_ERR_BAD_HTTP}, /* its last digit has bits that no byte has */
        {GOOD_LINE GOOD_UP GOOD_VER "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j-g==\r\n",
         TR_ERR_BAD_HTTP},
        {GOOD_LINE GOOD_UP GOOD_KEY GOOD_VER "Content-Length: 2\r\n", TR_ERR_BAD_HTTP},
    };
    char accept[TR_WS_ACCEPT_BYTES];
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        cr_expect_eq(ask(row[i].head, NULL, accept), row[i].e, "%zu", i);
        tr_http_fini(&h);
    }
}

Test(ws_accept, only_pages_of_our_own_origin_or_the_allowed_one_may_connect)
{
#define ALL GOOD_LINE GOOD_UP GOOD_KEY GOOD_VER
    static const struct {
        const char *head, *cors;
        bool good;
    } row[] = {
        {ALL "Origin: http://h:1\r\n", NULL, true},
        {ALL "Origin: https://H:1\r\n", NULL, true},
        {ALL "Origin: http://evil\r\n", NULL, false},
        {ALL "Origin: http://h\r\n", NULL, false},
        {ALL "Origin: http://h:11\r\n", NULL, false},
        {ALL "Origin: null\r\n", NULL, false},
        {ALL "Origin: http://evil\r\n", "*", true},
        {ALL "Origin: http://app\r\n", "http://app", true},
        {ALL "Origin: http://evil\r\n", "http://app", false},
        {ALL "Origin: http://h:1\r\n", "http://app", true},
    };
    char accept[TR_WS_ACCEPT_BYTES];
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        cr_expect_eq(ask(row[i].head, row[i].cors, accept), row[i].good ? TR_OK : TR_ERR_FORBIDDEN,
                     "%zu", i);
        tr_http_fini(&h);
    }
}

Test(ws_accept, our_subprotocol_is_found_in_any_of_the_fields)
{
    char accept[TR_WS_ACCEPT_BYTES];
    cr_assert_eq(ask(ALL "Sec-WebSocket-Protocol: x, y\r\n"
                         "Sec-WebSocket-Protocol: z, tokenring.events.v1\r\n",
                     NULL, accept),
                 TR_OK);
    cr_expect(tr_ws_wants_protocol(&h));
    tr_http_fini(&h);
    cr_assert_eq(ask(ALL "Sec-WebSocket-Protocol: tokenring.events.v2\r\n", NULL, accept), TR_OK);
    cr_expect_not(tr_ws_wants_protocol(&h));
    tr_http_fini(&h);
}
