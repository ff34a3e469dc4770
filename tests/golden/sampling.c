/* SPDX-License-Identifier: Apache-2.0 */
/* tests/golden/sampling.c - the distribution that sampling draws from, against recorded truth
 * (tests/golden/sampling: float64 reference; tests/golden/README.md tells the fields). */
#include "engine/sample.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_IDS = 8192 };
#define TOLERANCE 1e-5

static unsigned passed;
static unsigned failed;

struct row {
    json_t *json;
    uint32_t vocab;
    float *logits;
    uint32_t ids[MAX_IDS];
    struct tr_params params;
    struct tr_sample_in in;
    struct tr_cand *got;
    uint32_t n_got;
};

static void verdict(bool ok, const struct row *r, const char *what)
{
    if (ok) {
        passed++;
        return;
    }
    failed++;
    fprintf(stderr, "row %lld: %s\n", json_integer_value(json_object_get(r->json, "n")), what);
}

static double number(const json_t *o, const char *key, double off)
{
    const json_t *v = json_object_get(o, key);
    return v ? json_number_value(v) : off;
}

static void read_params(struct row *r)
{
    const json_t *p = json_object_get(r->json, "params");
    r->params = (struct tr_params){.temperature = number(p, "temperature", 1),
                                   .top_p = number(p, "top_p", 1),
                                   .min_p = number(p, "min_p", 0),
                                   .presence_penalty = number(p, "presence_penalty", 0),
                                   .frequency_penalty = number(p, "frequency_penalty", 0),
                                   .repetition_penalty = number(p, "repetition_penalty", 1),
                                   .top_k = (int32_t)number(p, "top_k", 0)};
}

static uint32_t read_ids(const struct row *r, const char *key, uint32_t *out)
{
    const json_t *a = json_object_get(r->json, key);
    for (size_t i = 0; i < json_array_size(a); i++)
        out[i] = (uint32_t)json_integer_value(json_array_get(a, i));
    return (uint32_t)json_array_size(a);
}

static void read_logits(struct row *r)
{
    r->vocab = (uint32_t)json_integer_value(json_object_get(r->json, "vocab"));
    r->logits = calloc(r->vocab, sizeof(float));
    r->got = calloc(r->vocab, sizeof(*r->got));
    if (!r->logits || !r->got)
        abort();
    const json_t *file = json_object_get(r->json, "logits_file");
    if (!file) {
        const json_t *a = json_object_get(r->json, "logits_inline");
        for (uint32_t i = 0; i < r->vocab; i++)
            r->logits[i] = (float)json_number_value(json_array_get(a, i));
        return;
    }
    const char *name = json_string_value(file);
    char path[256];
    snprintf(path, sizeof(path), "tests/golden/%s%s",
             strncmp(name, "sampling_", 9) == 0 ? "sampling/" : "", name);
    FILE *f = fopen(path, "rb");
    if (!f || fread(r->logits, sizeof(float), r->vocab, f) != r->vocab) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(1);
    }
    fclose(f);
}

static int by_probability(const void *a, const void *b)
{
    const struct tr_cand *x = a;
    const struct tr_cand *y = b;
    return x->v != y->v ? (x->v < y->v ? 1 : -1) : (x->id > y->id) - (x->id < y->id);
}

static double found(const struct row *r, uint32_t id)
{
    for (uint32_t i = 0; i < r->n_got; i++)
        if (r->got[i].id == id)
            return r->got[i].v;
    return 0;
}

/* Cuts decide who is in; without one, a probability under 1e-12 may be there or not. */
static bool counts_exactly(const struct row *r)
{
    const struct tr_params *p = &r->params;
    return p->temperature == 0 || (p->top_k > 0 && (uint32_t)p->top_k < r->vocab) || p->top_p < 1 ||
           p->min_p > 0;
}

static void check_row(struct row *r)
{
    bool tie = json_object_get(r->json, "tie") != NULL;
    uint32_t n_kept = (uint32_t)json_integer_value(json_object_get(r->json, "n_kept"));
    uint32_t absent = 0;
    double sum = 0;
    double entropy = 0;
    for (uint32_t i = 0; i < r->n_got; i++) {
        sum += r->got[i].v;
        entropy -= r->got[i].v * log(r->got[i].v);
        absent += r->got[i].v < 1e-12;
    }
    verdict(fabs(sum - 1) < TOLERANCE, r, "probabilities do not add up to 1");
    verdict(counts_exactly(r) ? r->n_got - absent <= n_kept && n_kept <= r->n_got
                              : r->n_got <= n_kept,
            r, "another number of tokens is kept");
    verdict(fabs(entropy - number(r->json, "entropy", 0)) < 1e-4, r, "the entropy differs");
    qsort(r->got, r->n_got, sizeof(*r->got), by_probability);
    const json_t *probs = json_object_get(r->json, "probs");
    bool same = true;
    double tail = 1;
    for (size_t i = 0; i < json_array_size(probs); i++) {
        const json_t *pair = json_array_get(probs, i);
        double want = json_number_value(json_array_get(pair, 1));
        uint32_t id = (uint32_t)json_integer_value(json_array_get(pair, 0));
        double got = tie ? (i < r->n_got ? r->got[i].v : 0) : found(r, id);
        same &= fabs(got - want) < TOLERANCE;
        tail -= got;
    }
    verdict(same, r, "a probability differs");
    verdict(fabs(tail - number(r->json, "tail_mass", 0)) < 64 * TOLERANCE, r, "the tail differs");
}

static void run_row(json_t *json)
{
    static struct row r;
    r = (struct row){.json = json};
    read_params(&r);
    read_logits(&r);
    r.in = (struct tr_sample_in){.params = &r.params, .ids = r.ids};
    r.in.prompt_len = read_ids(&r, "prompt_ids", r.ids);
    r.in.n_out = read_ids(&r, "output_ids", r.ids + r.in.prompt_len);
    struct tr_sampler *s = tr_sampler_new(1, r.vocab, MAX_IDS, NULL);
    if (!s)
        abort();
    r.n_got = tr_sample_probs(s, 0, r.logits, &r.in, r.got);
    check_row(&r);
    tr_sampler_free(s);
    free(r.logits);
    free(r.got);
}

int main(void)
{
    FILE *f = fopen("tests/golden/sampling/sampling.jsonl", "r");
    if (!f) {
        perror("tests/golden/sampling/sampling.jsonl");
        return 1;
    }
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, f) > 0) {
        json_error_t err;
        json_t *json = json_loads(line, 0, &err);
        if (!json) {
            fprintf(stderr, "bad line: %s\n", err.text);
            failed++;
            break;
        }
        run_row(json);
        json_decref(json);
    }
    free(line);
    fclose(f);
    printf("%u passed, %u failed\n", passed, failed);
    return failed || !passed;
}
