/* SPDX-License-Identifier: Apache-2.0 */
/* What the compilers of grammar/ make of a constraint, text by text, for comparison with others.
 *
 * Reads lines of JSON, each a constraint (one of "schema": any JSON, "regex", "gbnf": strings, "object":
 * true) and "texts": a list of strings.
 * "samples": N and "seed": texts that the program can write, by chance.
 *   oracle_grammar            writes a line for each: {"ok": true, "takes": "101", "us": 250, "size": 4711}, a
 *                             digit for each text (or "?" where a bound was met), or {"ok": false, "why": "...",
 *                             "at": "properties.a"}
 *   oracle_grammar FILE...    compares with what each line says itself ("takes", or "why": a part of the
 *                             sentence), and ends with "N passed, N failed". */
#include "base/json.h"
#include "grammar/build.h"
#include "grammar/gbnf.h"
#include "grammar/json_text.h"
#include "grammar/match.h"
#include "grammar/regex.h"
#include "grammar/schema.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TEXTS = 4096, SAMPLES = 16, SAMPLE_BYTES = 600 };

struct result {
    bool ok;
    char why[600], at[300];
    char takes[TEXTS + 1];
    long us; /* of processor time, to compile */
    size_t size;
    int n_samples;
    char sample[SAMPLES][SAMPLE_BYTES];
};

static uint8_t image[TR_GRAM_BYTES];

static int build(struct tr_gbuild *b, const struct tr_json_doc *doc, const struct tr_json *row,
                 tr_gnode *node, struct result *r)
{
    const struct tr_json *schema = TR_JSON_GET(row, "schema");
    const struct tr_json *regex = TR_JSON_GET(row, "regex");
    const struct tr_json *gbnf = TR_JSON_GET(row, "gbnf");
    struct tr_errbuf err = {.msg = ""};
    struct tr_gfault f = {.why = ""};
    int ret = 0;
    if (schema) {
        ret = tr_gschema(b, doc, schema, node, &f);
        if (ret) {
            snprintf(r->why, sizeof r->why, "%s", f.why);
            if (f.at)
                (void)tr_json_param(doc, f.at, r->at, sizeof r->at);
        }
        return ret;
    }
    if (regex)
        ret = tr_gregex(b, regex->u.s, regex->len, node, &err);
    else if (gbnf)
        ret = tr_gbnf(b, gbnf->u.s, gbnf->len, node, &err);
    else
        *node = tr_gjson_object(b);
    if (ret)
        snprintf(r->why, sizeof r->why, "%s", err.msg);
    return ret;
}

static long now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void match(const struct tr_gprog *p, const struct tr_json *texts, struct result *r)
{
    for (struct tr_json_it it = tr_json_iter(texts); tr_json_step(&it) && it.index < TEXTS;) {
        struct tr_gmatch m;
        tr_gmatch_start(&m, p);
        bool yes = tr_gmatch_bytes(&m, p, it.val->u.s, it.val->len) && tr_gmatch_may_end(&m, p);
        r->takes[it.index] = yes ? '1' : m.overflow ? '?' : '0';
        r->takes[it.index + 1] = '\0';
    }
}

/* ---- texts by chance ---- */

static uint64_t chance;

static uint32_t draw(uint32_t n)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((chance >> 33) % n);
}

/* One byte more, or false: none may follow.  A text that has become long is brought to its end. */
static bool go_on(struct tr_gmatch *m, const struct tr_gprog *p, bool hurry, char *out)
{
    static const char ENDS[] = "]}\"";
    struct tr_gmatch next[1];
    uint8_t can[256];
    uint32_t n = 0;
    for (uint32_t c = 0; c < 256; c++) {
        uint8_t byte = (uint8_t)c;
        *next = *m;
        if (!tr_gmatch_bytes(next, p, &byte, 1))
            continue;
        if (hurry && c && strchr(ENDS, (int)c)) {
            n = 0;
            can[n++] = byte;
            break;
        }
        /* Rare ones would be drawn too often: most of 256 are parts of long characters. */
        if (c < 0x7f || draw(8) == 0)
            can[n++] = byte;
    }
    if (!n)
        return false;
    *out = (char)can[draw(n)];
    return tr_gmatch_bytes(m, p, out, 1);
}

