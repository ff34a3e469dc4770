/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_keys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { FEW_MEMBERS = 8, STACK_PLACES = 256 };

static uint64_t word(const char *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof(w));
    return w;
}

static uint64_t rotl(uint64_t x, int b)
{
    return x << b | x >> (64 - b);
}

#define SIP_ROUND                                                                                  \
    do {                                                                                           \
        v0 += v1, v1 = rotl(v1, 13) ^ v0, v0 = rotl(v0, 32);                                       \
        v2 += v3, v3 = rotl(v3, 16) ^ v2;                                                          \
        v0 += v3, v3 = rotl(v3, 21) ^ v0;                                                          \
        v2 += v1, v1 = rotl(v1, 17) ^ v2, v2 = rotl(v2, 32);                                       \
    } while (0)

/* SipHash-1-3 (Aumasson, Bernstein 2012): keyed, so that nobody can choose keys that meet. */
static uint64_t siphash(const uint64_t seed[2], const char *p, size_t len)
{
    uint64_t v0 = seed[0] ^ 0x736f6d6570736575ull, v1 = seed[1] ^ 0x646f72616e646f6dull;
    uint64_t v2 = seed[0] ^ 0x6c7967656e657261ull, v3 = seed[1] ^ 0x7465646279746573ull;
    uint64_t last = (uint64_t)len << 56;
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        uint64_t m = word(p + i);
        v3 ^= m;
        SIP_ROUND;
        v0 ^= m;
    }
    for (unsigned b = 0; i < len; i++, b += 8)
        last |= (uint64_t)(unsigned char)p[i] << b;
    v3 ^= last;
    SIP_ROUND;
    v0 ^= last;
    v2 ^= 0xff;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    return v0 ^ v1 ^ v2 ^ v3;
}

static bool same_key(const struct tr_json *a, const struct tr_json *b)
{
    return a->len == b->len && memcmp(a->u.s, b->u.s, a->len) == 0;
}

/* Every key goes into an open table of at least twice their number. */
static void look_in(uint32_t *table, size_t places, const struct tr_json *obj,
                    const uint64_t seed[2], const struct tr_json **twice)
{
    const struct tr_json *key = obj + 1;
    for (uint32_t i = 0; i < obj->len; i++) {
        size_t h = (size_t)siphash(seed, key->u.s, key->len) & (places - 1);
        for (; table[h]; h = (h + 1) & (places - 1))
            if (same_key(obj + table[h], key)) {
                *twice = key;
                return;
            }
        table[h] = (uint32_t)(key - obj); /* never 0: obj itself is no key */
        key += 1 + key[1].skip;
    }
}

static int among_many(const struct tr_json *obj, struct tr_json_seed *seed,
                      const struct tr_json **twice)
{
    if (!seed->drawn && getrandom(seed->k, sizeof(seed->k), 0) != (ssize_t)sizeof(seed->k))
        return -ENOMEM;
    seed->drawn = true;
    if (obj->len <= STACK_PLACES / 2) {
        uint32_t table[STACK_PLACES] = {0};
        look_in(table, STACK_PLACES, obj, seed->k, twice);
        return 0;
    }
    size_t places = STACK_PLACES;
    while (places < (size_t)obj->len * 2)
        places *= 2;
    uint32_t *table = calloc(places, sizeof(*table));
    if (!table)
        return -ENOMEM;
    look_in(table, places, obj, seed->k, twice);
    free(table);
    return 0;
}

int tr_json_twice(const struct tr_json *obj, struct tr_json_seed *seed,
                  const struct tr_json **twice)
{
    if (obj->len > FEW_MEMBERS)
        return among_many(obj, seed, twice);
    const struct tr_json *seen[FEW_MEMBERS], *key = obj + 1;
    for (uint32_t i = 0; i < obj->len; i++) {
        for (uint32_t j = 0; j < i; j++)
            if (same_key(seen[j], key)) {
                *twice = key;
                return 0;
            }
        seen[i] = key;
        key += 1 + key[1].skip;
    }
    return 0;
}
