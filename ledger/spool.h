/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/spool.h - records on their way to the database, kept on disk until they are there.
 *
 * Path: http > tokens > subq > engine > step > ring > detok > event > socket   [+ ledger, beside it]
 *
 * A folder of segments, "<16 hex digits>.spool", each a sequence of frames (ledger/frame.h) to which
 * groups are appended.  One ledger process has it (a lock): its main thread writes, its sink thread
 * reads behind it and drops a segment when all of it is in the database.  Other processes may read at
 * any time (ledger/spool_read.h).
 *
 *   I1  what a commit has returned 0 for is read again after a crash (of the process; with `sync` also
 *       of the machine)
 *   I2  a byte that was cut off or changed, anywhere, costs the frames it lies in and no others
 *   I3  a group of which the write failed leaves nothing behind that the next one does not write over
 *   I4  frames may be there twice (a process was killed before it confirmed): readers go by stream id
 *   I5  the writer never waits for the reader: they share a mutex that is not held across a call of
 *       the kernel
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
#include "ledger/spool_read.h"

struct tr_spool;

/* Opens or makes the folder and takes its lock.  `max`: bytes of all segments, 0 = no limit.  0 and a
 * spool that tr_spool_close takes; -EBUSY: another process has it; other -errno and a sentence. */
int tr_spool_open(struct tr_spool **out, const char *dir, uint64_t max, struct tr_errbuf *err);

/* No sink thread may be left.  NULL is accepted. */
void tr_spool_close(struct tr_spool *p);

/* ---- main thread ---- */

/* Adds to the group.  0; -ENOSPC: over the limit; -ENOMEM: the group is as large as it may be, commit
 * it first.  Then nothing was added. */
int tr_spool_add(struct tr_spool *p, const struct tr_entry *e);

/* Bytes in the group that are not yet written. */
size_t tr_spool_waiting(const struct tr_spool *p);

/* Writes the group.  0: it is empty now; -errno: it stays, try again later. */
int tr_spool_commit(struct tr_spool *p, bool sync);

/* From now on there is no limit: the last records of a service. */
void tr_spool_unlimited(struct tr_spool *p);

/* Nothing is written at the moment: lets the sink thread drop also the segment that is written to, if
 * all of it is in the database and it is larger than `least`.  True if it can. */
bool tr_spool_trim(struct tr_spool *p, uint64_t least);

/* Bytes of all segments. */
uint64_t tr_spool_bytes(struct tr_spool *p);

/* ---- sink thread ---- */

/* Behind the last entry that tr_spool_take gave; opaque. */
struct tr_spool_place {
    uint64_t segment, at;
};

/* Copies up to `max` of the entries that are next, in the order in which they were written, and calls
 * `bad` for anomalies on the way (each once).  How many; 0: there are none at present.  *upto is where
 * the next call goes on if tr_spool_done says so; until then it gives the same entries again.
 * -errno when a segment cannot be read. */
int tr_spool_take(struct tr_spool *p, struct tr_entry *e, int max, struct tr_spool_place *upto,
                  void (*bad)(void *arg, const struct tr_spool_bad *b), void *arg);

/* All before `upto` is in the database: segments that end there are dropped. */
void tr_spool_done(struct tr_spool *p, struct tr_spool_place upto);

/* Any thread.  Whether all that was committed is done. */
bool tr_spool_is_empty(struct tr_spool *p);

#endif
