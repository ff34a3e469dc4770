/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/spool_read.h - reading a spool from any process, also while a service writes it. */
#ifndef TR_LEDGER_SPOOL_READ_H
#define TR_LEDGER_SPOOL_READ_H

#include "base/err.h"
#include "ledger/row.h"

/* Where the spool of --ledger ADDRESS is: --ledger-spool if that is given ("" is not), FILE.spool for a
 * file, for a server $STATE_DIRECTORY/ledger.spool or else ./tokenring-ledger.spool.  0, or
 * -ENAMETOOLONG. */
int tr_spool_place(const char *address, const char *given, char *out, size_t size);

enum tr_spool_fault {
    TR_SPOOL_TORN,    /* the last frame of a segment is not whole */
    TR_SPOOL_DAMAGED, /* bytes that are no frame, or not the one that was written */
    TR_SPOOL_UNKNOWN  /* a whole frame that says nothing known: written by another version */
};

struct tr_spool_bad {
    enum tr_spool_fault fault;
    const char *file; /* name in the folder; borrowed */
    uint64_t at, len; /* bytes */
};

/* "a torn end", "damaged bytes", ... */
const char *tr_spool_fault_words(enum tr_spool_fault fault);

struct tr_spool_reader {
    void (*entry)(void *arg, const struct tr_entry *e);     /* borrowed; may be NULL */
    void (*bad)(void *arg, const struct tr_spool_bad *bad); /* may be NULL */
    void *arg;
};

/* Gives the piece of `n` bytes that begins at `from`: a good frame or an anomaly.  Its bytes; 0: there is
 * none, or one that may be the beginning of a frame and is an anomaly only if `whole`.  `file` and `at`,
 * the place of p[0] in it, are for the reports. */
size_t tr_spool_piece(const uint8_t *p, size_t n, size_t from, bool whole, const char *file,
                      uint64_t at, const struct tr_spool_reader *r);

/* All of them: good frames and anomalies, in their order.  Bytes it went through. */
size_t tr_spool_scan(const uint8_t *p, size_t n, bool whole, const char *file, uint64_t at,
                     const struct tr_spool_reader *r);

/* Gives every good frame of every segment, those set aside included, in the order in which they were
 * written, and every anomaly.  A segment that disappears meanwhile is in the database: read the
 * database afterwards.  An end that is just being written shows as torn: `live` keeps quiet about the
 * last segment's.  No folder: nothing to read, 0.  -errno and a sentence when the folder or a file
 * cannot be read. */
int tr_spool_each(const char *dir, bool live, const struct tr_spool_reader *r,
                  struct tr_errbuf *err);

/* Whether a ledger process has this spool open; so `live` for tr_spool_each. */
bool tr_spool_is_live(const char *dir);

#endif
