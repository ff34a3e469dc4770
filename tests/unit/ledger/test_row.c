/* SPDX-License-Identifier: Apache-2.0 */
/* Records of other processes as entries, and entries as bytes. */
#include "ledger/row.h"

#include "base/clock.h"
#include "base/err.h"
#include "ledger/pack.h"
#include "shm/ring.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct tr_entry e;

Test(row, a_record_has_every_billing_column)
{
    uint64_t now = tr_now_ns();
    struct tr_bill b = {.request_id = "req-1",
                        .key = "k",
                        .slot = 3,
                        .gen = 2,
                        .choices = 2,
                        .stream_rand = 5,
                        .arrival_ns = now,
                        .finished_ns = now + 2000,
                        .prompt_tokens = 7,
                        .cached_tokens = 3,
                        .completion_tokens = 9,
                        .overrun_tokens = 1,
                        .last_token = 42,
                        .disconnect_ns = now + 1000,
                        .state = TR_COMPLETED,
                        .finish = TR_FINISH_EOG};
    tr_row_of_bill(&b, "m", &e);
    const struct tr_row *r = &e.bill;
    cr_assert_eq(e.kind, TR_ENTRY_BILL);
    cr_expect_str_eq(r->request_id, "req-1");
    cr_expect_str_eq(r->stream_id, "tr-3-2-0000000000000005");
    cr_expect_str_eq(r->key, "k");
    cr_expect_str_eq(r->model, "m");
    cr_expect_str_eq(r->status, "completed");
    cr_expect(r->choices == 2 && r->prompt_tokens == 7 && r->cached_tokens == 3 &&
              r->completion_tokens == 9 && r->overrun_tokens == 1 && r->last_token == 42);
    double at = (double)r->created_us * 1e-6;
    cr_expect(at > tr_wall_s() - 60 && at < tr_wall_s() + 60);
    cr_expect_eq(r->first_token_us, 0, "null");
    cr_expect_eq(r->disconnect_us, r->created_us + 1, "one calendar for all times of a row");
    cr_expect_eq(r->finished_us, r->created_us + 2);
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
        tr_row_of_bill(&b, "m", &e);
        cr_expect_str_eq(e.bill.status, rows[i].status);
        cr_expect_str_eq(e.bill.reason, rows[i].reason);
        cr_expect_eq(e.bill.last_token, -1);
    }
}

Test(row, strings_of_other_processes_come_out_clean)
{
    struct tr_bill b = {.last_token = UINT32_MAX};
    memset(b.request_id, '\n', sizeof(b.request_id) - 1);
    memset(b.key, 0xf7, sizeof(b.key)); /* without an end, too */
    tr_row_of_bill(&b, "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\x8a", &e);
    cr_expect_eq(strspn(e.bill.request_id, "?"), sizeof(b.request_id) - 1);
    cr_expect_eq(strspn(e.bill.key, "?"), sizeof(b.key) - 1);
    cr_expect_str_eq(e.bill.model, "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\x8a");
    /* A byte alone, overlong, a surrogate, beyond Unicode, cut short, controls. */
    tr_row_of_bill(&b, "\xff \xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \x01 \xc2\x85 \xc3", &e);
    cr_expect_str_eq(e.bill.model, "? ?? ??? ???? ? ?? ?");
}

Test(row, a_delivery_names_its_stream)
{
    struct tr_delivery d = {.request_id = "r",
                            .slot = 1,
                            .gen = 2,
                            .stream_rand = 0xab,
                            .delivered_tokens = 4,
                            .closed_ns = tr_now_ns()};
    tr_row_of_delivery(&d, &e);
    cr_assert_eq(e.kind, TR_ENTRY_DELIVERY);
    cr_expect_str_eq(e.delivery.stream_id, "tr-1-2-00000000000000ab");
    cr_expect(e.delivery.first_byte_us == 0 && e.delivery.delivered_tokens == 4 &&
              e.delivery.closed_us > 0);
}

/* ---- packed ---- */

static uint8_t packed[TR_PACK_MAX];

static void fill(struct tr_row *r)
{
    memset(r, 0xff, sizeof(*r)); /* longest text, largest numbers */
    memset(r, 'x', offsetof(struct tr_row, created_us));
    r->request_id[sizeof(r->request_id) - 1] = r->key[sizeof(r->key) - 1] = '\0';
    r->model[sizeof(r->model) - 1] = r->status[sizeof(r->status) - 1] = '\0';
    r->reason[sizeof(r->reason) - 1] = '\0';
    strcpy(r->stream_id, "tr-ffffffff-ffffffff-ffffffffffffffff");
    for (int64_t *v = &r->created_us; v <= &r->cancel_ack_us; v++)
        *v = INT64_MAX;
}

