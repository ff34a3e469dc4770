/* SPDX-License-Identifier: Apache-2.0 */
/* tools/bench/grammar.c - see grammar.h. */
#include "bench/grammar.h"

#include "base/gguf.h"
#include "base/json.h"
#include "grammar/mask.h"
#include "grammar/schema.h"
#include "text/encode.h"
#include "text/vocab.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOKENS_MAX = 4096, CACHE_BYTES = 64 << 20 };

#define STRING "{\"type\":\"string\"}"
#define NUMBER "{\"type\":\"number\"}"

static const struct {
    const char *name, *schema, *answer;
} cases[] = {
    {"person",
     "{\"type\":\"object\",\"properties\":{\"name\":" STRING ",\"age\":{\"type\":\"integer\"},"
     "\"role\":{\"enum\":[\"admin\",\"user\",\"guest\"]},\"active\":{\"type\":\"boolean\"},"
     "\"tags\":{\"type\":\"array\",\"items\":" STRING
     "},\"address\":{\"type\":\"object\",\"properties\":{"
     "\"street\":" STRING ",\"city\":" STRING ",\"zip\":{\"type\":\"integer\"}},"
     "\"required\":[\"street\",\"city\",\"zip\"]},\"jobs\":{\"type\":\"array\",\"items\":{\"type\":"
     "\"object\","
     "\"properties\":{\"title\":" STRING ",\"years\":" NUMBER "},\"required\":[\"title\"]}},"
     "\"score\":" NUMBER
     "},\"required\":[\"name\",\"age\",\"role\",\"active\",\"tags\",\"address\",\"jobs\"]}",
     "{\"name\": \"Ada Lovelace, née \\\"Byron\\\"\", \"age\": 36, \"role\": \"admin\", "
     "\"active\": true, "
     "\"tags\": [\"mathematics\", \"analytical engine\", \"poetry\"], \"address\": {\"street\": "
     "\"12 St James's Square\", \"city\": \"London\", \"zip\": 12345}, \"jobs\": [{\"title\": "
     "\"translator of "
     "a memoir on the engine\", \"years\": 1.5}, {\"title\": \"author of the notes\"}], \"score\": "
     "99.25}"},
    {"text",
     "{\"type\":\"object\",\"properties\":{\"title\":" STRING ",\"text\":" STRING
     "},\"required\":[\"title\","
     "\"text\"]}",
     "{\"title\": \"On a light rain\", \"text\": \"It rained all morning, and nobody minded: the "
     "fields had "
     "waited for it since May.\\nIn the afternoon the sun came out, twice, and by six o'clock the "
     "road was "
     "dry again — as if nothing had happened.\"}"},
    {"any object", "{\"type\":\"object\"}",
     "{\"a\": [1, 2, {\"b\": null}], \"c\": \"free text, which may go on for quite some time\", "
     "\"d\": {\"e\": "
     "{\"f\": [true, false, -1.5e10]}}}"},
    {"at most 200",
     "{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\",\"maxLength\":200}},"
     "\"required\":["
     "\"text\"]}",
     "{\"text\": \"A text of at most two hundred characters, as schemas have them, which goes on "
     "for a while "
     "and stays within.\"}"},
    {"pattern",
     "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\",\"pattern\":\"^[A-Z]{3}-[0-"
     "9]{4,8}$\"},"
     "\"day\":{\"type\":\"string\",\"format\":\"date\"}},\"required\":[\"id\",\"day\"]}",
     "{\"id\": \"ABC-123456\", \"day\": \"2026-11-30\"}"},
};

static struct tr_gpiece_of piece(void *arg, uint32_t id)
{
    const struct tr_vocab *v = arg;
    struct tr_gpiece_of o = {.kind = TR_GPIECE_TEXT};

    o.bytes = tr_vocab_bytes(v, (int32_t)id, &o.len);
    if (tr_vocab_is_eog(v, (int32_t)id))
        o.kind = TR_GPIECE_EOG;
    else if (tr_vocab_is_control(v, (int32_t)id))
        o.kind = TR_GPIECE_CONTROL;
    return o;
}

/* Processor time of this thread, ns: others share the machine. */
static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double us_since(uint64_t began)
{
    return (double)(now_ns() - began) / 1e3;
}

/* The program of a schema; false with a sentence. */
static bool compile(const char *schema, uint8_t *image, size_t *len, struct tr_errbuf *err)
{
    struct tr_json_fault fault;
    struct tr_gfault why = {0};
    struct tr_json_doc *doc = tr_json_parse(schema, strlen(schema), &fault);
    struct tr_gbuild *b = tr_gbuild_new();
    tr_gnode start;
    bool ok = false;

    if (doc && b) {
        if (tr_gschema(b, doc, tr_json_root(doc), &start, &why) == 0)
            ok = tr_gbuild_finish(b, start, image, TR_GRAM_BYTES, len, err) == 0;
        else
            tr_errf(err, 0, "%s", why.why);
    }
    tr_gbuild_free(b);
    tr_json_free(doc);
    return ok;
}

