/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/grpc_read.c - see grpc_read.h. */
#include "frontend/grpc_read.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_BYTES = 4096 };

void tr_grpc_reader_init(struct tr_grpc_reader *r, uint32_t max)
{
    *r = (struct tr_grpc_reader){.max = max};
}

void tr_grpc_reader_fini(struct tr_grpc_reader *r)
{
    free(r->buf);
    r->buf = NULL;
    r->cap = 0;
}

static enum tr_grpc_got bad(struct tr_grpc_reader *r, enum tr_grpc_code code, const char *why)
{
    r->code = code;
    r->why = why;
    return TR_GRPC_BAD;
}

static enum tr_grpc_got read_prefix(struct tr_grpc_reader *r)
{
    if (r->head[0] == 1)
        return bad(r, TR_GRPC_UNIMPLEMENTED, "Compressed messages are not taken here.");
    if (r->head[0])
        return bad(r, TR_GRPC_INTERNAL, "The first byte of a message must be 0 or 1.");
    r->len = (uint32_t)r->head[1] << 24 | (uint32_t)r->head[2] << 16 | (uint32_t)r->head[3] << 8 |
             r->head[4];
    if (r->len > r->max)
        return bad(r, TR_GRPC_RESOURCE_EXHAUSTED, "The message is larger than --max-body.");
    return TR_GRPC_MORE;
}

/* Place for n more bytes of the message. */
static bool grow(struct tr_grpc_reader *r, size_t n)
{
    size_t want = r->got + n, cap = r->cap ? r->cap : FIRST_BYTES;

    if (want <= r->cap)
        return true;
    while (cap < want)
        cap *= 2;
    if (cap > r->len)
        cap = r->len;
    char *buf = realloc(r->buf, cap);
    if (!buf)
        return false;
    r->buf = buf;
    r->cap = cap;
    return true;
}

enum tr_grpc_got tr_grpc_read(struct tr_grpc_reader *r, const char *data, size_t len, size_t *used)
{
    size_t at = 0;

    *used = 0;
    if (r->code)
        return TR_GRPC_BAD;
    while (r->n_head < TR_GRPC_PREFIX && at < len) {
        r->head[r->n_head++] = (unsigned char)data[at++];
        if (r->n_head == TR_GRPC_PREFIX && read_prefix(r))
            return TR_GRPC_BAD;
    }
    *used = at;
    if (r->n_head < TR_GRPC_PREFIX)
        return TR_GRPC_MORE;
    size_t n = r->len - r->got < len - at ? r->len - r->got : len - at;
    if (n) {
        if (!grow(r, n))
            return bad(r, TR_GRPC_RESOURCE_EXHAUSTED, "Out of memory.");
        memcpy(r->buf + r->got, data + at, n);
        r->got += (uint32_t)n;
    }
    *used = at + n;
    return r->got == r->len ? TR_GRPC_MESSAGE : TR_GRPC_MORE;
}

char *tr_grpc_take(struct tr_grpc_reader *r, uint32_t *len)
{
    char *buf = r->buf;

    TR_ASSERT(r->n_head == TR_GRPC_PREFIX && r->got == r->len);
    *len = r->len;
    r->buf = NULL;
    r->cap = 0;
    r->n_head = 0;
    r->len = r->got = 0;
    return buf;
}

bool tr_grpc_between(const struct tr_grpc_reader *r)
{
    return r->n_head == 0;
}

void tr_grpc_prefix(unsigned char out[TR_GRPC_PREFIX], uint32_t len)
{
    out[0] = 0;
    out[1] = (unsigned char)(len >> 24);
    out[2] = (unsigned char)(len >> 16);
    out[3] = (unsigned char)(len >> 8);
    out[4] = (unsigned char)len;
}
