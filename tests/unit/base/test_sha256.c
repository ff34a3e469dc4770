/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sha256.h"

#include <criterion/criterion.h>
#include <string.h>

static void expect(const char *text, size_t len, const char *hex)
{
    uint8_t h[TR_SHA256_BYTES];
    char got[2 * TR_SHA256_BYTES + 1];

    tr_sha256(text, len, h);
    tr_sha256_format(h, got);
    cr_expect_str_eq(got, hex);
}

/* FIPS 180-4's own examples, and the empty text. */
Test(sha256, known_texts_have_their_hashes)
{
    expect("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

/* Of 'a', as sha256sum says: around the places where the padding needs another block. */
Test(sha256, every_length_of_the_last_block_is_padded_right)
{
    static const struct {
        size_t n;
        const char *hex;
    } row[] = {
        {55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
        {56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
        {63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
        {64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
        {65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"},
        {1000, "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3"},
    };
    char text[1000];

    memset(text, 'a', sizeof(text));
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        expect(text, row[i].n, row[i].hex);
}

Test(sha256, digits_are_read_back_and_nothing_else_is)
{
    char text[] = "BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    uint8_t h[TR_SHA256_BYTES], abc[TR_SHA256_BYTES];

    tr_sha256("abc", 3, abc);
    cr_assert_eq(tr_sha256_parse(text, 64, h), 0);
    cr_expect_arr_eq(h, abc, sizeof(h));
    cr_expect_neq(tr_sha256_parse(text, 63, h), 0);
    cr_expect_neq(tr_sha256_parse(text, 0, h), 0);
    text[20] = 'g';
    cr_expect_neq(tr_sha256_parse(text, 64, h), 0);
    cr_expect_arr_eq(h, abc, sizeof(h));
}