Test(pack, the_longest_entry_fits_and_comes_back_whole)
{
    struct tr_entry in = {.kind = TR_ENTRY_BILL}, out;
    fill(&in.bill);
    size_t n = tr_pack(&in, packed);
    cr_assert_leq(n, TR_PACK_MAX);
    cr_assert_eq(tr_unpack(packed, n, &out), 0);
    cr_expect_str_eq(out.bill.request_id, in.bill.request_id);
    cr_expect_str_eq(out.bill.stream_id, in.bill.stream_id);
    cr_expect_str_eq(out.bill.model, in.bill.model);
    cr_expect_arr_eq(&out.bill.created_us, &in.bill.created_us, 11 * sizeof(int64_t));
    in.bill.last_token = -1;
    in.bill.created_us = 1796041097584944;
    cr_assert_eq(tr_unpack(packed, tr_pack(&in, packed), &out), 0);
    cr_expect(out.bill.last_token == -1 && out.bill.created_us == 1796041097584944);
}

Test(pack, a_delivery_comes_back_whole)
{
    struct tr_entry in = {.kind = TR_ENTRY_DELIVERY,
                          .delivery = {"tr-1-2-00000000000000ab", 5, 70000, INT64_MAX}},
                    out;
    cr_assert_eq(tr_unpack(packed, tr_pack(&in, packed), &out), 0);
    cr_expect_eq(out.kind, TR_ENTRY_DELIVERY);
    cr_expect_str_eq(out.delivery.stream_id, in.delivery.stream_id);
    cr_expect(out.delivery.first_byte_us == 5 && out.delivery.delivered_tokens == 70000 &&
              out.delivery.closed_us == INT64_MAX);
}

static int unpack(const char *bytes, size_t n)
{
    memcpy(packed, bytes, n);
    return tr_unpack(packed, n, &e);
}
#define UNPACK(bytes) unpack(bytes, sizeof(bytes) - 1)
#define ID "\xa9stream_id\xb7tr-1-2-00000000000000ab"

Test(pack, columns_of_a_newer_version_are_skipped_and_those_of_an_older_one_missing)
{
    cr_assert_eq(UNPACK("\x84\xa4kind\x01\xa3new\xa5value\xa5newer\xcd\x01\x00" ID), 0);
    cr_expect(e.bill.prompt_tokens == 0 && e.bill.last_token == -1);
    cr_assert_eq(UNPACK("\x83\xa4kind\x02" ID "\xa9"
                        "closed_us\xd0\x7f"),
                 0);
    cr_expect_eq(e.delivery.closed_us, 127);
}

Test(pack, anything_else_is_refused)
{
    cr_expect_eq(UNPACK(""), -EINVAL);
    cr_expect_eq(UNPACK("\x80"), -EINVAL, "no kind");
    cr_expect_eq(UNPACK("\x82\xa4kind\x03" ID), -EINVAL, "an unknown kind");
    cr_expect_eq(UNPACK("\x81\xa4kind\x01"), -EINVAL, "no stream id");
    cr_expect_eq(UNPACK("\x82\xa4kind\x01\xa9stream_id\xa3two"), -EINVAL, "one that is none");
    cr_expect_eq(UNPACK("\x82\xa4kind\x01" ID "\x00"), -EINVAL, "bytes left over");
    cr_expect_eq(UNPACK("\x83\xa4kind\x01" ID "\xa7"
                        "choices\xff"),
                 -EINVAL, "below zero");
    cr_expect_eq(UNPACK("\x83\xa4kind\x01" ID "\xa7"
                        "choices\xa1x"),
                 -EINVAL, "text for a number");
    cr_expect_eq(UNPACK("\x83\xa4kind\x01" ID "\xa3key\x05"), -EINVAL, "a number for text");
    cr_expect_eq(UNPACK("\x83\xa4kind\x01" ID "\xa3key\xa1\x00"), -EINVAL, "a NUL");
    cr_expect_eq(UNPACK("\x83\xa4kind\x01" ID "\xa3key\xdb\xff\xff\xff\xff"), -EINVAL,
                 "no such length");
    cr_expect_eq(UNPACK("\xdf\xff\xff\xff\xff\xa4kind\x01" ID), -EINVAL, "no such map");
    cr_expect_eq(UNPACK("\x83\xa4kind\x01" ID "\xa3key\x90"), -EINVAL, "an array");
}
