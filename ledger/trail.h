/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/trail.h - log lines that follow a request from the disconnect to its last byte.
 *
 * Ledger process.  At --log-level debug, one line for the record of each cancelled request and one for
 * each delivery record, with the ids and times that are in the row: the order of a disconnect, its
 * acknowledgement, the last token and the last byte can be read while the service runs. */
#ifndef TR_LEDGER_TRAIL_H
#define TR_LEDGER_TRAIL_H

#include "ledger/row.h"

void tr_trail_bill(const struct tr_row *r);
void tr_trail_delivery(const struct tr_row_delivery *d);

#endif
