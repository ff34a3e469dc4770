/* SPDX-License-Identifier: Apache-2.0 */
/* What the ledger has of it in the end: database and spool (hostile.h). */
#include "hostile.h"

#include "ledger/sink.h"
#include "ledger/spool_read.h"
#include "shm/ring.h"
#include "shm/stream_id.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct found {
    struct tr_stream_id id;
    uint64_t tokens;
    char status[16];
};

struct ledger_read {
    struct found *rows;
    size_t n, cap, delivered;
};

static int by_id(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct tr_stream_id));
}

static int take_row(void *arg, const struct tr_row_whole *w)
{
    struct ledger_read *l = arg;
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 1024;
        l->rows = realloc(l->rows, l->cap * sizeof(*l->rows));
        if (!l->rows)
            abort();
    }
    struct found *f = &l->rows[l->n++];
    memset(f, 0, sizeof(*f));
    f->tokens = (uint64_t)w->bill.completion_tokens;
    snprintf(f->status, sizeof(f->status), "%.15s", w->bill.status);
    l->delivered += w->delivered;
    if (tr_stream_id_parse(w->bill.stream_id, strlen(w->bill.stream_id), &f->id))
        hostile_fail("a row of the ledger has no stream id");
    return 0;
}

static void count_entry(void *arg, const struct tr_entry *e)
{
    (void)e;
    ++*(size_t *)arg;
}

bool hostile_spool_holds(const char *ledger)
{
    char spool[80];
    size_t left = 0;
    struct tr_errbuf err;
    struct tr_spool_reader reader = {.entry = count_entry, .arg = &left};
    if (tr_spool_place(ledger, "", spool, sizeof(spool)) ||
        tr_spool_each(spool, false, &reader, &err))
        hostile_fail("the spool cannot be read");
    return left > 0;
}

static void read_ledger(const char *path, struct ledger_read *l)
{
    struct tr_errbuf err;
    struct tr_sink *sink;
    memset(l, 0, sizeof(*l));
    if (tr_sink_sqlite.open(&sink, path, true, &err)) {
        hostile_fail(err.msg);
        return;
    }
    if (sink->ops->each(sink, &(struct tr_sink_filter){0}, take_row, l, &err))
        hostile_fail(err.msg);
    sink->ops->close(sink);
    if (l->n)
        qsort(l->rows, l->n, sizeof(*l->rows), by_id);
}

/* Deliveries of which there is no request. */
static uint64_t n_early(const char *path)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    uint64_t n = UINT64_MAX;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(db, "SELECT count(*) FROM early", -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        n = (uint64_t)sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return n;
}

/* A record for each request and a queue of each area: so much may stand there, not what a hostile
 * one would like to write. */
static void check_deliveries(const char *path, const struct ledger_read *l, uint64_t n_ledgers)
{
    uint64_t early = n_early(path);
    printf("%zu delivered, %" PRIu64 " deliveries of nothing\n", l->delivered, early);
    if (early > l->n + n_ledgers * 2 * TR_DELIVERY_CAP)
        hostile_fail("the ledger was flooded with deliveries");
}

void hostile_check_ledger(const char *path, const struct board *board, uint64_t n_ledgers)
{
    struct ledger_read l;
    read_ledger(path, &l);
    uint32_t n_good = atomic_load(&board->n_rows);
    for (size_t i = 1; i < l.n; i++)
        if (by_id(&l.rows[i - 1], &l.rows[i]) == 0)
            hostile_fail("a stream is in the ledger twice");
    for (uint32_t i = 0; i < n_good; i++) {
        const struct row *r = &board->rows[i];
        struct found key = {.id = {.slot = r->slot, .gen = r->gen, .rand = r->rand}};
        const struct found *f = l.n ? bsearch(&key, l.rows, l.n, sizeof(*l.rows), by_id) : NULL;
        if (!f)
            hostile_fail("a good request is not in the ledger");
        else if (f->tokens != r->tokens || strcmp(f->status, tr_state_name(r->state)) != 0)
            hostile_fail("a good request is not as it was in the ledger");
    }
    printf("%zu rows in the ledger, %u of good requests\n", l.n, n_good);
    check_deliveries(path, &l, n_ledgers);
    free(l.rows);
}
