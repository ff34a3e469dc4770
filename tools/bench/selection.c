/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/selection.h"

#include "base/clock.h"
#include "engine/sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 60, PROMPT = 100, OUT = 100 };

static const struct {
    const char *name;
    struct tr_params params;
} ways[] = {
    {"greedy", {.top_p = 1, .repetition_penalty = 1}},
    {"temperature 1", {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 3}},
    {"top_k 40", {.temperature = 1, .top_p = 1, .top_k = 40, .repetition_penalty = 1, .seed = 3}},
    {"top_p 0.95", {.temperature = 1, .top_p = 0.95, .repetition_penalty = 1, .seed = 3}},
    {"min_p 0.05",
     {.temperature = 1, .top_p = 1, .min_p = 0.05, .repetition_penalty = 1, .seed = 3}},
    {"greedy repetition_penalty 1.1", {.top_p = 1, .repetition_penalty = 1.1}},
};

/* In (0, 1), the same numbers each time. */
static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return ((double)(*state >> 40) + 0.5) / (double)(1 << 24);
}

/* Normal numbers (Box and Muller), and three that stand out. */
static void fill(float *logits, uint32_t n)
{
    uint64_t state = 1;
    for (uint32_t i = 0; i < n; i++) {
        double r = sqrt(-2 * log(uniform(&state)));
        logits[i] = (float)(3 * r * cos(6.283185307179586 * uniform(&state)));
    }
    logits[777] = 16;
    logits[778] = 15;
    logits[99] = 15.5F;
}

/* All ways of choosing from n logits; `work` is as long.  Selection changes its logits. */
static void measure(struct tr_sampler *s, const float *logits, float *work, uint32_t n)
{
    uint32_t ids[PROMPT + OUT];
    for (uint32_t i = 0; i < PROMPT + OUT; i++)
        ids[i] = i * 37;
    for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
        struct tr_sample_in in = {
            .params = &ways[k].params, .ids = ids, .prompt_len = PROMPT, .n_out = OUT};
        uint64_t best = UINT64_MAX;
        for (int i = 0; i < TRIES; i++) {
            memcpy(work, logits, n * sizeof *work);
            uint64_t began = tr_now_ns();
            (void)tr_sample(s, 0, work, &in, NULL);
            uint64_t ns = tr_now_ns() - began;
            best = ns < best ? ns : best;
        }
        printf("%u,%s,%.1f\n", n, ways[k].name, (double)best / 1000.0);
        fflush(stdout);
    }
}

static int bench_vocabulary(uint32_t n)
{
    struct tr_sampler *s = tr_sampler_new(1, n, 2048, NULL);
    float *logits = malloc(n * sizeof *logits);
    float *work = malloc(n * sizeof *work);
    int ret = -1;
    if (s && logits && work) {
        fill(logits, n);
        measure(s, logits, work, n);
        ret = 0;
    }
    free(logits);
    free(work);
    tr_sampler_free(s);
    return ret;
}

int tr_bench_selection_main(int argc, char **argv)
{
    if (argc > 1) {
        bool asked = argc == 2 && strcmp(argv[1], "--help") == 0;
        fputs("usage: tokenring bench selection\n", asked ? stdout : stderr);
        return asked ? 0 : 2;
    }
    puts("vocabulary,how,us");
    if (bench_vocabulary(49152) == 0 && bench_vocabulary(262144) == 0)
        return 0;
    fputs("bench selection: no memory\n", stderr);
    return 1;
}
