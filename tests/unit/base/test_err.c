/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <criterion/criterion.h>
#include <string.h>

static void __attribute__((format(printf, 3, 4))) put(char *out, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tr_sentence(out, size, fmt, ap);
    va_end(ap);
}

/* `text` as a sentence of `size` bytes at most, its end included. */
static const char *cut(size_t size, const char *text)
{
    static char out[64];
    cr_assert_leq(size, sizeof(out));
    memset(out, '#', sizeof(out));
    put(out, size, "%s", text);
    return out;
}

Test(err, a_sentence_that_fits_is_whole)
{
    cr_assert_str_eq(cut(4, "abc"), "abc");
    cr_assert_str_eq(cut(7, "日本"), "日本");
    cr_assert_str_eq(cut(1, ""), "");
}

Test(err, a_sentence_that_is_cut_ends_with_a_whole_character)
{
    cr_assert_str_eq(cut(3, "abc"), "ab");
    cr_assert_str_eq(cut(1, "abc"), "");
    for (size_t size = 4; size <= 6; size++)
        cr_assert_str_eq(cut(size, "日本"), "日");
    for (size_t size = 1; size <= 4; size++)
        cr_assert_str_eq(cut(size, "😀"), "");
}

Test(err, a_reason_has_no_control_bytes)
{
    struct tr_errbuf err;
    cr_assert_eq(tr_errf(&err, -5, "a\n%c%s", 0x7f, "é"), -5);
    cr_assert_str_eq(err.msg, "a??é");
}
