/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 1000 };

static struct tr_sampler *sampler;
static float logits[VOCAB];
static struct tr_params params;
static struct tr_extra extra;
static struct tr_sample_in in;

static void setup(void)
{
    sampler = tr_sampler_new(2, VOCAB, 256, NULL);
    params = (struct tr_params){
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .max_tokens = 64, .seed = 1};
    in = (struct tr_sample_in){.params = &params};
    memset(&extra, 0, sizeof(extra));
    srand(3);
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = (float)(rand() % 20000) / 1000.0F - 10.0F;
}

static void teardown(void)
{
    tr_sampler_free(sampler);
}

TestSuite(sample, .init = setup, .fini = teardown);

static uint32_t draw(struct tr_lp *lp)
{
    float copy[VOCAB];
    memcpy(copy, logits, sizeof(copy));
    return tr_sample(sampler, 1, copy, &in, lp);
}

static uint32_t best(void)
{
    uint32_t b = 0;
    for (uint32_t i = 1; i < VOCAB; i++)
        b = logits[i] > logits[b] ? i : b;
    return b;
}

Test(sample, greedy_takes_the_lowest_of_equal_ids)
{
    params.temperature = 0;
    logits[700] = logits[130] = logits[999] = 50;
    cr_assert_eq(draw(NULL), 130);
    logits[130] = NAN;
    cr_assert_eq(draw(NULL), 700);
}

Test(sample, tiny_temperatures_are_greedy)
{
    static const double tiny[] = {1e-4, 1e-10, 1e-38, 5e-324, 0.0, -0.0};
    uint32_t want = best();
    extra.n_bias = 1;
    extra.bias[0] = (struct tr_bias){.id = (want + 1) % VOCAB, .value = -100};
    in.extra = &extra;
    for (size_t i = 0; i < sizeof(tiny) / sizeof(tiny[0]); i++) {
        params.temperature = tiny[i];
        struct tr_lp lp;
        cr_assert_eq(draw(&lp), want);
        cr_assert(isfinite(lp.logprob));
    }
}

Test(sample, huge_temperature_is_a_number)
{
    params.temperature = 1e15;
    for (uint32_t i = 0; i < 100; i++) {
        in.n_out = 0;
        params.seed = i;
        cr_assert_lt(draw(NULL), VOCAB);
    }
}

Test(sample, bias_of_100_forces_with_a_finite_logprob_of_the_models_own)
{
    params.n_top = 5;
    in.extra = &extra;
    extra.n_bias = 1;
    extra.bias[0] = (struct tr_bias){.id = 17, .value = 100};
    for (int t = 0; t < 3; t++) {
        params.temperature = t;
        struct tr_lp lp;
        cr_assert_eq(draw(&lp), 17);
        cr_assert_eq(lp.id, 17);
        cr_assert(isfinite(lp.logprob) && lp.logprob < 0 && lp.logprob > -40);
        cr_assert_eq(lp.n_top, 5);
        cr_assert_eq(lp.top_id[0], best());
    }
}

Test(sample, logprobs_are_the_log_softmax_of_the_raw_logits)
{
    params.temperature = 0.7;
    params.top_k = 40;
    params.n_top = TR_MAX_TOP;
    logits[5] = logits[6];
    double sum = 0;
    for (uint32_t i = 0; i < VOCAB; i++)
        sum += exp((double)logits[i]);
    struct tr_lp lp;
    uint32_t id = draw(&lp);
    cr_assert_float_eq(lp.logprob, (double)logits[id] - log(sum), 1e-5);
    for (uint32_t i = 0; i < lp.n_top; i++) {
        cr_assert_float_eq(lp.top_logprob[i], (double)logits[lp.top_id[i]] - log(sum), 1e-5);
        cr_assert(!i || lp.top_logprob[i] < lp.top_logprob[i - 1] ||
                  (lp.top_logprob[i] == lp.top_logprob[i - 1] && lp.top_id[i] > lp.top_id[i - 1]));
    }
    struct tr_lp echo;
    tr_sample_logprob(sampler, 0, logits, id, TR_MAX_TOP, &echo);
    cr_assert(echo.id == lp.id && echo.logprob == lp.logprob && echo.n_top == lp.n_top);
    cr_assert_eq(memcmp(echo.top_id, lp.top_id, sizeof(lp.top_id)), 0);
}

Test(sample, infinite_logits_give_finite_logprobs)
{
    logits[3] = -INFINITY;
    logits[4] = NAN;
    struct tr_lp lp;
    tr_sample_logprob(sampler, 0, logits, 3, 4, &lp);
    cr_assert_eq(lp.logprob, TR_LOGPROB_MIN);
    tr_sample_logprob(sampler, 0, logits, 4, 4, &lp);
    cr_assert_eq(lp.logprob, TR_LOGPROB_MIN);
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = -INFINITY;
    tr_sample_logprob(sampler, 0, logits, 0, 4, &lp);
    cr_assert(isfinite(lp.logprob));
    cr_assert_lt(draw(NULL), VOCAB);
}

