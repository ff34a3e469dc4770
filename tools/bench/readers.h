/* SPDX-License-Identifier: Apache-2.0 */
/* tools/bench/readers.h - many clients in one thread: `tokenring bench readers`.
 *
 * Opens streams against a running service and reads them, some slowly or never, and tells what the
 * good ones got and what it cost the processes named with --watch.  A stream's content is hashed as it
 * comes (JSON strings after "content":", escapes as sent), so that all good streams of one prompt can
 * be compared byte for byte.  The reader takes what there is with large reads and looks at each byte
 * once: it is meant to be cheaper than what it measures.
 *
 * The window of the rates begins when every good stream has its first content and ends after
 * --seconds, or when the first good stream has ended.  One line of JSON on stdout.
 *
 * Exit code: 0; 1 if a good stream was cut, refused or differs; 2 for a fault of the arguments. */
#ifndef TR_TOOLS_BENCH_READERS_H
#define TR_TOOLS_BENCH_READERS_H

int tr_bench_readers_main(int argc, char **argv);

#endif