struct bench {
    const struct tr_vocab *v;
    struct tr_gpieces pieces;
    struct tr_gmasks *masks;
    uint32_t *mask;
    uint8_t image[TR_GRAM_BYTES];
    int32_t ids[TOKENS_MAX];
};

static bool answer(struct bench *b, size_t i, bool again, struct tr_errbuf *err)
{
    struct tr_gprog p;
    struct tr_gmatch m;
    size_t len, n;
    double mask = 0, most = 0, match = 0;
    uint64_t began = now_ns();

    if (!compile(cases[i].schema, b->image, &len, err))
        return false;
    double compile_us = us_since(began);
    began = now_ns();
    if (tr_gprog_open(&p, b->image, len, b->pieces.n_vocab, err) < 0)
        return false;
    double check_us = us_since(began);
    if (tr_encode(b->v, cases[i].answer, strlen(cases[i].answer), false, b->ids, TOKENS_MAX, &n) <
        0)
        return tr_errf(err, 0, "an answer of the bench has no tokens"), false;
    tr_gmatch_start(&m, &p);
    for (size_t k = 0; k < n; k++) {
        began = now_ns();
        tr_gmasks_fill(b->masks, &p, &m, b->mask);
        double took = us_since(began);
        mask += took;
        most = took > most ? took : most;
        size_t bytes;
        const char *s = tr_vocab_bytes(b->v, b->ids[k], &bytes);
        /* Some vocabularies begin a text with a blank of their own. */
        if (k == 0 && bytes && s[0] == ' ')
            s++, bytes--;
        began = now_ns();
        if (!tr_gmatch_bytes(&m, &p, s, bytes))
            return tr_errf(err, 0, "the answer to \"%s\" does not obey it", cases[i].name), false;
        match += us_since(began);
    }
    printf("%s,%s,%u,%zu,%.0f,%.0f,%zu,%.1f,%.0f,%.2f\n", cases[i].name, again ? "again" : "first",
           p.n_states, len, compile_us, check_us, n, mask / (double)n, most, match / (double)n);
    return true;
}

static int run(const char *model)
{
    struct tr_errbuf err = {""};
    struct tr_gguf *g = tr_gguf_open(model, &err);
    struct tr_vocab *v = g ? tr_vocab_open(g, &err) : NULL;
    struct bench *b = calloc(1, sizeof(*b));
    void *image = NULL;
    size_t len;
    bool ok = false;

    tr_gguf_close(g);
    if (!v || !b || tr_gpieces_build(tr_vocab_size(v), piece, v, &image, &len) < 0 ||
        tr_gpieces_open(&b->pieces, image, len, &err) < 0)
        goto out;
    b->v = v;
    b->masks = tr_gmasks_open(&b->pieces, CACHE_BYTES);
    b->mask = malloc(tr_gmask_words(b->pieces.n_vocab) * sizeof(*b->mask));
    ok = b->masks && b->mask;
    if (ok)
        puts("schema,memory,states,bytes,compile_us,check_us,tokens,mask_us,mask_max_us,match_us");
    for (size_t i = 0; ok && i < 2 * sizeof(cases) / sizeof(cases[0]); i++)
        ok = answer(b, i / 2, i % 2, &err);
out:
    if (!ok)
        fprintf(stderr, "%s\n", err.msg[0] ? err.msg : "no memory");
    if (b) {
        tr_gmasks_close(b->masks);
        free(b->mask);
    }
    free(b);
    free(image);
    tr_vocab_close(v);
    return ok ? 0 : 1;
}

int tr_bench_grammar_main(int argc, char **argv)
{
    static const struct option LONG[] = {{"model", required_argument, NULL, 'm'},
                                         {"help", no_argument, NULL, 'h'},
                                         {NULL, 0, NULL, 0}};
    const char *model = NULL;
    bool help = false, wrong = false;

    for (int c; (c = getopt_long(argc, argv, "", LONG, NULL)) != -1;) {
        if (c == 'm')
            model = optarg;
        else if (c == 'h')
            help = true;
        else
            wrong = true;
    }
    if (help || wrong || !model) {
        fprintf(help ? stdout : stderr,
                "usage: tokenring bench grammar --model FILE\n"
                "  Schemas and answers under them: compiling, masks, matching.\n");
        return help ? 0 : 2;
    }
    return run(model);
}
