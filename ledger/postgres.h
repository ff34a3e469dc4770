/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/postgres.h - the ledger in a PostgreSQL database (ledger/sink.h).
 *
 * Several services may gather in one database.  A database that cannot be reached, a wrong password, a
 * database that is not there: -EAGAIN, the records wait and it is tried again.  An address that cannot
 * be meant, tables that are not a ledger's or those of a newer version: for good.
 *
 * A group that takes longer than apply may wait goes on: the next apply waits for it first, and what it
 * did is found done. */
#ifndef TR_LEDGER_POSTGRES_H
#define TR_LEDGER_POSTGRES_H

#include "ledger/sink.h"

extern const struct tr_sink_ops tr_sink_postgres;

#endif
