/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/row.h"

#include "base/clock.h"
#include "base/err.h"
#include "shm/ring.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>

static char line[TR_ROW_BYTES];

static json_t *parse(size_t n)
{
    json_error_t e;
    cr_assert_eq(line[n - 1], '\n');
    cr_assert_null(memchr(line, '\n', n - 1), "one line");
    json_t *j = json_loadb(line, n, JSON_REJECT_DUPLICATES, &e);
    cr_assert_not_null(j, "%s", e.text);
    return j;
}

static const char *text(json_t *j, const char *key)
{
    return json_string_value(json_object_get(j, key));
}

Test(row, a_record_has_every_billing_column)
{
    struct tr_bill b = {.request_id = "req-1",
                        .key = "k",
                        .slot = 3,
                        .gen = 2,
                        .choices = 2,
                        .stream_rand = 5,
                        .arrival_ns = tr_now_ns(),
                        .prompt_tokens = 7,
                        .completion_tokens = 9,
                        .overrun_tokens = 1,
                        .last_token = 42,
                        .state = TR_COMPLETED,
                        .finish = TR_FINISH_EOG};
    json_t *j = parse(tr_row_bill(&b, "m", line));
    const char *keys[] = {"request_id",
                          "stream_id",
                          "key",
                          "model",
                          "status",
                          "reason",
                          "created_at",
                          "first_token_at",
                          "finished_at",
                          "choices",
                          "prompt_tokens",
                          "cached_tokens",
                          "completion_tokens",
                          "overrun_tokens",
                          "last_token",
                          "disconnect_at",
                          "cancel_ack_at"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        cr_assert_not_null(json_object_get(j, keys[i]), "%s", keys[i]);
    cr_assert_str_eq(text(j, "stream_id"), "tr-3-2-0000000000000005");
    cr_assert_str_eq(text(j, "status"), "completed");
    cr_assert_eq(json_integer_value(json_object_get(j, "completion_tokens")), 9);
    cr_assert(json_is_null(json_object_get(j, "first_token_at")));
    double at = json_number_value(json_object_get(j, "created_at"));
    cr_assert(at > tr_wall_s() - 60 && at < tr_wall_s() + 60);
    json_decref(j);
}

Test(row, every_end_has_a_status_and_a_reason)
{
    static const struct {
        uint32_t state, finish, err;
        const char *status, *reason;
    } rows[] = {{TR_COMPLETED, TR_FINISH_STOP_STRING, 0, "completed", "stop_string"},
                {TR_COMPLETED, TR_FINISH_STOP_ID, 0, "completed", "stop_id"},
                {TR_INCOMPLETE, TR_FINISH_LENGTH, 0, "incomplete", "length"},
                {TR_CANCELLED, 0, TR_ERR_CLIENT_GONE, "cancelled", "client_disconnected"},
                {TR_ERROR, 0, TR_ERR_ENGINE_LOST, "error", "engine_lost"},
                {77, 0, 9999, "error", "internal_error"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tr_bill b = {.state = rows[i].state,
                            .finish = rows[i].finish,
                            .err = rows[i].err,
                            .last_token = UINT32_MAX};
        json_t *j = parse(tr_row_bill(&b, "m", line));
        cr_assert_str_eq(text(j, "status"), rows[i].status);
        cr_assert_str_eq(text(j, "reason"), rows[i].reason);
        cr_assert(json_is_null(json_object_get(j, "last_token")));
        json_decref(j);
    }
}

Test(row, strings_of_other_processes_cannot_break_the_line)
{
    struct tr_bill b = {.last_token = UINT32_MAX};
    memset(b.request_id, '"', sizeof(b.request_id) - 1);
    memset(b.key, '\n', sizeof(b.key) - 1);
    json_t *j = parse(tr_row_bill(&b, "m\\\x01\xff", line));
    cr_assert_eq(strlen(text(j, "request_id")), sizeof(b.request_id) - 1);
    json_decref(j);
}

Test(row, a_delivery_names_its_request)
{
    struct tr_delivery d = {
        .request_id = "r", .stream_rand = 0xab, .delivered_tokens = 4, .closed_ns = tr_now_ns()};
    json_t *j = parse(tr_row_delivery(&d, line));
    cr_assert_str_eq(text(j, "request_id"), "r");
    cr_assert_str_eq(text(j, "stream_rand"), "00000000000000ab");
    cr_assert(json_is_null(json_object_get(j, "first_byte_at")));
    cr_assert_eq(json_integer_value(json_object_get(j, "delivered_tokens")), 4);
    json_decref(j);
}
