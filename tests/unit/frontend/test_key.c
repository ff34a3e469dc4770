/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/key.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct tr_keys keys;

static void add(const char *name, const char *key)
{
    struct tr_key *k = &keys.row[keys.n++];

    snprintf(k->name, sizeof(k->name), "%s", name);
    tr_digest(key, strlen(key), k->hash);
}

static void three_keys(void)
{
    keys = (struct tr_keys){.needed = true};
    add("ann", "tr-ann");
    add("ben", "tr-ben");
    add("eve", "k e y");
}

TestSuite(key, .init = three_keys);

/* Which key a head with these fields brings: its name, "-" for none, "?" for a wrong one. */
static const char *brought(const char *fields)
{
    static struct tr_http h;
    char text[4096];
    size_t used;
    struct tr_slice body;
    const struct tr_key *found;

    snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: h\r\n%s\r\n", fields);
    tr_http_init(&h, 8192);
    cr_assert_eq(tr_http_feed(&h, text, strlen(text), &used, &body), TR_HTTP_HEAD, "%s", fields);
    enum tr_key_found f = tr_keys_find(&keys, &h, &found);
    tr_http_fini(&h);
    cr_expect_eq(f == TR_KEY_GOOD, found != NULL);
    return f == TR_KEY_GOOD ? found->name : f == TR_KEY_NONE ? "-" : "?";
}

Test(key, every_field_that_clients_use_brings_it)
{
    static const struct {
        const char *fields, *who;
    } row[] = {
        {"Authorization: Bearer tr-ann\r\n", "ann"},
        {"authorization: bearer  tr-ben \r\n", "ben"},
        {"AUTHORIZATION: BEARER k e y\r\n", "eve"},
        {"X-Api-Key: tr-ann\r\n", "ann"},
        {"Api-Key: tr-ben\r\n", "ben"},
        {"Sec-WebSocket-Protocol: tokenring.events.v1, tokenring.key.tr-ann\r\n", "ann"},
        {"Sec-WebSocket-Protocol: tokenring.events.v1\r\n"
         "Sec-WebSocket-Protocol: tokenring.key.tr-ben\r\n",
         "ben"},
        {"Authorization: Basic dXNlcjpwYXNz\r\nX-Api-Key: tr-ann\r\n", "ann"},
        {"Authorization: Bearer placeholder\r\nX-Api-Key: tr-ann\r\n", "ann"},
        {"Authorization: Bearer tr-ann\r\nX-Api-Key: tr-ann\r\n", "ann"},
    };
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        cr_expect_str_eq(brought(row[i].fields), row[i].who, "%s", row[i].fields);
}

Test(key, what_is_no_key_is_told_from_a_wrong_one)
{
    static const struct {
        const char *fields, *who;
    } row[] = {
        {"", "-"},
        {"Authorization: Bearer\r\n", "-"},
        {"Authorization: Basic tr-ann\r\n", "-"},
        {"Authorization: tr-ann\r\n", "-"},
        {"Authorization: Bearertr-ann\r\n", "-"},
        {"Cookie: key=tr-ann\r\n", "-"},
        {"Sec-WebSocket-Protocol: tr-ann, tokenring.key.\r\n", "-"},
        {"Authorization: Bearer TR-ANN\r\n", "?"},
        {"Authorization: Bearer tr-anna\r\n", "?"},
        {"Authorization: Bearer tr-an\r\n", "?"},
        {"Authorization: Bearer ann\r\n", "?"},
        {"X-Api-Key: Bearer tr-ann\r\n", "?"},
        {"X-Api-Key:\r\n", "?"},
    };
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        cr_expect_str_eq(brought(row[i].fields), row[i].who, "%s", row[i].fields);
}

/* Whoever stands in front of us may have taken the other one. */
Test(key, two_keys_that_are_both_known_are_none)
{
    cr_expect_str_eq(brought("Authorization: Bearer tr-ann\r\nX-Api-Key: tr-ben\r\n"), "?");
    cr_expect_str_eq(brought("X-Api-Key: tr-ann\r\nX-Api-Key: tr-ben\r\n"), "?");
}

Test(key, a_head_full_of_guesses_is_not_gone_through)
{
    char fields[2048];
    size_t n = 0;

    for (int i = 0; i < 20; i++)
        n += (size_t)snprintf(fields + n, sizeof(fields) - n, "Api-Key: guess-%d\r\n", i);
    snprintf(fields + n, sizeof(fields) - n, "Api-Key: tr-ann\r\n");
    cr_expect_str_eq(brought(fields), "?");
}

Test(key, a_key_that_is_too_long_is_wrong)
{
    char text[TR_KEY_TEXT_BYTES + 2], fields[600];

    memset(text, 'k', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    add("long", text);
    text[sizeof(text) - 2] = '\0';
    add("as long as may be", text);
    snprintf(fields, sizeof(fields), "X-Api-Key: %s\r\n", text);
    cr_expect_str_eq(brought(fields), "as long as may be");
    snprintf(fields, sizeof(fields), "X-Api-Key: %sk\r\n", text);
    cr_expect_str_eq(brought(fields), "?");
}

Test(key, first_and_last_of_a_full_table_are_found)
{
    char key[32];

    keys = (struct tr_keys){.needed = true};
    for (int i = 0; i <= TR_KEYS_MAX; i++) {
        snprintf(key, sizeof(key), "tr-%d", i);
        add(key + 3, key);
    }
    cr_expect_str_eq(brought("X-Api-Key: tr-0\r\n"), "0");
    cr_expect_str_eq(brought("X-Api-Key: tr-777\r\n"), "777");
    cr_expect_str_eq(brought("X-Api-Key: tr-1024\r\n"), "1024");
    cr_expect_str_eq(brought("X-Api-Key: tr-1025\r\n"), "?");
    cr_expect_eq(tr_keys_named(&keys, "777"), &keys.row[777]);
    cr_expect_null(tr_keys_named(&keys, "1025"));
}
