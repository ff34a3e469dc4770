/* SPDX-License-Identifier: Apache-2.0 */
/* base/log.h - one line per event on stderr, as text or JSON.
 *
 * Programs log, library code does not: only supervisor/, frontend/ and ledger/ call this, and
 * engine/ only before its first step, and when its device has failed.  A log never blocks: a line that
 * the pipe, socket or terminal
 * has no room for is dropped.  (Asking before writing is not enough: others write to the same pipe.) */
#ifndef TR_BASE_LOG_H
#define TR_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tr_log_level { TR_LOG_ERROR, TR_LOG_WARN, TR_LOG_INFO, TR_LOG_DEBUG };

/* Once per process, before the first line.  `who` is kept (static storage). */
void tr_log_init(const char *who, bool json);

/* Lines above this level are not written; at first that is INFO. */
void tr_log_limit(enum tr_log_level most);

/* Whether a line of this level would be written, for those that are dear to make. */
bool tr_log_on(enum tr_log_level level);

/* Control bytes and invalid UTF-8 in the message become '?': nothing a client sends can forge a
 * line. */
void tr_log(enum tr_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A line that programs read: `members` is the inside of a JSON object ("a":1,"b":"c"), made by our
 * emitter and of printable ASCII.  As JSON they stand beside time, level and process, with "msg": name;
 * as text the object follows the usual beginning and the name.  One that is longer than
 * TR_LOG_MEMBERS_BYTES is dropped: half an object is none. */
enum { TR_LOG_MEMBERS_BYTES = 3840 };
void tr_log_object(enum tr_log_level level, const char *name, const char *members, size_t len);

/* Lines of this process that were dropped, or lost their end. */
uint64_t tr_log_dropped(void);

#endif
