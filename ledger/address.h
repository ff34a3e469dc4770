/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/address.h - what --ledger can name.  Any process. */
#ifndef TR_LEDGER_ADDRESS_H
#define TR_LEDGER_ADDRESS_H

#include "base/err.h"

#include <stdbool.h>

/* Whether the address is one of PostgreSQL. */
bool tr_sink_is_server(const char *address);

/* Whether the address can be meant.  0, or -EINVAL and a sentence that does not repeat it: where the
 * scheme is mistyped there may be a password behind it. */
int tr_sink_check_address(const char *address, struct tr_errbuf *err);

#endif
