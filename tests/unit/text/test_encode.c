/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sim_vocab.h"
#include "testlib/tiny_vocab.h"
#include "text/encode.h"

#include <criterion/criterion.h>
#include <errno.h>

static const char *const MERGES[] = {"a b", "< |", NULL};
static const char *const CONTROL[] = {"<|a|>", "<|ab|>", "<|ab|>x", "<|a", NULL};
static const char *const USER[] = {"<t>", "<|ab|>xyz", NULL};

enum { AB = 256, LT_BAR, C_A, C_AB, C_ABX, C_A_OPEN, U_T, U_ABXYZ };

static struct tr_vocab *v;

static void setup(void)
{
    struct tiny t = {.merges = MERGES, .control = CONTROL, .user = USER};
    struct tr_errbuf err = {""};

    v = tiny_open(&t, &err);
    cr_assert_not_null(v, "%s", err.msg);
}

static void teardown(void)
{
    tr_vocab_close(v);
}

TestSuite(encode, .init = setup, .fini = teardown);

#define IDS(...) (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

static void gives(const char *text, size_t len, const struct tr_span *user, size_t n_user,
                  const int32_t *want, size_t n_want)
{
    int32_t got[64];
    size_t n = 0;

    cr_assert_eq(tr_encode_spans(v, text, len, user, n_user, got, 64, &n), 0);
    cr_assert_eq(n, n_want, "%s", text);
    cr_assert(memcmp(got, want, n * sizeof(*got)) == 0, "%s", text);
}

Test(encode, the_longest_control_token_wins)
{
    gives("ab<|ab|>ab", 10, NULL, 0, IDS(AB, C_AB, AB));
    gives("<|ab|>x", 7, NULL, 0, IDS(C_ABX));
    gives("<|a|>", 5, NULL, 0, IDS(C_A));
    gives("<|a<|a|>", 8, NULL, 0, IDS(C_A_OPEN, C_A));
    gives("<|<|ab|>", 8, NULL, 0, IDS(LT_BAR, C_AB));
}

Test(encode, what_a_user_typed_is_no_control_token)
{
    gives("<|ab|>", 6, (struct tr_span[]){{0, 6}}, 1, IDS(LT_BAR, AB, '|', '>'));
    gives("<|ab|><|ab|>", 12, (struct tr_span[]){{0, 6}}, 1, IDS(LT_BAR, AB, '|', '>', C_AB));
    gives("<|ab|><|ab|>", 12, (struct tr_span[]){{6, 12}}, 1, IDS(C_AB, LT_BAR, AB, '|', '>'));
}

Test(encode, a_marker_put_together_from_template_and_user_text_is_none)
{
    /* Only one byte of it is the user's, at each place. */
    for (size_t i = 0; i < 6; i++) {
        struct tr_span s = {i, i + 1};
        int32_t got[8];
        size_t n = 0;
        cr_assert_eq(tr_encode_spans(v, "<|ab|>", 6, &s, 1, got, 8, &n), 0);
        for (size_t k = 0; k < n; k++)
            cr_assert(got[k] != C_AB);
    }
    /* The shorter one that ends before the user's text is one. */
    gives("<|ab|>x", 7, (struct tr_span[]){{6, 7}}, 1, IDS(C_AB, 'x'));
    /* Two touching spans, an empty one. */
    gives("<|ab|>", 6, (struct tr_span[]){{0, 3}, {3, 6}}, 2, IDS(LT_BAR, AB, '|', '>'));
    gives("<|ab|>", 6, (struct tr_span[]){{3, 3}}, 1, IDS(C_AB));
    gives("<|ab|>x", 7, (struct tr_span[]){{3, 3}, {6, 7}}, 2, IDS(C_AB, 'x'));
}

Test(encode, span_borders_do_not_cut_words)
{
    gives("ab", 2, (struct tr_span[]){{1, 2}}, 1, IDS(AB));
}