Test(sample, end_tokens_are_masked_before_min_tokens_and_with_ignore_eos)
{
    static const uint32_t eog[] = {7, 8};
    in.eog = eog;
    in.n_eog = 2;
    in.extra = &extra;
    extra.n_stop = 1;
    extra.stop_ids[0] = 9;
    logits[7] = 60;
    logits[8] = 59;
    logits[9] = 58;
    params.temperature = 0;
    cr_assert_eq(draw(NULL), 7);
    params.min_tokens = 1;
    cr_assert(draw(NULL) != 7 && draw(NULL) != 8 && draw(NULL) != 9);
    params.min_tokens = 0;
    params.flags = TR_REQ_IGNORE_EOS;
    cr_assert_eq(draw(NULL), 9, "a stop id is not an end of turn");
}

Test(sample, scratch_is_clean_after_every_call)
{
    static const uint32_t ids[] = {1, 2, 3, 2};
    in.ids = ids;
    in.prompt_len = 2;
    in.n_out = 2;
    params.temperature = 0;
    uint32_t plain = draw(NULL);
    params.frequency_penalty = 2;
    params.repetition_penalty = 1.8;
    draw(NULL);
    params.frequency_penalty = 0;
    params.repetition_penalty = 1;
    cr_assert_eq(draw(NULL), plain);
}

Test(sample, a_draw_is_a_function_of_seed_choice_and_index)
{
    cr_assert_eq(tr_sample_draw(1, 2, 3), tr_sample_draw(1, 2, 3));
    cr_assert_neq(tr_sample_draw(1, 2, 3), tr_sample_draw(1, 3, 2));
    cr_assert_neq(tr_sample_draw(0, 0, 0), tr_sample_draw(0, 0, 1));
    cr_assert_neq(tr_sample_draw(0, 0, 0), tr_sample_draw(1, 0, 0));
}

/* Chi-squared with 99 degrees of freedom: above 160 happens once in ten thousand. */
static double chi2_uniform(double (*f)(uint32_t))
{
    enum { CELLS = 100, N = 100000 };
    uint32_t n[CELLS] = {0};
    double chi2 = 0;
    for (uint32_t i = 0; i < N; i++) {
        double u = f(i);
        cr_assert(u >= 0 && u < 1);
        n[(uint32_t)(u * CELLS)]++;
    }
    for (uint32_t c = 0; c < CELLS; c++)
        chi2 += (n[c] - 1000.0) * (n[c] - 1000.0) / 1000.0;
    return chi2;
}

static double along_seeds(uint32_t i)
{
    return tr_sample_draw(i, 0, 0);
}

static double along_choices(uint32_t i)
{
    return tr_sample_draw(42, i, 5);
}

static double along_tokens(uint32_t i)
{
    return tr_sample_draw(42, 0, i);
}

static double neighbours(uint32_t i)
{
    double d = tr_sample_draw(9, 0, i) - tr_sample_draw(9, 0, i + 1);
    return d < 0 ? d + 1 : d;
}

Test(sample, draws_are_uniform_along_every_axis)
{
    cr_assert_lt(chi2_uniform(along_seeds), 160);
    cr_assert_lt(chi2_uniform(along_choices), 160);
    cr_assert_lt(chi2_uniform(along_tokens), 160);
    cr_assert_lt(chi2_uniform(neighbours), 160);
}

/* The tokens drawn follow the distribution that is claimed, with and without a cut. */
static void check_frequencies(void)
{
    static struct tr_cand want[VOCAB];
    float copy[VOCAB];
    uint32_t seen[VOCAB] = {0};
    memcpy(copy, logits, sizeof(copy));
    uint32_t n = tr_sample_probs(sampler, 0, copy, &in, want);
    enum { N = 40000 };
    for (uint32_t i = 0; i < N; i++) {
        params.seed = i;
        seen[draw(NULL)]++;
    }
    double chi2 = 0, rest = N, rest_want = N;
    uint32_t cells = 0;
    for (uint32_t i = 0; i < n; i++) {
        double e = want[i].v * N;
        if (e < 10)
            continue;
        chi2 += (seen[want[i].id] - e) * (seen[want[i].id] - e) / e;
        rest -= seen[want[i].id];
        rest_want -= e;
        cells++;
    }
    if (rest_want > 10)
        chi2 += (rest - rest_want) * (rest - rest_want) / rest_want;
    /* Mean `cells`, deviation sqrt(2 cells): five deviations. */
    cr_assert_lt(chi2, cells + 5 * sqrt(2.0 * cells));
    cr_assert_gt(cells, 3);
}

