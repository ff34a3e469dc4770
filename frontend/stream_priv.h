/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/stream_priv.h - what the files of a stream share: stream.c, stream_end.c, stream_turn.c. */
#ifndef TR_FRONTEND_STREAM_PRIV_H
#define TR_FRONTEND_STREAM_PRIV_H

#include "frontend/stream.h"
#include "shm/close.h"

/* A stream of as many choices as the ask has, on no list yet; NULL: out of memory, the ask is still the
 * caller's.  `x` NULL: without a reader. */
struct tr_stream *tr_stream_make(struct tr_fe *fe, struct tr_exchange *x, struct tr_ask *ask);
/* Its name, its choices, its clock: it is one of the frontend's from here on. */
void tr_stream_enter(struct tr_stream *s, const struct tr_admitted *ad);
/* Its key has these streams running, until nothing of them is: ended without a reader, or freed. */
void tr_stream_runs(struct tr_stream *s);
void tr_stream_rests(struct tr_stream *s);
/* How its events look. */
void tr_stream_dress(struct tr_stream *s, const struct tr_dialect *dialect, enum tr_frame frame);
/* Binds its connection; sends the head, once; and after that and the first events: looks whether the
 * client has closed its sending side meanwhile, which may be the end of the stream. */
void tr_stream_bind(struct tr_stream *s);
void tr_stream_head(struct tr_stream *s);
void tr_stream_opened(struct tr_stream *s);

/* Its head and its first event, for the reader in s->x. */
void tr_stream_open(struct tr_stream *s);
/* Its request has been submitted: the same; or, if it is detached, it is held, and `x` answered. */
void tr_stream_admitted(struct tr_stream *s, struct tr_exchange *x);

/* One that can be resumed: as before its first event. */
void tr_stream_rewind(struct tr_stream *s);

/* Takes it off every list and frees it; the slots have been released. */
void tr_stream_free(struct tr_stream *s);

/* Nobody is to look at it. */
void tr_stream_not_due(struct tr_stream *s);

/* Its connection is gone, or was cut, with `acked` bytes at it.  True: it is held for another reader
 * (hold.h).  False: it cannot be. */
bool tr_stream_hold(struct tr_stream *s, uint64_t acked);

/* The same, with the cut: a connection that still lives is aborted. */
bool tr_stream_set_aside(struct tr_stream *s, bool hard);

/* Another reader gets it: the present one is cut so that it shows. */
void tr_stream_part(struct tr_stream *s);

/* It has become another frontend's: a reader is cut so that it shows, no command is posted, and it is
 * freed. */
void tr_stream_forget(struct tr_stream *s);

/* The reader is gone, or was cut, with `acked` bytes at it: everything of this stream ends in this turn,
 * and it is freed. */
void tr_stream_drop(struct tr_stream *s, enum tr_err why, uint64_t acked);

/* Notes that everything written so far carries the tokens framed so far; with the end of an answer
 * (`whole`), a token without text that ended it is among them. */
void tr_stream_mark(struct tr_stream *s, bool whole);

/* Everything is out: the terminal event goes, and the stream is freed, if the record is durable or has
 * been waited for long enough.  False: not yet. */
bool tr_stream_try_end(struct tr_stream *s);

/* stream_note.c: what the access log says of its reader's request, before the exchange is given up:
 * how the stream ended, or (NULL) that it goes on without him; and of one that never has a reader here. */
void tr_stream_note(const struct tr_stream *s, const struct tr_close_info *end);
void tr_stream_note_detached(const struct tr_stream *s, struct tr_exchange *x);

#endif
