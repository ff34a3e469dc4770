/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/grpc_read.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Three messages, one of them empty: wherever the bytes are cut, they come out whole and in order. */
Test(grpc_read, messages_may_be_cut_anywhere)
{
    static const char wire[] = "\0\0\0\0\5hello\0\0\0\0\0\0\0\0\0\3abc";
    static const char *const want[] = {"hello", "", "abc"};
    enum { LEN = sizeof(wire) - 1 };

    for (size_t step = 1; step <= LEN; step++) {
        struct tr_grpc_reader r;
        unsigned n = 0;
        tr_grpc_reader_init(&r, 5);
        for (size_t at = 0; at < LEN;) {
            size_t used, len = LEN - at < step ? LEN - at : step;
            enum tr_grpc_got got = tr_grpc_read(&r, wire + at, len, &used);
            cr_assert(got != TR_GRPC_BAD && used <= len);
            cr_assert(got == TR_GRPC_MESSAGE || used == len);
            at += used;
            if (got != TR_GRPC_MESSAGE)
                continue;
            uint32_t m_len;
            char *m = tr_grpc_take(&r, &m_len);
            cr_assert(n < 3 && m_len == strlen(want[n]) && (!m_len || !memcmp(m, want[n], m_len)));
            cr_assert(tr_grpc_between(&r));
            n++;
            free(m);
        }
        cr_assert_eq(n, 3);
        tr_grpc_reader_fini(&r);
    }
}

Test(grpc_read, a_compressed_message_is_not_implemented)
{
    struct tr_grpc_reader r;
    size_t used;

    tr_grpc_reader_init(&r, 100);
    cr_assert_eq(tr_grpc_read(&r, "\1\0\0\0\1x", 6, &used), TR_GRPC_BAD);
    cr_assert_eq(r.code, TR_GRPC_UNIMPLEMENTED);
    cr_assert_eq(tr_grpc_read(&r, "\0\0\0\0\0", 5, &used), TR_GRPC_BAD, "it stays so");
    tr_grpc_reader_fini(&r);
}

Test(grpc_read, a_flag_that_does_not_exist_is_an_error)
{
    struct tr_grpc_reader r;
    size_t used;

    tr_grpc_reader_init(&r, 100);
    cr_assert_eq(tr_grpc_read(&r, "\2\0\0\0\0", 5, &used), TR_GRPC_BAD);
    cr_assert_eq(r.code, TR_GRPC_INTERNAL);
    tr_grpc_reader_fini(&r);
}

Test(grpc_read, a_message_above_the_limit_is_refused_by_its_prefix)
{
    struct tr_grpc_reader r;
    size_t used;

    tr_grpc_reader_init(&r, 100);
    cr_assert_eq(tr_grpc_read(&r, "\0\0\0\0\145", 5, &used), TR_GRPC_BAD);
    cr_assert_eq(r.code, TR_GRPC_RESOURCE_EXHAUSTED);
    cr_assert_null(r.buf);
    tr_grpc_reader_fini(&r);
}

Test(grpc_read, memory_comes_with_the_bytes_not_with_their_announcement)
{
    struct tr_grpc_reader r;
    size_t used;

    tr_grpc_reader_init(&r, 1u << 30);
    cr_assert_eq(tr_grpc_read(&r, "\0\77\377\377\377abc", 8, &used), TR_GRPC_MORE);
    cr_assert_eq(used, 8);
    cr_assert_leq(r.cap, 4096);
    cr_assert_not(tr_grpc_between(&r));
    tr_grpc_reader_fini(&r);
}

Test(grpc_status, every_error_a_client_can_see_has_a_code)
{
    static const struct {
        enum tr_err err;
        enum tr_grpc_code code;
    } rows[] = {
        {TR_OK, TR_GRPC_OK},
        {TR_ERR_BAD_PARAM, TR_GRPC_INVALID_ARGUMENT},
        {TR_ERR_CONTEXT_LENGTH, TR_GRPC_INVALID_ARGUMENT},
        {TR_ERR_UNAUTHORIZED, TR_GRPC_UNAUTHENTICATED},
        {TR_ERR_FORBIDDEN, TR_GRPC_PERMISSION_DENIED},
        {TR_ERR_MODEL_NOT_FOUND, TR_GRPC_NOT_FOUND},
        {TR_ERR_BODY_TOO_LARGE, TR_GRPC_RESOURCE_EXHAUSTED},
        {TR_ERR_INTERNAL, TR_GRPC_INTERNAL},
        {TR_ERR_NOT_IMPLEMENTED, TR_GRPC_UNIMPLEMENTED},
        {TR_ERR_OVERLOADED, TR_GRPC_UNAVAILABLE},
        {TR_ERR_DRAINING, TR_GRPC_UNAVAILABLE},
        {TR_ERR_ENGINE_CRASHED, TR_GRPC_INTERNAL},
        {TR_ERR_CANCELLED, TR_GRPC_ABORTED},
        {TR_ERR_SLOW_CLIENT, TR_GRPC_ABORTED},
        {TR_ERR_DEADLINE, TR_GRPC_DEADLINE_EXCEEDED},
        {TR_ERR_DRAIN_LIMIT, TR_GRPC_UNAVAILABLE},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        cr_expect_eq(tr_grpc_code_of(rows[i].err), rows[i].code, "row %zu", i);
    for (unsigned e = 1; e < TR_ERR_COUNT; e++) {
        cr_expect_neq(tr_grpc_code_of((enum tr_err)e), TR_GRPC_OK, "%u", e);
        cr_expect_neq(tr_grpc_code_of((enum tr_err)e), TR_GRPC_CANCELLED, "%u", e);
    }
}

Test(grpc_status, messages_are_percent_encoded)
{
    char out[3 * TR_GRPC_MESSAGE_MAX + 1], longest[2000];

    tr_grpc_message("100% \xc3\xa4\n~", out);
    cr_assert_str_eq(out, "100%25 %C3%A4%0A~");
    tr_grpc_message("", out);
    cr_assert_str_eq(out, "");
    memset(longest, 0xff, sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    tr_grpc_message(longest, out);
    cr_assert_eq(strlen(out), 3 * TR_GRPC_MESSAGE_MAX);
}

Test(grpc_status, timeouts_are_digits_and_a_unit)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } good[] = {{"1n", 1},           {"300m", 300000000},      {"2S", 2000000000},
                {"1M", 60000000000}, {"1H", 3600000000000},    {"7u", 7000},
                {"0S", 0},           {"99999999H", UINT64_MAX}};
    static const char *const bad[] = {"", "S", "1", "-1S", "1.5S", "123456789S", "1s", "1 S", "S1"};
    uint64_t ns;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        cr_expect_eq(tr_grpc_timeout(good[i].text, strlen(good[i].text), &ns), 0);
        cr_expect_eq(ns, good[i].ns, "%s", good[i].text);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_expect_neq(tr_grpc_timeout(bad[i], strlen(bad[i]), &ns), 0, "%s", bad[i]);
}