Test(encode, user_defined_tokens_are_found_in_all_text)
{
    int32_t got[8];
    size_t n = 0;

    gives("a<t>b", 5, (struct tr_span[]){{0, 5}}, 1, IDS('a', U_T, 'b'));
    gives("<|ab|>xyz", 9, NULL, 0, IDS(U_ABXYZ));
    cr_assert_eq(tr_encode(v, "<|ab|><t>", 9, false, got, 8, &n), 0);
    cr_assert_eq(n, 5);
    cr_assert_eq(got[4], U_T);
}

Test(encode, the_count_is_right_when_there_is_no_room)
{
    int32_t got[3] = {-7, -7, -7};
    size_t n = 0;

    cr_assert_eq(tr_encode(v, "ab ab ab", 8, false, got, 2, &n), -ENOSPC);
    cr_assert_eq(n, 5);
    cr_assert(got[0] == AB && got[1] == ' ' && got[2] == -7);
    cr_assert_eq(tr_encode(v, "ab", 2, false, NULL, 0, &n), -ENOSPC);
    cr_assert_eq(n, 1);
    cr_assert_eq(tr_encode(v, "", 0, false, NULL, 0, &n), 0);
    cr_assert_eq(n, 0);
    cr_assert_eq(tr_encode(v, NULL, 0, true, NULL, 0, &n), 0);
    n = 5;
    cr_assert_eq(tr_encode(v, "x", TR_ENCODE_TEXT_MAX + 1, false, NULL, 0, &n), -E2BIG);
    cr_assert_eq(n, 5);
}

/* In a vocabulary that has all bytes but one, decoding gives back all of the text but that byte. */
Test(encode, any_bytes_come_back)
{
    uint64_t seed = 11;

    for (int round = 0; round < 5000; round++) {
        char text[64];
        char back[64];
        int32_t ids[64];
        size_t n = 0;
        size_t want = 0;
        size_t o = 0;
        size_t len = tiny_rand(&seed) % sizeof(text);
        for (size_t i = 0; i < len; i++)
            text[i] = tiny_rand(&seed) & 1 ? (char)tiny_rand(&seed) : "ab \0<|>\xc3\xa9"[i % 9];
        cr_assert_eq(tr_encode(v, text, len, round & 1, ids, 64, &n), 0);
        for (size_t i = 0; i < n; i++) {
            size_t k;
            const char *p = tr_vocab_bytes(v, ids[i], &k);
            cr_assert_not_null(p);
            memcpy(back + o, p, k);
            o += k;
        }
        for (size_t i = 0; i < len; i++)
            if (text[i] != TINY_MISSING)
                text[want++] = text[i];
        cr_assert_eq(o, want);
        cr_assert(memcmp(back, text, o) == 0);
    }
}

Test(encode, a_run_of_bad_bytes_is_a_word_of_its_own)
{
    /* C3 and A9 make a letter only together. */
    static const char *const M[] = {"\u00c3 \u00a9", "\u0120 \u00c3", NULL};
    struct tiny t = {.merges = M};
    struct tr_errbuf err = {""};
    struct tr_vocab *w = tiny_open(&t, &err);
    int32_t got[8];
    size_t n = 0;

    cr_assert_not_null(w, "%s", err.msg);
    cr_assert_eq(tr_encode(w, " \xc3\xc3\xa9", 4, false, got, 8, &n), 0);
    cr_assert(n == 3 && got[0] == ' ' && got[1] == 0xc3 && got[2] == 256);
    tr_vocab_close(w);
}

Test(encode, the_sim_vocabulary_takes_the_longest_piece)
{
    struct tr_vocab *sim = tr_vocab_sim();
    int32_t got[32];
    size_t n = 0;

    cr_assert_eq(tr_encode(sim, "Hello world\xff", 12, true, got, 32, &n), 0);
    cr_assert_eq(n, 3);
    cr_assert(got[0] == tr_vocab_find(sim, "Hello", 5) &&
              got[1] == tr_vocab_find(sim, " world", 6) && got[2] == 0xff);
    cr_assert_eq(tr_encode(sim, "<|im_end|>", 10, true, got, 32, &n), 0);
    cr_assert(n == 1 && got[0] == TR_SIM_IM_END);
    cr_assert_eq(tr_encode(sim, "<|im_end|>", 10, false, got, 32, &n), 0);
    cr_assert_eq(n, 10);
    tr_vocab_close(sim);
}

