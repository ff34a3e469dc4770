/* SPDX-License-Identifier: Apache-2.0 */
#include "compile.h"

#include <errno.h>

static struct compiled c;

Test(build, literals_classes_and_repeats_match_what_they_say)
{
    struct tr_gbuild *b = tr_gbuild_new();
    tr_gnode digit = chars(b, '0', '9');
    tr_gnode id = SEQ(b, lit(b, "no-"), tr_g_repeat(b, digit, 2, 4));
    compile(&c, b, ALT(b, id, lit(b, "none")));

    cr_assert(accepts(&c, "no-12"));
    cr_assert(accepts(&c, "no-1234"));
    cr_assert(accepts(&c, "none"));
    cr_assert(begins(&c, "no"));
    cr_assert_not(accepts(&c, "no-1"));
    cr_assert_not(begins(&c, "no-12345"));
    cr_assert_not(begins(&c, "nope"));
    cr_assert_not(accepts(&c, ""));
}

Test(build, characters_are_whole_utf8)
{
    struct tr_gbuild *b = tr_gbuild_new();
    struct tr_grange not [] = {{'"', '"'}, {0x20ac, 0x20ac}};
    compile(&c, b, tr_g_repeat(b, tr_g_class(b, not, 2, true), 0, TR_G_INF));

    cr_assert(accepts(&c, "a\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf"));
    cr_assert(accepts(&c, "\xe2\x82\xad"));
    cr_assert(begins(&c, "\xe2\x82"));
    cr_assert_not(accepts(&c, "\xe2\x82"));
    cr_assert_not(begins(&c, "\xe2\x82\xac"));
    cr_assert_not(begins(&c, "\xed\xa0"), "surrogates are no characters");
    cr_assert_not(begins(&c, "\xc0"));
    cr_assert_not(begins(&c, "\xf4\x90"));
    cr_assert_not(begins(&c, "\x80"));
    cr_assert_not(begins(&c, "\""));
}

Test(build, every_code_point_is_in_its_class_and_in_no_other)
{
    static const struct tr_grange ranges[] = {
        {0x7f, 0x80},      {0x123, 0xfff},     {0x7ff, 0x800},   {0xd7f0, 0xe010},
        {0xfff0, 0x1000f}, {0x3fabc, 0x4fdef}, {0x41, 0x10fffe}, {0xffff, 0xffff}};
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        struct tr_gbuild *b = tr_gbuild_new();
        compile(&c, b, tr_g_class(b, &ranges[i], 1, false));
        for (uint32_t cp = 1; cp <= 0x10ffff; cp += cp % 64 == 5 && cp > 0x400 ? 29 : 1) {
            char s[5] = {0};
            if (cp < 0x80) {
                s[0] = (char)cp;
            } else if (cp < 0x800) {
                s[0] = (char)(0xc0 | cp >> 6);
                s[1] = (char)(0x80 | (cp & 63));
            } else if (cp < 0x10000) {
                s[0] = (char)(0xe0 | cp >> 12);
                s[1] = (char)(0x80 | (cp >> 6 & 63));
                s[2] = (char)(0x80 | (cp & 63));
            } else {
                s[0] = (char)(0xf0 | cp >> 18);
                s[1] = (char)(0x80 | (cp >> 12 & 63));
                s[2] = (char)(0x80 | (cp >> 6 & 63));
                s[3] = (char)(0x80 | (cp & 63));
            }
            bool in = cp >= ranges[i].lo && cp <= ranges[i].hi && (cp < 0xd800 || cp > 0xdfff);
            cr_assert_eq(accepts(&c, s), in, "U+%04X in %zu", cp, i);
        }
    }
}

