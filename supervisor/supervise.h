/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/supervise.h - the children's lives: start, death, replacement, drain.
 *
 * One thread, one loop over signals and a tick.  It never touches a request: what a death means for
 * requests is told through the control page and decided by engine and frontends.
 *
 *   start   ledger, engine, frontends; a child that cannot start ends the service with its own sentence
 *   death   the control page says so at once, and how the engine died; bells are rung, a replacement
 *           starts (with a growing delay when it dies young; an engine at once, since streams wait for it,
 *           unless it died in vain: ten of those in a row end the service)
 *   replace SIGHUP: a new frontend starts, then an old one retires, one after the other; SIGTTIN and
 *           SIGTTOU: one more, one less
 *   drain   SIGTERM, SIGINT, SIGQUIT, a terminal that went away: grace (not ready) > closed (no new
 *           requests) > cut (the rest ends now); then engine, then ledger.  A second signal cuts at
 *           once. */
#ifndef TR_SUPERVISOR_SUPERVISE_H
#define TR_SUPERVISOR_SUPERVISE_H

#include "supervisor/heritage.h"

/* Runs the service until it has drained.  Exit status: 0 after a drain, 1 when it could not start or
 * its processes kept dying. */
int tr_supervise(struct tr_heritage *h);

#endif
