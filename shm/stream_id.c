/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/stream_id.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void tr_stream_id_format(struct tr_stream_id id, char out[TR_STREAM_ID_BYTES])
{
    snprintf(out, TR_STREAM_ID_BYTES, "tr-%" PRIx32 "-%" PRIx32 "-%016" PRIx64, id.slot, id.gen,
             id.rand);
}

/* One run of lower-case hexadecimal digits, at most `max` of them. */
static int hex(const char **p, const char *end, int max, uint64_t *v)
{
    const char *start = *p;
    *v = 0;
    while (*p < end && *p - start < max) {
        char c = **p;
        unsigned d = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                            : 16;
        if (d == 16)
            break;
        *v = *v << 4 | d;
        (*p)++;
    }
    return *p > start ? 0 : -EINVAL;
}

int tr_stream_id_parse(const char *text, size_t len, struct tr_stream_id *id)
{
    const char *p = text, *end = text + len;
    uint64_t slot, gen, rand;
    if (len >= TR_STREAM_ID_BYTES || len < 3 || memcmp(p, "tr-", 3) != 0)
        return -EINVAL;
    p += 3;
    if (hex(&p, end, 8, &slot) || p == end || *p++ != '-' || hex(&p, end, 8, &gen) || p == end ||
        *p++ != '-' || hex(&p, end, 16, &rand) || p != end)
        return -EINVAL;
    struct tr_stream_id got = {.slot = (uint32_t)slot, .gen = (uint32_t)gen, .rand = rand};
    /* One spelling only: leading zeros or a short random part are not ours. */
    char again[TR_STREAM_ID_BYTES];
    tr_stream_id_format(got, again);
    if (strlen(again) != len || memcmp(again, text, len) != 0)
        return -EINVAL;
    *id = got;
    return 0;
}
