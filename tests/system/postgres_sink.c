/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/postgres.c against a real server, whose address is the argument (71_postgres.py has one): one row
 * for each stream id, whatever is applied twice, in whatever order its parts come. */
#include "ledger/postgres.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MANY = 500 };

static const struct tr_sink_ops *const ops = &tr_sink_postgres;
static struct tr_errbuf err;
static int passed, failed;

static void check(int good, const char *claim, long long seen)
{
    passed += good != 0;
    failed += good == 0;
    if (!good)
        printf("FAILED %s | %lld | %s\n", claim, seen, err.msg);
}

static struct tr_entry bill(int i)
{
    struct tr_entry e = {.kind = TR_ENTRY_BILL,
                         .bill = {.key = "k'\\\"",
                                  .model = "m\xc3\xa9tro 'x\\",
                                  .status = "completed",
                                  .reason = "stop",
                                  .created_us = 1700000000123456 + i,
                                  .first_token_us = i % 2 ? 1700000001000001 : 0,
                                  .finished_us = 1700000002000002,
                                  .choices = 1,
                                  .prompt_tokens = i,
                                  .completion_tokens = INT64_MAX,
                                  .last_token = i % 2 ? i : -1}};
    snprintf(e.bill.stream_id, sizeof(e.bill.stream_id), "tr-%x-1-0", i);
    snprintf(e.bill.request_id, sizeof(e.bill.request_id), "r%d', '); DROP TABLE x; --", i);
    return e;
}

static struct tr_entry delivery(int i, int64_t tokens)
{
    struct tr_entry e = {
        .kind = TR_ENTRY_DELIVERY,
        .delivery = {.delivered_tokens = tokens, .closed_us = 1700000003000003 + i}};
    snprintf(e.delivery.stream_id, sizeof(e.delivery.stream_id), "tr-%x-1-0", i);
    return e;
}

/* ---- reading it all back ---- */

struct seen {
    int n, delivered;
    int64_t last_us;
    bool in_order, as_written;
};

static int look(void *arg, const struct tr_row_whole *w)
{
    struct seen *s = arg;
    const struct tr_row *r = &w->bill;
    struct tr_entry want = bill((int)r->prompt_tokens);
    s->n++;
    s->delivered += w->delivered;
    s->in_order &= r->created_us > s->last_us;
    s->last_us = r->created_us;
    s->as_written &= memcmp(r, &want.bill, sizeof(*r)) == 0;
    if (w->delivered) /* the first that came */
        s->as_written &= w->delivery.delivered_tokens == r->prompt_tokens &&
                         w->delivery.closed_us == 1700000003000003 + r->prompt_tokens &&
                         w->delivery.first_byte_us == 0;
    return 0;
}

static struct seen read_all(struct tr_sink *k, const struct tr_sink_filter *f)
{
    struct seen s = {.in_order = true, .as_written = true};
    check(ops->each(k, f, look, &s, &err) == 0, "all rows can be read", s.n);
    return s;
}

static void apply(struct tr_sink *k, const struct tr_entry *e, size_t n)
{
    int ret = -EAGAIN;
    for (int i = 0; i < 60 && ret == -EAGAIN; i++)
        ret = ops->apply(k, e, n, &err);
    check(ret == 0, "a group is applied", ret);
}

/* ---- the claims ---- */

static void orders_and_doubles(struct tr_sink *k)
{
    struct tr_entry both[] = {delivery(0, 0), bill(0), bill(1), delivery(1, 1)};
    struct tr_entry late[] = {delivery(2, 2), delivery(3, 3), delivery(3, 99)};
    struct tr_entry then[] = {bill(3), bill(2), bill(3), delivery(1, 99), bill(4)};
    apply(k, both, 4);
    apply(k, late, 3);
    apply(k, late, 3);
    struct seen s = read_all(k, NULL);
    check(s.n == 2 && s.delivered == 2, "a delivery without its request is no row", s.n);
    apply(k, then, 5);
    apply(k, both, 4);
    apply(k, then, 5);
    s = read_all(k, NULL);
    check(s.n == 5, "one row for each stream id", s.n);
    check(s.delivered == 4, "deliveries meet their requests in either order", s.delivered);
    check(s.in_order, "rows come by their time", s.n);
    check(s.as_written, "every value comes back as it was written, the first one wins", s.n);
}

static void many(struct tr_sink *k)
{
    static struct tr_entry e[2 * MANY];
    for (int i = 0; i < MANY; i++) {
        e[i] = delivery(MANY - i, MANY - i);
        e[MANY + i] = bill(i + 1);
    }
    apply(k, e, 2 * MANY);
    apply(k, e, 2 * MANY);
    struct seen s = read_all(k, NULL);
    check(s.n == MANY + 1 && s.delivered == MANY + 1 && s.in_order && s.as_written,
          "a large group, twice", s.n);
}

static void filters(struct tr_sink *k)
{
    struct tr_sink_filter f = {.key = "k'\\\"", .status = "completed"};
    check(read_all(k, &f).n == MANY + 1, "by key and status", 0);
    f.key = "other";
    check(read_all(k, &f).n == 0, "another key", 0);
    f = (struct tr_sink_filter){.model = "m\xc3\xa9tro 'x\\",
                                .from_us = 1700000000123456 + 10,
                                .until_us = 1700000000123456 + 20};
    check(read_all(k, &f).n == 10, "by model and time, to the microsecond", 0);
}

static void says_odd(void *arg, const char *sentence)
{
    ++*(int *)arg;
    printf("%s\n", sentence);
}

static int stop_at_3(void *arg, const struct tr_row_whole *w)
{
    (void)w;
    return ++*(int *)arg == 3 ? 42 : 0;
}

static void reading(const char *url)
{
    struct tr_sink *k = NULL;
    int n = 0, odd = 0;
    check(ops->open(&k, url, true, &err) == 0, "it is opened to read", 0);
    if (!k)
        return;
    check(read_all(k, NULL).n == MANY + 1, "and read", 0);
    check(ops->each(k, &(struct tr_sink_filter){0}, stop_at_3, &n, &err) == 42 && n == 3,
          "a reader may stop, and is told what it said", n);
    int ret = -EAGAIN;
    for (int i = 0; i < 1000 && ret == -EAGAIN;
         i++) /* what was not wanted is gone with its connection */
        ret = ops->check(k, says_odd, &odd, &err);
    check(ret == 0 && odd == 0, "nothing is wrong with it", ret);
    ops->close(k);
}

int main(int argc, char **argv)
{
    struct tr_sink *k = NULL;
    if (argc != 2)
        return 2;
    check(ops->open(&k, argv[1], true, &err) == -ENOENT && !k, "no ledger yet to read", 0);
    check(ops->open(&k, argv[1], false, &err) == 0, "it is opened to write", 0);
    if (k) {
        orders_and_doubles(k);
        many(k);
        filters(k);
        ops->close(k);
        reading(argv[1]);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
