/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/text.h"

#include "base/clock.h"
#include "text/encode.h"
#include "text/pretok.h"
#include "text/pretok_rules.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MADE = 1 << 20 /* bytes of a made text */, TRIES = 5 };

static uint32_t some(uint64_t *state)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(*state >> 33);
}

/* A character of three bytes out of n from the first one on. */
static size_t put3(char *out, uint32_t first, uint32_t n, uint64_t *state)
{
    uint32_t c = first + some(state) % n;

    out[0] = (char)(0xe0 | c >> 12);
    out[1] = (char)(0x80 | (c >> 6 & 0x3f));
    out[2] = (char)(0x80 | (c & 0x3f));
    return 3;
}

static size_t put_letter(char *out, uint64_t *s)
{
    (void)s;
    *out = 'a';
    return 1;
}

static size_t put_blank(char *out, uint64_t *s)
{
    (void)s;
    *out = ' ';
    return 1;
}

static size_t put_line_end(char *out, uint64_t *s)
{
    (void)s;
    *out = '\n';
    return 1;
}

static size_t put_digit(char *out, uint64_t *s)
{
    *out = (char)('0' + some(s) % 10);
    return 1;
}

static size_t put_letters(char *out, uint64_t *s)
{
    *out = (char)('a' + some(s) % 26);
    return 1;
}

static size_t put_byte(char *out, uint64_t *s)
{
    *out = (char)some(s);
    return 1;
}

static size_t put_cjk(char *out, uint64_t *s)
{
    return put3(out, 0x4e00, 0x5000, s);
}

static size_t put_hangul(char *out, uint64_t *s)
{
    return put3(out, 0x1100, 0x100, s); /* to be joined, by NFC */
}

static size_t put_marks(char *out, uint64_t *s)
{
    out[0] = (char)0xcc;
    out[1] = (char)(some(s) % 2 ? 0x81 : 0x96); /* U+0301, U+0316 */
    return 2;
}

static const struct {
    const char *name;
    size_t (*put)(char *out, uint64_t *state);
} kinds[] = {
    {"one letter", put_letter},
    {"blanks", put_blank},
    {"line ends", put_line_end},
    {"digits", put_digit},
    {"random letters", put_letters},
    {"random bytes", put_byte},
    {"Chinese", put_cjk},
    {"Hangul in pieces", put_hangul},
    {"marks out of order", put_marks},
};

static size_t make(size_t kind, char *out)
{
    uint64_t state = 1;
    size_t n = 0;

    while (n + 4 <= MADE)
        n += kinds[kind].put(out + n, &state);
    return n;
}

/* The whole file, its length in *len; NULL and said if it cannot be read. */
static char *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    char *text = malloc(64 << 20);

    if (!f || !text) {
        fprintf(stderr, "%s: cannot be read\n", path);
        if (f)
            fclose(f);
        free(text);
        return NULL;
    }
    *len = fread(text, 1, 64 << 20, f);
    fclose(f);
    return text;
}

static void show(const char *name, size_t len, size_t n, uint64_t ns)
{
    printf("%s,%zu,%zu,%.2f,%.1f\n", name, len, n, (double)ns / 1e6,
           (double)len * 1e3 / (double)ns);
}

/* The best of some tries. */
static void encode(const struct tr_vocab *v, const char *name, const char *text, size_t len,
                   int32_t *ids)
{
    uint64_t best = UINT64_MAX;
    size_t n = 0;

    for (int i = 0; i < TRIES; i++) {
        uint64_t began = tr_now_ns();
        if (tr_encode(v, text, len, false, ids, 3 * len + 1, &n) != 0)
            return;
        uint64_t took = tr_now_ns() - began;
        best = took < best ? took : best;
    }
    show(name, len, n, best);
}

/* Cutting alone, with each rule once. */
static void words(const char *text, size_t len)
{
    const struct tr_pretok_name *name, *last = NULL;

    for (size_t k = 0; (name = tr_pretok_name_at(k)); last = name, k++) {
        struct tr_errbuf err;
        if (last && last->rule == name->rule)
            continue;
        struct tr_pretok *p =
            tr_pretok_open((struct tr_str){name->name, strlen(name->name)}, true, &err);
        struct tr_pretok_run *r = p ? tr_pretok_run_new(p) : NULL;
        uint64_t best = UINT64_MAX;
        size_t n = 0;
        for (int i = 0; r && i < TRIES; i++) {
            uint64_t began = tr_now_ns();
            n = 0;
            for (size_t pos = 0, end; pos < len; pos = end, n++)
                if (tr_pretok_next(p, r, text, len, pos, &end) != 0)
                    break;
            uint64_t took = tr_now_ns() - began;
            best = took < best ? took : best;
        }
        show(name->name, len, n, best);
        tr_pretok_run_free(r);
        tr_pretok_close(p);
    }
}

static int run(const char *model, const char *path, bool only_words)
{
    struct tr_errbuf err = {""};
    struct tr_gguf *g = only_words ? NULL : tr_gguf_open(model, &err);
    uint64_t began = tr_now_ns();
    struct tr_vocab *v = g ? tr_vocab_open(g, &err) : NULL;
    uint64_t took = tr_now_ns() - began;
    size_t len = MADE;
    char *text = path ? read_file(path, &len) : malloc(MADE);
    int32_t *ids = text ? malloc((3 * len + 3 * (size_t)MADE + 2) * sizeof(*ids)) : NULL;
    int rc = 1;

    tr_gguf_close(g);
    if (!only_words && !v) {
        fprintf(stderr, "%s\n", err.msg);
        goto out;
    }
    if (!text || !ids)
        goto out;
    rc = 0;
    if (only_words) {
        puts("pre,bytes,words,ms,mb_s");
        words(text, len);
        goto out;
    }
    puts("text,bytes,tokens,ms,mb_s");
    show("(reading the vocabulary)", 0, tr_vocab_size(v), took);
    if (path)
        encode(v, "the file", text, len, ids);
    char *made = realloc(text, len > MADE ? len : MADE);
    text = made ? made : text;
    for (size_t k = 0; made && k < sizeof(kinds) / sizeof(kinds[0]); k++)
        encode(v, kinds[k].name, text, make(k, text), ids);
out:
    free(ids);
    free(text);
    tr_vocab_close(v);
    return rc;
}

int tr_bench_text_main(int argc, char **argv)
{
    static const struct option LONG[] = {{"model", required_argument, NULL, 'm'},
                                         {"file", required_argument, NULL, 'f'},
                                         {"words", no_argument, NULL, 'w'},
                                         {"help", no_argument, NULL, 'h'},
                                         {NULL, 0, NULL, 0}};
    const char *model = NULL, *path = NULL;
    bool only_words = false;

    for (int c; (c = getopt_long(argc, argv, "", LONG, NULL)) != -1;) {
        if (c == 'm')
            model = optarg;
        else if (c == 'f')
            path = optarg;
        else if (c == 'w')
            only_words = true;
        else
            model = path = NULL, only_words = false, optind = argc;
    }
    if (only_words ? !path : !model) {
        fprintf(stderr,
                "usage: tokenring bench text --model FILE [--file TEXT]\n"
                "       tokenring bench text --words --file TEXT\n"
                "  The text, and 1 MiB each of what is hard to encode; or the text cut into words\n"
                "  by each pre-tokeniser.\n");
        return 2;
    }
    return run(model, path, only_words);
}
