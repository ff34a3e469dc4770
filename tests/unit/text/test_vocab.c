/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sim_vocab.h"
#include "testlib/tiny_vocab.h"

#include <criterion/criterion.h>

static const char *const MERGES[] = {"a b", "ab c", NULL};
static const char *const CONTROL[] = {"<|im_start|>", "<|im_end|>", "<|endoftext|>", NULL};
static const char *const USER[] = {"<think>", "<end_of_turn>", NULL};

enum { AB = 256, ABC, IM_START, IM_END, ENDOFTEXT, THINK, END_OF_TURN, SIZE };

static void specials(struct tr_gw *w)
{
    tr_gw_u32(w, "tokenizer.ggml.bos_token_id", IM_START);
    tr_gw_u32(w, "tokenizer.ggml.eos_token_id", IM_END);
    uint8_t yes = 1;
    tr_gw_kv(w, "tokenizer.ggml.add_bos_token", TR_GGUF_BOOL, &yes, 1);
    tr_gw_str(w, "tokenizer.chat_template", "{{ messages }}");
}

Test(vocab, what_the_file_says_is_there)
{
    struct tiny t = {.merges = MERGES, .control = CONTROL, .user = USER, .more = specials};
    struct tr_errbuf err = {""};
    struct tr_vocab *v = tiny_open(&t, &err);
    size_t len;

    cr_assert_not_null(v, "%s", err.msg);
    cr_assert_eq(tr_vocab_size(v), SIZE);
    cr_assert_str_eq(tr_vocab_model(v), "gpt2");
    cr_assert_eq(tr_vocab_bos(v), IM_START);
    cr_assert_eq(tr_vocab_eos(v), IM_END);
    cr_assert(tr_vocab_add_bos(v));
    cr_assert_str_eq(tr_vocab_chat_template(v, &len), "{{ messages }}");
    cr_assert_eq(len, 14);
    const char *p = tr_vocab_bytes(v, ABC, &len);
    cr_assert(len == 3 && memcmp(p, "abc", 3) == 0);
    p = tr_vocab_bytes(v, ' ', &len);
    cr_assert(len == 1 && *p == ' ', "the alphabet is undone");
    cr_assert_null(tr_vocab_bytes(v, SIZE, &len));
    cr_assert_eq(len, 0);
    cr_assert_null(tr_vocab_bytes(v, -1, &len));
    cr_assert_eq(tr_vocab_find(v, "ab", 2), AB);
    cr_assert_eq(tr_vocab_find(v, "<think>", 7), THINK);
    cr_assert_eq(tr_vocab_find(v, "nope", 4), -1);
    cr_assert_eq(tr_vocab_find(v, "", 0), -1);
    tr_vocab_close(v);
}

static void only_a_bos(struct tr_gw *w)
{
    tr_gw_u32(w, "tokenizer.ggml.bos_token_id", IM_START);
}

static void a_bos_and_no(struct tr_gw *w)
{
    uint8_t no = 0;

    only_a_bos(w);
    tr_gw_kv(w, "tokenizer.ggml.add_bos_token", TR_GGUF_BOOL, &no, 1);
}

Test(vocab, where_the_file_is_silent_its_tokeniser_tells_whether_prompts_begin_with_bos)
{
    static const struct {
        const char *pre;
        void (*more)(struct tr_gw *w);
        bool bos;
    } CASES[] = {{"gpt-2", only_a_bos, false},
                 {"llama-bpe", only_a_bos, true},
                 {"tekken", only_a_bos, true},
                 {"llama-bpe", a_bos_and_no, false},
                 {"llama-bpe", NULL, false}};

    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct tiny t = {
            .pre = CASES[i].pre, .control = CONTROL, .merges = MERGES, .more = CASES[i].more};
        struct tr_errbuf err = {""};
        struct tr_vocab *v = tiny_open(&t, &err);
        cr_assert_not_null(v, "%s", err.msg);
        cr_assert_eq(tr_vocab_add_bos(v), CASES[i].bos, "row %zu", i);
        tr_vocab_close(v);
    }
}

Test(vocab, control_tokens_and_ends_are_told_from_text)
{
    struct tiny t = {.merges = MERGES, .control = CONTROL, .user = USER, .more = specials};
    struct tr_errbuf err = {""};
    struct tr_vocab *v = tiny_open(&t, &err);
    int32_t ends[4];

    cr_assert_not_null(v, "%s", err.msg);
    cr_assert(tr_vocab_is_control(v, IM_START));
    cr_assert_not(tr_vocab_is_control(v, THINK));
    cr_assert_not(tr_vocab_is_control(v, 'a'));
    cr_assert_not(tr_vocab_is_control(v, -1));
    cr_assert_not(tr_vocab_is_eog(v, IM_START));
    cr_assert_not(tr_vocab_is_eog(v, SIZE));
    cr_assert_eq(tr_vocab_eog_ids(v, ends, 2), 3, "all are counted, two fit");
    cr_assert_eq(tr_vocab_eog_ids(v, ends, 4), 3);
    cr_assert(ends[0] == IM_END && ends[1] == ENDOFTEXT && ends[2] == END_OF_TURN);
    tr_vocab_close(v);
}

