/* SPDX-License-Identifier: Apache-2.0 */
/* What is sent; what a server makes of it is tests/system/postgres_sink.c. */
#include "ledger/pg_sql.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const struct tr_entry bill = {.kind = TR_ENTRY_BILL,
                                     .bill = {.stream_id = "tr-1-1-1",
                                              .request_id = "it's \\ \"",
                                              .key = "",
                                              .model = "m\xc3\xa9",
                                              .status = "completed",
                                              .reason = "stop",
                                              .created_us = 1700000000123456,
                                              .choices = 1,
                                              .last_token = -1}};
static const struct tr_entry delivery = {
    .kind = TR_ENTRY_DELIVERY,
    .delivery = {.stream_id = "tr-2-1-1", .delivered_tokens = 5, .closed_us = 1}};

static char *applied(const struct tr_entry *e, size_t n, bool ascii)
{
    struct tr_pg_sql q = {.ascii = ascii};
    tr_pg_sql_apply(&q, e, n);
    cr_assert(q.s && !q.failed && strlen(q.s) == q.len);
    return q.s;
}

Test(pg_sql, text_is_quoted_whatever_it_holds)
{
    char *s = applied(&bill, 1, false);
    cr_expect(strstr(s, "E'it''s \\\\ \"'"), "%s", s);
    cr_expect(strstr(s, "E'm\xc3\xa9'"), "%s", s);
    free(s);
    s = applied(&bill, 1, true);
    cr_expect(strstr(s, "E'm\?\?'"), "a database without these characters gets others: %s", s);
    free(s);
}

Test(pg_sql, times_are_exact_and_nothing_is_null)
{
    char *s = applied(&bill, 1, false);
    cr_expect(strstr(s, "'2023-11-14 22:13:20.123456+00'::timestamptz,NULL,NULL,NULL,NULL,"), "%s",
              s);
    cr_expect(strstr(s, ",NULL) ON CONFLICT DO NOTHING;"), "no last token: %s", s);
    free(s);
    struct tr_entry far = bill;
    far.bill.created_us = INT64_MAX;
    s = applied(&far, 1, false);
    cr_expect(strstr(s, "'9999-12-31 23:59:59.999999+00'"), "a time that no calendar has: %s", s);
    free(s);
}

Test(pg_sql, a_group_of_one_kind_has_no_statement_for_the_other)
{
    char *s = applied(&bill, 1, false);
    cr_expect(strstr(s, "INTO tokenring_requests") && !strstr(s, "INTO tokenring_deliveries"));
    free(s);
    s = applied(&delivery, 1, false);
    cr_expect(!strstr(s, "INTO tokenring_requests") && strstr(s, "INTO tokenring_deliveries"));
    free(s);
    const struct tr_entry both[] = {delivery, bill};
    s = applied(both, 2, false);
    const char *r = strstr(s, "INTO tokenring_requests"),
               *d = strstr(s, "INTO tokenring_deliveries");
    cr_expect(r && d && r < d, "requests first: their deliveries meet them");
    cr_expect(strstr(s, "IN (E'tr-2-1-1',E'tr-1-1-1')"), "%s", s);
    free(s);
}

Test(pg_sql, filters_are_conditions)
{
    struct tr_pg_sql q = {0};
    tr_pg_sql_select(&q, &(struct tr_sink_filter){.key = "", .model = "a'b", .until_us = 1000000});
    cr_expect(strstr(q.s, "WHERE true AND key=E'' AND model=E'a''b' AND created_at<'1970-01-01 "
                          "00:00:01.000000+00'::timestamptz ORDER BY"),
              "%s", q.s);
    cr_expect(!strstr(q.s, "status=") && !strstr(q.s, "created_at>="));
    free(q.s);
}

Test(pg_sql, every_version_has_its_step)
{
    for (unsigned v = 1; v <= TR_PG_VERSION; v++)
        cr_expect(tr_pg_sql_step(v));
    cr_expect(!tr_pg_sql_step(0) && !tr_pg_sql_step(TR_PG_VERSION + 1));
}
