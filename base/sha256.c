/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sha256.h"

#include <errno.h>
#include <string.h>

enum { BLOCK = 64 };

static const uint32_t round_of[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotr(uint32_t v, unsigned n)
{
    return v >> n | v << (32 - n);
}

static void spread(uint32_t w[64], const uint8_t *p)
{
    for (unsigned i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (unsigned i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotr(a, 7) ^ rotr(a, 18) ^ a >> 3) + w[i - 7] +
               (rotr(b, 17) ^ rotr(b, 19) ^ b >> 10);
    }
}

static void block(uint32_t h[8], const uint8_t *p)
{
    uint32_t w[64], s[8];

    spread(w, p);
    memcpy(s, h, sizeof(s));
    for (unsigned i = 0; i < 64; i++) {
        uint32_t choose = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t most = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t t =
            s[7] + (rotr(s[4], 6) ^ rotr(s[4], 11) ^ rotr(s[4], 25)) + choose + round_of[i] + w[i];
        uint32_t u = (rotr(s[0], 2) ^ rotr(s[0], 13) ^ rotr(s[0], 22)) + most;
        memmove(s + 1, s, 7 * sizeof(*s));
        s[4] += t;
        s[0] = t + u;
    }
    for (unsigned i = 0; i < 8; i++)
        h[i] += s[i];
}

void tr_sha256(const void *data, size_t len, uint8_t out[TR_SHA256_BYTES])
{
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint8_t *p = data;
    uint8_t last[2 * BLOCK] = {0};
    size_t left = len % BLOCK, n = left + 9 > BLOCK ? 2 * BLOCK : BLOCK;

    for (size_t i = 0; i < len / BLOCK; i++)
        block(h, p + i * BLOCK);
    if (left)
        memcpy(last, p + len - left, left);
    last[left] = 0x80;
    for (unsigned i = 0; i < 8; i++)
        last[n - 1 - i] = (uint8_t)((uint64_t)len * 8 >> 8 * i);
    for (size_t i = 0; i < n; i += BLOCK)
        block(h, last + i);
    for (unsigned i = 0; i < TR_SHA256_BYTES; i++)
        out[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int tr_sha256_parse(const char *hex, size_t len, uint8_t out[TR_SHA256_BYTES])
{
    uint8_t got[TR_SHA256_BYTES];

    if (len != (size_t)2 * TR_SHA256_BYTES)
        return -EINVAL;
    for (size_t i = 0; i < TR_SHA256_BYTES; i++) {
        int hi = digit(hex[2 * i]), lo = digit(hex[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return -EINVAL;
        got[i] = (uint8_t)(hi << 4 | lo);
    }
    memcpy(out, got, sizeof(got));
    return 0;
}

void tr_sha256_format(const uint8_t hash[TR_SHA256_BYTES], char out[2 * TR_SHA256_BYTES + 1])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < TR_SHA256_BYTES; i++) {
        out[2 * i] = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 15];
    }
    out[2 * TR_SHA256_BYTES] = '\0';
}
