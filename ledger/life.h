/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/life.h - when the ledger process is to end: its supervisor says so (SIGTERM), or dies.
 *
 * Main thread. */
#ifndef TR_LEDGER_LIFE_H
#define TR_LEDGER_LIFE_H

#include <stdbool.h>

struct tr_life {
    int signals; /* readable when there is something to look at; -1: could not be made */
    int parent;  /* the supervisor */
    bool stop;   /* it says that no engine and no frontend is left */
};

void tr_life_open(struct tr_life *l, int parent);
void tr_life_close(struct tr_life *l);

void tr_life_look(struct tr_life *l); /* takes what has been signalled */
bool tr_life_is_orphan(const struct tr_life *l);

#endif
