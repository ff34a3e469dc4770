/* SPDX-License-Identifier: Apache-2.0 */
#include "testlib/tiny_vocab.h"
#include "text/detok.h"

#include <criterion/criterion.h>
#include <errno.h>

Test(detok, a_character_comes_out_whole_or_not_at_all)
{
    struct tr_vocab *v = tr_vocab_sim();
    struct tr_detok d;
    char out[TR_DETOK_TEXT_MAX];
    size_t len;

    tr_detok_init(&d, v, true);
    for (const char *c = "\xf0\x9f\x98"; *c; c++) {
        cr_assert_eq(tr_detok_push(&d, (unsigned char)*c, out, &len), 0);
        cr_assert_eq(len, 0);
        cr_assert(tr_detok_held(&d));
    }
    struct tr_detok copy = d;
    cr_assert_eq(tr_detok_push(&d, 0x80, out, &len), 0);
    cr_assert(len == 4 && memcmp(out, "\xf0\x9f\x98\x80", 4) == 0);
    cr_assert_not(tr_detok_held(&d));
    cr_assert_eq(tr_detok_flush(&d, out), 0);
    cr_assert_eq(tr_detok_flush(&copy, out), 3, "the answer was cut inside the character");
    cr_assert(memcmp(out, "\xef\xbf\xbd", 3) == 0);
    tr_vocab_close(v);
}

Test(detok, a_leading_space_and_a_lone_newline_are_kept)
{
    struct tr_vocab *v = tr_vocab_sim();
    struct tr_detok d;
    char out[TR_DETOK_TEXT_MAX];
    size_t len;

    tr_detok_init(&d, v, true);
    cr_assert_eq(tr_detok_push(&d, tr_vocab_find(v, " the", 4), out, &len), 0);
    cr_assert(len == 4 && memcmp(out, " the", 4) == 0);
    cr_assert_eq(tr_detok_push(&d, '\n', out, &len), 0);
    cr_assert(len == 1 && out[0] == '\n');
    cr_assert_eq(tr_detok_push(&d, (int32_t)tr_vocab_size(v), out, &len), -EINVAL);
    tr_vocab_close(v);
}
