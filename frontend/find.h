/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/find.h - where a resumable stream is that a client names, at whatever frontend.
 *
 * Frontend only, event loop only.  Slot and generation of the id find the ring; its random bits and the
 * key decide whether the client may know of it. */
#ifndef TR_FRONTEND_FIND_H
#define TR_FRONTEND_FIND_H

#include "frontend/stream.h"

/* What of a ring decides whether its stream can be had; copied, and of this generation. */
struct tr_find {
    uint32_t state;
    uint32_t flags;
    bool match;    /* id and key */
    bool unwanted; /* cancelled by request: whoever has it lets it go */
    bool
        let_go; /* this process has, and the engine has not come to it.  One that is ours and that we
                    * have forgotten, or have not noticed yet, is not */
};

/* TR_OK and *out, or what there is to say of this id: NOT_FOUND, also of one that is not resumable;
 * STREAM_OVER: it was let go; ENGINE_DOWN: submitted, and the engine has not come to it yet. */
enum tr_err tr_find_ring(const struct tr_fe *fe, struct tr_stream_id id,
                         const char key[TR_KEY_BYTES], struct tr_find *out);

/* A stream of this process, or one that is on its way to it; NULL with *e: TR_OK if another has it, or if
 * it is ours without a stream: tr_hold_ask makes one. */
struct tr_stream *tr_find_stream(struct tr_fe *fe, struct tr_stream_id id,
                                 const char key[TR_KEY_BYTES], enum tr_err *e);

#endif
