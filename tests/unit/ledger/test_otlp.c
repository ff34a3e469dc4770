/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/otlp.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct tr_otlp_config nobody = {
    .url = "http://127.0.0.1:1", .headers = "", .ca = "", .facts = {"m", "1", "i"}};
static struct tr_stat stat;
static struct tr_otlp *o;

static void setup(void)
{
    struct tr_errbuf err;
    tr_role = TR_ROLE_LEDGER;
    cr_assert_eq(tr_otlp_open(&o, &nobody, 4, &stat, &err), 0);
}

static void fini(void)
{
    tr_otlp_close(o);
}

TestSuite(otlp, .init = setup, .fini = fini, .timeout = 60);

static struct tr_bill sampled(void)
{
    struct tr_bill b = {.slot = 1, .gen = 2};
    b.trace.flags = TR_TRACE_SAMPLED;
    b.trace.trace_id[0] = 1;
    return b;
}

static uint64_t lost(void)
{
    return atomic_load(&stat.value[TR_STAT_SPANS_OVERFLOW]);
}

Test(otlp, without_an_address_there_are_no_traces_and_every_call_is_nothing)
{
    struct tr_otlp_config off = nobody;
    struct tr_errbuf err;
    struct tr_bill b = sampled();
    struct tr_otlp *none;
    off.url = "";
    cr_assert_eq(tr_otlp_open(&none, &off, 4, &stat, &err), 0);
    cr_assert_null(none);
    tr_otlp_bill(none, &b);
    tr_otlp_delivery(none, &(struct tr_delivery){.slot = 1});
    tr_otlp_missed(none, 1);
    tr_otlp_finish(none);
    tr_otlp_give_up(none);
    cr_expect_eq(tr_otlp_start(none), 0);
    cr_expect(tr_otlp_has_ended(none));
    tr_otlp_close(none);
    cr_expect_eq(lost(), 0);
}

Test(otlp, what_finds_no_room_is_lost_and_counted)
{
    struct tr_bill b = sampled(), quiet = sampled();
    quiet.trace.flags = 0;
    for (int i = 0; i < TR_OTLP_SPANS; i++)
        tr_otlp_bill(o, &b);
    tr_otlp_bill(o, &quiet);
    cr_expect_eq(lost(), 0);
    tr_otlp_bill(o, &b);
    cr_expect_eq(lost(), 1);
    tr_otlp_missed(o, 5);
    cr_expect_eq(lost(), 6);
}

Test(otlp, a_slot_or_a_stream_that_is_nobody_s_is_no_harm)
{
    struct tr_bill b = sampled();
    b.slot = UINT32_MAX;
    tr_otlp_bill(o, &b);
    tr_otlp_delivery(o, &(struct tr_delivery){.slot = UINT32_MAX});
    tr_otlp_delivery(o, &(struct tr_delivery){.slot = 3});
}

/* A collector that is not there is tried once at the end, and then left. */
Test(otlp, the_end_does_not_wait_for_a_collector_that_is_not_there)
{
    struct tr_bill b = sampled();
    tr_otlp_bill(o, &b);
    cr_assert_eq(tr_otlp_start(o), 0);
    tr_otlp_finish(o);
    while (!tr_otlp_has_ended(o))
        ;
    cr_expect_eq(atomic_load(&stat.value[TR_STAT_SPAN_ERRORS]), 1);
    cr_expect_eq(atomic_load(&stat.value[TR_STAT_SPANS]), 0);
}
