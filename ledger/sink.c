/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/sink.h"

#include "ledger/postgres.h"

#include <string.h>

bool tr_sink_is_server(const char *address)
{
    static const char *const scheme[] = {"postgresql://", "postgres://"};
    for (size_t i = 0; i < sizeof(scheme) / sizeof(scheme[0]); i++)
        if (strncmp(address, scheme[i], strlen(scheme[i])) == 0)
            return true;
    return false;
}

const struct tr_sink_ops *tr_sink_for(const char *address)
{
    return tr_sink_is_server(address) ? &tr_sink_postgres : &tr_sink_sqlite;
}
