/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/call_id.c - see call_id.h. */
#include "frontend/call_id.h"

#include "base/assert.h"

#include <string.h>

enum { DIGITS = 9, PREFIX_MAX = 8 };

/* SplitMix64's last steps: near inputs, far outputs. */
static uint64_t mix(uint64_t v)
{
    v += 0x9e3779b97f4a7c15u;
    v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9u;
    v = (v ^ v >> 27) * 0x94d049bb133111ebu;
    return v ^ v >> 31;
}

static char *digits(char *p, uint64_t v)
{
    static const char digit[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

    for (int i = 0; i < DIGITS; i++, v /= 62)
        *p++ = digit[v % 62];
    return p;
}

void tr_call_id(struct tr_stream_id stream, enum tr_tool_format f, uint32_t choice, uint32_t call,
                const char *prefix, char out[TR_CALL_ID_BYTES])
{
    uint64_t place = (uint64_t)choice << 32 | call, slot = (uint64_t)stream.slot << 32 | stream.gen;
    uint64_t v = mix(mix(stream.rand ^ mix(slot)) ^ mix(place));
    size_t n = strlen(prefix);

    TR_ASSERT(n <= PREFIX_MAX);
    if (f == TR_TOOLS_MISTRAL || f == TR_TOOLS_MISTRAL11) {
        *digits(out, v) = '\0';
        return;
    }
    memcpy(out, prefix, n);
    *digits(digits(out + n, v), mix(v)) = '\0';
}
