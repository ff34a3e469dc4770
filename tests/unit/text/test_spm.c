/* SPDX-License-Identifier: Apache-2.0 */
#include "testlib/tiny_spm.h"
#include "text/encode.h"
#include "text/scan.h"
#include "text/spm.h"
#include "text/vocab_priv.h"

#include <criterion/criterion.h>

#define B "\u2581"

enum { CONTROL = 3, USER = 4, UNUSED = 5 };

static const struct tiny_piece PIECES[] = {
    {"a", -10, 0},  {"b", -10, 0},           {"c", -10, 0},          {B, -10, 0},
    {"ab", -2, 0},  {"bc", -1, 0},           {"abc", -5, 0},         {B "a", -3, 0},
    {"aa", -4, 0},  {"aaaa", -6, 0},         {"\u00e9", -10, 0},     {"c" B "c", -7, 0},
    {"c" B, -8, 0}, {"<turn>", -1, CONTROL}, {"<tag>", -1, USER},    {"ba", -1, UNUSED},
    {"a b", -1, 0}, {"\n\n", -1, USER},      {"\u65e5\u00e9", 0, 0}, {NULL, 0, 0}};

enum {
    A = TINY_SPM_PIECE,
    BB,
    C,
    BLANK,
    AB,
    BC,
    ABC,
    BLANK_A,
    AA,
    AAAA,
    E_ACUTE,
    C_BLANK_C,
    C_BLANK,
    TURN,
    TAG,
    UNUSED_BA,
    RAW,
    NEWLINES,
    SUN_E
};

#define BYTE(b) (TINY_SPM_BYTE + (b))

static struct tr_vocab *vocab(const struct tiny_spm *t)
{
    struct tr_errbuf err = {""};
    struct tr_vocab *v = tiny_spm_open(t, &err);

    cr_assert_not_null(v, "%s", err.msg);
    return v;
}

static struct tr_vocab *plain(void)
{
    return vocab(&(struct tiny_spm){.pieces = PIECES, .no_prefix = true});
}

static void gives_n(const struct tr_vocab *v, const char *text, size_t len, bool parse,
                    const int32_t *want, size_t n_want)
{
    int32_t got[64];
    size_t n = 0;

    cr_assert_eq(tr_encode(v, text, len, parse, got, 64, &n), 0);
    cr_assert_eq(n, n_want, "\"%s\" gives %zu ids", text, n);
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(got[i], want[i], "\"%s\": id %zu is %d", text, i, got[i]);
}

