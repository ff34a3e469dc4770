/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/process.h - forking a child into its role, and the names processes carry. */
#ifndef TR_SUPERVISOR_PROCESS_H
#define TR_SUPERVISOR_PROCESS_H

#include "supervisor/heritage.h"

/* Once, at the start of main: where the kernel shows this process's command line. */
void tr_title_init(int argc, char **argv);
/* "tokenring: engine" in ps, top and /proc. */
void tr_title_set(const char *title);

/* Each forks and returns the child's pid, or -errno.  In the child they do not return: it names
 * itself, dies with the supervisor, attaches to shared memory by the rights of its role and runs. */
pid_t tr_process_engine(struct tr_heritage *h, uint32_t epoch);
pid_t tr_process_frontend(struct tr_heritage *h, unsigned number, uint32_t area, uint32_t epoch);
pid_t tr_process_ledger(struct tr_heritage *h);

#endif
