/* SPDX-License-Identifier: Apache-2.0 */
/* tools/bench/bare.h - the least that a server of event streams can do: `tokenring bench bare`.
 *
 * Accepts --sockets connections, reads a request from each without looking at it, and then writes,
 * round after round, one chunk of --bytes bytes to each with one writev: no tokens, no text, no
 * clock but the round's.  What a frontend costs is measured against it, with the same reader
 * (`tokenring bench readers`).  The port is printed on stdout when it listens.
 *
 * Exit code: 0; 1 if a socket fails; 2 for a fault of the arguments. */
#ifndef TR_TOOLS_BENCH_BARE_H
#define TR_TOOLS_BENCH_BARE_H

int tr_bench_bare_main(int argc, char **argv);

#endif
