/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/sqlite_schema.h - whose an SQLite file is, and bringing its tables up to date. */
#ifndef TR_LEDGER_SQLITE_SCHEMA_H
#define TR_LEDGER_SQLITE_SCHEMA_H

#include "base/err.h"

#include <sqlite3.h>
#include <stdbool.h>

enum { TR_SQLITE_APPLICATION = 0x746b7267 /* "tkrg" */, TR_SQLITE_VERSION = 2 };

/* Looks at the file as it lies there, without SQLite, which would change it by looking (a left-over
 * log is played back).  0: a ledger, or empty, or not there yet; -EINVAL and a sentence: something
 * else. */
int tr_sqlite_is_ours(const char *path, struct tr_errbuf *err);

/* One transaction each: makes the tables, or changes those of an older version.  0; -EINVAL: a newer
 * version has written it; -EAGAIN: it is locked or the disk is full; -EIO.  `read_only`: nothing is
 * changed, and -ENOENT when there are no tables yet. */
int tr_sqlite_migrate(sqlite3 *db, const char *path, bool read_only, struct tr_errbuf *err);

/* -EAGAIN for what may go away by itself (locked, full, a disk that fails), else -EIO; with the
 * database's own words. */
int tr_sqlite_failed(sqlite3 *db, const char *path, const char *what, struct tr_errbuf *err);

#endif
