/* SPDX-License-Identifier: Apache-2.0 */
#include "testlib/tiny_vocab.h"
#include "text/bpe.h"
#include "text/vocab_priv.h"

#include <criterion/criterion.h>
#include <stdio.h>

/* In GPT-2's alphabet; U+0120 is a blank. */
static const char *const MERGES[] = {"a b",      "b c",           "ab c", "a a",
                                     "aa aa",    "aaaa aaaa",     "c d",  "bc d",
                                     "\u0120 a", "\u00c3 \u00a9", NULL};

static struct tr_vocab *vocab_of(const char *pre, const char *const *merges)
{
    struct tiny t = {.pre = pre, .merges = merges};
    struct tr_errbuf err = {""};
    struct tr_vocab *v = tiny_open(&t, &err);

    cr_assert_not_null(v, "%s", err.msg);
    return v;
}

static struct tr_vocab *vocab(const char *pre)
{
    return vocab_of(pre, MERGES);
}

/* The merges as they are defined: look at all pairs, join the best, start again. */
static size_t slow(const struct tr_vocab *v, const char *const *merges, const char *word,
                   size_t len, int32_t *ids)
{
    size_t n = 0, n_merges = 0;

    while (merges[n_merges])
        n_merges++;
    for (size_t i = 0; i < len; i++)
        if (word[i] != TINY_MISSING)
            ids[n++] = (unsigned char)word[i];
    for (;;) {
        size_t best = n_merges;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            for (size_t m = 0; m < best; m++) {
                char both[64];
                char l[64];
                char r[64];
                size_t ll;
                size_t lr;
                sscanf(merges[m], "%63s %63s", l, r);
                ptrdiff_t nl = tr_bpe_unmap(l, strlen(l), both);
                ptrdiff_t nr = tr_bpe_unmap(r, strlen(r), both + nl);
                const char *pl = tr_vocab_bytes(v, ids[i], &ll);
                const char *pr = tr_vocab_bytes(v, ids[i + 1], &lr);
                if (ll == (size_t)nl && lr == (size_t)nr && !memcmp(pl, both, ll) &&
                    !memcmp(pr, both + nl, lr)) {
                    best = m;
                    at = i;
                }
            }
        if (best == n_merges)
            return n;
        ids[at] = 256 + (int32_t)best;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof(*ids));
        n--;
    }
}

Test(bpe, any_word_is_merged_as_the_definition_says)
{
    struct tr_vocab *v = vocab(NULL);
    struct tr_bpe_run run = {0};
    uint64_t seed = 5;

    for (int round = 0; round < 4000; round++) {
        static const char BYTES[] = {'a', 'a', 'a',    'b',    'c',
                                     'd', ' ', '\xc3', '\xa9', TINY_MISSING};
        char word[40];
        int32_t want[40];
        int32_t got[40];
        struct tr_ids out = {got, 40, 0};
        size_t len = tiny_rand(&seed) % sizeof(word);
        for (size_t i = 0; i < len; i++)
            word[i] = BYTES[tiny_rand(&seed) % sizeof(BYTES)];
        size_t n = slow(v, MERGES, word, len, want);
        cr_assert_eq(tr_bpe_word(v->bpe, &run, word, len, &out), 0);
        cr_assert_eq(out.n, n);
        cr_assert(memcmp(got, want, n * sizeof(*got)) == 0);
    }
    tr_bpe_run_fini(&run);
    tr_vocab_close(v);
}

/* Runs of one byte go another way than other words. */
Test(bpe, a_run_of_one_byte_is_merged_as_the_definition_says)
{
    /* The last of them make pairs that go before those they come from. */
    static const char *const lists[][6] = {{"a a", "aa aa", "aaaa aaaa", NULL},
                                           {"a a", "aa a", "aaa aa", NULL},
                                           {"a a", "aa aa", "aa a", "aaaa aa", NULL},
                                           {"aa a", "a a", NULL},
                                           {"aa aa", "a a", NULL},
                                           {"aaa a", "aa a", "a a", "aaaa aa", NULL},
                                           {"aaa a", "a a", "aa a", "aaaa aaaa", NULL}};

    for (size_t k = 0; k < sizeof(lists) / sizeof(lists[0]); k++) {
        struct tr_vocab *v = vocab_of(NULL, lists[k]);
        struct tr_bpe_run run = {0};
        char word[150];
        int32_t want[150], got[150];
        memset(word, 'a', sizeof(word));
        for (size_t len = 60; len <= sizeof(word); len += 1 + len % 7) {
            struct tr_ids out = {got, 150, 0};
            size_t n = slow(v, lists[k], word, len, want);
            cr_assert_eq(tr_bpe_word(v->bpe, &run, word, len, &out), 0);
            cr_assert_eq(out.n, n, "list %zu, %zu bytes", k, len);
            cr_assert(memcmp(got, want, n * sizeof(*got)) == 0, "list %zu, %zu bytes", k, len);
        }
        tr_bpe_run_fini(&run);
        tr_vocab_close(v);
    }
}

