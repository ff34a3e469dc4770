/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/hold.h - streams without a reader.
 *
 * Path: http > tokens > subq > engine > step > ring > [detok] > event > socket
 *
 * A resumable stream whose reader goes away is held for --resume-window-s: `x` is NULL, it goes on
 * scanning, so that a stop string or the end is found, and publishes sent = scanned, so that it never
 * parks; its text is made again from the ring for the reader who comes (resume.h).  One that has given
 * its terminal event to a reader is kept as long, for the last bytes may have been lost.
 *
 * Frontend only, event loop only.
 *   H1  a stream is held iff x is NULL, and is then in fe->held, oldest first
 *   H2  while `taking` the ring does not say that the stream is ours: no command is posted and no
 *       cursor is moved (shm/README.md, "Held streams")
 *   H3  a stream that the ring gives to another frontend is dropped without a command
 *
 * Window over: what still runs is cancelled as client_disconnected, with the time when the close was
 * seen; what has ended is released.  So is at once what was cancelled by request, what nobody can come
 * back to because the service drains, and the oldest that has ended when --hold-slots are all in use;
 * if none has, a disconnect cancels as it does without a hold.  The number is a sum over processes, each
 * of which adds one at a time: two at the same moment may be one too many.
 * Frontend died: the engine gives each of its resumable streams to another one, by news. */
#ifndef TR_FRONTEND_HOLD_H
#define TR_FRONTEND_HOLD_H

#include "frontend/stream.h"

/* Whether a reader may come back to it: asked for at admission. */
bool tr_hold_is_resumable(const struct tr_stream *s);

/* The same; or its answer may be asked for once more, when it is complete (Idempotency-Key). */
bool tr_hold_is_kept(const struct tr_stream *s);

/* The reader is gone, or has all.  True: the stream is held, and the caller sets x to NULL.  False: it
 * cannot be, and is as it was. */
bool tr_hold_take(struct tr_stream *s);

/* A reader has come: it is taken off the list; x is the caller's to set. */
void tr_hold_leave(struct tr_stream *s);

/* In each look at a resumable stream, before its ring is read.  False: it was lost to another
 * frontend, or there is nothing to hold any more; it is gone. */
bool tr_hold_look(struct tr_stream *s);

/* tr_stream_find for a request that came by itself: a stream that another frontend has by now, which we
 * have not noticed yet, is not found. */
struct tr_stream *tr_hold_find(struct tr_fe *fe, struct tr_stream_id id);

/* After its ring was read, without a reader.  False: it was let go and is gone. */
bool tr_hold_keep(struct tr_stream *s);

/* Somebody asks how it is with it: its window begins anew. */
void tr_hold_asked(struct tr_stream *s);

/* Whether there is place for one more; one that has ended may go for it. */
bool tr_hold_has_place(struct tr_fe *fe);

/* What time does to a held stream.  False: it is gone. */
bool tr_hold_clock(struct tr_stream *s, uint64_t now_ns);

/* News of a slot for which there is no stream here: takes it over if the ring says that it is ours. */
void tr_hold_news(struct tr_fe *fe, uint32_t slot);

/* A stream of another frontend: asks the engine for it.  It is held until then.  NULL: its ring does not
 * hold (any more) what could be taken over, or out of memory. */
struct tr_stream *tr_hold_ask(struct tr_fe *fe, struct tr_stream_id id);

/* Each turn in which the control page says something new: a drain lets go what has ended. */
void tr_holds_look(struct tr_fe *fe);
/* The tick: slots whose hand-over found no memory are looked at again. */
void tr_holds_again(struct tr_fe *fe);
/* This process ends: memory is given back, no command posted. */
void tr_holds_close(struct tr_fe *fe);

#endif
