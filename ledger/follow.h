/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/follow.h - the ledger process of a service without a ledger: it is there for traces alone.
 *
 * It reads the accounting queue behind an engine that does not wait for it, and takes delivery records.
 * No file is its own.  A new process goes on where the dead one was. */
#ifndef TR_LEDGER_FOLLOW_H
#define TR_LEDGER_FOLLOW_H

#include "ledger/ledger.h"

/* Traces by this configuration, before the sandbox; *out NULL: none.  0, or -1 and it is logged why. */
int tr_follow_open(struct tr_otlp **out, struct tr_shm *s, const struct tr_ledger_config *c);

/* Exit status of the process. */
int tr_follow_main(struct tr_shm *s, const struct tr_ledger_config *c);

#endif
