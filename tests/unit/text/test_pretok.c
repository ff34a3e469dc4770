/* SPDX-License-Identifier: Apache-2.0 */
#include "testlib/tiny_vocab.h"
#include "text/pretok.h"
#include "base/utf8.h"
#include "text/pretok_rules.h"

#include <criterion/criterion.h>

static struct tr_pretok *open_rule(const char *name, bool jit)
{
    struct tr_errbuf err = {""};
    struct tr_pretok *p = tr_pretok_open((struct tr_str){name, strlen(name)}, jit, &err);

    cr_assert_not_null(p, "%s", err.msg);
    return p;
}

/* The words of text, joined by '|'. */
static void cut(const char *rule, const char *text, char out[256])
{
    struct tr_pretok *p = open_rule(rule, true);
    struct tr_pretok_run *r = tr_pretok_run_new(p);
    size_t len = strlen(text);
    size_t o = 0;

    for (size_t pos = 0, end; pos < len; pos = end) {
        cr_assert_eq(tr_pretok_next(p, r, text, len, pos, &end), 0);
        if (pos > 0)
            out[o++] = '|';
        memcpy(out + o, text + pos, end - pos);
        o += end - pos;
    }
    out[o] = 0;
    tr_pretok_run_free(r);
    tr_pretok_close(p);
}

static const struct {
    const char *rule;
    const char *text;
    const char *words;
} CASES[] = {
    {"gpt-2", "Hello  world", "Hello| | world"},
    {"gpt-2", "don't DON'T", "don|'t| DON|'|T"},
    {"gpt-2", "a 123 45", "a| 123| 45"},
    {"gpt-2", "x\n\n y\n", "x|\n\n| y|\n"},
    {"gpt-2", "hi!!  ", "hi|!!|  "},
    {"gpt-2", "caf\u00e9 e\u0301", "caf\u00e9| e|\u0301"},
    /* U+00A0 and U+3000 are blanks, U+180E and U+200B are not. */
    {"gpt-2", "a\u00a0b\u3000\u3000c", "a|\u00a0|b|\u3000|\u3000|c"},
    {"gpt-2", "a\u180eb\u200bc", "a|\u180e|b|\u200b|c"},
    {"gpt-2", "a\302\205z\034y", "a|\302\205|z|\034|y"},
    {"smollm", "12 34", "1|2| |3|4"},
    {"smollm", "a  1  b", "a|  |1| | b"},
    {"smollm", "x\u00b2\u2163", "x|\u00b2|\u2163"},
    {"smollm", "don't", "don|'t"},
    {"llama-bpe", "12345 a", "123|45| a"},
    {"llama-bpe", "DON'T I'll", "DON|'T| I|'ll"},
    {"llama-bpe", "(foo) \tbar", "(foo|)| |\tbar"},
    {"llama-bpe", "a \n\n b", "a| \n\n| b"},
    {"llama-bpe", "x!\n\ny", "x|!\n\n|y"},
    {"qwen2", "12345", "1|2|3|4|5"},
    {"qwen2", "a 1 (b", "a| |1| (|b"},
};

Test(pretok, words_are_cut_as_each_model_does)
{
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char got[256];
        cut(CASES[i].rule, CASES[i].text, got);
        cr_assert_str_eq(got, CASES[i].words, "%s of %s: %s", CASES[i].rule, CASES[i].text, got);
    }
}

Test(pretok, unknown_rules_are_refused_by_name)
{
    static const char *const NAMES[] = {"chameleon", "jina-v2-de", "", "gpt-2 ", "GPT-2"};

    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        struct tr_errbuf err = {""};
        cr_assert_null(tr_pretok_open((struct tr_str){NAMES[i], strlen(NAMES[i])}, true, &err));
        cr_assert_not_null(strstr(err.msg, NAMES[i]));
        cr_assert_not_null(strstr(err.msg, "pre-tokeniser"));
    }
}

static size_t random_text(uint64_t *seed, char *out, size_t max)
{
    static const char *const PARTS[] = {"a",          "B",      "'s",       "'LL",    "1",
                                        "\u00b2",     " ",      "  ",       "\n",     "\r\n",
                                        "\t",         "!",      "\u00e9",   "\u0301", "\u65e5",
                                        "\U0001f600", "\u00a0", "\u200b",   "\u180e", "\u2028",
                                        "\u017f",     "'",      "\302\205", "\x01",   "("};
    size_t len = 0;
    size_t want = tiny_rand(seed) % max;

    while (len < want) {
        const char *p = PARTS[tiny_rand(seed) % (sizeof(PARTS) / sizeof(PARTS[0]))];
        memcpy(out + len, p, strlen(p));
        len += strlen(p);
    }
    return len;
}

Test(pretok, interpreted_and_compiled_patterns_cut_alike)
{
    const struct tr_pretok_name *name;
    uint64_t seed = 3;

    for (size_t k = 0; (name = tr_pretok_name_at(k)); k++) {
        struct tr_pretok *fast = open_rule(name->name, true);
        struct tr_pretok *slow = open_rule(name->name, false);
        struct tr_pretok_run *rf = tr_pretok_run_new(fast);
        struct tr_pretok_run *rs = tr_pretok_run_new(slow);
        for (int round = 0; round < 500; round++) {
            char text[80];
            size_t len = random_text(&seed, text, 60);
            size_t a;
            size_t b;
            for (size_t pos = 0; pos < len; pos = a) {
                cr_assert_eq(tr_pretok_next(fast, rf, text, len, pos, &a), 0);
                cr_assert_eq(tr_pretok_next(slow, rs, text, len, pos, &b), 0);
                cr_assert_eq(a, b);
                cr_assert(a > pos && a <= len);
                cr_assert(name->rule->bytes_from || tr_utf8_is_valid(text + pos, a - pos),
                          "%s: whole characters", name->name);
            }
        }
        tr_pretok_run_free(rf);
        tr_pretok_run_free(rs);
        tr_pretok_close(fast);
        tr_pretok_close(slow);
    }
}

/* Long texts of one kind: neither way runs out of stack, heap or patience.  Time in the square of the
 * length would be hours. */
Test(pretok, long_runs_of_anything_are_cut_both_ways)
{
    static const char *const RUNS[] = {"a",  "A",  "1",      "_",       " ",      "\n",   "\t",
                                       "\r", "'",  "\u0301", "\u65e5",  "\u00e9", "\x01", "a ",
                                       "aA", "1 ", " \n",    "\u65e5A", "!a"};
    const struct tr_pretok_name *name;
    size_t max = 300000;
    char *text = malloc(max + 1);

    cr_assert_not_null(text);
    for (size_t k = 0; (name = tr_pretok_name_at(k)); k++) {
        if (k > 0 && name->rule == tr_pretok_name_at(k - 1)->rule)
            continue;
        for (int jit = 0; jit < 2; jit++) {
            struct tr_pretok *p = open_rule(name->name, jit);
            struct tr_pretok_run *r = tr_pretok_run_new(p);
            for (size_t i = 0; i < sizeof(RUNS) / sizeof(RUNS[0]); i++) {
                size_t one = strlen(RUNS[i]), len = (jit ? max : max / 10) / one * one;
                for (size_t at = 0; at < len; at += one)
                    memcpy(text + at, RUNS[i], one);
                text[len++] = 'x';
                for (size_t pos = 0, end; pos < len; pos = end)
                    cr_assert(tr_pretok_next(p, r, text, len, pos, &end) == 0 && end > pos,
                              "%s, %d, run %zu", name->name, jit, i);
            }
            tr_pretok_run_free(r);
            tr_pretok_close(p);
        }
    }
    free(text);
}
