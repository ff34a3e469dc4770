/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/pb_arena.h - memory for one unpacked protobuf message, and no more than that.
 *
 * Frontend only, any thread.  Two bytes of a message may ask for a hundred of memory: what the parser
 * takes is bounded by what the message has (twice its bytes and 64 KiB), and all of it goes at once.
 *
 * Full: the parser gets NULL and gives up; `full` says that this was the reason. */
#ifndef TR_FRONTEND_PB_ARENA_H
#define TR_FRONTEND_PB_ARENA_H

#include <protobuf-c/protobuf-c.h>

#include <stdbool.h>
#include <stddef.h>

struct tr_pb_block;

struct tr_pb_arena {
    size_t left; /* bytes that may still be taken */
    struct tr_pb_block *blocks;
    bool full;
    ProtobufCAllocator allocator; /* for protobuf_c_message_unpack */
};

/* For a message of `len` bytes.  It must not be moved. */
void tr_pb_arena_init(struct tr_pb_arena *a, size_t len);
void tr_pb_arena_fini(struct tr_pb_arena *a);

#endif
