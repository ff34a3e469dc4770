/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"
#include "testlib/rand.h"

#include <criterion/criterion.h>

/* The text of all bytes at once, written the other way round: a list of the well-formed
 * sequences instead of a machine. */
static bool well_formed(const uint8_t *p, size_t n)
{
    static const uint8_t ROWS[][8] = {
        {0xc2, 0xdf, 0x80, 0xbf},
        {0xe0, 0xe0, 0xa0, 0xbf, 0x80, 0xbf},
        {0xe1, 0xec, 0x80, 0xbf, 0x80, 0xbf},
        {0xed, 0xed, 0x80, 0x9f, 0x80, 0xbf},
        {0xee, 0xef, 0x80, 0xbf, 0x80, 0xbf},
        {0xf0, 0xf0, 0x90, 0xbf, 0x80, 0xbf, 0x80, 0xbf},
        {0xf1, 0xf3, 0x80, 0xbf, 0x80, 0xbf, 0x80, 0xbf},
        {0xf4, 0xf4, 0x80, 0x8f, 0x80, 0xbf, 0x80, 0xbf},
    };

    if (n == 1 && p[0] < 0x80)
        return true;
    for (size_t r = 0; r < 8; r++) {
        size_t k = 0;
        while (k < n && k < 4 && p[k] >= ROWS[r][2 * k] && p[k] <= ROWS[r][2 * k + 1] &&
               ROWS[r][2 * k + 1])
            k++;
        if (k == n && (n == 4 || ROWS[r][2 * n + 1] == 0))
            return true;
    }
    return false;
}

/* Whether p[0, n) is a beginning of a well-formed sequence. */
static bool begins(const uint8_t *p, size_t n)
{
    uint8_t q[4];

    memcpy(q, p, n);
    if (n > 3)
        return false;
    for (unsigned a = 0x80; a < 0xc0; a++) {
        q[n] = (uint8_t)a;
        if (well_formed(q, n + 1))
            return true;
        if (n == 3)
            continue;
        q[n + 1] = 0x80;
        if (well_formed(q, n + 2))
            return true;
        if (n == 2)
            continue;
        q[n + 2] = 0x80;
        if (well_formed(q, n + 3))
            return true;
    }
    return false;
}

static size_t oracle(const uint8_t *p, size_t len, char *out)
{
    size_t o = 0;

    for (size_t i = 0; i < len;) {
        size_t n = 1;
        while (n <= 4 && i + n <= len && !well_formed(p + i, n))
            n++;
        if (n <= 4 && i + n <= len) {
            memcpy(out + o, p + i, n);
            o += n;
            i += n;
            continue;
        }
        memcpy(out + o, "\xef\xbf\xbd", 3);
        o += 3;
        for (n = 1; n < 3 && i + n < len && begins(p + i, n + 1); n++)
            ;
        i += begins(p + i, 1) ? n : 1;
    }
    return o;
}

/* Bytes that are likely to meet each other's limits. */
static uint8_t some_byte(uint64_t *seed)
{
    static const uint8_t PICK[] = {'a',  0,    0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc2,
                                   0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff};
    uint32_t r = tiny_rand(seed);

    return r & 1 ? PICK[(r >> 1) % sizeof(PICK)] : (uint8_t)(r >> 8);
}

Test(utf8, any_cut_of_any_bytes_gives_the_same_text)
{
    uint64_t seed = 1;

    for (int round = 0; round < 20000; round++) {
        uint8_t in[24];
        char want[80];
        char got[200];
        size_t len = tiny_rand(&seed) % sizeof(in);
        size_t o = 0;
        struct tr_utf8 u = {0};
        for (size_t i = 0; i < len; i++)
            in[i] = some_byte(&seed);
        size_t n_want = oracle(in, len, want);
        for (size_t i = 0, n; i < len; i += n) {
            n = 1 + tiny_rand(&seed) % (len - i);
            size_t add = tr_utf8_push(&u, (const char *)in + i, n, got + o);
            cr_assert(add <= TR_UTF8_OUT_MAX(n));
            o += add;
            cr_assert(tr_utf8_is_valid(got, o), "never half a character");
        }
        o += tr_utf8_flush(&u, got + o);
        cr_assert_eq(u.n, 0);
        cr_assert_eq(o, n_want);
        cr_assert(memcmp(got, want, o) == 0);
    }
}

Test(utf8, every_code_point_is_valid_and_no_surrogate_is)
{
    for (uint32_t c = 0x80; c < 0x110000; c++) {
        char b[4];
        size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        for (size_t i = n - 1; i > 0; i--)
            b[i] = (char)(0x80 | (c >> 6 * (n - 1 - i) & 0x3f));
        b[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c >> 6 * (n - 1));
        cr_assert_eq(tr_utf8_is_valid(b, n), c < 0xd800 || c > 0xdfff, "U+%04X", c);
        cr_assert(tr_utf8_valid_prefix(b, n - 1) == 0);
    }
}

Test(utf8, bytes_that_can_never_become_valid_are_shown_at_once)
{
    struct tr_utf8 u = {0};
    char out[16];

    cr_assert_eq(tr_utf8_push(&u, "\xff", 1, out), 3);
    cr_assert_eq(tr_utf8_push(&u, "\xf0\x9f\x98", 3, out), 0, "may become a character");
    cr_assert_eq(tr_utf8_push(&u, "x", 1, out), 4, "one for the three, then x");
    cr_assert(memcmp(out, "\xef\xbf\xbdx", 4) == 0);
    cr_assert_eq(tr_utf8_push(&u, "\xed", 1, out), 0);
    cr_assert_eq(tr_utf8_push(&u, "\xa0", 1, out), 0, "a surrogate waits for its next byte");
    cr_assert_eq(tr_utf8_push(&u, "\x80", 1, out), 9);
}

Test(utf8, a_bad_sequence_has_the_length_of_its_maximal_subpart)
{
    cr_assert_eq(tr_utf8_bad_len("\xf0\x9f\x98x", 4), 3);
    cr_assert_eq(tr_utf8_bad_len("\xed\xa0\x80", 3), 1);
    cr_assert_eq(tr_utf8_bad_len("\xc0\xaf", 2), 1);
    cr_assert_eq(tr_utf8_bad_len("\xe2\x82", 2), 2);
    cr_assert_eq(tr_utf8_bad_len("\x80", 1), 1);
}
