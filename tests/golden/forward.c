/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass on a real model against what another implementation computed (tests/golden/MODEL).
 *     golden_forward MODE [MODEL]     smollm2 (which is meant without a name) or gemma3
 * The mode chooses the arithmetic and with it the limits:
 *
 *   f32, blas   float weights and F32 KV: the strict limits, and hidden states
 *   f32-f16     the same with F16 KV: the middle ones
 *   int8        int8 products, F16 KV: the loose ones
 *   int8-q8     the same with Q8_0 KV
 *   levels      int8: the plain C level and the best one give the same bytes
 *   p10         int8 and f32: rows do not depend on their company */
#include "check.h"
#include "testrig/model_rig.h"

#include <jansson.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_PROMPTS = 16, GREEDY = 48, PPL_SEQ = MAX_PROMPTS, N_SEQS };

/* A model and its file; rows with logits at once, which are as wide as the vocabulary; and
 * how many positions are compared by bytes. */
static const struct model {
    const char *name, *file_env, *file;
    uint32_t chunk, bytes_n;
} models[] = {
    {"smollm2", "TOKENRING_TEST_MODEL", ".cache/smollm2.gguf", 256, 280},
    {"gemma3", "TOKENRING_TEST_GEMMA", ".cache/gemma3.gguf", 64, 96},
};
static const struct model *model = models;

/* About three times the measured effect of an arithmetic (the study in the golden data). */
struct limits {
    double max_abs, rms, kl, mean_nll, token_nll, margin;
};

static const struct limits strict = {2e-4, 5e-5, 1e-9, 1e-5, 1.5e-3, 0.001};
static const struct limits middle = {0.06, 0.015, 3e-5, 2e-4, 0.05, 0.1};
/* One token's NLL: three times the worst of bfloat16 in the study, which these limits are for too.  Of
 * Gemma's 1,515 tokens the worst is off by 1.2 to 1.5, as the last bits of attention fall; the next by
 * 0.4. */
static const struct limits loose = {2.5, 0.5, 0.02, 0.01, 3, 1.0};

static const char *path_of(const char *name, char path[128])
{
    snprintf(path, 128, "tests/golden/%s/%s", model->name, name);
    return path;
}

static void *read_floats(const char *name, size_t n)
{
    char path[128];
    path_of(name, path);
    FILE *f = fopen(path, "rb");
    float *x = malloc(n * sizeof(float));
    if (!f || !x || fread(x, sizeof(float), n, f) != n) {
        fprintf(stderr, "cannot read %zu floats of %s\n", n, path);
        exit(2);
    }
    fclose(f);
    return x;
}

static json_t *prompts(void)
{
    char path[128];
    FILE *f = fopen(path_of("forward.jsonl", path), "r");
    json_t *all = json_array();
    char *line = NULL;
    size_t cap = 0;
    while (f && getline(&line, &cap, f) > 0)
        json_array_append_new(all, json_loads(line, 0, NULL));
    free(line);
    if (!f || json_array_size(all) == 0 || json_array_size(all) > MAX_PROMPTS) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    fclose(f);
    return all;
}

static uint32_t get_ids(const json_t *a, uint32_t *ids, uint32_t max)
{
    uint32_t n = (uint32_t)json_array_size(a);
    if (n > max)
        abort();
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (uint32_t)json_integer_value(json_array_get(a, i));
    return n;
}

