/* SPDX-License-Identifier: Apache-2.0 */
/* Small random models of every architecture and way of scaling angles (tests/golden/tiny) against
 * what another implementation computed: logits and greedy tokens in f32 and blas, and in int8 that
 * they are near; and by bytes, that a row is the same in one prefill, in chunks, token by token, in
 * company, and on every instruction level. */
#include "check.h"
#include "testrig/model_rig.h"

#include <jansson.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIR "tests/golden/tiny/"
enum { MAX_IDS = 128, N_SEQS = 3, MAX_ROWS = 160 };

/* One row of expected.jsonl: a prompt, its greedy continuation, and logits [n_positions, n_vocab]. */
struct run {
    char name[32], path[96];
    uint32_t ids[MAX_IDS], n_prompt, n_ids, positions[MAX_IDS], n_positions;
    double margins[MAX_IDS]; /* of ids[n_prompt + i] */
    uint32_t n_ctx, n_vocab;
    float *logits;
};

static uint32_t get_u32s(const json_t *row, const char *key, uint32_t *out, uint32_t max)
{
    const json_t *a = json_object_get(row, key);
    uint32_t n = (uint32_t)json_array_size(a);
    if (n == 0 || n > max)
        abort();
    for (uint32_t i = 0; i < n; i++)
        out[i] = (uint32_t)json_integer_value(json_array_get(a, i));
    return n;
}

/* Runs of one model follow each other, in expected.jsonl as in the file of logits. */
static void read_run(const json_t *row, FILE **logits, struct run *r)
{
    char path[96];
    const char *name = json_string_value(json_object_get(row, "model"));
    bool again = !strcmp(r->name, name);
    snprintf(r->name, sizeof(r->name), "%s", name);
    snprintf(r->path, sizeof(r->path), DIR "%s.gguf", name);
    snprintf(path, sizeof(path), DIR "%s.f32", name);
    r->n_ctx = (uint32_t)json_integer_value(json_object_get(row, "n_ctx"));
    r->n_vocab = (uint32_t)json_integer_value(json_object_get(row, "n_vocab"));
    r->n_prompt = get_u32s(row, "ids", r->ids, MAX_IDS);
    r->n_ids =
        r->n_prompt + get_u32s(row, "greedy_ids", r->ids + r->n_prompt, MAX_IDS - r->n_prompt);
    r->n_positions = get_u32s(row, "positions", r->positions, MAX_IDS);
    for (uint32_t i = r->n_prompt; i < r->n_ids; i++)
        r->margins[i - r->n_prompt] = json_number_value(
            json_array_get(json_object_get(row, "greedy_margins"), i - r->n_prompt));
    if (!again) {
        if (*logits)
            fclose(*logits);
        *logits = fopen(path, "rb");
    }
    size_t n = (size_t)r->n_positions * r->n_vocab;
    r->logits = realloc(r->logits, n * sizeof(float));
    if (!*logits || !r->logits || fread(r->logits, sizeof(float), n, *logits) != n) {
        fprintf(stderr, "cannot read %zu floats of %s\n", n, path);
        exit(2);
    }
}

static struct tr_rig *rig(const struct run *run, enum tr_ops_math math, enum tr_kv_type kv,
                          int level)
{
    return tr_rig_open(&(struct tr_rig_config){.path = run->path,
                                               .math = math,
                                               .level = (enum tr_cpu_level)level,
                                               .kv_type = kv,
                                               .n_threads = 2,
                                               .n_ctx = run->n_ctx,
                                               .n_seqs = N_SEQS,
                                               .max_rows = MAX_ROWS,
                                               .seed = 1});
}

/* Logits of every position of prompt and continuation, in one prefill. */
static float *one_prefill(struct tr_rig *r, const struct run *run)
{
    size_t bytes = (size_t)run->n_ids * run->n_vocab * sizeof(float);
    float *x = malloc(bytes);
    if (!x)
        abort();
    for (uint32_t i = 0; i < run->n_ids; i++)
        tr_rig_add(r, 0, run->ids[i], true);
    tr_rig_run(r);
    memcpy(x, r->logits, bytes);
    tr_rig_reset(r, 0);
    return x;
}

