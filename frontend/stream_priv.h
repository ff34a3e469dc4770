/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/stream_priv.h - what the files of a stream share: stream.c, stream_end.c, stream_turn.c. */
#ifndef TR_FRONTEND_STREAM_PRIV_H
#define TR_FRONTEND_STREAM_PRIV_H

#include "frontend/stream.h"

/* Takes it off every list and frees it; the slots have been released. */
void tr_stream_free(struct tr_stream *s);

/* The reader is gone, or was cut, with `acked` bytes at it: everything of this stream ends in this turn,
 * and it is freed. */
void tr_stream_drop(struct tr_stream *s, enum tr_err why, uint64_t acked);

/* Notes that everything written so far carries the tokens framed so far; with the end of an answer
 * (`whole`), a token without text that ended it is among them. */
void tr_stream_mark(struct tr_stream *s, bool whole);

/* Everything is out: the terminal event goes, and the stream is freed, if the record is durable or has
 * been waited for long enough.  False: not yet. */
bool tr_stream_try_end(struct tr_stream *s);

#endif