Test(vocab, an_end_by_name_that_is_ordinary_text_is_none)
{
    /* "<|eos|>" as a plain piece, by merges. */
    static const char *const M[] = {"< |", "<| e", "<|e o", "<|eo s", "<|eos |", "<|eos| >", NULL};
    struct tiny t = {.merges = M};
    struct tr_errbuf err = {""};
    struct tr_vocab *v = tiny_open(&t, &err);

    cr_assert_not_null(v, "%s", err.msg);
    cr_assert_eq(tr_vocab_find(v, "<|eos|>", 7), 261);
    cr_assert_not(tr_vocab_is_eog(v, 261));
    cr_assert_eq(tr_vocab_bos(v), -1);
    cr_assert_eq(tr_vocab_eos(v), -1);
    cr_assert_not(tr_vocab_add_bos(v));
    tr_vocab_close(v);
}

/* A file with three pieces whose keys can be replaced one by one. */
struct file {
    const char *model;
    const char *pre;
    const char *tokens[4];
    uint64_t n_tokens;
    const char *merges[3];
    uint64_t n_merges;
    int32_t types[4];
    uint64_t n_types;
    uint64_t n_scores;
    const char *id_key;
    int32_t id;
    const char *template;
};

static const struct file GOOD = {.model = "gpt2",
                                 .pre = "gpt-2",
                                 .tokens = {"a", "b", "ab"},
                                 .n_tokens = 3,
                                 .merges = {"a b"},
                                 .n_merges = 1,
                                 .types = {1, 1, 1},
                                 .n_types = 3,
                                 .n_scores = 3};

static struct tr_vocab *open_file(const struct file *f, struct tr_errbuf *err)
{
    struct tr_gw *w = tr_gw_new(3);
    uint8_t scores[12 + 4 * 4] = {TR_GGUF_F32};
    size_t len;

    memcpy(scores + 4, &f->n_scores, 8);
    if (f->model)
        tr_gw_str(w, "tokenizer.ggml.model", f->model);
    if (f->pre)
        tr_gw_str(w, "tokenizer.ggml.pre", f->pre);
    if (f->tokens[0])
        tr_gw_strs(w, "tokenizer.ggml.tokens", f->tokens, f->n_tokens);
    if (f->merges[0])
        tr_gw_strs(w, "tokenizer.ggml.merges", f->merges, f->n_merges);
    if (f->n_types)
        tiny_types(w, f->types, f->n_types);
    if (f->n_scores)
        tr_gw_kv(w, "tokenizer.ggml.scores", TR_GGUF_ARRAY, scores, 12 + 4 * f->n_scores);
    if (f->id_key)
        tr_gw_kv(w, f->id_key, TR_GGUF_I32, &f->id, 4);
    if (f->template)
        tr_gw_str(w, "tokenizer.chat_template", f->template);
    uint8_t *bytes = tr_gw_finish(w, &len);
    struct tr_gguf *g = tr_gguf_parse(bytes, len, "file", err);
    cr_assert_not_null(g, "%s", err->msg);
    struct tr_vocab *v = tr_vocab_open(g, err);
    tr_gguf_close(g);
    free(bytes);
    return v;
}

static void refused(const struct file *f, const char *because)
{
    struct tr_errbuf err = {""};

    cr_assert_null(open_file(f, &err), "not refused: %s", because);
    cr_assert_not_null(strstr(err.msg, because), "\"%s\" does not say \"%s\"", err.msg, because);
}

#define REFUSED(because, ...)                                                                      \
    do {                                                                                           \
        struct file f = GOOD;                                                                      \
        __VA_ARGS__;                                                                               \
        refused(&f, because);                                                                      \
    } while (0)

Test(vocab, the_least_file_is_taken)
{
    struct tr_errbuf err = {""};
    struct file f = GOOD;
    struct tr_vocab *v = open_file(&f, &err);

    cr_assert_not_null(v, "%s", err.msg);
    tr_vocab_close(v);
    f.n_types = f.n_scores = 0;
    f.tokens[3] = "<e>";
    f.n_tokens = 4;
    f.id_key = "tokenizer.ggml.eos_token_id";
    f.id = 3;
    v = open_file(&f, &err);
    cr_assert_not_null(v, "%s", err.msg);
    cr_assert(tr_vocab_is_control(v, 3), "a special token of a file without types");
    tr_vocab_close(v);
}

