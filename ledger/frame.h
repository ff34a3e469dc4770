/* SPDX-License-Identifier: Apache-2.0 */
/* ledger/frame.h - how entries lie in a segment of the spool.
 *
 *   bytes 0..3    f7 't' 'r' 01: no text holds the first of them
 *   bytes 4..5    length of the payload, little-endian; bytes 6..7 its complement
 *   bytes 8..15   XXH64 of the payload, seeded with bytes 4..7; little-endian
 *   then the payload (ledger/pack.h)
 *
 * The complement tells a frame that was cut from one whose length was changed: only the first may be
 * what a crash left.  Pure functions over bytes; whatever the bytes are, they end. */
#ifndef TR_LEDGER_FRAME_H
#define TR_LEDGER_FRAME_H

#include <stddef.h>
#include <stdint.h>

enum { TR_FRAME_HEAD = 16, TR_FRAME_PAYLOAD_MAX = 4096 };

/* Bytes written to `out`: TR_FRAME_HEAD + len.  len <= TR_FRAME_PAYLOAD_MAX. */
size_t tr_frame_put(const uint8_t *payload, size_t len, uint8_t *out);

enum tr_frame_kind {
    TR_FRAME_GOOD,
    TR_FRAME_BAD,  /* the longest run in which no frame begins, and none may begin */
    TR_FRAME_TORN, /* the beginning of a frame, at the end of the bytes */
    TR_FRAME_NONE  /* there are no bytes left */
};

struct tr_frame {
    enum tr_frame_kind kind;
    size_t at, len;         /* of the whole piece; len > 0 but for NONE */
    const uint8_t *payload; /* GOOD */
    size_t payload_len;
};

/* The piece that begins at `at` <= n; the next one begins at at + len. */
struct tr_frame tr_frame_next(const uint8_t *p, size_t n, size_t at);

#endif
