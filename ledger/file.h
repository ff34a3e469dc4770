/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/file.h - a file of lines to which only whole lines are ever added.
 *
 * A group of lines is written at once and made durable by one fdatasync.  A write that fails is taken
 * back to the last whole line; a torn line left by a crash is cut off when the file is opened (its
 * record was not yet durable, so it is still in the accounting queue or nobody saw its end).  One
 * process per file: a second one is refused by a lock. */
#ifndef TR_LEDGER_FILE_H
#define TR_LEDGER_FILE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct tr_lines {
    int fd;
    off_t len;     /* bytes of whole lines */
    uint64_t torn; /* bytes cut off at opening */
    char *buf;     /* lines not yet written */
    size_t used, cap;
};

/* 0, or -errno and a sentence. */
int tr_lines_open(struct tr_lines *f, const char *path, struct tr_errbuf *err);
void tr_lines_close(struct tr_lines *f);

/* Adds a line to the group; -ENOMEM when the group is as large as it may get (commit first). */
int tr_lines_add(struct tr_lines *f, const char *line, size_t len);

/* Writes and syncs the group.  0 and it is empty, or -errno: it stays, try again later. */
int tr_lines_commit(struct tr_lines *f);

/* Reads the last `max` bytes of the file (whole lines) and calls fn for each line, oldest first. */
int tr_lines_tail(struct tr_lines *f, size_t max,
                  void (*fn)(void *arg, const char *line, size_t len), void *arg);

#endif
