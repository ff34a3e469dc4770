/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/postgres.h"

#include "base/log.h"
#include "ledger/pg.h"
#include "ledger/pg_sql.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
    APPLY_MS = 2000,    /* how long apply waits */
    OPEN_MS = 3000,     /* how long open waits, when it writes */
    ASK_MS = 3000,      /* for an answer about the schema */
    GROUP_MS = 30000,   /* for a group, over all its applies: then the connection is given up */
    SILENCE_MS = 60000, /* for the next row of many */
    READ_MS = 60000,    /* for a connection to read from */
    CHECK_MS = 3600000  /* for all indexes and rows */
};

/* So that of services that start at once one makes the tables.  Any number, the same in all. */
#define LOCK "SELECT pg_advisory_xact_lock(7305804402566521)"

struct postgres {
    struct tr_sink sink; /* first */
    struct tr_pg pg;
    bool read_only;
    PGconn *checked; /* the connection on which the schema was found good; only compared */
    /* The group that is under way: how many entries, and a sum of their kinds and ids. */
    size_t sent_n;
    uint64_t sent_sum;
};

static struct postgres *of(struct tr_sink *k)
{
    return (struct postgres *)k;
}

/* ---- questions ---- */

static int take_int(void *arg, const PGresult *r, int row)
{
    *(long *)arg = PQgetisnull(r, row, 0) ? -1 : strtol(PQgetvalue(r, row, 0), NULL, 10);
    return 0;
}

/* A short statement and its one number (-1: NULL or no row).  0; -EIO: refused; -EAGAIN. */
static int ask(struct postgres *p, const char *sql, long *answer, struct tr_errbuf *err)
{
    long dummy;
    *(answer ? answer : &dummy) = -1;
    int ret = tr_pg_send(&p->pg, sql, ASK_MS, false, err);
    if (!ret)
        ret = tr_pg_wait(&p->pg, ASK_MS, take_int, answer ? answer : &dummy, err);
    if (ret == -EINPROGRESS)
        tr_pg_drop(&p->pg);
    return ret == -EINPROGRESS ? -EAGAIN : ret;
}

/* ---- the schema ---- */

static int not_a_ledger(struct tr_errbuf *err)
{
    return tr_errf(err, -EINVAL, "the PostgreSQL database has tables that are not a ledger's");
}

/* 0 and the version, 0 for an empty database; -EINVAL. */
static int read_version(struct postgres *p, long *version, struct tr_errbuf *err)
{
    long tables = 0;
    /* Of one moment, for another service may just be making them: to_regclass would see each of the two
     * at its own. */
    int ret =
        ask(p,
            "SELECT sum(CASE relname WHEN 'tokenring_schema' THEN 2 ELSE 1 END) FROM pg_class "
            "WHERE relname IN ('tokenring_schema','tokenring_requests') "
            "AND pg_table_is_visible(oid)",
            &tables, err);
    *version = 0;
    if (ret || tables < 1) /* NULL: there is none */
        return ret;
    if (tables != 3)
        return not_a_ledger(err);
    ret = ask(p, "SELECT max(version) FROM tokenring_schema", version, err);
    return ret ? ret : *version < 1 ? not_a_ledger(err) : 0;
}

static int too_new(long version, struct tr_errbuf *err)
{
    return tr_errf(err, -EINVAL,
                   "the ledger in PostgreSQL has schema version %ld, this program knows up to %d: "
                   "it was written by a newer tokenring",
                   version, TR_PG_VERSION);
}

/* Inside a transaction that holds the lock. */
static int migrate(struct postgres *p, struct tr_errbuf *err)
{
    long version;
    int ret = read_version(p, &version, err);
    if (!ret && version > TR_PG_VERSION)
        ret = too_new(version, err);
    while (!ret && version < TR_PG_VERSION) {
        char set[64];
        version++;
        ret = ask(p, tr_pg_sql_step((unsigned)version), NULL, err);
        snprintf(set, sizeof(set), "UPDATE tokenring_schema SET version=%ld", version);
        if (!ret)
            ret = ask(p, set, NULL, err);
    }
    return ret;
}

static int bring_up_to_date(struct postgres *p, struct tr_errbuf *err)
{
    int ret = ask(p, "BEGIN", NULL, err);
    if (!ret)
        ret = ask(p, LOCK, NULL, err);
    if (!ret)
        ret = migrate(p, err);
    return ret ? ret : ask(p, "COMMIT", NULL, err);
}