Test(build, rules_may_call_themselves)
{
    struct tr_gbuild *b = tr_gbuild_new();
    tr_gnode list = tr_g_rule(b), item = tr_g_rule(b);
    tr_g_define(b, item, ALT(b, tr_g_repeat(b, chars(b, 'a', 'z'), 1, TR_G_INF), list));
    tr_gnode more = tr_g_repeat(b, SEQ(b, lit(b, ","), item), 0, TR_G_INF);
    tr_g_define(b, list, SEQ(b, lit(b, "("), item, more, lit(b, ")")));
    compile(&c, b, list);

    cr_assert(accepts(&c, "(a,(b,c),((d)))"));
    cr_assert_not(accepts(&c, "(a,(b,c),((d))"));
    cr_assert_not(begins(&c, "(a,(b,c),((d))))"));
    cr_assert_not(begins(&c, "()"));
}

Test(build, rules_with_an_empty_text_may_stand_anywhere)
{
    struct tr_gbuild *b = tr_gbuild_new();
    tr_gnode ws = tr_g_rule(b), pad = tr_g_rule(b);
    tr_g_define(b, ws, tr_g_repeat(b, chars(b, ' ', ' '), 0, 40));
    tr_g_define(b, pad, SEQ(b, ws, tr_g_repeat(b, lit(b, "-"), 0, 40)));
    compile(&c, b, SEQ(b, pad, tr_g_repeat(b, pad, 0, TR_G_INF), ws));

    cr_assert(accepts(&c, ""));
    cr_assert(accepts(&c, " "));
    cr_assert(accepts(&c, "  -- - "));
    cr_assert_not(begins(&c, "x"));
}

Test(build, the_empty_text_alone_is_a_program)
{
    struct tr_gbuild *b = tr_gbuild_new();
    struct tr_gmatch m;
    compile(&c, b, tr_g_empty(b));
    tr_gmatch_start(&m, &c.p);

    cr_assert(tr_gmatch_may_end(&m, &c.p));
    cr_assert(tr_gmatch_is_over(&m, &c.p));
    cr_assert_not(begins(&c, "x"));
}

Test(build, until_takes_all_up_to_the_first_occurrence)
{
    struct tr_gbuild *b = tr_gbuild_new();
    compile(&c, b, SEQ(b, tr_g_until(b, "</a>", 4), lit(b, "!")));

    cr_assert(accepts(&c, "x</</a</a>!"));
    cr_assert(accepts(&c, "</a>!"));
    cr_assert_not(begins(&c, "x</a>y"));
    cr_assert(begins(&c, "\xff\x01 </a"));
}

Test(build, free_text_may_turn_into_a_literal_or_end_within_one)
{
    struct tr_gbuild *b = tr_gbuild_new();
    struct tr_gliteral l[] = {{"<call>", 6}, {"ca", 2}};
    tr_gnode text = tr_g_text_without(b, l, 2);
    tr_gnode call = SEQ(b, lit(b, "<call>"), chars(b, '0', '9'));
    compile(&c, b, SEQ(b, text, ALT(b, tr_g_empty(b), call)));

    cr_assert(accepts(&c, "free < text <c"));
    cr_assert(accepts(&c, "<<call>7"));
    cr_assert_not(accepts(&c, "<<call>"));
    cr_assert_not(begins(&c, "<call>x"));
    cr_assert_not(begins(&c, "scall"), "a literal that occurs by itself");
}

Test(build, left_recursion_is_refused)
{
    struct tr_gbuild *b = tr_gbuild_new();
    tr_gnode left = tr_g_rule(b), opt = tr_g_repeat(b, lit(b, "x"), 0, 1);
    tr_g_define(b, left, ALT(b, SEQ(b, opt, left, lit(b, "a")), lit(b, "b")));
    refused(b, left, -EINVAL, "begins with itself");
}

Test(build, a_rule_without_a_definition_is_refused)
{
    struct tr_gbuild *b = tr_gbuild_new();
    refused(b, SEQ(b, lit(b, "a"), tr_g_rule(b)), -EINVAL, "does not define");
}

Test(build, what_cannot_end_is_refused)
{
    struct tr_gbuild *b = tr_gbuild_new();
    tr_gnode r = tr_g_rule(b);
    tr_g_define(b, r, SEQ(b, lit(b, "a"), r));
    refused(b, r, -EINVAL, "could end");
}

