/* SPDX-License-Identifier: Apache-2.0 */
/* replay/replay.h - `tokenring replay`: a trace of requests against an OpenAI-compatible server,
 * and what came back, per class of request.
 *
 * Above tools/client, as the probe: no code of the server's.  One thread, one epoll loop.  Options,
 * the trace's fields, exit codes and the JSON object are documented in --help (options.c); what the
 * figures mean in docs/replay.md. */
#ifndef TR_REPLAY_REPLAY_H
#define TR_REPLAY_REPLAY_H

/* argv[0] is the name of the subcommand.  Returns the exit status of --help. */
int tr_replay_main(int argc, char **argv);

#endif
