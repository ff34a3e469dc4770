/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/ngram.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { CTX = 512, SLOTS = 16, PLACES = 3 };

static struct tr_ngram *g;
static uint32_t ids[CTX];

static void setup(void)
{
    g = tr_ngram_new(PLACES, SLOTS, CTX, NULL);
    srand(1);
}

static void teardown(void)
{
    tr_ngram_free(g);
}

TestSuite(ngram, .init = setup, .fini = teardown);

/* A letter is a token. */
static struct tr_guess look(uint32_t slot, uint32_t gen, const char *text)
{
    uint32_t n = (uint32_t)strlen(text);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (unsigned char)text[i];
    return tr_ngram_look(g, slot, gen, ids, n);
}

static bool says(struct tr_guess u, const char *text)
{
    for (uint32_t i = 0; text[i]; i++)
        if (i >= u.n || u.ids[i] != (unsigned char)text[i])
            return false;
    return true;
}

Test(ngram, what_never_stood_there_is_no_guess)
{
    cr_assert_eq(look(0, 1, "a").n, 0);
    cr_assert_eq(look(1, 1, "abcdefgh").n, 0);
    cr_assert_eq(look(2, 1, "xaybza").n, 0, "one token alone says nothing");
}

Test(ngram, what_followed_the_same_tokens_is_the_guess)
{
    struct tr_guess u = look(0, 1, "the quick brown fox, the qu");
    cr_assert_eq(u.n, TR_GUESS_MAX);
    cr_assert(says(u, "ick brow"));
}

Test(ngram, the_longest_suffix_wins_over_the_latest)
{
    cr_assert(says(look(0, 1, "abcdX_cdY_abcd"), "X"));
    cr_assert(says(look(1, 1, "cdX_cdY_cd"), "Y"), "of equal ones the latest");
}

Test(ngram, a_period_goes_on_beyond_the_last_token)
{
    cr_assert(says(look(0, 1, "....abab"), "abababab"));
    cr_assert(says(look(1, 1, "xaaa"), "aaaaaaaa"));
    cr_assert(says(look(2, 1, "-abcdeabcde"), "abcdeabc"));
}

Test(ngram, another_generation_of_the_slot_knows_nothing_of_the_one_before)
{
    look(4, 1, "secret secret");
    cr_assert_eq(look(4, 2, "ab sec").n, 0);
    cr_assert(says(look(4, 2, "ab secab sec"), "ab sec"));
}

/* What an index that has seen every token alone says, one that comes to them in pieces says, and one
 * that lost its place in between. */
Test(ngram, a_place_that_was_taken_away_is_made_again_from_the_tokens)
{
    static uint32_t seq[SLOTS][CTX];
    struct tr_ngram *fresh;
    for (uint32_t s = 0; s < SLOTS; s++)
        for (uint32_t i = 0; i < CTX; i++)
            seq[s][i] = (uint32_t)rand() % 5;
    for (uint32_t round = 0; round < 400; round++) {
        uint32_t s = (uint32_t)rand() % SLOTS, n = 1 + round;
        struct tr_guess got = tr_ngram_look(g, s, 7, seq[s], n);
        fresh = tr_ngram_new(1, SLOTS, CTX, NULL);
        struct tr_guess want = tr_ngram_look(fresh, s, 1, seq[s], n);
        cr_assert_eq(got.n, want.n);
        for (uint32_t i = 0; i < got.n; i++)
            cr_assert_eq(got.ids[i], want.ids[i], "round %u", round);
        tr_ngram_free(fresh);
    }
}

Test(ngram, sequences_of_one_step_keep_their_guesses)
{
    struct tr_guess a = look(3, 1, "abcdabcd"), b = look(9, 1, "xyxyxy"), c = look(5, 1, "pqrpqr");
    cr_assert(says(a, "abcdabcd") && says(b, "xyxy") && says(c, "pqrpqr"));
}

Test(ngram, the_estimate_follows_what_came)
{
    static uint32_t same[CTX], other[CTX];
    float p = 0, q = 1;
    for (uint32_t i = 0; i < CTX; i++) {
        same[i] = i % 7;
        other[i] =
            i < 100 || i % 10 < 5 ? i % 10 : 100 + i; /* five that repeat, five that never do */
    }
    for (uint32_t n = 120; n < CTX; n++) {
        p = tr_ngram_look(g, 0, 1, same, n).p;
        struct tr_guess u = tr_ngram_look(g, 1, 1, other, n);
        q = u.n ? u.p : q;
    }
    cr_assert_gt(p, 0.95);
    cr_assert_lt(q, 0.7);
}

/* Learnt from guesses that nobody tried, too: the next look tells. */
Test(ngram, a_new_sequence_in_a_place_begins_with_the_first_estimate)
{
    float before = look(0, 1, "abab").p;
    for (uint32_t n = 4; n < 60; n++) {
        for (uint32_t i = 0; i < n; i++)
            ids[i] = i % 2;
        tr_ngram_look(g, 0, 2, ids, n);
    }
    cr_assert_eq(look(0, 3, "abab").p, before);
}

Test(ngram, tokens_may_be_anything)
{
    ids[0] = ids[2] = UINT32_MAX;
    ids[1] = ids[3] = 0;
    struct tr_guess u = tr_ngram_look(g, 0, UINT32_MAX, ids, 4);
    cr_assert(u.n == TR_GUESS_MAX && u.ids[0] == UINT32_MAX && u.ids[1] == 0);
}
