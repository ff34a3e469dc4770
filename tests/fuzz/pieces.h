/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/pieces.h - a reader that gets its bytes in pieces: the first byte of an input says in which. */
#ifndef TR_FUZZ_PIECES_H
#define TR_FUZZ_PIECES_H

#include "base/assert.h"

#include <stddef.h>
#include <stdint.h>

/* A digest of all that came out of the reader when it was given `step` bytes at a time. */
typedef uint64_t tr_fuzz_digest(const char *s, size_t len, size_t step);

/* The digest must not depend on the pieces. */
static inline int tr_fuzz_pieces(const uint8_t *data, size_t size, tr_fuzz_digest *digest)
{
    if (size == 0)
        return 0;
    const char *s = (const char *)data + 1;
    size_t len = size - 1;
    uint64_t whole = digest(s, len, len + 1);
    TR_ASSERT(digest(s, len, 1 + data[0]) == whole);
    TR_ASSERT(digest(s, len, 1) == whole);
    return 0;
}

#endif