#define GIVES(v, text, parse, ...)                                                                 \
    gives_n(v, text, sizeof(text) - 1, parse, (int32_t[]){__VA_ARGS__},                            \
            sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

Test(spm, the_highest_score_wins_and_the_leftmost_of_equals)
{
    struct tr_vocab *v = plain();

    GIVES(v, "ab", false, AB);
    GIVES(v, "abc", false, ABC); /* by bc, which comes before ab: a + bc is a piece too */
    GIVES(v, "abcc", false, ABC, C);
    GIVES(v, "aaa", false, AA, A);
    GIVES(v, "aaaaaa", false, AAAA, AA);
    GIVES(v, "aab", false, A, AB);
    tr_vocab_close(v);
}

Test(spm, a_pair_whose_left_half_has_gone_is_forgotten)
{
    static const struct tiny_piece CHAIN[] = {
        {"ab", -1, 0}, {"bc", -2, 0}, {"de", -3, 0}, {"cde", -4, 0}, {NULL, 0, 0}};
    struct tr_vocab *v = vocab(&(struct tiny_spm){.pieces = CHAIN, .no_prefix = true});

    GIVES(v, "abcde", false, TINY_SPM_PIECE, TINY_SPM_PIECE + 3);
    tr_vocab_close(v);
}

Test(spm, of_two_tokens_for_a_byte_the_first_counts)
{
    static const struct tiny_piece TWICE[] = {{"<0x41>", 0, 6}, {NULL, 0, 0}};
    struct tr_vocab *v = vocab(&(struct tiny_spm){.pieces = TWICE, .no_prefix = true});

    GIVES(v, "A", false, BYTE('A'));
    tr_vocab_close(v);
}

Test(spm, a_blank_is_a_character_like_others_and_so_is_its_mark)
{
    struct tr_vocab *v = plain();
    size_t len;

    GIVES(v, " a", false, BLANK_A);
    GIVES(v, B "a", false, BLANK_A);
    GIVES(v, "b a b", false, BB, BLANK_A, BLANK, BB);
    GIVES(v, "a b", false, A, BLANK, BB); /* a piece with a plain blank in the file is never made */
    const char *p = tr_vocab_bytes(v, BLANK_A, &len);
    cr_assert(len == 2 && memcmp(p, " a", 2) == 0);
    tr_vocab_close(v);
}

Test(spm, words_are_joined_across_a_blank_where_a_piece_has_one_inside)
{
    struct tr_vocab *v = plain();

    GIVES(v, "c c", false, C_BLANK_C);
    GIVES(v, "bc c", false, BC, BLANK, C); /* bc is made first */
    GIVES(v, "c a", false, C, BLANK_A);
    tr_vocab_close(v);
}

Test(spm, a_character_without_a_piece_becomes_its_bytes)
{
    struct tr_vocab *v = plain();

    GIVES(v, "a\xf0\x9f\x98\x80", false, A, BYTE(0xf0), BYTE(0x9f), BYTE(0x98), BYTE(0x80));
    GIVES(v, "\u65e5", false, BYTE(0xe6), BYTE(0x97), BYTE(0xa5));
    GIVES(v, "\u65e5\u00e9", false, SUN_E); /* but takes part in joining */
    GIVES(v, "<0x41>", false, BYTE('<'), BYTE('0'), BYTE('x'), BYTE('4'), BYTE('1'), BYTE('>'));
    GIVES(v, "\xff\xc3\xa9", false, BYTE(0xff), E_ACUTE);
    GIVES(v, "\0a", false, BYTE(0), A);
    tr_vocab_close(v);
}

Test(spm, without_bytes_a_run_of_unknown_characters_is_one_unknown_token)
{
    static const struct tiny_piece FEW[] = {{"a", 0, 0}, {B, 0, 0}, {"<t>", 0, USER}, {NULL, 0, 0}};
    struct tr_vocab *v =
        vocab(&(struct tiny_spm){.pieces = FEW, .no_bytes = true, .no_prefix = true});

    GIVES(v, "axya", false, 3, 0, 3);
    GIVES(v, "x y", false, 0, 4, 0);
    GIVES(v, "x<t>y", false, 0, 5, 0);
    cr_assert(tr_vocab_is_control(v, 0));
    tr_vocab_close(v);
}

Test(spm, special_and_unused_pieces_are_not_made_by_joining)
{
    struct tr_vocab *v = plain();
    int32_t got[16];
    size_t n = 0;

    GIVES(v, "ba", false, BB, A);
    cr_assert_eq(tr_encode(v, "<turn>", 6, false, got, 16, &n), 0);
    cr_assert_eq(n, 6, "typed by a user it is text");
    GIVES(v, "a<turn>a", true, A, TURN, A);
    GIVES(v, "a<tag>a", false, A, TAG, A);
    GIVES(v, "a\n\n\nb", false, A, NEWLINES, BYTE('\n'), BB);
    tr_vocab_close(v);
}

Test(spm, a_text_gets_a_blank_in_front_if_the_file_wants_it)
{
    struct tr_vocab *v = vocab(&(struct tiny_spm){.pieces = PIECES});

    cr_assert(tr_vocab_space_prefix(v), "a file that does not say wants it");
    cr_assert(tr_vocab_add_bos(v), "and a BOS");
    GIVES(v, "a", false, BLANK_A);
    GIVES(v, " a", false, BLANK, BLANK_A);
    GIVES(v, "b", false, BLANK, BB);
    GIVES(v, "<turn>a<turn>", true, TURN, BLANK_A, TURN);
    GIVES(v, "a<tag>a", false, BLANK_A, TAG, A); /* it goes on behind user-defined text */
    GIVES(v, "<tag>a", false, BLANK, TAG, A);
    gives_n(v, "", 0, true, NULL, 0);
    tr_vocab_close(v);
}

Test(spm, extra_blanks_are_removed_if_the_file_wants_it)
{
    struct tr_vocab *v =
        vocab(&(struct tiny_spm){.pieces = PIECES, .no_prefix = true, .squeeze = true});

    GIVES(v, "  b   a ", false, BB, BLANK_A);
    GIVES(v, "b <turn> b", true, BB, TURN, BB);
    GIVES(v, "b <tag> b", true, BB, BLANK, TAG, BLANK, BB);
    gives_n(v, "   ", 3, true, NULL, 0);
    tr_vocab_close(v);
    v = vocab(&(struct tiny_spm){.pieces = PIECES, .squeeze = true});
    GIVES(v, "  a  ", false, BLANK_A);
    gives_n(v, "   ", 3, true, NULL, 0);
    tr_vocab_close(v);
}

/* The piece that joining may make of these bytes, as an index of PIECES; -1: none. */
static int piece_of(const struct tr_vocab *v, const char *text, size_t len)
{
    for (int k = 0; PIECES[k].text; k++) {
        size_t plen;
        const char *p = tr_vocab_bytes(v, A + k, &plen);
        if (PIECES[k].type == 0 && A + k != RAW && plen == len && memcmp(text, p, len) == 0)
            return k;
    }
    return -1;
}

/* As it is defined: look at all neighbours, join the best, start again. */
static size_t slow(const struct tr_vocab *v, const char *text, size_t len, int32_t *ids)
{
    size_t at[64];
    size_t n = 0;
    size_t n_ids = 0;

    for (size_t i = 0; i < len; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            at[n++] = i;
    at[n] = len;
    for (;;) {
        size_t best = n;
        float score = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            int k = piece_of(v, text + at[i], at[i + 2] - at[i]);
            if (k >= 0 && (best == n || PIECES[k].score > score)) {
                best = i;
                score = PIECES[k].score;
            }
        }
        if (best == n)
            break;
        memmove(at + best + 1, at + best + 2, (n - best - 1) * sizeof(*at));
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        int k = piece_of(v, text + at[i], at[i + 1] - at[i]);
        for (size_t j = at[i]; k < 0 && j < at[i + 1]; j++)
            ids[n_ids++] = BYTE((unsigned char)text[j]);
        if (k >= 0)
            ids[n_ids++] = A + k;
    }
    return n_ids;
}

Test(spm, any_text_is_joined_as_the_definition_says)
{
    static const char *const CHARS[] = {"a", "a", "b", "c", " ", "\u00e9", "x", "\u65e5"};
    struct tr_vocab *v = plain();
    uint64_t seed = 3;

    for (int round = 0; round < 4000; round++) {
        char text[64];
        int32_t want[64];
        int32_t got[64];
        size_t len = 0;
        size_t n = 0;
        for (size_t k = tiny_rand(&seed) % 20; k > 0; k--) {
            const char *c = CHARS[tiny_rand(&seed) % 8];
            memcpy(text + len, c, strlen(c));
            len += strlen(c);
        }
        text[len] = 0;
        size_t n_want = slow(v, text, len, want);
        cr_assert_eq(tr_encode(v, text, len, false, got, 64, &n), 0);
        cr_assert_eq(n, n_want, "\"%s\"", text);
        cr_assert(memcmp(got, want, n * sizeof(*got)) == 0, "\"%s\"", text);
    }
    tr_vocab_close(v);
}

Test(spm, work_grows_almost_linearly_with_the_text)
{
    struct tr_vocab *v = plain();
    size_t len = 400000;
    char *text = malloc(len);
    uint64_t seed = 9;

    cr_assert_not_null(text);
    for (int kind = 0; kind < 2; kind++) {
        uint64_t steps[2];
        for (size_t i = 0; i < len; i++)
            text[i] = kind ? (char)('a' + tiny_rand(&seed) % 3) : 'a';
        for (size_t k = 0; k < 2; k++) {
            struct tr_spm_run run = {0};
            struct tr_ids out = {0};
            cr_assert_eq(tr_spm_text(v->spm, &run, text, k ? len : len / 2, true, &out), 0);
            steps[k] = run.pairs.steps;
            tr_spm_run_fini(&run);
        }
        cr_assert(steps[1] < steps[0] * 5 / 2, "%llu, then %llu", (unsigned long long)steps[0],
                  (unsigned long long)steps[1]);
        cr_assert(steps[1] < len * 60);
    }
    free(text);
    tr_vocab_close(v);
}

Test(spm, a_character_of_byte_tokens_comes_out_whole)
{
    struct tr_vocab *v = plain();
    struct tr_str stop = {"\u00e9!", 3};
    struct tr_stopset *stops = NULL;
    struct tr_scan s;
    char out[TR_SCAN_TEXT_MAX];
    size_t len;

    cr_assert_eq(tr_stopset_open(&stop, 1, &stops), 0);
    tr_scan_init(&s, v, stops, true);
    cr_assert(tr_scan_push(&s, BYTE(0xe6), out, &len) == 0 && len == 0);
    cr_assert(tr_scan_push(&s, TURN, out, &len) == 0 && len == 0);
    cr_assert(tr_scan_push(&s, BYTE(0x97), out, &len) == 0 && len == 0);
    cr_assert(tr_scan_push(&s, BYTE(0xa5), out, &len) == 0 && len == 3);
    cr_assert(tr_scan_push(&s, BYTE(0xc3), out, &len) == 0 && len == 0);
    cr_assert(tr_scan_push(&s, A, out, &len) == 0 && len == 4, "U+FFFD and the letter");
    /* A stop string whose first character comes by bytes. */
    cr_assert(tr_scan_push(&s, BYTE(0xc3), out, &len) == 0 && len == 0);
    cr_assert(tr_scan_push(&s, BYTE(0xa9), out, &len) == 0 && len == 0);
    cr_assert_eq(tr_scan_push(&s, BYTE('!'), out, &len), TR_SCAN_STOPPED);
    cr_assert_eq(len, 0);
    tr_stopset_close(stops);
    tr_vocab_close(v);
}

static void spells(const struct tr_vocab *v, bool begins, const int32_t *ids, size_t n,
                   const char *want)
{
    char out[64 + TR_DETOK_TEXT_MAX];
    size_t o = 0;
    size_t len;
    struct tr_detok d;

    tr_detok_init(&d, v, true);
    if (begins)
        tr_detok_begins(&d);
    for (size_t i = 0; i < n; i++, o += len)
        cr_assert_eq(tr_detok_push(&d, ids[i], out + o, &len), 0);
    out[o] = 0;
    cr_assert_str_eq(out, want);
}

Test(spm, the_blank_in_front_is_taken_away_from_a_whole_text_only)
{
    struct tr_vocab *with = vocab(&(struct tiny_spm){.pieces = PIECES});
    struct tr_vocab *without = plain();
    static const int32_t IDS[] = {1, BLANK_A, BLANK, BLANK_A};

    spells(with, true, IDS, 4, "a  a");
    spells(with, false, IDS, 4, " a  a"); /* an answer: the model wrote it */
    spells(without, true, IDS, 4, " a  a");
    spells(with, true, IDS + 2, 2, " a");
    spells(with, true, (int32_t[]){A, BLANK_A}, 2, "a a");
    tr_vocab_close(with);
    tr_vocab_close(without);
}

static struct tr_errbuf refusal(const struct tiny_piece *pieces, void (*more)(struct tr_gw *w))
{
    struct tr_errbuf err = {""};

    cr_assert_null(tiny_spm_open(&(struct tiny_spm){.pieces = pieces, .more = more}, &err));
    return err;
}

static void charsmap(struct tr_gw *w)
{
    uint8_t none[12] = {0};

    tr_gw_kv(w, "tokenizer.ggml.precompiled_charsmap", TR_GGUF_ARRAY, none, sizeof(none));
}

static void number_for_flag(struct tr_gw *w)
{
    tr_gw_u32(w, "tokenizer.ggml.add_space_prefix", 1);
}

Test(spm, a_wrong_file_is_refused_by_name)
{
    static const struct tiny_piece NO_BYTE[] = {{"<0x4G>", 0, 6}, {NULL, 0, 0}};
    static const struct tiny_piece NO_NUMBER[] = {{"a", __builtin_nanf(""), 0}, {NULL, 0, 0}};

    cr_assert_not_null(strstr(refusal(NO_BYTE, NULL).msg, "tokens[259]"));
    cr_assert_not_null(strstr(refusal(NO_NUMBER, NULL).msg, "scores[259]"));
    cr_assert_not_null(strstr(refusal(PIECES, charsmap).msg, "precompiled_charsmap"));
    cr_assert_not_null(strstr(refusal(PIECES, number_for_flag).msg, "add_space_prefix"));
}

Test(spm, a_byte_is_written_in_one_way)
{
    cr_assert_eq(tr_spm_byte("<0x0A>", 6), 10);
    cr_assert_eq(tr_spm_byte("<0xfF>", 6), 255);
    cr_assert_eq(tr_spm_byte("<0x0A>", 5), -1);
    cr_assert_eq(tr_spm_byte("<0x0A)", 6), -1);
    cr_assert_eq(tr_spm_byte("<0xG0>", 6), -1);
    cr_assert_eq(tr_spm_byte("[0x00>", 6), -1);
}
