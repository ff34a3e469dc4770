/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/replay.h - a complete answer told once more, out of a ring that may be another frontend's.
 *
 * Path: http > tokens > subq > engine > step > ring > [detok > event] > frame > socket
 *
 * Frontend only, event loop only.  A stream like any other towards its reader, and nothing towards the
 * engine: it gives no command, moves no cursor, makes no record, and takes nothing from the stream's
 * owner, who may have a reader of his own, or from other replays.
 *
 * Whoever keeps the stream is asked to keep it (WANTED).  Should he let it go nevertheless, what had
 * been made of its ring in that moment is not written, and the answer is cut so that the cut shows. */
#ifndef TR_FRONTEND_REPLAY_H
#define TR_FRONTEND_REPLAY_H

#include "frontend/stream.h"

/* What is told (TR_ERR_OVERLOADED) if not a byte of it has been written by then. */
#define TR_REPLAY_GONE                                                                             \
    "The answer that was kept for this Idempotency-Key has just given way: try again."

/* `like`: the request that asks for it; borrowed. */
void tr_replay_start(struct tr_fe *fe, struct tr_exchange *x, const struct tr_ask *like,
                     struct tr_stream_id id, const struct tr_dialect *dialect, enum tr_frame frame);

/* Whether what was read of its ring up to here is its; true of every stream that is no replay. */
bool tr_replay_is_whole(const struct tr_stream *s);

#endif
