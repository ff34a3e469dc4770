/* SPDX-License-Identifier: Apache-2.0 */
#include "base/siphash.h"

#include <criterion/criterion.h>

/* Key 00 01 .. 0f, texts 00 01 .. of these lengths: the authors' vectors, which OpenSSL gives too. */
Test(siphash, gives_the_vectors_of_its_authors)
{
    static const struct {
        size_t len;
        uint64_t hash;
    } want[] = {
        {0, 0x726fdb47dd0e0e31},  {1, 0x74f839c593dc67fd},  {2, 0x0d6c8009d9a94f5a},
        {3, 0x85676696d7fb7e2d},  {7, 0xab0200f58b01d137},  {8, 0x93f5f5799a932462},
        {15, 0xa129ca6149be45e5}, {16, 0x3f2acc7f57c29bdb}, {63, 0x958a324ceb064572},
    };
    static const uint64_t key[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    uint8_t text[64];
    for (uint8_t i = 0; i < sizeof(text); i++)
        text[i] = i;
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        cr_assert_eq(tr_siphash(key, text, want[i].len), want[i].hash, "%zu bytes", want[i].len);
}

Test(siphash, another_key_is_another_hash)
{
    static const uint64_t keys[3][2] = {{1, 2}, {1, 3}, {0, 2}};
    uint64_t a = tr_siphash(keys[0], "text", 4);
    cr_assert_neq(a, tr_siphash(keys[1], "text", 4));
    cr_assert_neq(a, tr_siphash(keys[2], "text", 4));
}