static void sample(const struct tr_gprog *p, const struct tr_json *row, struct result *r)
{
    int64_t n = 0;
    int64_t seed = 0;
    if (tr_json_i64(TR_JSON_GET(row, "samples"), &n) ||
        tr_json_i64(TR_JSON_GET(row, "seed"), &seed))
        return;
    chance = (uint64_t)seed;
    for (; n > 0 && r->n_samples < SAMPLES; n--) {
        char *s = r->sample[r->n_samples];
        size_t len = 0;
        struct tr_gmatch m;
        tr_gmatch_start(&m, p);
        bool done = false;
        while (!done && len + 1 < SAMPLE_BYTES) {
            done = tr_gmatch_may_end(&m, p) && (tr_gmatch_is_over(&m, p) || draw(4) == 0);
            if (!done && !go_on(&m, p, len > 60, s + len))
                break;
            len += !done;
        }
        s[len] = '\0';
        r->n_samples += done;
    }
}

static void run(const struct tr_json_doc *doc, const struct tr_json *row, struct result *r)
{
    struct tr_errbuf err = {.msg = ""};
    struct tr_gprog p;
    tr_gnode node;
    long t = now_us();
    struct tr_gbuild *b = tr_gbuild_new();
    if (!b)
        abort();
    int ret = build(b, doc, row, &node, r);
    if (!ret) {
        ret = tr_gbuild_finish(b, node, image, sizeof image, &r->size, &err);
        r->us = now_us() - t;
        if (!ret)
            ret = tr_gprog_open(&p, image, r->size, 1, &err);
        if (ret)
            snprintf(r->why, sizeof r->why, "%s", err.msg);
    }
    r->us = now_us() - t;
    tr_gbuild_free(b);
    r->ok = !ret;
    if (!r->ok)
        return;
    match(&p, TR_JSON_GET(row, "texts"), r);
    sample(&p, row, r);
}

static void put_string(const char *s)
{
    putchar('"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            putchar('\\');
        if ((unsigned char)*s >= 0x20)
            putchar(*s);
        else
            printf("\\u%04x", *s);
    }
    putchar('"');
}

static void say(const struct result *r)
{
    if (r->ok) {
        printf("{\"ok\": true, \"takes\": \"%s\", \"us\": %ld, \"size\": %zu, \"samples\": [",
               r->takes, r->us, r->size);
        for (int i = 0; i < r->n_samples; i++) {
            printf("%s", i ? ", " : "");
            put_string(r->sample[i]);
        }
        printf("]}\n");
    } else {
        printf("{\"ok\": false, \"us\": %ld, \"why\": ", r->us);
        put_string(r->why);
        printf(", \"at\": ");
        put_string(r->at);
        printf("}\n");
    }
    fflush(stdout);
}

/* Whether r is what the row says. */
static bool compare(const char *file, long line, const struct tr_json *row, const struct result *r)
{
    const struct tr_json *takes = TR_JSON_GET(row, "takes");
    const struct tr_json *why = TR_JSON_GET(row, "why");
    char part[300] = "";
    if (why)
        snprintf(part, sizeof part, "%.*s", (int)why->len, why->u.s);
    if (why ? !r->ok && strstr(r->why, part)
            : r->ok && tr_json_eq(takes, r->takes, strlen(r->takes)))
        return true;
    printf("%s:%ld: %s%s, not %.*s\n", file, line, r->ok ? "takes " : r->why, r->takes,
           takes ? (int)takes->len : (int)strlen(part), takes ? takes->u.s : part);
    return false;
}

static long passed, failed;

static void each_line(FILE *f, const char *name)
{
    char *text = NULL;
    size_t cap = 0;
    ssize_t len;
    for (long line = 1; (len = getline(&text, &cap, f)) > 0; line++) {
        struct tr_json_fault fault;
        static struct result r;
        memset(&r, 0, sizeof r);
        struct tr_json_doc *doc = tr_json_parse(text, (size_t)len, &fault);
        if (!doc) {
            fprintf(stderr, "%s:%ld: %s\n", name, line, fault.why);
            exit(2);
        }
        run(doc, tr_json_root(doc), &r);
        if (f == stdin)
            say(&r);
        else if (compare(name, line, tr_json_root(doc), &r))
            passed++;
        else
            failed++;
        tr_json_free(doc);
    }
    free(text);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "r");
        if (!f) {
            fprintf(stderr, "%s: %s\n", argv[i], strerror(errno));
            return 2;
        }
        each_line(f, argv[i]);
        fclose(f);
    }
    if (argc == 1)
        each_line(stdin, "stdin");
    else
        printf("%ld passed, %ld failed\n", passed, failed);
    return failed != 0;
}
