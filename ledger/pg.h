/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/pg.h - one connection to PostgreSQL that waits for nothing longer than it is told.
 *
 * libpq in its non-blocking form: every call that waits has a limit, and what was begun (a connection,
 * a string of statements) goes on at the next call, so that a slow database is not asked again and again
 * from the start.  What does not come to an end in its own, longer time is given up with the connection.
 * After a failure the next try waits, twice as long each time, until tr_pg_good.  The look-up of a host's
 * name is the one wait that is not in pieces: it takes a few seconds at most for each name server.
 *
 * One thread.  The address may hold a password: no sentence and no log line says it, or a part of it. */
#ifndef TR_LEDGER_PG_H
#define TR_LEDGER_PG_H

#include "base/err.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

enum tr_pg_state { TR_PG_DOWN, TR_PG_CONNECTING, TR_PG_IDLE, TR_PG_BUSY };

struct tr_pg {
    char *url;
    PGconn *conn; /* NULL: down */
    enum tr_pg_state state;
    PostgresPollingStatusType want; /* while connecting */
    uint64_t patience_ns;           /* for a connection, all hosts of the address together */
    uint64_t deadline_ns;           /* of what is under way */
    uint64_t retry_ns, delay_ns;    /* no new connection before; how long the last pause was */
    struct tr_errbuf why;           /* the last failure */
};

/* Whether this is an address that can be meant.  0, or -EINVAL and a sentence. */
int tr_pg_check(const char *url, struct tr_errbuf *err);

/* 0, or -EINVAL, -ENOMEM and a sentence.  Connects to nothing yet. */
int tr_pg_init(struct tr_pg *p, const char *url, struct tr_errbuf *err);
void tr_pg_fini(struct tr_pg *p);

/* Waits for a connection on which nothing is under way.  0; -EAGAIN and a sentence: not yet, or not so
 * soon after a failure.  What an earlier string of statements said is lost. */
int tr_pg_ready(struct tr_pg *p, int wait_ms, struct tr_errbuf *err);

/* After tr_pg_ready.  Sends a string of statements (without BEGIN: one transaction) that may take
 * `limit_ms`.  `rows` gives them one by one.  0, or -EAGAIN and a sentence: the connection is down. */
int tr_pg_send(struct tr_pg *p, const char *sql, int limit_ms, bool rows, struct tr_errbuf *err);

/* Waits for the end of what was sent and calls fn (may be NULL) for each row, until it says other than
 * 0.  0: all is done; fn's word; -EINPROGRESS and a sentence: not yet, the connection stays busy; -EIO
 * and a sentence: the server refused it; -EAGAIN and a sentence: the connection is down. */
int tr_pg_wait(struct tr_pg *p, int wait_ms, int (*fn)(void *arg, const PGresult *r, int row),
               void *arg, struct tr_errbuf *err);

/* Gives the connection up; the next one comes after a pause, longer each time. */
void tr_pg_drop(struct tr_pg *p);
/* It did what it is for: the next pause is a short one again. */
void tr_pg_good(struct tr_pg *p);

#endif
