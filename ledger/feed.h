/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/feed.h - the sink thread: what stands in the spool goes to the database.
 *
 * The only thread that talks to the database; the ledger's main thread starts and stops it and wakes
 * it after a commit.  A database that is locked, full, slow or gone keeps this thread waiting and
 * nobody else; it tries again, and opens it again if it must.  Groups are gathered for a moment, so
 * that a busy service does not pay one transaction for each of its own. */
#ifndef TR_LEDGER_FEED_H
#define TR_LEDGER_FEED_H

#include "ledger/sink.h"
#include "ledger/spool.h"
#include "shm/stat.h"

struct tr_feed;

/* Opens the database; without an answer from it this thread will go on trying.  `spool`, `address` and
 * `stat` (the ledger's own) are borrowed until tr_feed_close.  0, or what tr_sink_ops.open says for
 * good, with its sentence. */
int tr_feed_open(struct tr_feed **out, struct tr_spool *spool, const char *address,
                 struct tr_stat *stat, struct tr_errbuf *err);

/* Starts the thread: after the sandbox was entered, so that it lives in it.  0 or -errno. */
int tr_feed_start(struct tr_feed *f);

/* There is more in the spool. */
void tr_feed_wake(struct tr_feed *f);

/* The thread ends as soon as all of the spool is in the database, or at its next try after
 * tr_feed_give_up. */
void tr_feed_finish(struct tr_feed *f);
void tr_feed_give_up(struct tr_feed *f);
bool tr_feed_has_ended(struct tr_feed *f);

/* Joins the thread, which has ended, or was not started, and closes the database.  NULL is accepted. */
void tr_feed_close(struct tr_feed *f);

#endif
