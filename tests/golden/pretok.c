/* SPDX-License-Identifier: Apache-2.0 */
/* tests/golden/pretok.c - each pre-tokeniser that a file may name against recorded truth (tests/golden/pretok):
 * the words a text is cut into, its normal form, and its ids in a vocabulary whose merges would go across
 * words.  Plain main.
 *   golden_pretok */
#include "testlib/gguf_write.h"
#include "text/encode.h"
#include "text/nfc.h"
#include "text/pretok.h"
#include "text/pretok_rules.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/golden/pretok/"

enum { NAMES_MAX = 256 };

static unsigned passed;
static unsigned failed;
static bool seen[NAMES_MAX];

static void verdict(bool ok, const char *name, size_t text, const char *what)
{
    if (ok) {
        passed++;
        return;
    }
    failed++;
    fprintf(stderr, "%s, text %zu: %s\n", name, text, what);
}

static struct tr_str text_of(const json_t *row, const char *key)
{
    const json_t *s = json_object_get(row, key);

    return (struct tr_str){json_string_value(s), json_string_length(s)};
}

/* All lines of a file. */
static json_t *read_lines(const char *path)
{
    static char line[1 << 20];
    json_t *rows = json_array();
    FILE *f = fopen(path, "r");

    while (f && fgets(line, sizeof(line), f))
        json_array_append_new(rows, json_loads(line, JSON_ALLOW_NUL, NULL));
    if (f)
        fclose(f);
    return rows;
}

static void add_strings(struct tr_gw *w, const char *key, const json_t *list)
{
    size_t n = json_array_size(list);
    const char **v = calloc(n + 1, sizeof(*v));

    if (!v)
        abort();
    for (size_t i = 0; i < n; i++)
        v[i] = json_string_value(json_array_get(list, i));
    tr_gw_strs(w, key, v, n);
    free(v);
}

static struct tr_vocab *open_vocab(const json_t *vocab, const char *pre, struct tr_errbuf *err)
{
    struct tr_gw *w = tr_gw_new(3);
    size_t len;

    tr_gw_str(w, "tokenizer.ggml.model", "gpt2");
    tr_gw_str(w, "tokenizer.ggml.pre", pre);
    add_strings(w, "tokenizer.ggml.tokens", json_object_get(vocab, "tokens"));
    add_strings(w, "tokenizer.ggml.merges", json_object_get(vocab, "merges"));
    uint8_t *file = tr_gw_finish(w, &len);
    struct tr_gguf *g = tr_gguf_parse(file, len, pre, err);
    struct tr_vocab *v = g ? tr_vocab_open(g, err) : NULL;

    tr_gguf_close(g);
    free(file);
    return v;
}

static bool words_are(const struct tr_pretok *p, struct tr_str text, const json_t *want)
{
    struct tr_pretok_run *r = tr_pretok_run_new(p);
    size_t n = 0;
    bool ok = true;

    for (size_t pos = 0, end; ok && pos < text.len; pos = end, n++) {
        ok = tr_pretok_next(p, r, text.p, text.len, pos, &end) == 0 && end > pos &&
             (json_int_t)(end - pos) == json_integer_value(json_array_get(want, n));
    }
    tr_pretok_run_free(r);
    return ok && n == json_array_size(want);
}

static bool ids_are(const struct tr_vocab *v, struct tr_str text, const json_t *want)
{
    int32_t ids[4096];
    size_t n = 0;

    if (tr_encode(v, text.p, text.len, false, ids, 4096, &n) != 0 || n != json_array_size(want))
        return false;
    for (size_t i = 0; i < n; i++)
        if (ids[i] != json_integer_value(json_array_get(want, i)))
            return false;
    return true;
}

static void check_name(const char *name, const json_t *rule, const json_t *texts,
                       const json_t *vocab)
{
    struct tr_str s = {name, strlen(name)};
    struct tr_errbuf err = {""};
    struct tr_pretok *fast = tr_pretok_open(s, true, &err);
    struct tr_pretok *slow = tr_pretok_open(s, false, &err);
    struct tr_vocab *v = open_vocab(vocab, name, &err);
    bool nfc = json_is_true(json_object_get(rule, "nfc"));
    bool whole = json_is_true(json_object_get(rule, "whole"));

    verdict(fast && slow && v, name, 0, err.msg);
    if (!fast || !slow || !v)
        return;
    unsigned flags = tr_pretok_flags(fast) & (TR_PRETOK_NFC | TR_PRETOK_WHOLE);
    verdict(flags == ((nfc ? TR_PRETOK_NFC : 0U) | (whole ? TR_PRETOK_WHOLE : 0U)), name, 0,
            "flags");
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *row = json_array_get(texts, i);
        const json_t *words = json_array_get(json_object_get(rule, "words"), i);
        struct tr_str text = text_of(row, "text");
        bool other = nfc && json_object_get(row, "nfc");
        struct tr_str cut = other ? text_of(row, "nfc") : text;
        verdict(words_are(fast, cut, words), name, i, "words");
        verdict(words_are(slow, cut, words), name, i, "words, interpreted");
        verdict(ids_are(v, text, json_array_get(json_object_get(rule, "ids"), i)), name, i, "ids");
    }
    tr_pretok_close(fast);
    tr_pretok_close(slow);
    tr_vocab_close(v);
    for (size_t i = 0; tr_pretok_name_at(i) && i < NAMES_MAX; i++)
        seen[i] |= tr_pretok_name_at(i) == tr_pretok_named(s);
}

static void check_nfc(const json_t *texts)
{
    struct tr_nfc *n = tr_nfc_open();
    struct tr_nfc_run run = {0};

    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *row = json_array_get(texts, i);
        struct tr_str text = text_of(row, "text");
        struct tr_str want = json_object_get(row, "nfc") ? text_of(row, "nfc") : text;
        size_t len = text.len;
        const char *got = tr_nfc_text(n, &run, text.p, &len);
        verdict(got && len == want.len && memcmp(got, want.p, len) == 0, "NFC", i, "text");
    }
    tr_nfc_run_fini(&run);
    tr_nfc_close(n);
}

int main(void)
{
    json_t *vocab = json_load_file(FOLDER "vocab.json", 0, NULL);
    json_t *texts = read_lines(FOLDER "texts.jsonl");
    json_t *rules = read_lines(FOLDER "rules.jsonl");

    check_nfc(texts);
    for (size_t i = 0; i < json_array_size(rules); i++) {
        const json_t *rule = json_array_get(rules, i);
        const json_t *names = json_object_get(rule, "names");
        for (size_t k = 0; k < json_array_size(names); k++)
            check_name(json_string_value(json_array_get(names, k)), rule, texts, vocab);
    }
    for (size_t i = 0; tr_pretok_name_at(i); i++)
        verdict(seen[i], tr_pretok_name_at(i)->name, 0, "nothing is recorded of it");
    json_decref(vocab);
    json_decref(texts);
    json_decref(rules);
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