static uint32_t argmax(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

static double logsumexp(const float *x, uint32_t n)
{
    double max = (double)x[argmax(x, n)], sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

/* --- logits ----------------------------------------------------------------------------------- */

static void check_all_logits(const char *name, const char *file, const float *got, uint32_t n,
                             const struct limits *lim)
{
    float *want = read_floats(file, n);
    double max = 0, sq = 0, kl = 0, lse_w = logsumexp(want, n), lse_g = logsumexp(got, n);
    for (uint32_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i], lp = (double)want[i] - lse_w;
        max = fmax(max, fabs(d));
        sq += d * d;
        kl += exp(lp) * (lp - ((double)got[i] - lse_g));
    }
    double rms = sqrt(sq / n);
    printf("%s: logits max %.3g rms %.3g KL %.3g\n", name, max, rms, kl);
    check(max <= lim->max_abs && rms <= lim->rms && kl <= lim->kl, "%s: logits are off", name);
    free(want);
}

static void check_logits(const json_t *p, const float *got, uint32_t n, const struct limits *lim)
{
    const char *name = json_string_value(json_object_get(p, "name"));
    const json_t *ids = json_object_get(p, "top_ids"), *top = json_object_get(p, "top_logits");
    double max = 0;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        size_t id = (size_t)json_integer_value(json_array_get(ids, i));
        max = fmax(max, fabs((double)got[id] - json_number_value(json_array_get(top, i))));
    }
    double lse =
        json_number_value(json_object_get(json_object_get(p, "logits_stats"), "logsumexp"));
    check(max <= lim->max_abs, "%s: the largest logits are off by %g", name, max);
    check(fabs(logsumexp(got, n) - lse) <= lim->max_abs, "%s: logsumexp", name);
    const char *file = json_string_value(json_object_get(p, "logits_file"));
    if (file)
        check_all_logits(name, file, got, n, lim);
}

/* One token of the recorded continuation: the same choice where it was clear, and its probability.
 * The recorded token is fed back whatever ours was, so that all 48 steps are compared. */
static void check_choice(const json_t *p, size_t step, const float *got, uint32_t n,
                         const struct limits *lim)
{
    const char *name = json_string_value(json_object_get(p, "name"));
    double margin = json_number_value(json_array_get(json_object_get(p, "greedy_margins"), step));
    double lp = json_number_value(json_array_get(json_object_get(p, "greedy_logprobs"), step));
    uint32_t want =
        (uint32_t)json_integer_value(json_array_get(json_object_get(p, "greedy_ids"), step));
    if (margin >= lim->margin)
        check(argmax(got, n) == want, "%s: greedy token %zu (margin %g)", name, step, margin);
    double off = fabs((double)got[want] - logsumexp(got, n) - lp);
    check(off <= lim->token_nll, "%s: log probability of greedy token %zu is off by %g", name, step,
          off);
}

/* Prefills every prompt, then decodes all of them together. */
static void test_prompts(struct tr_rig *r, const struct limits *lim)
{
    json_t *all = prompts();
    uint32_t n = (uint32_t)json_array_size(all), n_vocab = r->m->hp.n_vocab, ids[1024];
    for (uint32_t s = 0; s < n; s++) {
        const json_t *p = json_array_get(all, s);
        uint32_t len = get_ids(json_object_get(p, "ids"), ids, 1024);
        const float *got = tr_rig_prefill(r, s, ids, len);
        check_logits(p, got, n_vocab, lim);
        check_choice(p, 0, got, n_vocab, lim);
    }
    for (size_t step = 1; step < GREEDY; step++) {
        for (uint32_t s = 0; s < n; s++) {
            const json_t *fed = json_object_get(json_array_get(all, s), "greedy_ids");
            tr_rig_add(r, s, (uint32_t)json_integer_value(json_array_get(fed, step - 1)), true);
        }
        tr_rig_run(r);
        for (uint32_t s = 0; s < n; s++)
            check_choice(json_array_get(all, s), step, r->logits + (size_t)s * n_vocab, n_vocab,
                         lim);
    }
    for (uint32_t s = 0; s < n; s++)
        tr_rig_reset(r, s);
    json_decref(all);
}

/* --- hidden states ---------------------------------------------------------------------------- */

struct hidden {
    const float *want; /* [stages, positions, dim] */
    uint32_t n_pos, dim, stages;
    double worst;
};

static void see(void *arg, uint32_t stage, const float *x, uint32_t n_rows)
{
    struct hidden *h = arg;
    check(n_rows == h->n_pos, "stage %u has %u rows", stage, n_rows);
    for (uint32_t p = 0; p < h->n_pos && n_rows == h->n_pos; p++) {
        const float *want = h->want + ((size_t)stage * h->n_pos + p) * h->dim;
        double diff = 0, norm = 0;
        for (uint32_t i = 0; i < h->dim; i++) {
            double d = (double)x[(size_t)p * h->dim + i] - (double)want[i];
            diff += d * d;
            norm += (double)want[i] * (double)want[i];
        }
        double off = sqrt(diff / norm);
        h->worst = fmax(h->worst, off);
        check(off <= 1e-4, "hidden state %u of position %u is off by %g of its norm", stage, p,
              off);
    }
    h->stages++;
}

