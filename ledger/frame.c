/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/frame.h"

#include "base/assert.h"

#include <endian.h>
#include <stdbool.h>
#include <string.h>
#include <xxhash.h>

static const uint8_t magic[4] = {0xf7, 't', 'r', 1};

static uint64_t hash_of(const uint8_t *frame, size_t payload_len)
{
    /* The length is in it by way of the seed, so that head and payload need not be joined. */
    uint32_t length;
    memcpy(&length, frame + 4, sizeof(length));
    return htole64(XXH64(frame + TR_FRAME_HEAD, payload_len, le32toh(length)));
}

size_t tr_frame_put(const uint8_t *payload, size_t len, uint8_t *out)
{
    TR_ASSERT(len <= TR_FRAME_PAYLOAD_MAX);
    uint16_t length = htole16((uint16_t)len), complement = htole16((uint16_t)~len);
    memcpy(out, magic, sizeof(magic));
    memcpy(out + 4, &length, sizeof(length));
    memcpy(out + 6, &complement, sizeof(complement));
    memmove(out + TR_FRAME_HEAD, payload, len);
    uint64_t hash = hash_of(out, len);
    memcpy(out + 8, &hash, sizeof(hash));
    return TR_FRAME_HEAD + len;
}

static enum tr_frame_kind look(const uint8_t *p, size_t n, size_t *payload_len)
{
    uint16_t length, complement;
    uint64_t hash;
    if (memcmp(p, magic, n < sizeof(magic) ? n : sizeof(magic)) != 0)
        return TR_FRAME_BAD;
    if (n < 8)
        return TR_FRAME_TORN;
    memcpy(&length, p + 4, sizeof(length));
    memcpy(&complement, p + 6, sizeof(complement));
    *payload_len = le16toh(length);
    if ((length ^ complement) != 0xffff || *payload_len > TR_FRAME_PAYLOAD_MAX)
        return TR_FRAME_BAD;
    if (n < TR_FRAME_HEAD + *payload_len)
        return TR_FRAME_TORN;
    memcpy(&hash, p + 8, sizeof(hash));
    return hash == hash_of(p, *payload_len) ? TR_FRAME_GOOD : TR_FRAME_BAD;
}

/* Where behind `at` a whole frame begins, or (`torn` allowed) one may begin; else the end. */
static size_t next_start(const uint8_t *p, size_t n, size_t at, bool torn)
{
    size_t len;
    for (at++; at < n; at++) {
        const uint8_t *q = memchr(p + at, magic[0], n - at);
        if (!q)
            return n;
        at = (size_t)(q - p);
        enum tr_frame_kind kind = look(q, n - at, &len);
        if (kind == TR_FRAME_GOOD || (torn && kind == TR_FRAME_TORN))
            return at;
    }
    return n;
}

struct tr_frame tr_frame_next(const uint8_t *p, size_t n, size_t at)
{
    struct tr_frame f = {.kind = TR_FRAME_NONE, .at = at};
    if (at >= n)
        return f;
    f.kind = look(p + at, n - at, &f.payload_len);
    switch (f.kind) {
    case TR_FRAME_GOOD:
        f.payload = p + at + TR_FRAME_HEAD;
        f.len = TR_FRAME_HEAD + f.payload_len;
        break;
    case TR_FRAME_TORN:
        /* With a whole frame behind it, its own end was not cut off but lost. */
        f.len = next_start(p, n, at, false) - at;
        if (at + f.len < n)
            f.kind = TR_FRAME_BAD;
        break;
    default:
        f.len = next_start(p, n, at, true) - at;
        break;
    }
    return f;
}
