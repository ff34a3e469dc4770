/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/sink.h"

#include "ledger/postgres.h"

const struct tr_sink_ops *tr_sink_for(const char *address)
{
    return tr_sink_is_server(address) ? &tr_sink_postgres : &tr_sink_sqlite;
}
