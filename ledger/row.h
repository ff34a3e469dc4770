/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/row.h - a billing record and a delivery record as lines of JSON.
 *
 * The columns are those of `tokenring ledger export`; times are seconds since 1970 with fraction, or
 * null.  Strings in records come from other processes: they are escaped, never trusted. */
#ifndef TR_LEDGER_ROW_H
#define TR_LEDGER_ROW_H

#include "shm/area.h"
#include "shm/bill.h"

#include <stddef.h>

enum { TR_ROW_BYTES = 2048 };

/* One line with its newline.  Bytes written, always < TR_ROW_BYTES. */
size_t tr_row_bill(const struct tr_bill *b, const char *model, char out[TR_ROW_BYTES]);
size_t tr_row_delivery(const struct tr_delivery *d, char out[TR_ROW_BYTES]);

#endif
