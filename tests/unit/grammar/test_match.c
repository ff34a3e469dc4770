/* SPDX-License-Identifier: Apache-2.0 */
#include "compile.h"

#include "testlib/grammar_tree.h"

#include <errno.h>

static struct compiled c;

/* Balanced brackets around an x, and nothing but brackets. */
static void brackets(void)
{
    struct tr_gbuild *b = tr_gbuild_new();
    tr_gnode r = tr_g_rule(b);
    tr_g_define(b, r, ALT(b, SEQ(b, lit(b, "["), r, lit(b, "]")), lit(b, "x")));
    compile(&c, b, r);
}

Test(match, bytes_that_do_not_fit_leave_the_matcher_as_it_was)
{
    struct tr_gmatch m, before;
    brackets();
    tr_gmatch_start(&m, &c.p);
    cr_assert(tr_gmatch_bytes(&m, &c.p, "[[", 2));
    before = m;
    cr_assert_not(tr_gmatch_bytes(&m, &c.p, "[[x]]]]]", 8));
    cr_assert_not(m.overflow);
    cr_assert_eq(m.n_heads, before.n_heads);
    cr_assert_eq(memcmp(m.heads, before.heads, sizeof(m.heads[0]) * m.n_heads), 0);
    cr_assert(tr_gmatch_bytes(&m, &c.p, "x]]", 3));
    cr_assert(tr_gmatch_is_over(&m, &c.p));
    cr_assert_not(tr_gmatch_bytes(&m, &c.p, "x", 1));
}

Test(match, one_byte_at_a_time_is_the_same)
{
    struct tr_gmatch m, w;
    const char *s = "[[[[x]]]]";
    brackets();
    tr_gmatch_start(&m, &c.p);
    w = m;
    for (const char *p = s; *p; p++)
        cr_assert(tr_gmatch_bytes(&m, &c.p, p, 1));
    cr_assert(tr_gmatch_bytes(&w, &c.p, s, strlen(s)));
    cr_assert(tr_gmatch_is_over(&m, &c.p) && tr_gmatch_is_over(&w, &c.p));
}

Test(match, depth_is_bounded_and_a_list_to_the_right_is_not)
{
    static char deep[3 * TR_GRAM_DEPTH];
    struct tr_gmatch m;
    brackets();
    memset(deep, '[', sizeof(deep));
    tr_gmatch_start(&m, &c.p);
    cr_assert(tr_gmatch_bytes(&m, &c.p, deep, TR_GRAM_DEPTH));
    cr_assert_not(tr_gmatch_bytes(&m, &c.p, deep, 2));
    memset(deep, ']', sizeof(deep));
    cr_assert(tr_gmatch_bytes(&m, &c.p, "x", 1));
    cr_assert(tr_gmatch_bytes(&m, &c.p, deep, TR_GRAM_DEPTH));
    cr_assert(tr_gmatch_is_over(&m, &c.p));

    struct tr_gbuild *b = tr_gbuild_new();
    tr_gnode list = tr_g_rule(b), item = tr_g_repeat(b, chars(b, 'a', 'z'), 1, TR_G_INF);
    tr_g_define(b, list, ALT(b, item, SEQ(b, item, lit(b, ","), list)));
    compile(&c, b, list);
    tr_gmatch_start(&m, &c.p);
    for (int i = 0; i < 10 * TR_GRAM_DEPTH; i++)
        cr_assert(tr_gmatch_bytes(&m, &c.p, "ab,", 3));
    cr_assert_leq(m.n_nodes, 2);
}

Test(match, a_token_without_bytes_is_taken_by_its_id)
{
    struct tr_gmatch m;
    struct tr_gbuild *b = tr_gbuild_new();
    compile(&c, b, SEQ(b, lit(b, "a"), tr_g_repeat(b, tr_g_token(b, 7), 1, 2), lit(b, "b")));
    tr_gmatch_start(&m, &c.p);
    cr_assert_not(tr_gmatch_token(&m, &c.p, 7));
    cr_assert(tr_gmatch_bytes(&m, &c.p, "a", 1));
    cr_assert_not(tr_gmatch_token(&m, &c.p, 8));
    cr_assert_not(tr_gmatch_bytes(&m, &c.p, "b", 1));
    cr_assert(tr_gmatch_token(&m, &c.p, 7));
    cr_assert(tr_gmatch_bytes(&m, &c.p, "b", 1));
    cr_assert(tr_gmatch_is_over(&m, &c.p));
}

