/* SPDX-License-Identifier: Apache-2.0 */
#include "testlib/tiny_vocab.h"
#include "text/stop.h"

#include <criterion/criterion.h>
#include <errno.h>

static struct tr_str str(const char *s)
{
    return (struct tr_str){s, strlen(s)};
}

static struct tr_stopset *set_of(const char *const *s, size_t n)
{
    struct tr_str strs[TR_STOP_STRINGS_MAX];
    struct tr_stopset *set = NULL;

    for (size_t i = 0; i < n; i++)
        strs[i] = str(s[i]);
    cr_assert_eq(tr_stopset_open(strs, n, &set), 0);
    return set;
}

static bool held_is(const struct tr_stopset *set, tr_stop_state at, const char *want)
{
    struct tr_str h = tr_stop_held(set, at);

    return h.len == strlen(want) && memcmp(h.p, want, h.len) == 0;
}

Test(stop, the_longest_suffix_that_begins_a_stop_is_held)
{
    const char *s[] = {"baba", "abcd", "</s>"};
    struct tr_stopset *set = set_of(s, 3);
    tr_stop_state at = 0;
    size_t used = 77;

    cr_assert_eq(tr_stop_push(set, &at, "xaba", 4, &used), -1);
    cr_assert(held_is(set, at, "ba"), "aba begins no string, ba does");
    cr_assert_eq(tr_stop_push(set, &at, "x", 1, &used), -1);
    cr_assert_eq(at, 0);
    cr_assert_eq(used, 77, "untouched without a match");
    cr_assert_eq(tr_stop_push(set, &at, "abab", 4, &used), -1);
    cr_assert(held_is(set, at, "bab"));
    cr_assert_eq(tr_stop_push(set, &at, "az", 2, &used), 0);
    cr_assert_eq(used, 1);
    tr_stopset_close(set);
}

Test(stop, the_match_that_ends_first_wins_and_the_longest_of_those)
{
    const char *s[] = {"bcdef", "cd", "abcd", "d"};
    struct tr_stopset *set = set_of(s, 4);
    tr_stop_state at = 0;
    size_t used;

    cr_assert_eq(tr_stop_push(set, &at, "xabcdef", 7, &used), 2, "abcd, cd and d end together");
    cr_assert_eq(used, 5);
    at = 0;
    cr_assert_eq(tr_stop_push(set, &at, "xbcd", 4, &used), 1);
    tr_stopset_close(set);
}

Test(stop, a_string_given_twice_is_the_first)
{
    const char *s[] = {"xy", "ab", "ab"};
    struct tr_stopset *set = set_of(s, 3);
    tr_stop_state at = 0;
    size_t used;

    cr_assert_eq(tr_stop_push(set, &at, "ab", 2, &used), 1);
    tr_stopset_close(set);
}

Test(stop, the_set_keeps_its_own_copy)
{
    char s[] = "stop";
    struct tr_str one = str(s);
    struct tr_stopset *set = NULL;
    tr_stop_state at = 0;
    size_t used;

    cr_assert_eq(tr_stopset_open(&one, 1, &set), 0);
    memset(s, 'x', 4);
    cr_assert_eq(tr_stop_push(set, &at, "stop", 4, &used), 0);
    struct tr_str back = tr_stopset_at(set, 0);
    cr_assert(back.len == 4 && memcmp(back.p, "stop", 4) == 0);
    tr_stopset_close(set);
}

Test(stop, what_is_no_stop_string_is_refused)
{
    static char big[TR_STOP_LEN_MAX + 1];
    struct tr_str many[TR_STOP_STRINGS_MAX + 1];
    struct tr_stopset *set = (void *)big;

    memset(big, 'x', sizeof(big));
    for (size_t i = 0; i <= TR_STOP_STRINGS_MAX; i++)
        many[i] = str("a");
    cr_assert_eq(tr_stopset_open(many, 0, &set), -EINVAL);
    cr_assert_eq(tr_stopset_open(many, TR_STOP_STRINGS_MAX + 1, &set), -EINVAL);
    cr_assert_eq(tr_stopset_open(&(struct tr_str){"", 0}, 1, &set), -EINVAL);
    cr_assert_eq(tr_stopset_open(&(struct tr_str){"\xc3", 1}, 1, &set), -EINVAL);
    cr_assert_eq(tr_stopset_open(&(struct tr_str){big, sizeof(big)}, 1, &set), -EINVAL);
    cr_assert(set == (void *)big, "untouched by a failed call");
    cr_assert_eq(tr_stopset_open(&(struct tr_str){"a\0b", 3}, 1, &set), 0, "NUL is a byte");
    tr_stopset_close(set);
}

Test(stop, the_largest_set_there_may_be_works)
{
    static char text[TR_STOP_STRINGS_MAX][TR_STOP_LEN_MAX];
    struct tr_str strs[TR_STOP_STRINGS_MAX];
    struct tr_stopset *set = NULL;
    size_t used;

    for (size_t i = 0; i < TR_STOP_STRINGS_MAX; i++) {
        memset(text[i], 'a', TR_STOP_LEN_MAX);
        text[i][0] = (char)('A' + i);
        strs[i] = (struct tr_str){text[i], TR_STOP_LEN_MAX};
    }
    cr_assert_eq(tr_stopset_open(strs, TR_STOP_STRINGS_MAX, &set), 0);
    for (int i = 0; i < TR_STOP_STRINGS_MAX; i++) {
        tr_stop_state at = 0;
        cr_assert_eq(tr_stop_push(set, &at, text[i], TR_STOP_LEN_MAX, &used), i);
        cr_assert_eq(used, TR_STOP_LEN_MAX);
    }
    tr_stopset_close(set);
}
