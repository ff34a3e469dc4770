/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/tiny_spm.h - a SentencePiece vocabulary made in memory, beside tiny_vocab.h.
 *
 * Ids: 0 <unk>, 1 <s>, 2 </s>, then the 256 bytes (or none), then the pieces in their order. */
#ifndef TR_TESTS_TINY_SPM_H
#define TR_TESTS_TINY_SPM_H

#include "testlib/tiny_vocab.h"

#include <stdio.h>

enum { TINY_SPM_BYTE = 3, TINY_SPM_PIECE = TINY_SPM_BYTE + 256 };

struct tiny_piece {
    const char *text; /* as in a file: U+2581 for a blank */
    float score;
    int32_t type; /* [normal] */
};

struct tiny_spm {
    const struct tiny_piece *pieces; /* ended by a NULL text */
    bool no_bytes;                   /* then the pieces begin at TINY_SPM_BYTE */
    bool no_prefix;                  /* add_space_prefix is false */
    bool squeeze;                    /* remove_extra_whitespaces */
    void (*more)(struct tr_gw *w);   /* adds keys; may be NULL */
};

static inline void tiny_flag(struct tr_gw *w, const char *key, bool on)
{
    uint8_t b = on;

    tr_gw_kv(w, key, TR_GGUF_BOOL, &b, 1);
}

static inline struct tr_vocab *tiny_spm_open(const struct tiny_spm *t, struct tr_errbuf *err)
{
    static const char *const SPECIAL[] = {"<unk>", "<s>", "</s>"};
    static char bytes[256][8];
    const char *names[TINY_MAX];
    int32_t types[TINY_MAX];
    float scores[TINY_MAX] = {0};
    uint64_t n = 0;
    size_t len;
    struct tr_gw *w = tr_gw_new(3);

    for (; n < TINY_SPM_BYTE; n++) {
        names[n] = SPECIAL[n];
        types[n] = n == 0 ? 2 : 3;
    }
    for (unsigned b = 0; b < 256 && !t->no_bytes; b++, n++) {
        snprintf(bytes[b], sizeof(bytes[b]), "<0x%02X>", b);
        names[n] = bytes[b];
        types[n] = 6;
    }
    for (const struct tiny_piece *p = t->pieces; p->text; p++, n++) {
        names[n] = p->text;
        types[n] = p->type ? p->type : 1;
        scores[n] = p->score;
    }
    tr_gw_str(w, "tokenizer.ggml.model", "llama");
    tr_gw_strs(w, "tokenizer.ggml.tokens", names, n);
    tiny_types(w, types, n);
    tiny_array(w, "tokenizer.ggml.scores", TR_GGUF_F32, scores, n);
    tr_gw_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    tr_gw_u32(w, "tokenizer.ggml.bos_token_id", 1);
    tr_gw_u32(w, "tokenizer.ggml.eos_token_id", 2);
    if (t->no_prefix)
        tiny_flag(w, "tokenizer.ggml.add_space_prefix", false);
    if (t->squeeze)
        tiny_flag(w, "tokenizer.ggml.remove_extra_whitespaces", true);
    if (t->more)
        t->more(w);
    uint8_t *file = tr_gw_finish(w, &len);
    struct tr_gguf *g = tr_gguf_parse(file, len, "tiny", err);
    struct tr_vocab *v = g ? tr_vocab_open(g, err) : NULL;
    /* The vocabulary must have copied all it needs. */
    tr_gguf_close(g);
    memset(file, 0xee, len);
    free(file);
    return v;
}

#endif