Test(vocab, a_wrong_file_is_refused_by_name)
{
    static char big[TR_VOCAB_PIECE_MAX + 2];

    memset(big, 'a', sizeof(big) - 1);
    REFUSED("no vocabulary", f.model = NULL);
    REFUSED("\"llam\"", f.model = "llam");
    REFUSED("no scores", f.model = "llama"; f.n_scores = 0);
    REFUSED("\"bert\"", f.model = "bert");
    REFUSED("tokenizer.ggml.pre", f.pre = NULL);
    REFUSED("\"chameleon\"", f.pre = "chameleon");
    REFUSED("\"superbpe\"", f.pre = "superbpe");
    REFUSED("tokenizer.ggml.tokens", f.tokens[0] = NULL);
    REFUSED("tokenizer.ggml.tokens has 0", f.n_tokens = 0);
    REFUSED("tokenizer.ggml.tokens[0]", f.tokens[0] = big);
    REFUSED("tokenizer.ggml.token_type has 2", f.n_types = 2);
    REFUSED("tokenizer.ggml.token_type has 4", f.n_types = 4; f.types[3] = 1);
    REFUSED("tokenizer.ggml.token_type[1]", f.types[1] = 7);
    REFUSED("tokenizer.ggml.token_type[1]", f.types[1] = -1);
    REFUSED("tokenizer.ggml.token_type[2]", f.types[2] = 0);
    REFUSED("tokenizer.ggml.scores has 4", f.n_scores = 4);
    REFUSED("tokenizer.ggml.merges", f.merges[0] = NULL);
    REFUSED("\"a c\"", f.merges[0] = "a c");
    REFUSED("\"b a\"", f.merges[0] = "b a");
    REFUSED("no pair", f.merges[0] = "ab");
    REFUSED("no pair", f.merges[0] = "");
    REFUSED("merges[0]", f.merges[0] = "a ");
    REFUSED("bos_token_id", f.id_key = "tokenizer.ggml.bos_token_id"; f.id = 3);
    REFUSED("eos_token_id", f.id_key = "tokenizer.ggml.eos_token_id"; f.id = -1);
    REFUSED("eot_token_id", f.id_key = "tokenizer.ggml.eot_token_id"; f.id = 1000000);
    REFUSED("add_bos_token", f.id_key = "tokenizer.ggml.add_bos_token"; f.id = 1);
    REFUSED("chat_template is not UTF-8", f.template = "{{\xff}}");
    REFUSED("chat_template is no string", f.id_key = "tokenizer.chat_template");
}

Test(vocab, control_pieces_take_no_part_in_merges)
{
    REFUSED("\"a b\"", f.types[2] = 3);
    REFUSED("\"a b\"", f.types[0] = 5);
}

Test(vocab, sim_has_stable_ids)
{
    struct tr_vocab *v = tr_vocab_sim();
    size_t len;
    int32_t ends[3];

    cr_assert_not_null(v);
    cr_assert_eq(tr_vocab_size(v), TR_SIM_VOCAB_SIZE);
    cr_assert_str_eq(tr_vocab_model(v), "sim");
    for (int32_t b = 0; b < 256; b++) {
        const char *p = tr_vocab_bytes(v, b, &len);
        cr_assert(len == 1 && (unsigned char)*p == b);
        cr_assert_not(tr_vocab_is_control(v, b));
    }
    cr_assert_eq(tr_vocab_find(v, "<|bos|>", 7), TR_SIM_BOS);
    cr_assert_eq(tr_vocab_find(v, "<|eos|>", 7), TR_SIM_EOS);
    cr_assert_eq(tr_vocab_find(v, "<|im_start|>", 12), TR_SIM_IM_START);
    cr_assert_eq(tr_vocab_find(v, "<|im_end|>", 10), TR_SIM_IM_END);
    cr_assert_eq(tr_vocab_find(v, " the", 4), TR_SIM_TEXT);
    cr_assert_eq(tr_vocab_eog_ids(v, ends, 3), 2);
    cr_assert(ends[0] == TR_SIM_EOS && ends[1] == TR_SIM_IM_END);
    cr_assert_eq(tr_vocab_bos(v), TR_SIM_BOS);
    cr_assert_eq(tr_vocab_eos(v), TR_SIM_EOS);
    cr_assert_not_null(tr_vocab_chat_template(v, &len));
    for (int32_t id = 0; id < TR_SIM_VOCAB_SIZE; id++) {
        const char *p = tr_vocab_bytes(v, id, &len);
        cr_assert_eq(tr_vocab_find(v, p, len), id, "no piece is there twice");
        cr_assert_eq(tr_vocab_is_control(v, id), id >= TR_SIM_BOS && id < TR_SIM_TEXT);
    }
    tr_vocab_close(v);
}
