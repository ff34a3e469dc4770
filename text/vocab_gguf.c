/* SPDX-License-Identifier: Apache-2.0 */
/* text/vocab_gguf.c - reads a vocabulary from the metadata of a GGUF file.  All of it is input. */
#include "text/bpe.h"
#include "text/nfc.h"
#include "text/pretok.h"
#include "text/pretok_rules.h"
#include "text/spm.h"
#include "base/utf8.h"
#include "text/vocab_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

/* Types of pieces as numbered in the file. */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

#define VOCAB_SIZE_MAX (1U << 24)

static const char GPT2[] = "gpt2";   /* byte-level BPE */
static const char LLAMA[] = "llama"; /* SentencePiece's BPE */

/* One of the two, or NULL. */
static const char *read_model(const struct tr_gguf *g, struct tr_errbuf *err)
{
    static const char *const KNOWN[] = {GPT2, LLAMA};
    struct tr_str model;
    int rc = tr_gguf_str(g, KEY("model"), &model);

    if (rc == -ENOENT) {
        tr_errf(err, 0, "the file has no vocabulary (tokenizer.ggml.model)");
        return NULL;
    }
    if (rc < 0) {
        tr_errf(err, 0, "tokenizer.ggml.model is no string");
        return NULL;
    }
    for (size_t i = 0; i < sizeof(KNOWN) / sizeof(KNOWN[0]); i++)
        if (model.len == strlen(KNOWN[i]) && memcmp(model.p, KNOWN[i], model.len) == 0)
            return KNOWN[i];
    int shown = model.len < 64 ? (int)model.len : 64;
    tr_errf(err, 0,
            "the tokenizer \"%.*s\" (tokenizer.ggml.model) is not supported; known are gpt2 and "
            "llama",
            shown, model.p);
    return NULL;
}

/* Copies the text of a piece to out; sets TR_PIECE_RAW in *flags. */
static size_t unmap_gpt2(struct tr_str s, uint8_t *flags, char *out)
{
    /* Names of control tokens and user-defined text are written as they are. */
    if (!(*flags & (TR_PIECE_CONTROL | TR_PIECE_USER))) {
        ptrdiff_t n = tr_bpe_unmap(s.p, s.len, out);
        if (n >= 0)
            return (size_t)n;
        *flags |= TR_PIECE_RAW;
    }
    memcpy(out, s.p, s.len);
    return s.len;
}

/* The same; user-defined text may have U+2581 or plain blanks. */
static size_t unmap_llama(struct tr_str s, uint8_t *flags, char *out)
{
    if (*flags & TR_PIECE_CONTROL) {
        memcpy(out, s.p, s.len);
        return s.len;
    }
    if (*flags & TR_PIECE_BYTE) {
        *out = (char)tr_spm_byte(s.p, s.len);
        return 1;
    }
    if (!(*flags & TR_PIECE_USER) && s.len > 0 && memchr(s.p, ' ', s.len))
        *flags |= TR_PIECE_RAW;
    return tr_spm_unmap(s.p, s.len, out);
}

/* An empty vocabulary with room for the pieces of the file. */
static struct tr_vocab *measure(const struct tr_gguf *g, const char *model, struct tr_errbuf *err)
{
    struct tr_gguf_array tokens;
    struct tr_str s;
    size_t bytes = 0;

    if (tr_gguf_array(g, KEY("tokens"), &tokens) < 0 || tokens.type != TR_GGUF_STRING) {
        tr_errf(err, 0, "tokenizer.ggml.tokens is no array of strings");
        return NULL;
    }
    if (tokens.len == 0 || tokens.len > VOCAB_SIZE_MAX) {
        tr_errf(err, 0, "tokenizer.ggml.tokens has %llu elements", (unsigned long long)tokens.len);
        return NULL;
    }
    for (uint64_t i = 0; tr_gguf_next_str(&tokens, &s) == 0; i++) {
        if (s.len > TR_VOCAB_PIECE_MAX) {
            tr_errf(err, 0, "tokenizer.ggml.tokens[%llu] has %zu bytes, more than %d",
                    (unsigned long long)i, s.len, TR_VOCAB_PIECE_MAX);
            return NULL;
        }
        bytes += s.len;
    }
    if (bytes > UINT32_MAX) {
        tr_errf(err, 0, "tokenizer.ggml.tokens has more than 4 GiB of text");
        return NULL;
    }
    struct tr_vocab *v = tr_vocab_new(model, (uint32_t)tokens.len, bytes);
    if (!v)
        tr_errf(err, 0, "out of memory for a vocabulary of %llu pieces",
                (unsigned long long)tokens.len);
    return v;
}

/* An array beside the tokens: 0, -ENOENT if the file has none, else it has their length. */
static int side_array(const struct tr_gguf *g, const char *key, const struct tr_vocab *v,
                      struct tr_gguf_array *a, struct tr_errbuf *err)
{
    int rc = tr_gguf_array(g, key, a);

