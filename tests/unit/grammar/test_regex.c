/* SPDX-License-Identifier: Apache-2.0 */
#include "constraint.h"

#include <errno.h>
#include <time.h>

static void no(const char *pattern, const char *part)
{
    cr_expect_eq(by(tr_gregex, pattern, strlen(pattern)), -EINVAL, "%s was taken", pattern);
    cr_expect(strstr(why, part), "%s: says '%s', not '%s'", pattern, why, part);
}

Test(regex, a_pattern_is_the_whole_answer)
{
    REGEX("ab|c", GOOD("ab", "c"), BAD("a", "abc", "", "xab"));
    REGEX("a?b*c+", GOOD("c", "abbcc", "bc"), BAD("ab", "aac"));
    REGEX("(ab){2}", GOOD("abab"), BAD("ab", "ababab"));
    REGEX("a{2,}", GOOD("aa", "aaaaaaaa"), BAD("a"));
    REGEX("a{1,3}", GOOD("a", "aaa"), BAD("", "aaaa"));
    REGEX("(?:x|y)(?<n>z)(?P<m>w)", GOOD("xzw", "yzw"), BAD("xw"));
    REGEX("a+?b*?", GOOD("a", "aab"), BAD("b"));
    REGEX("", GOOD(""), BAD("a"));
    REGEX("a{0}b", GOOD("b"), BAD("ab"));
    REGEX("x{a}{,2}", GOOD("x{a}{,2}"), BAD("xx"));
}

Test(regex, classes_are_those_of_ecma_262)
{
    REGEX("[a-cx]", GOOD("a", "b", "x"), BAD("d", "-"));
    REGEX("[^a-c]", GOOD("d", "\xc3\xa9", "\n"), BAD("a", ""));
    REGEX("[a\\-z-]", GOOD("a", "-", "z"), BAD("b"));
    REGEX("\\d\\D\\w\\W\\s\\S", GOOD("1aa- x"), BAD("aaa- x"));
    REGEX("[\\d_][\\s]", GOOD("_ ", "5\xc2\xa0"), BAD("a "));
    REGEX(".", GOOD("a", "\xf0\x9f\x98\x80"), BAD("\n", "\r", "\xe2\x80\xa8"));
    REGEX("\\x41\\u00e9\\u{1F600}\\uD83D\\uDE00\\cA",
          GOOD("A\xc3\xa9\xf0\x9f\x98\x80\xf0\x9f\x98\x80\x01"), BAD("A"));
    REGEX("\\.\\/\\-\\$", GOOD("./-$"), BAD("a/-$"));
    REGEX("[\\b]", GOOD("\b"), BAD("b"));
    REGEX("[\xc3\xa0-\xc3\xbf]+", GOOD("\xc3\xa9\xc3\xbf"), BAD("e"));
}

Test(regex, anchors_hold_where_they_stand)
{
    REGEX("^a$", GOOD("a"), BAD("ba", "ab"));
    REGEX("(^a|b)c", GOOD("ac", "bc"), BAD("c"));
    REGEX("a(b|$)", GOOD("ab", "a"), BAD("ac"));
    REGEX("a^b|c", GOOD("c"), BAD("ab", "a"));
}

Test(regex, lookahead_in_front_holds_for_all_that_follows)
{
    REGEX("(?=.*\\d)(?=.*[A-Z])\\w{3,}", GOOD("aA1", "1xxZ"), BAD("aa1", "AAA", "A1", "aA1-"));
    REGEX("^(?!no$)[a-z]+", GOOD("nope", "n", "yes"), BAD("no", "1"));
    REGEX("(?!a|b)(?=...$)(?:.|xx)*", GOOD("cab", "xxx"), BAD("abc", "xx", "xxxx"));
    no("a(?=b)|c", "lookahead");
    no("^(?=a)b|c", "lookahead before alternatives");
    no("(?=a", "without its )");
    no("(x(?!a))", "lookahead");
}

Test(regex, what_is_not_supported_is_refused_by_its_name)
{
    no("^+[a-z]$", "nothing to repeat");
    no("(?<=x)+", "lookbehind");
    no("a(?=b)", "lookahead");
    no("a(?!b)", "lookahead");
    no("(a)\\1", "back references");
    no("\\k<n>", "back references");
    no("a++", "possessive");
    no("(?>a)", "atomic");
    no("(?i)a", "flags");
    no("\\bx", "word boundaries");
    no("\\p{L}", "\\p{...}");
    no("[[:alpha:]]", "POSIX");
    no("\\q", "ECMA-262");
    no("[z-a]", "a range");
    no("[a", "without its ]");
    no("(a", "without its )");
    no("a)", "without its (");
    no("a**", "nothing to repeat");
    no("*", "nothing to repeat");
    no("a{3,2}", "ends before it begins");
    no("a\\", "backslash at the end");
    no("\\ud800", "surrogate");
    no("[]", "empty class");
    no("\xff", "UTF-8");
    no("a{2000000000}", "count above");
}

Test(regex, a_pattern_nothing_obeys_is_refused)
{
    no("a^b", "no text obeys");
}

Test(regex, hostile_patterns_fail_soon)
{
    static char deep[10001];
    memset(deep, '(', 10000);
    no(deep, "nested too deep");
    static const char *const LARGE[] = {"((a|a){100}){100}b",
                                        "(((((a{10000}){10000}){10000}){10000}){10000})",
                                        "((((){10000}){10000}){10000}){10000}",
                                        "(.*a.{20})x|(.*b.{25})y",
                                        "(a|b|ab){1,10000}c.*",
                                        "(x+x+)+y",
                                        "(a*)*(b*)*{1}"};
    for (size_t i = 0; i < sizeof LARGE / sizeof *LARGE; i++) {
        /* Taken or refused: within its budget of steps. */
        int ret = by(tr_gregex, LARGE[i], strlen(LARGE[i]));
        cr_expect(ret == 0 || ret == -E2BIG || ret == -EINVAL, "%s: %d", LARGE[i], ret);
        cr_expect(ret == 0 || why[0]);
    }
    cr_expect_eq(by(tr_gregex, ".*a.{20}", 8), -E2BIG);
}

Test(regex, expression_and_its_repeats_of_nothing_end)
{
    REGEX("(a*)*", GOOD("", "aaa"), BAD("b"));
    REGEX("(a|)*b", GOOD("b", "aab"), BAD("a"));
    REGEX("((a?){3}){2}", GOOD("", "aaaaaa"), BAD("aaaaaaa"));
}
