/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/tiny_vocab.h - a byte-level BPE vocabulary made in memory, so that the tests of
 * text/ need no model.
 *
 * Ids: [0, 256) byte b is id b, except that TINY_MISSING has no piece (its id is a dummy); then
 * the join of each merge in order, then the control tokens, then the user-defined ones. */
#ifndef TR_TESTS_TINY_VOCAB_H
#define TR_TESTS_TINY_VOCAB_H

#include "testlib/gguf_write.h"
#include "testlib/rand.h"
#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

#define TINY_MISSING 0x04
#define TINY_MAX 512 /* pieces */

struct tiny {
    const char *pre;               /* ["gpt-2"] */
    const char *const *merges;     /* in GPT-2's alphabet, ended by NULL; may be NULL */
    const char *const *control;    /* likewise */
    const char *const *user;       /* likewise */
    void (*more)(struct tr_gw *w); /* adds keys; may be NULL */
};

/* Byte b in GPT-2's alphabet, ended by NUL. */
static inline void tiny_map(unsigned b, char out[3])
{
    unsigned c = b;

    if (b <= 0x20)
        c = 0x100 + b;
    else if (b >= 0x7f && b <= 0xa0)
        c = 0x121 + b - 0x7f;
    else if (b == 0xad)
        c = 0x143;
    if (c < 0x80) {
        out[0] = (char)c;
        out[1] = 0;
    } else {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        out[2] = 0;
    }
}

/* An array of n elements of four bytes. */
static inline void tiny_array(struct tr_gw *w, const char *key, uint32_t elem, const void *data,
                              uint64_t n)
{
    uint8_t buf[12 + 4 * TINY_MAX];

    memcpy(buf, &elem, 4);
    memcpy(buf + 4, &n, 8);
    memcpy(buf + 12, data, 4 * n);
    tr_gw_kv(w, key, TR_GGUF_ARRAY, buf, 12 + 4 * n);
}

static inline void tiny_types(struct tr_gw *w, const int32_t *types, uint64_t n)
{
    tiny_array(w, "tokenizer.ggml.token_type", TR_GGUF_I32, types, n);
}

/* Appends copies of list to names[n]; returns the new n. */
static inline uint64_t tiny_add(char *names[TINY_MAX], int32_t *types, uint64_t n,
                                const char *const *list, int32_t type)
{
    for (; list && *list; list++) {
        char *gap = NULL;
        names[n] = strdup(*list);
        if (type == 1 && (gap = strchr(names[n] + 1, ' ')))
            memmove(gap, gap + 1, strlen(gap)); /* a merge: its join */
        types[n++] = type;
    }
    return n;
}

static inline struct tr_vocab *tiny_open(const struct tiny *t, struct tr_errbuf *err)
{
    char *names[TINY_MAX];
    int32_t types[TINY_MAX];
    uint64_t n = 0;
    uint64_t n_merges = 0;
    size_t len;
    struct tr_gw *w = tr_gw_new(3);

    for (; n < 256; n++) {
        char name[3];
        tiny_map((unsigned)n, name);
        names[n] = strdup(n == TINY_MISSING ? "[none]" : name);
        types[n] = n == TINY_MISSING ? 5 : 1;
    }
    n = tiny_add(names, types, n, t->merges, 1);
    n = tiny_add(names, types, n, t->control, 3);
    n = tiny_add(names, types, n, t->user, 4);
    while (t->merges && t->merges[n_merges])
        n_merges++;
    tr_gw_str(w, "tokenizer.ggml.model", "gpt2");
    tr_gw_str(w, "tokenizer.ggml.pre", t->pre ? t->pre : "gpt-2");
    tr_gw_strs(w, "tokenizer.ggml.tokens", (const char *const *)names, n);
    tr_gw_strs(w, "tokenizer.ggml.merges", t->merges, n_merges);
    tiny_types(w, types, n);
    if (t->more)
        t->more(w);
    uint8_t *file = tr_gw_finish(w, &len);
    struct tr_gguf *g = tr_gguf_parse(file, len, "tiny", err);
    struct tr_vocab *v = g ? tr_vocab_open(g, err) : NULL;
    /* The vocabulary must have copied all it needs. */
    tr_gguf_close(g);
    memset(file, 0xee, len);
    free(file);
    while (n > 0)
        free(names[--n]);
    return v;
}

#endif