static void word_is(const struct tr_vocab *v, const char *word, const int32_t *want, size_t n)
{
    struct tr_bpe_run run = {0};
    int32_t got[64];
    struct tr_ids out = {got, 64, 0};

    cr_assert_eq(tr_bpe_word(v->bpe, &run, word, strlen(word), &out), 0);
    cr_assert_eq(out.n, n, "%s", word);
    cr_assert(memcmp(got, want, n * sizeof(*got)) == 0, "%s", word);
    tr_bpe_run_fini(&run);
}

Test(bpe, the_lowest_rank_wins_and_the_leftmost_of_equals)
{
    struct tr_vocab *v = vocab(NULL);

    word_is(v, "abcd", (int32_t[]){258, 'd'}, 2); /* ab, then abc; c d comes too late */
    word_is(v, "bcd", (int32_t[]){263}, 1);       /* bc, bcd */
    word_is(v, "aaa", (int32_t[]){259, 'a'}, 2);  /* from the left */
    word_is(v, "aaab", (int32_t[]){259, 256}, 2); /* a b before a a */
    word_is(v, " a", (int32_t[]){264}, 1);
    word_is(v, "\xc3\xa9", (int32_t[]){265}, 1);
    tr_vocab_close(v);
}

Test(bpe, a_byte_without_a_piece_is_left_out_and_its_neighbours_meet)
{
    struct tr_vocab *v = vocab(NULL);

    word_is(v, "\x04", (int32_t[]){0}, 0);
    word_is(v,
            "a\x04"
            "b",
            (int32_t[]){256}, 1);
    tr_vocab_close(v);
}

Test(bpe, llama_takes_a_word_that_is_a_piece_as_it_is)
{
    struct tr_vocab *gpt2 = vocab("gpt-2");
    struct tr_vocab *llama = vocab("llama-bpe");

    /* "cd" is a piece, but "bcd" is reached by b c + d; "aaaaaaaa" needs three rounds. */
    word_is(gpt2, "aaaaaaaa", (int32_t[]){261}, 1);
    word_is(llama, "aaaaaaaa", (int32_t[]){261}, 1);
    word_is(llama, "bcd", (int32_t[]){263}, 1);
    tr_vocab_close(gpt2);
    tr_vocab_close(llama);
}

/* What the time grows with is counted, so that the bound does not depend on the machine. */
Test(bpe, work_grows_almost_linearly_with_the_word)
{
    struct tr_vocab *v = vocab(NULL);
    size_t len = 1000000;
    char *word = malloc(len);
    uint64_t seed = 9;

    cr_assert_not_null(word);
    for (int kind = 0; kind < 2; kind++) {
        uint64_t steps[2];
        for (size_t i = 0; i < len; i++)
            word[i] = kind ? (char)('a' + tiny_rand(&seed) % 4) : 'a';
        word[0] = 'd'; /* one byte alone is another way */
        for (size_t k = 0; k < 2; k++) {
            struct tr_bpe_run run = {0};
            struct tr_ids out = {0};
            cr_assert_eq(tr_bpe_word(v->bpe, &run, word, k ? len : len / 2, &out), 0);
            steps[k] = run.pairs.steps;
            tr_bpe_run_fini(&run);
        }
        cr_assert(steps[1] < steps[0] * 5 / 2, "%llu, then %llu", (unsigned long long)steps[0],
                  (unsigned long long)steps[1]);
        cr_assert(steps[1] < len * 60);
    }
    free(word);
    tr_vocab_close(v);
}

Test(bpe, the_alphabet_has_each_byte_once)
{
    bool seen[256] = {false};

    for (unsigned b = 0; b < 256; b++) {
        char text[3];
        char out[2];
        tiny_map(b, text);
        cr_assert_eq(tr_bpe_unmap(text, strlen(text), out), 1);
        cr_assert_eq((unsigned char)out[0], b);
        seen[b] = true;
    }
    for (unsigned b = 0; b < 256; b++)
        cr_assert(seen[b]);
    char out[8];
    cr_assert_eq(tr_bpe_unmap(" ", 1, out), -1);
    cr_assert_eq(tr_bpe_unmap("\u0144", 2, out), -1);
    cr_assert_eq(tr_bpe_unmap("\u00ad", 2, out), -1);
    cr_assert_eq(tr_bpe_unmap("\u65e5", 3, out), -1);
    cr_assert_eq(tr_bpe_unmap("\xc4", 1, out), -1);
}
