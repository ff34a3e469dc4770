/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/blake2s.c - BLAKE2s after RFC 7693, unkeyed, 16 bytes: the digests of a program's groups.
 * Requests choose what is digested and share what is remembered under it, so it must be a hash for which
 * nobody can make two texts of one digest. */
#include "grammar/image.h"

static const uint32_t IV[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static const uint8_t SIGMA[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static inline uint32_t ror(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static inline void mix(uint32_t v[16], int a, int b, int c, int d, uint32_t x, uint32_t y)
{
    v[a] += v[b] + x;
    v[d] = ror(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = ror(v[b] ^ v[c], 12);
    v[a] += v[b] + y;
    v[d] = ror(v[d] ^ v[a], 8);
    v[c] += v[d];
    v[b] = ror(v[b] ^ v[c], 7);
}

static void block(struct tr_blake2s *b, bool last)
{
    uint32_t v[16], m[16];

    for (int i = 0; i < 8; i++) {
        v[i] = b->h[i];
        v[i + 8] = IV[i];
    }
    v[12] ^= (uint32_t)b->n;
    v[13] ^= (uint32_t)(b->n >> 32);
    v[14] ^= last ? UINT32_MAX : 0;
    for (int i = 0; i < 16; i++)
        m[i] = tr_g_u32(b->buf + 4 * (size_t)i);
    for (int r = 0; r < 10; r++) {
        const uint8_t *s = SIGMA[r];
        mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
        mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
        mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
        mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
        mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
        mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
        mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
        mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
    }
    for (int i = 0; i < 8; i++)
        b->h[i] ^= v[i] ^ v[i + 8];
    b->held = 0;
}

void tr_blake2s_init(struct tr_blake2s *b)
{
    *b = (struct tr_blake2s){0};
    memcpy(b->h, IV, sizeof(IV));
    b->h[0] ^= 0x01010000u ^ TR_GDIGEST;
}

void tr_blake2s_add(struct tr_blake2s *b, const void *p, size_t n)
{
    const uint8_t *s = p;

    while (n) {
        if (b->held == sizeof(b->buf))
            block(b, false); /* a full buffer waits until it is known not to be the last */
        size_t room = sizeof(b->buf) - b->held;
        size_t k = n < room ? n : room;
        memcpy(b->buf + b->held, s, k);
        b->held += (uint32_t)k;
        b->n += k;
        s += k;
        n -= k;
    }
}

void tr_blake2s_end(struct tr_blake2s *b, uint8_t out[TR_GDIGEST])
{
    memset(b->buf + b->held, 0, sizeof(b->buf) - b->held);
    block(b, true);
    for (size_t i = 0; i < TR_GDIGEST / 4; i++)
        tr_g_put32(out + 4 * i, b->h[i]);
}