Test(sample, tokens_come_as_often_as_their_probability_says)
{
    static uint32_t ids[] = {1, 2, 3};
    in.ids = ids;
    in.prompt_len = 3;
    check_frequencies();
    params.repetition_penalty = 1.3;
    ids[0] = best();
    check_frequencies();
    params.top_k = 30;
    params.top_p = 0.9;
    check_frequencies();
    params.top_k = 0;
    params.temperature = 1.7;
    params.min_p = 0.02;
    check_frequencies();
}

Test(sample, vocabularies_that_do_not_fill_a_block)
{
    for (uint32_t n = 1; n <= 130; n++) {
        struct tr_sampler *s = tr_sampler_new(1, n, 16, NULL);
        float x[130];
        for (uint32_t i = 0; i < n; i++)
            x[i] = (float)((i * 37) % n);
        params.temperature = 0;
        uint32_t id = tr_sample(s, 0, x, &in, NULL);
        cr_assert_lt(id, n);
        params.temperature = 1;
        params.top_p = 0.5;
        cr_assert_lt(tr_sample(s, 0, x, &in, NULL), n);
        tr_sampler_free(s);
    }
}

static int falls(const void *a, const void *b)
{
    const struct tr_cand *x = a;
    const struct tr_cand *y = b;
    return x->v != y->v ? (x->v < y->v ? 1 : -1) : (x->id > y->id) - (x->id < y->id);
}

/* Steps 5 to 8 by their meaning: everything is sorted, and then looked at one after the other. */
static uint32_t draw_plainly(double u)
{
    static struct tr_cand c[VOCAB];
    static float maxima[VOCAB];
    static double sums[VOCAB], w[VOCAB];
    struct tr_dist d;
    uint32_t n = VOCAB, kept = 0;
    for (uint32_t i = 0; i < VOCAB; i++)
        c[i] = (struct tr_cand){.v = (double)logits[i], .id = i};
    qsort(c, VOCAB, sizeof(*c), falls);
    struct tr_curve curve = {.ref = c[0].v, .scale = 1 / params.temperature};
    tr_dist_scan(&d, logits, VOCAB, maxima, sums);
    double total = tr_dist_sum(&d, d.max, (float)curve.scale);
    for (uint32_t i = 0; i < VOCAB; i++)
        w[i] = tr_curve_at(&curve, c[i].v);
    if (params.top_k) {
        struct tr_run all = {0};
        for (n = 0; n < VOCAB && c[n].v >= c[params.top_k - 1].v; n++)
            tr_run_add(&all, w[n]);
        total = tr_run_sum(&all);
    }
    struct tr_run run = {0}, drawn = {0};
    for (; kept < n && w[kept] > 0 && w[kept] >= params.min_p * w[0]; kept++) {
        if (kept && params.top_p < 1 && tr_run_sum(&run) >= params.top_p * total)
            break;
        tr_run_add(&run, w[kept]);
    }
    for (uint32_t i = 0; i < kept; i++) {
        tr_run_add(&drawn, w[i]);
        if (tr_run_sum(&drawn) > u * tr_run_sum(&run))
            return c[i].id;
    }
    return c[kept - 1].id;
}

Test(sample, how_the_largest_are_searched_does_not_matter)
{
    for (uint32_t round = 0; round < 3000; round++) {
        double spread = round % 4 == 0 ? 0.5 : round % 4 == 1 ? 200 : 20;
        for (uint32_t i = 0; i < VOCAB; i++)
            logits[i] = (float)((double)(rand() % 100000) / 1e5 * spread);
        if (round % 3 == 0)
            for (uint32_t i = 0; i < VOCAB; i++)
                logits[i] = roundf(logits[i]);
        params = (struct tr_params){.temperature = 0.1 + rand() % 40 * 0.1,
                                    .top_p = round % 5 ? (rand() % 1000 + 1) / 1000.0 : 1,
                                    .min_p = round % 3 ? 0 : rand() % 100 / 1000.0,
                                    .top_k = round % 7 ? 0 : 1 + rand() % (VOCAB - 1),
                                    .repetition_penalty = 1,
                                    .seed = round};
        if (params.top_p < 1 || params.min_p > 0 || params.top_k > 0)
            cr_assert_eq(draw(NULL), draw_plainly(tr_sample_draw(round, 0, 0)), "round %u", round);
    }
}

