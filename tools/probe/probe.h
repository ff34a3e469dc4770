/* SPDX-License-Identifier: Apache-2.0 */
/* probe/probe.h - `tokenring probe`: N streams against an OpenAI-compatible server, and what came
 * back.
 *
 * A client of its own, above tools/client: it shares no code with the server beyond base/, so that
 * a fault in one cannot hide in the other.  One thread, one epoll loop.  Options, exit codes and
 * the JSON object are documented in --help (options.c); what the figures mean in docs/probe.md. */
#ifndef TR_PROBE_PROBE_H
#define TR_PROBE_PROBE_H

#include <stdio.h>

/* argv[0] is the name of the subcommand.  Returns the exit status: 0 every stream was complete,
 * 1 some was not, 2 usage, 3 cannot connect. */
int tr_probe_main(int argc, char **argv);

/* The same with the report and the complaints going elsewhere. */
int tr_probe_run(int argc, char **argv, FILE *out, FILE *complaints);

#endif