static void test_hidden(struct tr_rig *r)
{
    uint32_t want_stages = r->m->hp.n_layer + 2, ids[8];
    json_t *all = prompts();
    uint32_t n = get_ids(json_object_get(json_array_get(all, 0), "ids"), ids, 8);
    struct hidden h = {.n_pos = n, .dim = r->m->hp.n_embd};
    float *want = read_floats("hidden_short.f32", (size_t)want_stages * h.n_pos * h.dim);
    h.want = want;
    for (uint32_t i = 0; i < n; i++)
        tr_rig_add(r, 0, ids[i], true);
    tr_forward_tap(r->f, see, &h);
    tr_rig_run(r);
    tr_forward_tap(r->f, NULL, NULL);
    tr_rig_reset(r, 0);
    check(h.stages == want_stages, "%u stages", h.stages);
    printf("hidden states: worst %.3g of a row's norm\n", h.worst);
    free(want);
    json_decref(all);
}

/* --- perplexity ------------------------------------------------------------------------------- */

/* Chunks of the text in one sequence, with logits of every row. */
static void test_perplexity(struct tr_rig *r, const struct limits *lim)
{
    char path[128];
    json_t *p = json_load_file(path_of("perplexity.json", path), 0, NULL);
    uint32_t ids[2048], n = get_ids(json_object_get(p, "ids"), ids, 2048);
    uint32_t n_vocab = r->m->hp.n_vocab;
    float *want = read_floats("ppl_nll.f32", n - 1);
    double sum = 0, worst = 0;
    for (uint32_t i = 0, begun = 0; i < n - 1; i++) {
        tr_rig_add(r, PPL_SEQ, ids[i], true);
        if (r->n_rows < r->c.max_rows && i + 1 < n - 1)
            continue;
        uint32_t rows = r->n_rows;
        tr_rig_run(r);
        for (uint32_t k = 0; k < rows; k++) {
            const float *x = r->logits + (size_t)k * n_vocab;
            double nll = logsumexp(x, n_vocab) - (double)x[ids[begun + k + 1]];
            sum += nll;
            worst = fmax(worst, fabs(nll - (double)want[begun + k]));
        }
        begun += rows;
    }
    double mean = sum / (n - 1), off = mean - json_number_value(json_object_get(p, "mean_nll"));
    printf("perplexity %.4f, mean NLL off by %.3g, worst token %.3g\n", exp(mean), off, worst);
    check(fabs(off) <= lim->mean_nll, "mean NLL is off by %g", off);
    check(worst <= lim->token_nll, "a token's NLL is off by %g", worst);
    free(want);
    json_decref(p);
}

static struct tr_rig *rig(enum tr_ops_math math, enum tr_kv_type kv, enum tr_cpu_level level,
                          uint32_t n_threads, uint32_t max_rows, uint64_t seed)
{
    const char *file = getenv(model->file_env);
    return tr_rig_open(&(struct tr_rig_config){.path = file && *file ? file : model->file,
                                               .math = math,
                                               .level = level,
                                               .kv_type = kv,
                                               .n_threads = n_threads,
                                               .n_ctx = 2048,
                                               .n_seqs = N_SEQS,
                                               .max_rows = max_rows,
                                               .seed = seed});
}

static void test_arithmetic(enum tr_ops_math math, enum tr_kv_type kv, const struct limits *lim)
{
    struct tr_rig *r = rig(math, kv, TR_CPU_AVX512, 2, model->chunk, 1);
    if (lim == &strict)
        test_hidden(r);
    test_prompts(r, lim);
    test_perplexity(r, lim);
    tr_rig_close(r);
}

/* --- bit equality ----------------------------------------------------------------------------- */

/* Logits of every position of a text, [n, n_vocab], in one prefill. */
static float *one_prefill(struct tr_rig *r, const uint32_t *ids, uint32_t n)
{
    size_t bytes = (size_t)n * r->m->hp.n_vocab * sizeof(float);
    float *x = malloc(bytes);
    if (!x)
        abort();
    for (uint32_t i = 0; i < n; i++)
        tr_rig_add(r, 0, ids[i], true);
    tr_rig_run(r);
    memcpy(x, r->logits, bytes);
    tr_rig_reset(r, 0);
    return x;
}