    if (rc == -ENOENT)
        return rc;
    if (rc < 0)
        return tr_errf(err, -EINVAL, "%s is no array", key);
    if (a->len != v->size)
        return tr_errf(err, -EINVAL, "%s has %llu elements, the vocabulary %u", key,
                       (unsigned long long)a->len, v->size);
    return 0;
}

static int read_types(const struct tr_gguf *g, struct tr_vocab *v, struct tr_errbuf *err)
{
    static const uint8_t FLAGS[] = {
        [NORMAL] = 0,
        [UNKNOWN] = TR_PIECE_CONTROL,
        [CONTROL] = TR_PIECE_CONTROL,
        [USER_DEFINED] = TR_PIECE_USER,
        [UNUSED] = TR_PIECE_UNUSED,
        [BYTE] = 0, /* to byte-level BPE a piece like others */
    };
    struct tr_gguf_array types;
    int rc = side_array(g, KEY("token_type"), v, &types, err);

    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    for (uint32_t id = 0; id < v->size; id++) {
        int64_t t;
        if (tr_gguf_next_i64(&types, &t) < 0)
            return tr_errf(err, -EINVAL, "tokenizer.ggml.token_type is no array of integers");
        if (t < NORMAL || t > BYTE)
            return tr_errf(err, -EINVAL,
                           "tokenizer.ggml.token_type[%u] is %lld, no type of a piece", id,
                           (long long)t);
        v->flags[id] = t == BYTE && v->model == LLAMA ? TR_PIECE_BYTE : FLAGS[t];
    }
    return 0;
}

/* Byte-level BPE has no use for scores; a file that has them must have them right. */
static int check_scores(const struct tr_gguf *g, const struct tr_vocab *v, struct tr_errbuf *err)
{
    struct tr_gguf_array scores;
    double x;
    int rc = side_array(g, KEY("scores"), v, &scores, err);

    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    for (uint32_t id = 0; id < v->size; id++)
        if (tr_gguf_next_f64(&scores, &x) < 0)
            return tr_errf(err, -EINVAL, "tokenizer.ggml.scores is no array of numbers");
    return 0;
}

/* *id becomes the id under key, -1 if there is none. */
static int special(const struct tr_gguf *g, const char *key, const struct tr_vocab *v, int32_t *id,
                   struct tr_errbuf *err)
{
    uint64_t x;
    int rc = tr_gguf_u64(g, key, &x);

    *id = -1;
    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        return tr_errf(err, -EINVAL, "%s is no id", key);
    if (x >= v->size)
        return tr_errf(err, -EINVAL, "%s is %llu, the vocabulary has %u pieces", key,
                       (unsigned long long)x, v->size);
    *id = (int32_t)x;
    return 0;
}

/* *x stays as it is if the file does not say. */
static int read_bool(const struct tr_gguf *g, const char *key, bool *x, struct tr_errbuf *err)
{
    int rc = tr_gguf_bool(g, key, x);

    if (rc < 0 && rc != -ENOENT)
        return tr_errf(err, -EINVAL, "%s is no truth value", key);
    return 0;
}

static int read_specials(const struct tr_gguf *g, struct tr_vocab *v, struct tr_errbuf *err)
{
    static const struct {
        const char *key;
        bool ends; /* an answer */
    } SPECIALS[] = {
        {KEY("bos_token_id"), false},       {KEY("eos_token_id"), true},
        {KEY("eot_token_id"), true},        {KEY("eom_token_id"), true},
        {KEY("unknown_token_id"), false},   {KEY("padding_token_id"), false},
        {KEY("seperator_token_id"), false}, /* sic: the specification's spelling */
        {KEY("mask_token_id"), false},
    };
    bool typed = false;

    for (uint32_t id = 0; id < v->size; id++)
        typed |= v->flags[id] != 0;
    for (size_t i = 0; i < sizeof(SPECIALS) / sizeof(SPECIALS[0]); i++) {
        int32_t id;
        int rc = special(g, SPECIALS[i].key, v, &id, err);
        if (rc < 0)
            return rc;
        if (id < 0)
            continue;
        if (i == 0)
            v->bos = id;
        if (i == 1)
            v->eos = id;
        if (i == 4)
            v->unk = id;
        if (SPECIALS[i].ends)
            v->flags[id] |= TR_PIECE_EOG;
        /* A file that types no piece at all still names its special tokens. */
        if (!typed)
            v->flags[id] |= TR_PIECE_CONTROL;
    }
    return 0;
}

/* What the file says; else what the tokeniser is known to do. */
static int read_add_bos(const struct tr_gguf *g, struct tr_vocab *v, struct tr_errbuf *err)
{
    v->add_bos = v->spm || (tr_pretok_flags(v->pretok) & TR_PRETOK_BOS);
    int rc = read_bool(g, KEY("add_bos_token"), &v->add_bos, err);
    v->add_bos = v->add_bos && v->bos >= 0;
    return rc;
}

