/* SPDX-License-Identifier: Apache-2.0 */
#include "constraint.h"

#include <errno.h>

static void no(const char *text, const char *part)
{
    cr_expect_eq(by(tr_gbnf, text, strlen(text)), -EINVAL, "%s was taken", text);
    cr_expect(strstr(why, part), "%s: says '%s', not '%s'", text, why, part);
}

Test(gbnf, rules_are_what_they_say)
{
    GBNF("root ::= \"yes\" | \"no\" tail?\n"
         "tail ::= \", \" [a-z]{2,3} # a comment\n",
         GOOD("yes", "no", "no, abc"), BAD("no, a", "yes, ab", ""));
    GBNF("# first\n\nroot ::= (\n  \"a\"\n  | \"b\" )+ \"\\n\"\n", GOOD("ab\n", "b\n"), BAD("ab"));
    GBNF("root ::= a\n  | b\na ::= \"1\"\nb ::= \"2\" |\n \"3\"", GOOD("1", "2", "3"), BAD("4"));
    GBNF("root ::= [^\\x00-\\x1F\"\\\\]* \"\\u00e9\" . \"\\U0001F600\"",
         GOOD("abc\xc3\xa9z\xf0\x9f\x98\x80"), BAD("\"\xc3\xa9z\xf0\x9f\x98\x80"));
    GBNF("root ::= \"\" [-a\\]] \"\\\"\\[\"{2}", GOOD("-\"[\"[", "]\"[\"["), BAD("-\"["));
    GBNF("root ::= \"a\"{2,}\r\n", GOOD("aa", "aaaa"), BAD("a"));
}

Test(gbnf, recursion_goes_as_deep_as_the_text)
{
    GBNF("root ::= \"(\" root \")\" | item\nitem ::= [0-9] item | [0-9]",
         GOOD("1", "((12))", "12345"), BAD("((1)", "()"));
}

Test(gbnf, what_is_wrong_is_named_with_its_line)
{
    no("", "no rule root");
    no("a ::= \"x\"\n", "no rule root");
    no("root ::= b\n", "line 1 of the grammar: the rule b is not defined");
    no("root ::= \"a\"\nroot ::= \"b\"\n", "line 2 of the grammar: the rule is defined twice");
    no("root ::= \"a\"\nx ::= y \"c\"\ny ::= \"\" x\n", "begins with itself");
    no("root ::= root \"a\" | \"b\"\n", "line 1 of the grammar: the rule root begins with itself");
    no("root ::= a* root\na ::= \"x\"\n", "begins with itself");
    no("root = \"a\"\n", "::= is expected");
    no("root ::= \"a", "without its closing quote");
    no("root ::= [a", "without its ]");
    no("root ::= (\"a\"\n", "without its )");
    no("root ::= \"\\q\"", "escape");
    no("root ::= * \"a\"", "nothing to repeat");
    no("root ::= \"a\"{3,1}", "ends before it begins");
    no("root ::= \"a\"{2000000000}", "count above");
    no("root ::= <think>", "names of tokens");
    no("root ::= [z-a]", "range");
    no("root ::= \"\xff\"", "UTF-8");
    no("root ::= \"a\" )", "end of the line");
}

Test(gbnf, hostile_grammars_fail_soon)
{
    static char text[20020] = "root ::= ";
    memset(text + 9, '(', 10000);
    no(text, "nested too deep");
    const char *big = "root ::= ((\"a\"{10000}){10000}){10000}";
    cr_expect_eq(by(tr_gbnf, big, strlen(big)), -E2BIG);
    strcpy(text, "root ::= \"a\" ");
    for (int i = 0; i < 5000; i++)
        strcat(text + 13 + 2 * i, "+ ");
    no(text, "too many quantifiers");
}