/* Speculation samples behind tokens that are not in the ring yet. */
Test(sample, drafts_count_as_if_they_were_in_the_output)
{
    uint32_t ids[40];
    struct tr_lp a, b;
    params = (struct tr_params){.temperature = 0.9,
                                .top_p = 1,
                                .repetition_penalty = 1.2,
                                .presence_penalty = 0.5,
                                .frequency_penalty = 0.3,
                                .min_tokens = 12,
                                .n_top = 4,
                                .seed = 5};
    extra.n_stop = 1;
    extra.stop_ids[0] = best();
    for (uint32_t i = 0; i < 40; i++)
        ids[i] = (uint32_t)rand() % 30 ? (uint32_t)rand() % 60 : best();
    in.extra = &extra;
    in.ids = ids;
    in.prompt_len = 20;
    for (in.n_out = 0; in.n_out <= 20; in.n_out++) {
        uint32_t want = draw(&a);
        for (uint32_t n = 1; n <= in.n_out && n <= 8; n++) {
            uint32_t drafts[8], until = in.prompt_len + in.n_out - n;
            memcpy(drafts, ids + until, n * sizeof(*ids));
            memset(ids + until, 0xff, n * sizeof(*ids)); /* whatever stands there */
            in.drafts = drafts;
            in.n_drafts = n;
            cr_assert_eq(draw(&b), want);
            cr_assert_eq(memcmp(&a, &b, sizeof(a)), 0);
            memcpy(ids + until, drafts, n * sizeof(*ids));
        }
        in.n_drafts = 0;
    }
}

/* ---- with a grammar ---- */

static uint32_t mask[(VOCAB + 31) / 32];

static void allow(uint32_t id)
{
    mask[id / 32] |= 1u << (id % 32);
    in.mask = mask;
}

Test(sample, only_what_the_mask_allows_is_drawn_and_its_logprob_is_the_models)
{
    static const double temperatures[] = {0, 1, 2};
    extra.n_bias = 2;
    extra.bias[0] = (struct tr_bias){.id = best(), .value = 100};
    extra.bias[1] = (struct tr_bias){.id = 999, .value = -3};
    in.extra = &extra;
    allow(999);
    allow(31);
    allow(32);
    allow(640);
    for (uint32_t i = 0; i < 600; i++) {
        struct tr_lp lp, model;
        params.temperature = temperatures[i % 3];
        params.top_k = i % 4 == 1 ? 1 : i % 4 == 2 ? 3 : 0;
        params.top_p = i % 5 == 1 ? 0.5 : 1;
        params.seed = i;
        uint32_t id = draw(&lp);
        cr_assert(id == 999 || id == 31 || id == 32 || id == 640, "%u", id);
        tr_sample_logprob(sampler, 0, logits, id, 0, &model);
        cr_assert_eq(lp.logprob, model.logprob);
    }
}

Test(sample, a_mask_that_leaves_nothing_is_told)
{
    struct tr_cand out[VOCAB];
    float copy[VOCAB];
    uint32_t eog = 5;
    in.mask = mask;
    cr_assert_eq(draw(NULL), TR_NO_TOKEN);
    allow(5);
    cr_assert_eq(draw(NULL), 5);
    in.eog = &eog;
    in.n_eog = 1;
    params.flags = TR_REQ_IGNORE_EOS;
    cr_assert_eq(draw(NULL), TR_NO_TOKEN);
    params.temperature = 0;
    cr_assert_eq(draw(NULL), TR_NO_TOKEN);
    memcpy(copy, logits, sizeof(copy));
    cr_assert_eq(tr_sample_probs(sampler, 0, copy, &in, out), 0);
    allow(6);
    logits[6] = NAN;
    cr_assert_eq(draw(NULL), TR_NO_TOKEN);
}

Test(sample, a_mask_of_all_changes_nothing)
{
    memset(mask, 0xff, sizeof(mask));
    for (uint32_t i = 0; i < 200; i++) {
        params.seed = i;
        params.top_p = i % 2 ? 0.9 : 1;
        in.mask = NULL;
        uint32_t id = draw(NULL);
        in.mask = mask;
        cr_assert_eq(draw(NULL), id);
    }
}

/* Greedy, taken away one after the other: all that are allowed come, in order, and no other. */
Test(sample, masks_of_any_density_leave_what_they_allow)
{
    params.temperature = 0;
    for (uint32_t density = 1; density < 100; density += 7) {
        uint32_t n = 0, seen = 0;
        memset(mask, 0, sizeof(mask));
        mask[(VOCAB - 1) / 32] = UINT32_MAX << (VOCAB % 32); /* beyond the vocabulary: nothing */
        for (uint32_t id = 0; id < VOCAB; id++)
            if ((uint32_t)rand() % 100 < density && ++n)
                allow(id);
        in.mask = mask;
        for (uint32_t id; (id = draw(NULL)) != TR_NO_TOKEN; seen++) {
            cr_assert(id < VOCAB && (mask[id / 32] >> (id % 32) & 1));
            for (uint32_t i = 0; i < VOCAB; i++)
                cr_assert(!(mask[i / 32] >> (i % 32) & 1) || logits[i] <= logits[id]);
            mask[id / 32] &= ~(1u << (id % 32));
        }
        cr_assert_eq(seen, n);
    }
}