static int read_template(const struct tr_gguf *g, struct tr_vocab *v, struct tr_errbuf *err)
{
    struct tr_str t;
    int rc = tr_gguf_str(g, "tokenizer.chat_template", &t);

    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        return tr_errf(err, -EINVAL, "tokenizer.chat_template is no string");
    if (!tr_utf8_is_valid(t.p, t.len))
        return tr_errf(err, -EINVAL, "tokenizer.chat_template is not UTF-8");
    v->chat_template = malloc(t.len + 1);
    if (!v->chat_template)
        return tr_errf(err, -ENOMEM, "out of memory for the chat template");
    memcpy(v->chat_template, t.p, t.len);
    v->chat_template[t.len] = 0;
    v->chat_template_len = t.len;
    return 0;
}

static int read_pieces(const struct tr_gguf *g, struct tr_vocab *v, struct tr_errbuf *err)
{
    struct tr_gguf_array tokens;
    struct tr_str s;
    uint32_t id = 0;

    /* measure() has been over the same array: it is there and has v->size strings. */
    if (tr_gguf_array(g, KEY("tokens"), &tokens) < 0)
        return -EINVAL;
    for (; id < v->size && tr_gguf_next_str(&tokens, &s) == 0; id++) {
        char *out = v->blob + v->off[id];
        if ((v->flags[id] & TR_PIECE_BYTE) && tr_spm_byte(s.p, s.len) < 0)
            return tr_errf(err, -EINVAL,
                           "tokenizer.ggml.tokens[%u] is a byte by its type, but is not written "
                           "as <0x00> to <0xFF>",
                           id);
        size_t n = v->model == LLAMA ? unmap_llama(s, &v->flags[id], out)
                                     : unmap_gpt2(s, &v->flags[id], out);
        v->off[id + 1] = v->off[id] + (uint32_t)n;
    }
    return 0;
}

static int read_bpe(const struct tr_gguf *g, struct tr_vocab *v, struct tr_errbuf *err)
{
    struct tr_gguf_array merges;
    struct tr_str pre;
    int rc = tr_gguf_str(g, KEY("pre"), &pre);

    if (rc == -ENOENT)
        return tr_errf(err, -EINVAL,
                       "the file does not name its pre-tokeniser "
                       "(tokenizer.ggml.pre)");
    if (rc < 0)
        return tr_errf(err, -EINVAL, "tokenizer.ggml.pre is no string");
    v->pretok = tr_pretok_open(pre, true, err);
    if (!v->pretok)
        return -EINVAL;
    unsigned flags = tr_pretok_flags(v->pretok);
    if ((flags & TR_PRETOK_NFC) && !(v->nfc = tr_nfc_open()))
        return tr_errf(err, -ENOMEM, "out of memory for the table of NFC");
    bool whole = flags & TR_PRETOK_WHOLE;
    if (read_bool(g, KEY("ignore_merges"), &whole, err) < 0)
        return -EINVAL;
    if (tr_gguf_array(g, KEY("merges"), &merges) < 0 || merges.type != TR_GGUF_STRING)
        return tr_errf(err, -EINVAL, "tokenizer.ggml.merges is no array of strings");
    v->bpe = tr_bpe_open(v, merges, whole, err);
    return v->bpe ? 0 : -EINVAL;
}

static int read_spm(const struct tr_gguf *g, struct tr_vocab *v, struct tr_errbuf *err)
{
    struct tr_spm_rules rules = {.space_prefix = true};
    struct tr_gguf_array scores, charsmap;

    if (read_bool(g, KEY("add_space_prefix"), &rules.space_prefix, err) < 0 ||
        read_bool(g, KEY("remove_extra_whitespaces"), &rules.squeeze, err) < 0)
        return -EINVAL;
    if (tr_gguf_array(g, KEY("precompiled_charsmap"), &charsmap) != -ENOENT)
        return tr_errf(
            err, -EINVAL,
            "the file's tokenizer normalises text (tokenizer.ggml.precompiled_charsmap), "
            "which is not supported");
    int rc = side_array(g, KEY("scores"), v, &scores, err);
    if (rc == -ENOENT)
        return tr_errf(err, rc, "the file has no scores for its pieces (tokenizer.ggml.scores)");
    if (rc < 0)
        return rc;
    v->spm = tr_spm_open(v, scores, rules, err);
    return v->spm ? 0 : -EINVAL;
}

struct tr_vocab *tr_vocab_open(const struct tr_gguf *g, struct tr_errbuf *err)
{
    const char *model = read_model(g, err);
    struct tr_vocab *v = model ? measure(g, model, err) : NULL;

    if (!v)
        return NULL;
    if (read_types(g, v, err) < 0 || check_scores(g, v, err) < 0 || read_specials(g, v, err) < 0 ||
        read_template(g, v, err) < 0 || read_pieces(g, v, err) < 0)
        goto fail;
    if (tr_vocab_seal(v) < 0) {
        tr_errf(err, 0, "out of memory for a vocabulary of %u pieces", v->size);
        goto fail;
    }
    if ((model == LLAMA ? read_spm(g, v, err) : read_bpe(g, v, err)) < 0 ||
        read_add_bos(g, v, err) < 0)
        goto fail;
    return v;
fail:
    tr_vocab_close(v);
    return NULL;
}
