/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/settle.h - billing records made from the rings alone, when no engine is left to make them. */
#ifndef TR_LEDGER_SETTLE_H
#define TR_LEDGER_SETTLE_H

#include "shm/region.h"

/* Calls fn for each admitted request whose record never reached the accounting queue: one record for
 * a group of choices.  The engine must be dead.  Rings are read as input. */
void tr_settle_rings(const struct tr_shm *s, void (*fn)(void *arg, const struct tr_bill *b),
                     void *arg);

#endif