static uint32_t argmax(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* max_abs and rms are limits; a greedy token counts where its margin is at least `margin`. */
static void test_values(const struct run *run, enum tr_ops_math math, enum tr_kv_type kv,
                        double max_abs, double rms, double margin)
{
    struct tr_rig *r = rig(run, math, kv, TR_CPU_AVX512);
    float *got = one_prefill(r, run);
    double max = 0, sq = 0, n = (double)run->n_positions * run->n_vocab;
    for (uint32_t p = 0; p < run->n_positions; p++)
        for (uint32_t i = 0; i < run->n_vocab; i++) {
            double d = (double)got[run->positions[p] * run->n_vocab + i] -
                       (double)run->logits[p * run->n_vocab + i];
            max = fmax(max, fabs(d));
            sq += d * d;
        }
    printf("%s, %u positions, math %d: logits max %.3g rms %.3g\n", run->name, run->n_ids,
           (int)math, max, sqrt(sq / n));
    check(max <= max_abs && sqrt(sq / n) <= rms, "%s: logits are off by %g, rms %g", run->name, max,
          sqrt(sq / n));
    for (uint32_t i = run->n_prompt; i < run->n_ids; i++)
        if (run->margins[i - run->n_prompt] >= margin)
            check(argmax(got + (size_t)(i - 1) * run->n_vocab, run->n_vocab) == run->ids[i],
                  "%s: greedy token %u", run->name, i - run->n_prompt);
    free(got);
    tr_rig_close(r);
}

/* In chunks of at most `chunk`, between rows of other sequences. */
static void test_chunks(struct tr_rig *r, const struct run *run, const float *want, uint32_t chunk)
{
    size_t row = run->n_vocab * sizeof(float);
    for (uint32_t s = 0; s < N_SEQS; s++)
        tr_rig_reset(r, s);
    while (r->len[1] < run->n_ids) {
        uint32_t first = r->len[1], outs[MAX_IDS], n = 0;
        uint32_t len = 1 + tr_rig_random(r, chunk);
        for (uint32_t s = 0; s < N_SEQS; s++)
            for (uint32_t i = 0; s == 1 && i < len && first + i < run->n_ids; i++)
                outs[n++] = tr_rig_add(r, 1, run->ids[first + i], true);
        for (uint32_t s = 0; s < N_SEQS; s += 2)
            if (r->len[s] < run->n_ids && tr_rig_random(r, 2))
                tr_rig_add(r, s, run->ids[(r->len[s] * 7 + s) % run->n_ids], true);
        tr_rig_run(r);
        for (uint32_t i = 0; i < n; i++)
            check(memcmp((char *)r->logits + outs[i] * row, (const char *)want + (first + i) * row,
                         row) == 0,
                  "%s: position %u differs in chunks of %u", run->name, first + i, chunk);
    }
}

static void test_bytes(const struct run *run, enum tr_ops_math math, enum tr_kv_type kv)
{
    struct tr_rig *r = rig(run, math, kv, TR_CPU_AVX512);
    float *want = one_prefill(r, run);
    for (uint32_t chunk = 1; chunk <= 64; chunk *= 4)
        test_chunks(r, run, want, chunk);
    tr_rig_close(r);
    for (int level = TR_CPU_GENERIC; level < TR_CPU_AVX512; level++) {
        r = rig(run, math, kv, level);
        float *got = one_prefill(r, run);
        check(memcmp(want, got, (size_t)run->n_ids * run->n_vocab * sizeof(float)) == 0,
              "%s: level %s differs", run->name,
              tr_cpu_level_name(tr_cpu_level_find((enum tr_cpu_level)level)));
        free(got);
        tr_rig_close(r);
    }
    free(want);
}

int main(void)
{
    FILE *f = fopen(DIR "expected.jsonl", "r"), *logits = NULL;
    struct run run = {0};
    char *line = NULL;
    size_t cap = 0;
    while (f && getline(&line, &cap, f) > 0) {
        json_t *row = json_loads(line, 0, NULL);
        read_run(row, &logits, &run);
        test_values(&run, TR_OPS_F32, TR_KV_F32, 2e-4, 5e-5, 0.001);
        test_values(&run, TR_OPS_BLAS, TR_KV_F32, 2e-4, 5e-5, 0.001);
        test_values(&run, TR_OPS_F32, TR_KV_F16, 0.06, 0.015, 0.1);
        test_values(&run, TR_OPS_INT8, TR_KV_F16, 0.6, 0.12, 1);
        test_bytes(&run, TR_OPS_INT8, TR_KV_F16);
        test_bytes(&run, TR_OPS_F32, TR_KV_F32);
        json_decref(row);
    }
    free(line);
    free(run.logits);
    if (f)
        fclose(f);
    if (logits)
        fclose(logits);
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