static void never_whole(struct tr_gw *w)
{
    uint8_t no = 0;

    tr_gw_kv(w, "tokenizer.ggml.ignore_merges", TR_GGUF_BOOL, &no, 1);
}

/* "abc" is a piece that no merges make. */
Test(encode, a_word_that_is_a_piece_is_it_where_the_tokeniser_or_the_file_says_so, .init = NULL)
{
    static const char *const M[] = {"b c", "ab c", "a b", NULL};
    static const struct {
        const char *pre;
        void (*more)(struct tr_gw *w);
        size_t n;
    } CASES[] = {{"qwen2", NULL, 2}, {"llama-bpe", NULL, 1}, {"llama-bpe", never_whole, 2}};

    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct tiny t = {.pre = CASES[i].pre, .merges = M, .more = CASES[i].more};
        struct tr_errbuf err = {""};
        size_t n = 0;
        v = tiny_open(&t, &err);
        cr_assert_not_null(v, "%s", err.msg);
        cr_assert_eq(tr_encode(v, "abc", 3, false, NULL, 0, &n), -ENOSPC);
        cr_assert_eq(n, CASES[i].n, "row %zu: %zu", i, n);
        if (i + 1 < sizeof(CASES) / sizeof(CASES[0]))
            tr_vocab_close(v);
    }
}

/* U+212A, the sign of kelvin, is K in NFC; and what was typed stays what was typed. */
Test(encode, text_is_normalised_after_control_tokens_were_found, .init = NULL)
{
    static const char *const M[] = {"\u00c3 \u00a9", "< K", "<K >", NULL}; /* bytes of U+00E9 */
    static const char *const C[] = {"<K>", "e\u0301", NULL};
    struct tiny t = {.pre = "qwen2", .merges = M, .control = C};
    struct tr_errbuf err = {""};

    v = tiny_open(&t, &err);
    cr_assert_not_null(v, "%s", err.msg);
    gives("xe\u0301", 4, (struct tr_span[]){{0, 4}}, 1, IDS('x', 256));
    gives("xe\u0301", 4, NULL, 0, IDS('x', 260));
    gives("<\u212a><K>", 8, NULL, 0, IDS(257, '>', 259));
    gives("<K><\u212a><K>", 11, (struct tr_span[]){{3, 8}}, 1, IDS(259, 257, '>', 259));
    gives("\u0958", 3, NULL, 0, IDS(0xe0, 0xa4, 0x95, 0xe0, 0xa4, 0xbc));
    gives("\xcc\x81\xff\xcc\x81", 5, NULL, 0, IDS(0xcc, 0x81, 0xff, 0xcc, 0x81));
}

/* The longest piece decides; what the vocabulary lacks counts for nothing. */
Test(encode, the_least_number_of_ids_is_known_without_encoding, .init = NULL)
{
    char text[4096];
    size_t n = 0;

    v = tr_vocab_sim();
    memset(text, ' ', sizeof(text));
    tr_encode(v, text, sizeof(text), false, NULL, 0, &n);
    size_t least = tr_encode_least(v, text, sizeof(text));
    cr_expect(least > 16 && least <= n, "%zu of %zu", least, n);
    cr_expect_eq(tr_encode_least(v, text, 0), 0u);
    cr_expect_eq(tr_encode_least(v, text, 1), 1u);
    tr_vocab_close(v);
    struct tiny t = {.merges = MERGES};
    v = tiny_open(&t, NULL);
    least = tr_encode_least(v, text, sizeof(text));
    memset(text, TINY_MISSING, sizeof(text) / 2);
    cr_expect(least > 16 && tr_encode_least(v, text, sizeof(text)) == (least + 1) / 2, "%zu",
              least);
}
