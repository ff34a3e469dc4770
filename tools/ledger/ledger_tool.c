/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger_tool/ledger_tool.h"

#include "ledger_tool/columns.h"
#include "ledger_tool/gather.h"
#include "ledger_tool/options.h"
#include "ledger_tool/sum.h"
#include "ledger_tool/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DONE, FAILED, USAGE };

struct tool {
    struct tr_lt_options opt;
    struct tr_gather gather;
    struct tr_columns columns;
    struct tr_lt_sums sums;
    char last_id[TR_STREAM_ID_BYTES];
    uint64_t rows, spooled, odd;
};

static int complain(const char *why)
{
    fprintf(stderr, "tokenring ledger: %s\n", why);
    return FAILED;
}

/* Everything said so far went out. */
static int told(void)
{
    return fflush(stdout) == 0 && !ferror(stdout) ? DONE : complain("cannot write the output");
}

/* ---- export ---- */

static int export_row(void *arg, const struct tr_row_whole *r, bool spooled)
{
    struct tool *t = arg;
    (void)spooled;
    tr_columns_row(&t->columns, r);
    return ferror(stdout) ? -EIO : 0;
}

static int run_export(struct tool *t, struct tr_errbuf *err)
{
    static const struct tr_row_whole none;
    t->columns = (struct tr_columns){.to = stdout, .format = t->opt.format, .head = true};
    if (t->opt.format == TR_LT_CSV)
        tr_columns_row(&t->columns, &none);
    t->columns.head = false;
    return tr_gather_each(&t->gather, &t->opt.filter, export_row, t, err);
}

/* ---- sum ---- */

static int sum_row(void *arg, const struct tr_row_whole *r, bool spooled)
{
    struct tool *t = arg;
    (void)spooled;
    return tr_lt_sum_add(&t->sums, &r->bill);
}

static int run_sum(struct tool *t, struct tr_errbuf *err)
{
    t->sums.opt = &t->opt;
    int ret = tr_gather_each(&t->gather, &t->opt.filter, sum_row, t, err);
    if (!ret)
        tr_lt_sum_print(&t->sums, stdout);
    tr_lt_sum_fini(&t->sums);
    return ret;
}

/* ---- verify ---- */

static void print_odd(void *arg, const char *sentence)
{
    struct tool *t = arg;
    t->odd++;
    printf("%s\n", sentence);
}

static int verify_row(void *arg, const struct tr_row_whole *r, bool spooled)
{
    struct tool *t = arg;
    char line[128];
    t->rows++;
    t->spooled += spooled;
    if (strcmp(t->last_id, r->bill.stream_id) == 0) {
        snprintf(line, sizeof(line), "%s: there twice", t->last_id);
        print_odd(t, line);
    }
    memcpy(t->last_id, r->bill.stream_id, sizeof(t->last_id));
    tr_lt_verify_row(r, print_odd, t);
    return ferror(stdout) ? -EIO : 0;
}

/* While a service runs, a delivery may be a moment earlier than its request. */
static void look_for_orphans(struct tool *t)
{
    const struct tr_gather *g = &t->gather;
    char line[128];
    for (size_t i = 0; i < g->n_delivery && !g->live; i++)
        if (!g->met[i]) {
            snprintf(line, sizeof(line), "%s: delivered, but there is no such request",
                     g->delivery[i].stream_id);
            print_odd(t, line);
        }
}

static int run_verify(struct tool *t, struct tr_errbuf *err)
{
    struct tr_gather *g = &t->gather;
    int ret = tr_gather_each(g, &t->opt.filter, verify_row, t, err);
    if (!ret && g->db)
        ret = g->ops->check(g->db, print_odd, t, err);
    if (ret)
        return ret;
    look_for_orphans(t);
    printf("%" PRIu64 " requests, %" PRIu64 " of them not yet in the database; %" PRIu64
           " anomalies\n",
           t->rows, t->spooled, t->odd);
    return 0;
}

/* ---- main ---- */

static int run(struct tool *t, struct tr_errbuf *err)
{
    static int (*const action[])(struct tool * t, struct tr_errbuf * err) = {
        [TR_LT_VERIFY] = run_verify, [TR_LT_SUM] = run_sum, [TR_LT_EXPORT] = run_export};
    if (t->opt.action == TR_LT_VERIFY) {
        t->gather.odd = print_odd;
        t->gather.odd_arg = t;
    }
    int ret = tr_gather_open(&t->gather, t->opt.ledger, t->opt.spool, err);
    return ret ? ret : action[t->opt.action](t, err);
}

int tr_ledger_tool_main(int argc, char **argv)
{
    struct tool *t = calloc(1, sizeof(*t));
    struct tr_errbuf err = {""};
    if (!t)
        return complain("no memory");
    int ret = tr_lt_options_parse(&t->opt, argc, argv, &err), status = DONE;
    if (ret > 0) {
        tr_lt_options_help();
    } else if (ret) {
        complain(err.msg);
        status = USAGE;
    } else if ((ret = run(t, &err)) != 0 && !ferror(stdout)) {
        fflush(stdout);
        status = complain(err.msg[0] ? err.msg : strerror(-ret));
    } else {
        if (t->gather.faults && t->opt.action != TR_LT_VERIFY)
            complain("parts of the spool cannot be read: see tokenring ledger verify");
        status = told();
    }
    if (t->odd)
        status = FAILED;
    tr_gather_close(&t->gather);
    free(t);
    return status;
}
