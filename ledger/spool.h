/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/spool.h - records on their way to the database, kept on disk until they are there.
 *
 * Path: http > tokens > subq > engine > step > ring > detok > event > socket   [+ ledger, beside it]
 *
 * A folder of segments, "<16 hex digits>.spool", each a sequence of frames (ledger/frame.h) to which
 * groups are appended.  Written by the main thread of one ledger process; its sink thread reads behind
 * it and drops a segment when all of it is in the database.  Other processes may read at any time
 * (tr_spool_each).
 *
 *   I1  what a commit has returned 0 for is read again after a crash (of the process; with `sync` also
 *       of the machine)
 *   I2  a byte that was cut off or changed, anywhere, costs the frames it lies in and no others
 *   I3  a group of which the write failed leaves nothing behind that the next one does not write over
 *   I4  frames may be there twice (a process was killed before it confirmed): readers go by stream id
 *
 * Damaged segments are not deleted but set aside as "<name>.bad", once their good frames are in the
 * database; a torn end (the write that a crash cut short: nobody was told of it) is only reported.
 *
 * Full: tr_spool_add says -ENOSPC when the segments would grow beyond the limit; records then wait in
 * the accounting queue. */
#ifndef TR_LEDGER_SPOOL_H
#define TR_LEDGER_SPOOL_H

#include "base/err.h"
#include "ledger/row.h"

/* Where the spool of --ledger ADDRESS is: --ledger-spool if that is given ("" is not), FILE.spool for a
 * file, for a server $STATE_DIRECTORY/ledger.spool or else ./tokenring-ledger.spool.  0, or
 * -ENAMETOOLONG. */
int tr_spool_place(const char *address, const char *given, char *out, size_t size);

/* ---- reading: any process ---- */

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

struct tr_spool_reader {
    void (*entry)(void *arg, const struct tr_entry *e);     /* borrowed; may be NULL */
    void (*bad)(void *arg, const struct tr_spool_bad *bad); /* may be NULL */
    void *arg;
};

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