/* 0; -EAGAIN; -ENOENT: there is none to read; -EINVAL: for good. */
static int check_schema(struct postgres *p, struct tr_errbuf *err)
{
    if (p->checked == p->pg.conn)
        return 0;
    long version;
    int ret = read_version(p, &version, err);
    if (!ret && version > TR_PG_VERSION)
        ret = too_new(version, err);
    else if (!ret && version == 0 && p->read_only)
        ret = tr_errf(err, -ENOENT, "the PostgreSQL database has no ledger yet");
    else if (!ret && version < TR_PG_VERSION && !p->read_only)
        ret = bring_up_to_date(p, err);
    if (ret)
        tr_pg_drop(&p->pg); /* with the transaction, if one is open */
    else
        p->checked = p->pg.conn;
    return ret == -EIO ? -EAGAIN : ret;
}

/* Connected, and the tables are ours. */
static int ready(struct postgres *p, int wait_ms, struct tr_errbuf *err)
{
    p->checked = p->pg.conn ? p->checked : NULL;
    int ret = tr_pg_ready(&p->pg, wait_ms, err);
    return ret ? ret : check_schema(p, err);
}

/* ---- operations ---- */

static void close_it(struct tr_sink *k)
{
    if (!k)
        return;
    tr_pg_fini(&of(k)->pg);
    free(k);
}

/* libpq finds these words of an address wrong only when it connects; no later try will go better. */
static bool is_bad_address(const struct tr_errbuf *err)
{
    static const char *const begin[] = {"PostgreSQL: invalid ", "PostgreSQL: could not match "};
    for (size_t i = 0; i < sizeof(begin) / sizeof(begin[0]); i++)
        if (strncmp(err->msg, begin[i], strlen(begin[i])) == 0)
            return true;
    return false;
}

static int open_it(struct tr_sink **out, const char *url, bool read_only, struct tr_errbuf *err)
{
    struct postgres *p = calloc(1, sizeof(*p));
    struct tr_errbuf why = {""};
    if (!p)
        return tr_errf(err, -ENOMEM, "no memory for a connection");
    p->sink.ops = &tr_sink_postgres;
    p->read_only = read_only;
    int ret = tr_pg_init(&p->pg, url, &why);
    if (!ret)
        ret = ready(p, read_only ? READ_MS : OPEN_MS, &why);
    if (ret == -EAGAIN && !read_only && p->pg.state == TR_PG_CONNECTING) {
        tr_log(TR_LOG_WARN, "%s; it is waited for", why.msg); /* by apply */
        ret = 0;
    }
    if (ret == -EAGAIN && is_bad_address(&why))
        ret = -EINVAL;
    if (ret) {
        close_it(&p->sink);
        return tr_errf(err, ret, "%s", why.msg);
    }
    *out = &p->sink;
    return 0;
}

/* Entries of the same kinds and ids, in the same order, are the same group. */
static uint64_t sum_of(const struct tr_entry *e, size_t n)
{
    uint64_t sum = n;
    for (size_t i = 0; i < n; i++) {
        const char *id = e[i].kind == TR_ENTRY_BILL ? e[i].bill.stream_id : e[i].delivery.stream_id;
        sum = XXH64(id, strlen(id), sum + e[i].kind);
    }
    return sum;
}

/* The group that an earlier apply had to leave: how many of these entries it has brought in.  Without
 * that, a database that takes longer for each group than apply waits would be told the same for ever.
 * 0 and *done; -EAGAIN: it is not through yet. */
static int await_former(struct postgres *p, const struct tr_entry *e, size_t n, size_t *done,
                        struct tr_errbuf *err)
{
    *done = 0;
    if (p->pg.state != TR_PG_BUSY)
        return 0;
    int ret = tr_pg_wait(&p->pg, APPLY_MS, NULL, NULL, err);
    if (ret == -EINPROGRESS)
        return -EAGAIN;
    if (!ret && p->sent_n && p->sent_n <= n && sum_of(e, p->sent_n) == p->sent_sum)
        *done = p->sent_n;
    p->sent_n = 0;
    return 0;
}