static uint32_t text_ids(uint32_t *ids, uint32_t n)
{
    char path[128];
    json_t *p = json_load_file(path_of("perplexity.json", path), 0, NULL);
    uint32_t all[2048];
    if (get_ids(json_object_get(p, "ids"), all, 2048) < n)
        abort();
    memcpy(ids, all, n * sizeof(*ids));
    json_decref(p);
    return n;
}

static void test_levels(void)
{
    uint32_t ids[12], n = text_ids(ids, 12);
    float *want = NULL;
    size_t bytes = 0;
    for (int level = TR_CPU_GENERIC; level <= TR_CPU_AVX512; level++) {
        struct tr_rig *r = rig(TR_OPS_INT8, TR_KV_F16, (enum tr_cpu_level)level, 2, 16, 1);
        float *got = one_prefill(r, ids, n);
        bytes = (size_t)n * r->m->hp.n_vocab * sizeof(float);
        if (want)
            check(memcmp(want, got, bytes) == 0, "level %s differs from generic",
                  tr_cpu_level_name(tr_cpu_level_find((enum tr_cpu_level)level)));
        else
            want = got, got = NULL;
        free(got);
        tr_rig_close(r);
    }
    free(want);
}

/* The text in random chunks and single tokens, between rows of other sequences. */
static void test_p10(enum tr_ops_math math, enum tr_kv_type kv)
{
    enum { OTHERS = 6 };
    uint32_t ids[512], n_pos = model->bytes_n;
    text_ids(ids, n_pos);
    struct tr_rig *a = rig(math, kv, TR_CPU_AVX512, 1, n_pos, 1);
    struct tr_rig *b = rig(math, kv, TR_CPU_AVX512, 2, 96, 2);
    size_t row = a->m->hp.n_vocab * sizeof(float);
    float *want = one_prefill(a, ids, n_pos);
    while (b->len[OTHERS] < n_pos) {
        uint32_t before = tr_rig_random(b, OTHERS), first = b->len[OTHERS], outs[64], n = 0;
        uint32_t chunk = tr_rig_random(b, 3) ? 1 + tr_rig_random(b, 3) : 1 + tr_rig_random(b, 60);
        for (uint32_t s = 0; s < OTHERS; s++) {
            if (s == before)
                for (uint32_t i = 0; i < chunk && first + i < n_pos; i++)
                    outs[n++] = tr_rig_add(b, OTHERS, ids[first + i], true);
            if (tr_rig_random(b, 2))
                tr_rig_add(b, s, ids[(b->len[s] * 7 + s) % n_pos], tr_rig_random(b, 2) != 0);
        }
        tr_rig_run(b);
        for (uint32_t i = 0; i < n; i++)
            check(memcmp((char *)b->logits + outs[i] * row, (char *)want + (first + i) * row,
                         row) == 0,
                  "math %d kv %d: position %u differs", (int)math, (int)kv, first + i);
    }
    free(want);
    tr_rig_close(a);
    tr_rig_close(b);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (argc > 2 && !strcmp(argv[2], models[1].name))
        model = &models[1];
    if (!strcmp(mode, "f32")) {
        test_arithmetic(TR_OPS_F32, TR_KV_F32, &strict);
    } else if (!strcmp(mode, "blas")) {
        test_arithmetic(TR_OPS_BLAS, TR_KV_F32, &strict);
    } else if (!strcmp(mode, "f32-f16")) {
        test_arithmetic(TR_OPS_F32, TR_KV_F16, &middle);
    } else if (!strcmp(mode, "int8")) {
        test_arithmetic(TR_OPS_INT8, TR_KV_F16, &loose);
    } else if (!strcmp(mode, "int8-q8")) {
        test_arithmetic(TR_OPS_INT8, TR_KV_Q8_0, &loose);
    } else if (!strcmp(mode, "levels")) {
        test_levels();
    } else if (!strcmp(mode, "p10")) {
        test_p10(TR_OPS_INT8, TR_KV_F16);
        test_p10(TR_OPS_INT8, TR_KV_Q8_0);
        test_p10(TR_OPS_F32, TR_KV_F32);
    } else {
        fprintf(stderr, "usage: %s f32|blas|f32-f16|int8|int8-q8|levels|p10 [gemma3]\n", argv[0]);
        return 2;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
