/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ledger/verify.h - what can be told to be wrong with a record from the record alone. */
#ifndef TR_LEDGER_TOOL_VERIFY_H
#define TR_LEDGER_TOOL_VERIFY_H

#include "ledger/row.h"

/* Calls fn with a sentence for each value that no request can have had. */
void tr_lt_verify_row(const struct tr_row_whole *r, void (*fn)(void *arg, const char *sentence),
                      void *arg);

#endif
