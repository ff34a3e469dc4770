/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/spool_list.h - the segments in a spool's folder.  Any process. */
#ifndef TR_LEDGER_SPOOL_LIST_H
#define TR_LEDGER_SPOOL_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { TR_SPOOL_NAME_BYTES = 24 };

#define TR_SPOOL_LOCK "lock" /* the file that whoever has the spool holds by flock */

struct tr_spool_file {
    uint64_t number; /* in the order in which they were begun */
    bool aside;      /* damaged, set aside: "<number>.bad" */
    off_t size;
};

void tr_spool_name(uint64_t number, bool aside, char out[TR_SPOOL_NAME_BYTES]);

/* How many, and *out to be freed, oldest first; other files are passed over.  -errno. */
ssize_t tr_spool_list(int dir, struct tr_spool_file **out);

/* The bytes [at, at + n) of an open file into buf: how many there were, or -errno. */
ssize_t tr_spool_pread(int fd, uint8_t *buf, size_t n, uint64_t at);

#endif
