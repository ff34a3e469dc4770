/* SPDX-License-Identifier: Apache-2.0 */
#include "base/siphash.h"

#include <endian.h>
#include <string.h>

static inline uint64_t rol(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static inline void rounds(uint64_t v[4], int n)
{
    while (n--) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rol(v[1], 13) ^ v[0];
        v[3] = rol(v[3], 16) ^ v[2];
        v[0] = rol(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rol(v[1], 17) ^ v[2];
        v[3] = rol(v[3], 21) ^ v[0];
        v[2] = rol(v[2], 32);
    }
}

static inline void take(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    rounds(v, 2);
    v[0] ^= word;
}

uint64_t tr_siphash(const uint64_t key[2], const void *text, size_t len)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
                     key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
    const uint8_t *p = text;
    uint64_t word;
    size_t left = len;

    for (; left >= sizeof(word); p += sizeof(word), left -= sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        take(v, le64toh(word));
    }
    word = 0;
    if (left)
        memcpy(&word, p, left);
    take(v, le64toh(word) | (uint64_t)len << 56);
    v[2] ^= 0xff;
    rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
