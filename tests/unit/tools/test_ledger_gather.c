/* SPDX-License-Identifier: Apache-2.0 */
/* A spool and a database of SQLite, filled by hand; what is read of them. */
#include "ledger_tool/gather.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX = 16 };

static char folder[] = "/tmp/tr-gather-XXXXXX";
static char file[64];

struct seen {
    int n, odd;
    struct tr_row_whole row[MAX];
    bool spooled[MAX];
    char words[256];
};

static void name(int i, char out[TR_STREAM_ID_BYTES])
{
    tr_stream_id_format((struct tr_stream_id){(uint32_t)i, 1, 1}, out);
}

static struct tr_entry bill(int i, int64_t created_us)
{
    struct tr_entry e = {.kind = TR_ENTRY_BILL,
                         .bill = {.key = "k",
                                  .model = "m",
                                  .status = "completed",
                                  .reason = "stop",
                                  .created_us = created_us,
                                  .finished_us = created_us + 1,
                                  .choices = 1,
                                  .last_token = -1}};
    name(i, e.bill.stream_id);
    snprintf(e.bill.request_id, sizeof(e.bill.request_id), "r%d", i);
    return e;
}

static struct tr_entry delivery(int i, int64_t tokens)
{
    struct tr_entry e = {.kind = TR_ENTRY_DELIVERY,
                         .delivery = {.delivered_tokens = tokens, .closed_us = 9}};
    name(i, e.delivery.stream_id);
    return e;
}

