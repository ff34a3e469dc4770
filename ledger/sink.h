/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/sink.h - a database that keeps the ledger: SQLite (sqlite.c) or PostgreSQL (postgres.c).
 *
 * Written by one ledger process at a time (for SQLite a lock sees to it; several services may write to
 * one PostgreSQL), from one thread; read by `tokenring ledger` from another process at any time.
 *
 *   I1  one row for each stream id, whatever is applied twice, in whatever order its parts come
 *   I2  apply is one transaction: all of it is in the database, or nothing of it
 *   I3  a billing part that is there is never changed, a delivery part that is there neither
 *   I4  the schema has a version; open brings an older one up to date (not with read_only, which reads
 *       it as it is) and refuses a newer one and whatever is not a ledger, untouched
 *
 * The database does not answer (locked, full, gone): -EAGAIN and a sentence; the caller keeps the
 * entries and tries again.  open may be called again as well. */
#ifndef TR_LEDGER_SINK_H
#define TR_LEDGER_SINK_H

#include "base/err.h"
#include "ledger/address.h"
#include "ledger/row.h"

/* Which rows: NULL and 0 stand for any. */
struct tr_sink_filter {
    const char *key, *model, *status;
    int64_t from_us, until_us; /* created: from <= it < until */
};

/* Each database has its own; the first member of its structure. */
struct tr_sink {
    const struct tr_sink_ops *ops;
};

struct tr_sink_ops {
    const char *name; /* for people: "SQLite" */

    /* 0 and a sink that close takes.  -EAGAIN: the database does not answer now.  -ENOENT: read_only,
     * and there is none.  Anything else is for good: wrong address, not a ledger, a newer schema. */
    int (*open)(struct tr_sink **out, const char *url, bool read_only, struct tr_errbuf *err);

    /* Both kinds mixed, oldest first; borrowed.  0 or -EAGAIN: nothing was applied.  May wait for the
     * database for a few seconds. */
    int (*apply)(struct tr_sink *k, const struct tr_entry *e, size_t n, struct tr_errbuf *err);

    /* Calls fn for each row that passes the filter, by created_us, then stream_id (bytewise), until it
     * says other than 0, which is then returned.  The row is borrowed.  -errno and a sentence when the
     * database fails. */
    int (*each)(struct tr_sink *k, const struct tr_sink_filter *f,
                int (*fn)(void *arg, const struct tr_row_whole *r), void *arg,
                struct tr_errbuf *err);

    /* Looks for damage in the database itself, which may take long, and calls fn with a sentence for
     * each; what a row says is not its business.  0, or -errno and a sentence: it could not look. */
    int (*check)(struct tr_sink *k, void (*fn)(void *arg, const char *sentence), void *arg,
                 struct tr_errbuf *err);

    /* NULL is accepted. */
    void (*close)(struct tr_sink *k);
};

extern const struct tr_sink_ops tr_sink_sqlite;

/* By the address that --ledger takes: postgresql:// and postgres:// are PostgreSQL, all else is a file
 * of SQLite. */
const struct tr_sink_ops *tr_sink_for(const char *address);

#endif