/* Sends what comes behind the first `done`; once it is through, all n are. */
static int send_group(struct postgres *p, const struct tr_entry *e, size_t n, size_t done,
                      struct tr_errbuf *err)
{
    const char *encoding = PQparameterStatus(p->pg.conn, "server_encoding");
    struct tr_pg_sql q = {.ascii = !encoding || strcmp(encoding, "UTF8") != 0};
    tr_pg_sql_apply(&q, e + done, n - done);
    int ret = q.failed ? tr_errf(err, -EAGAIN, "no memory for a group of %zu records", n)
                       : tr_pg_send(&p->pg, q.s, GROUP_MS, false, err);
    free(q.s);
    p->sent_n = ret ? 0 : n;
    p->sent_sum = ret ? 0 : sum_of(e, n);
    return ret;
}

static int apply(struct tr_sink *k, const struct tr_entry *e, size_t n, struct tr_errbuf *err)
{
    struct postgres *p = of(k);
    size_t done;
    int ret = await_former(p, e, n, &done, err);
    if (!ret && done < n) {
        ret = ready(p, APPLY_MS, err);
        if (!ret)
            ret = send_group(p, e, n, done, err);
        if (!ret)
            ret = tr_pg_wait(&p->pg, APPLY_MS, NULL, NULL, err);
        if (ret == -EIO)
            tr_pg_drop(&p->pg); /* another server may take it; this one has a pause */
    }
    if (!ret)
        tr_pg_good(&p->pg);
    return ret ? -EAGAIN : 0;
}

struct reader {
    int (*fn)(void *arg, const struct tr_row_whole *r);
    void *arg;
};

static int give_row(void *arg, const PGresult *r, int i)
{
    const struct reader *to = arg;
    struct tr_row_whole w;
    tr_pg_sql_row(r, i, &w);
    return to->fn(to->arg, &w);
}

static int each(struct tr_sink *k, const struct tr_sink_filter *f,
                int (*fn)(void *arg, const struct tr_row_whole *r), void *arg,
                struct tr_errbuf *err)
{
    struct postgres *p = of(k);
    static const struct tr_sink_filter any;
    struct tr_pg_sql q = {0};
    struct reader to = {fn, arg};
    int ret = ready(p, READ_MS, err);
    if (ret)
        return ret;
    tr_pg_sql_select(&q, f ? f : &any);
    ret = q.failed ? tr_errf(err, -ENOMEM, "no memory for a question")
                   : tr_pg_send(&p->pg, q.s, INT_MAX, true, err);
    free(q.s);
    if (!ret)
        ret = tr_pg_wait(&p->pg, SILENCE_MS, give_row, &to, err);
    if (ret) /* the rest of the answer is not wanted */
        tr_pg_drop(&p->pg);
    return ret;
}

/* ---- looking for damage ---- */

/* The server keeps its tables and indexes; what it cannot know is what they are for. */
#define CHECK                                                                                      \
    "SELECT 'PostgreSQL: tokenring_requests has no valid primary key' WHERE NOT EXISTS "           \
    "(SELECT FROM pg_index WHERE indrelid='tokenring_requests'::regclass AND indisprimary "        \
    "AND indisvalid);"                                                                             \
    "SELECT stream_id||': there '||count(*)||' times' FROM tokenring_requests "                    \
    "GROUP BY stream_id HAVING count(*)>1;"                                                        \
    "SELECT stream_id||': delivered, but there is no such request' FROM tokenring_deliveries "     \
    "WHERE closed_at IS NULL OR closed_at<now()-interval '10 minutes' ORDER BY stream_id"

struct teller {
    void (*fn)(void *arg, const char *sentence);
    void *arg;
};

static int tell(void *arg, const PGresult *r, int row)
{
    const struct teller *to = arg;
    char line[256];
    tr_pg_sql_text(r, row, 0, line, sizeof(line));
    to->fn(to->arg, line);
    return 0;
}

static int check(struct tr_sink *k, void (*fn)(void *arg, const char *sentence), void *arg,
                 struct tr_errbuf *err)
{
    struct postgres *p = of(k);
    struct teller to = {fn, arg};
    int ret = ready(p, READ_MS, err);
    if (!ret)
        ret = tr_pg_send(&p->pg, CHECK, INT_MAX, false, err);
    if (!ret)
        ret = tr_pg_wait(&p->pg, CHECK_MS, tell, &to, err);
    if (ret)
        tr_pg_drop(&p->pg);
    return ret;
}

const struct tr_sink_ops tr_sink_postgres = {.name = "PostgreSQL",
                                             .open = open_it,
                                             .apply = apply,
                                             .each = each,
                                             .check = check,
                                             .close = close_it};