static void make_folder(void)
{
    cr_assert(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/x.db", folder);
}

static void remove_folder(void)
{
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

static void into_spool(const struct tr_entry *e, int n)
{
    char dir[96];
    struct tr_errbuf err = {""};
    struct tr_spool *p = NULL;
    cr_assert_eq(tr_spool_place(file, "", dir, sizeof(dir)), 0);
    cr_assert_eq(tr_spool_open(&p, dir, 0, &err), 0, "%s", err.msg);
    for (int i = 0; i < n; i++)
        cr_assert_eq(tr_spool_add(p, &e[i]), 0);
    cr_assert_eq(tr_spool_commit(p, false), 0);
    tr_spool_close(p);
}

static void into_database(const struct tr_entry *e, int n)
{
    struct tr_errbuf err = {""};
    struct tr_sink *k = NULL;
    cr_assert_eq(tr_sink_sqlite.open(&k, file, false, &err), 0, "%s", err.msg);
    cr_assert_eq(tr_sink_sqlite.apply(k, e, (size_t)n, &err), 0, "%s", err.msg);
    tr_sink_sqlite.close(k);
}

static int take(void *arg, const struct tr_row_whole *r, bool spooled)
{
    struct seen *s = arg;
    cr_assert_lt(s->n, MAX);
    s->row[s->n] = *r;
    s->spooled[s->n++] = spooled;
    return 0;
}

static void take_odd(void *arg, const char *sentence)
{
    struct seen *s = arg;
    s->odd++;
    snprintf(s->words, sizeof(s->words), "%s", sentence);
}

static struct seen gather(const struct tr_sink_filter *f)
{
    static const struct tr_sink_filter any;
    struct seen s = {0};
    struct tr_errbuf err = {""};
    struct tr_gather g = {.odd = take_odd, .odd_arg = &s};
    cr_assert_eq(tr_gather_open(&g, file, "", &err), 0, "%s", err.msg);
    cr_assert_eq(tr_gather_each(&g, f ? f : &any, take, &s, &err), 0, "%s", err.msg);
    tr_gather_close(&g);
    return s;
}

static void expect_order(const struct seen *s, const char *ids)
{
    char got[128] = "";
    for (int i = 0; i < s->n; i++) {
        size_t n = strlen(got);
        snprintf(got + n, sizeof(got) - n, "%s%s", s->row[i].bill.request_id,
                 s->spooled[i] ? "s " : " ");
    }
    cr_expect_str_eq(got, ids);
}

TestSuite(ledger_gather, .init = make_folder, .fini = remove_folder);

Test(ledger_gather, both_are_told_in_one_order)
{
    const struct tr_entry db[] = {bill(1, 100), bill(3, 300), bill(5, 500)};
    const struct tr_entry spool[] = {bill(6, 600), bill(4, 400), bill(2, 200), bill(7, 300)};
    into_database(db, 3);
    into_spool(spool, 4);
    struct seen s = gather(NULL);
    expect_order(&s, "r1 r2s r3 r7s r4s r5 r6s ");
    cr_expect_eq(s.odd, 0);
}

Test(ledger_gather, what_is_in_both_or_twice_is_told_once)
{
    const struct tr_entry db[] = {bill(1, 100), bill(2, 200), bill(3, 300)};
    /* Written again by a process that asked the clock anew: a little earlier, a little later. */
    const struct tr_entry spool[] = {bill(1, 100), bill(2, 150), bill(3, 350), bill(4, 400),
                                     bill(4, 401)};
    into_database(db, 3);
    into_spool(spool, 5);
    struct seen s = gather(NULL);
    cr_expect_eq(s.n, 4);
    for (int i = 0; i < s.n; i++)
        for (int k = 0; k < i; k++)
            cr_expect_str_neq(s.row[i].bill.stream_id, s.row[k].bill.stream_id);
    cr_expect_eq(s.odd, 0, "%s", s.words);
}

Test(ledger_gather, two_that_contradict_each_other_are_odd)
{
    struct tr_entry db = bill(1, 100), spool = db;
    spool.bill.completion_tokens = 5;
    into_database(&db, 1);
    into_spool(&spool, 1);
    struct seen s = gather(NULL);
    cr_expect_eq(s.n, 1);
    cr_expect(s.odd == 1 && strstr(s.words, ": two records that differ"), "%s", s.words);
}

Test(ledger_gather, a_delivery_in_the_spool_completes_its_row)
{
    const struct tr_entry db[] = {bill(1, 100), bill(2, 200), delivery(2, 2)};
    const struct tr_entry spool[] = {delivery(1, 1), delivery(2, 99), bill(3, 300), delivery(3, 3)};
    into_database(db, 3);
    into_spool(spool, 4);
    struct seen s = gather(NULL);
    expect_order(&s, "r1 r2 r3s ");
    for (int i = 0; i < s.n; i++)
        cr_expect(s.row[i].delivered && s.row[i].delivery.delivered_tokens == i + 1,
                  "the first that came, %d", i);
}

Test(ledger_gather, filters_hold_for_both)
{
    struct tr_entry db[] = {bill(1, 100), bill(2, 200)}, spool[] = {bill(3, 300), bill(4, 400)};
    snprintf(db[0].bill.key, sizeof(db[0].bill.key), "other");
    snprintf(spool[1].bill.key, sizeof(spool[1].bill.key), "other");
    into_database(db, 2);
    into_spool(spool, 2);
    struct seen s = gather(&(struct tr_sink_filter){.key = "other"});
    expect_order(&s, "r1 r4s ");
    s = gather(&(struct tr_sink_filter){.from_us = 200, .until_us = 400});
    expect_order(&s, "r2 r3s ");
    s = gather(&(struct tr_sink_filter){.model = "none"});
    expect_order(&s, "");
}

Test(ledger_gather, a_spool_without_its_database_is_read)
{
    const struct tr_entry e = bill(1, 100);
    struct tr_errbuf err = {""};
    struct tr_gather g = {0};
    cr_expect_eq(tr_gather_open(&g, file, "", &err), -ENOENT, "neither");
    tr_gather_close(&g);
    into_spool(&e, 1);
    struct seen s = gather(NULL);
    expect_order(&s, "r1s ");
    cr_expect_eq(access(file, F_OK), -1, "and none is made");
}

Test(ledger_gather, a_spool_that_was_named_must_be_there)
{
    const struct tr_entry e = bill(1, 100);
    struct tr_errbuf err = {""};
    struct tr_gather g = {0};
    into_database(&e, 1);
    cr_expect_eq(tr_gather_open(&g, file, "/nonexistent/spool", &err), -ENOENT);
    cr_expect_not_null(strstr(err.msg, "/nonexistent/spool"));
    tr_gather_close(&g);
    struct seen s = gather(NULL);
    expect_order(&s, "r1 ");
}
