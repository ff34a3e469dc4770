/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/pg_sql.h - entries as statements for PostgreSQL, and its rows as ours.
 *
 * Tables: tokenring_requests has a row for each request, with the columns of `tokenring ledger export`
 * (times are timestamptz); tokenring_deliveries keeps delivery parts whose billing part is still to
 * come; tokenring_schema has the version.  They lie in the first schema of the user's search path. */
#ifndef TR_LEDGER_PG_SQL_H
#define TR_LEDGER_PG_SQL_H

#include "ledger/sink.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>

/* A text that grows.  Zeroed is empty; free(s) at the end. */
struct tr_pg_sql {
    char *s; /* NUL-ended, or NULL */
    size_t len, cap;
    bool ascii;  /* the database cannot keep other characters: they become '?' */
    bool failed; /* no memory: the text is not whole */
};

/* One transaction that puts all of it into the tables, each part once. */
void tr_pg_sql_apply(struct tr_pg_sql *q, const struct tr_entry *e, size_t n);

/* The rows that pass, in the order of tr_sink_ops.each; tr_pg_sql_row reads one of the answer. */
void tr_pg_sql_select(struct tr_pg_sql *q, const struct tr_sink_filter *f);
void tr_pg_sql_row(const PGresult *r, int i, struct tr_row_whole *w);

/* A text of an answer, cut where it does not fit, without bytes that control a terminal. */
void tr_pg_sql_text(const PGresult *r, int i, int column, char *out, size_t size);

/* The step to version 1, 2, ...; NULL: there is no such version. */
const char *tr_pg_sql_step(unsigned version);

/* The version that this program reads and writes. */
enum { TR_PG_VERSION = 1 };

#endif