Test(build, ways_that_cannot_end_are_not_taken)
{
    struct tr_gbuild *b = tr_gbuild_new();
    tr_gnode r = tr_g_rule(b);
    tr_g_define(b, r, SEQ(b, lit(b, "ab"), r));
    compile(&c, b, ALT(b, r, lit(b, "ac")));
    cr_assert(accepts(&c, "ac"));
    cr_assert_not(begins(&c, "ab"));
}

Test(build, what_would_be_too_large_is_refused_at_once)
{
    struct tr_gbuild *b = tr_gbuild_new();
    refused(b, tr_g_repeat(b, lit(b, "a"), 0, 2000000000), -E2BIG, "2000000000");

    b = tr_gbuild_new();
    tr_gnode deep = lit(b, "a");
    for (int i = 0; i < 10000; i++)
        deep = SEQ(b, lit(b, "("), deep);
    refused(b, deep, -E2BIG, "deep");

    b = tr_gbuild_new(); /* the k-th character from the end: 2^k states */
    tr_gnode any = chars(b, 'a', 'b');
    tr_gnode kth =
        SEQ(b, tr_g_repeat(b, any, 0, TR_G_INF), lit(b, "a"), tr_g_repeat(b, any, 40, 40));
    refused(b, kth, -E2BIG, "");
}

Test(build, equal_grammars_are_equal_images)
{
    static struct compiled d;
    for (int i = 0; i < 2; i++) {
        struct tr_gbuild *b = tr_gbuild_new();
        tr_gnode r = tr_g_rule(b);
        tr_g_define(b, r, ALT(b, SEQ(b, lit(b, "["), r, lit(b, "]")), lit(b, "x")));
        compile(i ? &d : &c, b, r);
    }
    cr_assert_eq(c.len, d.len);
    cr_assert_eq(memcmp(c.image, d.image, c.len), 0);
}

Test(build, an_automaton_written_out_has_the_texts_of_its_ways)
{
    /* 0 -a-> 1 -(b or nothing)-> 2 -c-> 2, ends in 1 and 2; 3 leads nowhere. */
    struct tr_gbuild *b = tr_gbuild_new();
    tr_gnode rule = tr_g_rule(b);
    tr_g_define(b, rule, tr_g_repeat(b, lit(b, "b"), 0, 1));
    const struct tr_garrow arrows[] = {
        {0, 1, lit(b, "a")}, {1, 2, rule}, {2, 2, lit(b, "c")}, {1, 3, lit(b, "d")}};
    const uint8_t final[] = {0, 1, 1, 0};
    compile(&c, b, tr_g_fsm(b, 4, arrows, 4, final));

    cr_assert(accepts(&c, "a"));
    cr_assert(accepts(&c, "ab"));
    cr_assert(accepts(&c, "accc"));
    cr_assert(accepts(&c, "abc"));
    cr_assert_not(begins(&c, "ad"));
    cr_assert_not(accepts(&c, ""));
    cr_assert_not(accepts(&c, "abb"));

    /* As part of something else it may be empty, and be used twice. */
    b = tr_gbuild_new();
    const struct tr_garrow maybe[] = {{0, 1, tr_g_repeat(b, lit(b, "x"), 0, 2)}};
    tr_gnode two = tr_g_fsm(b, 2, maybe, 1, (const uint8_t[]){0, 1});
    tr_gnode twice = tr_g_rule(b);
    tr_g_define(b, twice, SEQ(b, two, two));
    compile(&c, b, SEQ(b, twice, lit(b, ".")));
    cr_assert(accepts(&c, "."));
    cr_assert(accepts(&c, "xxxx."));
    cr_assert_not(begins(&c, "xxxxx"));

    b = tr_gbuild_new();
    const struct tr_garrow out[] = {{0, 7, tr_g_empty(b)}};
    refused(b, tr_g_fsm(b, 2, out, 1, final), -EINVAL, "leads nowhere");
}
