/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"
#include "text/nfc.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static const char *nfc(const char *text, struct tr_nfc_run *r, size_t *len)
{
    struct tr_nfc *n = tr_nfc_open();
    const char *out;

    *len = strlen(text);
    out = tr_nfc_text(n, r, text, len);
    tr_nfc_close(n);
    return out;
}

Test(nfc, what_is_in_nfc_is_not_copied)
{
    static const char *const SAME[] = {"", "abc", "caf\u00e9 \u65e5\u672c \U0001f600", "\u1100",
                                       "\uac00\uac01"};

    for (size_t i = 0; i < sizeof(SAME) / sizeof(SAME[0]); i++) {
        struct tr_nfc_run r = {0};
        size_t len;
        cr_assert_eq(nfc(SAME[i], &r, &len), SAME[i]);
        cr_assert_eq(len, strlen(SAME[i]));
        tr_nfc_run_fini(&r);
    }
}

Test(nfc, marks_are_sorted_and_joined)
{
    static const char *const PAIRS[][2] = {
        {"e\u0301", "\u00e9"},
        {"xe\u0301y", "x\u00e9y"},
        {"\u0301e", "\u0301e"},                 /* nothing before it */
        {"a\u0315\u0300", "\u00e0\u0315"},      /* 232 before 230 */
        {"q\u0307\u0323", "q\u0323\u0307"},     /* 230 before 220 */
        {"a\u0300\u0301", "\u00e0\u0301"},      /* the second of one class is in the way */
        {"\u1100\u1161\u11a8z", "\uac01z"},     /* Hangul */
        {"\uac00\u11a8", "\uac01"},             /* Hangul, half done */
        {"\u212b\u2126", "\u00c5\u03a9"},       /* one for one */
        {"\u0958", "\u0915\u093c"},             /* never joined */
        {"\u09c7\u09be", "\u09cb"},             /* joined with what is no mark */
        {"\U0001d15e", "\U0001d157\U0001d165"}, /* outside the first plane */
        {"a\u0323\u0307 a\u0307\u0323", "\u1ea1\u0307 \u1ea1\u0307"},
    };

    for (size_t i = 0; i < sizeof(PAIRS) / sizeof(PAIRS[0]); i++) {
        struct tr_nfc_run r = {0};
        size_t len;
        const char *got = nfc(PAIRS[i][0], &r, &len);
        cr_assert(len == strlen(PAIRS[i][1]) && memcmp(got, PAIRS[i][1], len) == 0, "row %zu", i);
        tr_nfc_run_fini(&r);
    }
}

/* utf8proc does the same, in the square of the time. */
static void same_as_utf8proc(const struct tr_nfc *n, struct tr_nfc_run *r, const char *text,
                             size_t len)
{
    utf8proc_uint8_t *want = NULL;
    ptrdiff_t want_len = utf8proc_map((const utf8proc_uint8_t *)text, (ptrdiff_t)len, &want,
                                      (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    size_t got_len = len;
    const char *got = tr_nfc_text(n, r, text, &got_len);

    cr_assert(want_len >= 0 && got);
    cr_assert(got_len == (size_t)want_len && memcmp(got, want, got_len) == 0, "%.*s", (int)len,
              text);
    cr_assert(got_len <= TR_NFC_GROWTH * len && tr_utf8_is_valid(got, got_len));
    free(want);
}

Test(nfc, every_character_alone_and_after_others)
{
    struct tr_nfc *n = tr_nfc_open();
    struct tr_nfc_run r = {0};

    for (int32_t c = 1; c < 0x110000; c++) {
        char text[16];
        if (c >= 0xd800 && c < 0xe000)
            continue;
        size_t k = (size_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)text);
        same_as_utf8proc(n, &r, text, k);
        memmove(text + 1, text, k);
        text[0] = 'a';
        memcpy(text + 1 + k, "\u0323\u0301", 4);
        same_as_utf8proc(n, &r, text, k + 5);
    }
    tr_nfc_run_fini(&r);
    tr_nfc_close(n);
}

Test(nfc, any_characters_in_any_order)
{
    static const int32_t SOME[] = {'a',    'e',    'q',    ' ',     0xe9,    0x1e9b,  0x300,
                                   0x301,  0x307,  0x315,  0x323,   0x327,   0x338,   0x344,
                                   0x5ae,  0x93c,  0x915,  0x958,   0x9c7,   0x9be,   0x9d7,
                                   0x1100, 0x1161, 0x11a8, 0xac00,  0x3042,  0x3099,  0x212b,
                                   0x2adc, 0xfb1d, 0xf900, 0x2f800, 0x1d15e, 0x1f600, 0x110b9};
    struct tr_nfc *n = tr_nfc_open();
    struct tr_nfc_run r = {0};
    uint64_t seed = 5;

    for (int round = 0; round < 200000; round++) {
        char text[64];
        size_t len = 0;
        for (int i = 0; i < 12; i++) {
            seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
            int32_t c = SOME[(seed >> 33) % (sizeof(SOME) / sizeof(SOME[0]))];
            len += (size_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)text + len);
        }
        same_as_utf8proc(n, &r, text, len);
    }
    tr_nfc_run_fini(&r);
    tr_nfc_close(n);
}

/* In the square of the time this would take minutes. */
Test(nfc, a_million_marks_in_the_wrong_order)
{
    enum { N = 1000000 };
    struct tr_nfc_run r = {0};
    char *text = malloc(4 * N + 1);
    size_t len;

    for (size_t i = 0; i < N; i++)
        memcpy(text + 4 * i, i % 2 ? "\u0316" : "\u0302", 2), memcpy(text + 4 * i + 2, "\u0300", 2);
    text[4 * N] = 0;
    const char *got = nfc(text, &r, &len);
    cr_assert_eq(len, 4 * N);
    for (size_t i = 0; i < N / 2; i++)
        cr_assert(memcmp(got + 2 * i, "\u0316", 2) == 0, "low marks first");
    tr_nfc_run_fini(&r);
    free(text);
}