Test(match, too_many_ways_at_once_are_told_from_a_text_that_does_not_fit)
{
    struct tr_gmatch m;
    struct tr_gbuild *b = tr_gbuild_new();
    tr_gnode ways[100], tail[100];
    for (int i = 0; i < 100; i++) { /* 100 rules that all begin with many a */
        ways[i] = tr_g_rule(b);
        tr_gnode end[3] = {chars(b, 0x100 + (uint32_t)i, 0x100 + (uint32_t)i)};
        tail[i] = tr_g_repeat(b, lit(b, "a"), 40, 40);
        tr_g_define(b, ways[i], SEQ(b, tail[i], end[0]));
    }
    compile(&c, b, tr_g_alt(b, ways, 100));
    tr_gmatch_start(&m, &c.p);
    cr_assert_not(tr_gmatch_bytes(&m, &c.p, "b", 1));
    cr_assert_not(m.overflow);
    cr_assert_not(tr_gmatch_bytes(&m, &c.p, "a", 1));
    cr_assert(m.overflow);
}

/* Texts that follow the program, so that long ones come up, now and then with a wrong letter. */
static uint32_t some_text(uint64_t *seed, char *s)
{
    struct tr_gmatch m;
    uint32_t n = 0, max = tiny_rand(seed) % 14;

    tr_gmatch_start(&m, &c.p);
    for (int tries = 0; n < max && tries < 40; tries++) {
        s[n] = (char)('a' + tiny_rand(seed) % 3);
        if (tr_gmatch_bytes(&m, &c.p, s + n, 1) || tiny_rand(seed) % 12 == 0)
            n++;
    }
    return n;
}

Test(match, says_what_trying_everything_says)
{
    static struct tree t;
    static uint8_t image[TR_GRAM_BYTES];
    uint64_t seed = 1;
    uint32_t programs = 0, yes = 0, whole_yes = 0, overflows = 0;
    char s[TREE_TEXT_MAX];

    for (int round = 0; round < 1500; round++) {
        struct tr_errbuf err = {{0}};
        struct tr_gbuild *b = tr_gbuild_new();
        tree_random(&t, &seed);
        int rc = tr_gbuild_finish(b, tree_build(&t, b), image, sizeof(image), &c.len, &err);
        tr_gbuild_free(b);
        if (rc == -E2BIG)
            continue;
        cr_assert_eq(rc, 0, "%s", err.msg);
        cr_assert_eq(tr_gprog_open(&c.p, image, c.len, 9, &err), 0, "%s", err.msg);
        programs++;
        for (int k = 0; k < 30; k++) {
            struct tr_gmatch m;
            bool whole, begins = true;
            uint32_t n = some_text(&seed, s);
            tr_gmatch_start(&m, &c.p);
            bool took = tr_gmatch_bytes(&m, &c.p, s, n);
            if (!took && m.overflow) {
                overflows++;
                continue;
            }
            begins = tree_begins(&t, s, n, &whole);
            cr_assert_eq(took, begins, "round %d: %.*s", round, (int)n, s);
            yes += took;
            if (!took)
                continue;
            whole_yes += whole;
            cr_assert_eq(tr_gmatch_may_end(&m, &c.p), whole, "round %d: %.*s", round, (int)n, s);
        }
    }
    cr_log_info("%u programs, %u texts, %u whole, %u overflows", programs, yes, whole_yes,
                overflows);
    cr_assert_gt(programs, 1300);
    cr_assert_gt(yes, 20000);
    cr_assert_gt(whole_yes, 5000);
    cr_assert_lt(overflows, 200);
}
