/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cost.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

/* A machine: what a step takes there, in ns. */
static const double small_model[TR_COST_PARTS] = {5e6, 1.5e5, 100, 4e5, 60, 2e5};
static const double large_model[TR_COST_PARTS] = {3e8, 1e7, 5000, 2.5e7, 4000, 1e6};
enum { SMALL_BYTES = 92 << 20 };
#define LARGE_BYTES (4500ull << 20)

static double truth(const double *price, const struct tr_cost_work *w)
{
    double ns = 0;
    for (int i = 0; i < TR_COST_PARTS; i++)
        ns += price[i] * (double)w->n[i];
    return ns;
}

static double uniform(double lo, double hi)
{
    return lo + (hi - lo) * ((double)rand() / RAND_MAX);
}

static struct tr_cost_work decode(uint32_t n, uint32_t pos)
{
    struct tr_cost_work w = {.n[TR_COST_STEP] = 1};
    for (uint32_t i = 0; i < n; i++)
        tr_cost_add_decode(&w, pos);
    return w;
}

/* Steps with a few who decode, and a prompt in every other one. */
static void live(struct tr_cost *c, const double *price, int steps, double noise)
{
    for (int i = 0; i < steps; i++) {
        struct tr_cost_work w = decode((uint32_t)(rand() % 8), 100 + (uint32_t)(rand() % 900));
        uint32_t most = tr_cost_trusted(c) < 256 ? tr_cost_trusted(c) : 256;
        if (i % 2)
            tr_cost_add_prefill(&w, (uint32_t)(rand() % 4000), 1 + (uint32_t)rand() % most);
        tr_cost_learn(c, &w, (uint64_t)(truth(price, &w) * uniform(1 - noise, 1 + noise)));
    }
}

static double off_by(const struct tr_cost *c, const double *price, const struct tr_cost_work *w)
{
    return fabs((double)tr_cost_predict(c, w) / truth(price, w) - 1);
}

Test(cost, learns_a_small_and_a_large_model_within_some_steps)
{
    const double *models[] = {small_model, large_model};
    const uint64_t bytes[] = {SMALL_BYTES, LARGE_BYTES};
    for (int m = 0; m < 2; m++) {
        struct tr_cost c;
        srand(5);
        tr_cost_init(&c, bytes[m]);
        live(&c, models[m], 80, 0.05);
        for (int i = 0; i < 50; i++) {
            struct tr_cost_work w = decode(4, 300);
            tr_cost_add_prefill(&w, (uint32_t)(rand() % 4000), 16 + (uint32_t)rand() % 200);
            cr_assert_lt(off_by(&c, models[m], &w), 0.15, "model %d, step %d", m, i);
        }
    }
}

Test(cost, more_work_is_never_cheaper_whatever_was_measured)
{
    struct tr_cost c;
    srand(6);
    tr_cost_init(&c, SMALL_BYTES);
    for (int i = 0; i < 2000; i++) {
        struct tr_cost_work w = decode((uint32_t)(rand() % 8), (uint32_t)(rand() % 4000));
        tr_cost_add_prefill(&w, (uint32_t)(rand() % 4000), (uint32_t)rand() % 200);
        tr_cost_learn(&c, &w, (uint64_t)uniform(0, 1e9));
        struct tr_cost_work more = w;
        more.n[rand() % TR_COST_PARTS] += (uint64_t)rand() % 100;
        cr_assert_geq(tr_cost_predict(&c, &more), tr_cost_predict(&c, &w));
        for (int k = 0; k < TR_COST_PARTS; k++)
            cr_assert(isfinite(c.price[k]) && c.price[k] >= 0 && c.unsure[k] >= 0);
    }
}

Test(cost, an_hour_of_decoding_does_not_make_it_forget_what_a_prompt_costs)
{
    struct tr_cost c;
    srand(7);
    tr_cost_init(&c, SMALL_BYTES);
    live(&c, small_model, 100, 0.05);
    for (int i = 0; i < 50000; i++) {
        struct tr_cost_work w = decode(3, 200 + (uint32_t)(i % 500));
        tr_cost_learn(&c, &w, (uint64_t)(truth(small_model, &w) * uniform(0.95, 1.05)));
    }
    struct tr_cost_work w = decode(3, 300);
    tr_cost_add_prefill(&w, 1000, 100);
    cr_assert_lt(off_by(&c, small_model, &w), 0.2);
}

Test(cost, one_step_that_lost_the_processor_changes_little)
{
    struct tr_cost c;
    srand(8);
    tr_cost_init(&c, SMALL_BYTES);
    live(&c, small_model, 200, 0.05);
    struct tr_cost_work w = decode(3, 300);
    tr_cost_add_prefill(&w, 1000, 100);
    uint64_t before = tr_cost_predict(&c, &w);
    tr_cost_learn(&c, &w, (uint64_t)(20 * truth(small_model, &w)));
    cr_assert_lt((double)tr_cost_predict(&c, &w) / (double)before, 1.2);
}

/* Only at the very beginning is a step that took far too long a sign that everything does. */
Test(cost, nor_does_a_process_that_was_stopped_while_its_machine_was_busy)
{
    struct tr_cost c;
    srand(9);
    tr_cost_init(&c, SMALL_BYTES);
    live(&c, small_model, 200, 0.05);
    struct tr_cost_work w = decode(3, 300);
    tr_cost_add_prefill(&w, 1000, 100);
    for (int i = 0; i < 30; i++)
        tr_cost_learn(&c, &w, (uint64_t)((i % 2 ? 20 : 1) * truth(small_model, &w)));
    uint64_t before = tr_cost_predict(&c, &w);
    tr_cost_learn(&c, &w, 60000000000u);
    cr_assert_lt((double)tr_cost_predict(&c, &w) / (double)before, 2.1);
    live(&c, small_model, 60, 0.05);
    cr_assert_lt(off_by(&c, small_model, &w), 0.5);
}

Test(cost, a_machine_that_has_become_half_as_fast_is_noticed_within_thirty_steps)
{
    struct tr_cost c;
    double slow[TR_COST_PARTS];
    srand(9);
    for (int i = 0; i < TR_COST_PARTS; i++)
        slow[i] = 2 * small_model[i];
    tr_cost_init(&c, SMALL_BYTES);
    live(&c, small_model, 300, 0.05);
    live(&c, slow, 30, 0.05);
    struct tr_cost_work w = decode(3, 300);
    tr_cost_add_prefill(&w, 1000, 100);
    cr_assert_lt(off_by(&c, slow, &w), 0.2);
}

/* Chunk by chunk as the plan does it, from the first one on: how much too long the longest is. */
static double longest(const double *price, uint64_t bytes, uint64_t target_ns)
{
    struct tr_cost c;
    double most = 0;
    tr_cost_init(&c, bytes);
    for (uint32_t pos = 0; pos < 6000;) {
        struct tr_cost_work w = decode(4, 200);
        uint32_t cap = tr_cost_trusted(&c) < 512 ? tr_cost_trusted(&c) : 512;
        uint32_t n = tr_cost_fit(&c, &w, pos, cap, target_ns);
        n = n ? n : 1;
        tr_cost_add_prefill(&w, pos, n);
        double ns = truth(price, &w) * uniform(0.95, 1.05);
        tr_cost_learn(&c, &w, (uint64_t)ns);
        most = fmax(most, ns / (double)target_ns);
        pos += n;
    }
    return most;
}

Test(cost, the_first_long_prompt_stays_within_the_target)
{
    srand(10);
    cr_assert_lt(longest(small_model, SMALL_BYTES, 50000000), 1.2);
    cr_assert_lt(longest(large_model, LARGE_BYTES, 800000000), 1.2);
    cr_assert_lt(longest(small_model, 0, 50000000), 1.2, "not even the size of the model is known");
}

Test(cost, a_model_that_is_slower_than_any_guess_is_found_out_with_few_rows)
{
    struct tr_cost c;
    tr_cost_init(&c, 1 << 20);
    struct tr_cost_work w = {.n[TR_COST_STEP] = 1};
    cr_assert_leq(tr_cost_trusted(&c), 32);
    tr_cost_add_prefill(&w, 0, 32);
    tr_cost_learn(&c, &w, 1000000000);
    cr_assert_leq(tr_cost_trusted(&c), 128);
    struct tr_cost_work none = {.n[TR_COST_STEP] = 1};
    cr_assert_lt(tr_cost_fit(&c, &none, 32, 128, 100000000), 32);
}

Test(cost, what_fits_is_the_most_that_fits)
{
    struct tr_cost c;
    srand(11);
    tr_cost_init(&c, SMALL_BYTES);
    live(&c, small_model, 100, 0.02);
    for (int i = 0; i < 1000; i++) {
        struct tr_cost_work w = decode((uint32_t)(rand() % 30), 500);
        uint32_t pos = (uint32_t)rand() % 8000, cap = (uint32_t)rand() % 600;
        uint64_t limit = (uint64_t)uniform(0, 3e8);
        uint32_t n = tr_cost_fit(&c, &w, pos, cap, limit);
        cr_assert_leq(n, cap);
        struct tr_cost_work at = w, more = w;
        tr_cost_add_prefill(&at, pos, n);
        tr_cost_add_prefill(&more, pos, n + 1);
        double late = 1 + 2 * c.late;
        cr_assert(n == 0 || (double)tr_cost_predict(&c, &at) * late <= (double)limit);
        cr_assert(n == cap || (double)tr_cost_predict(&c, &more) * late > (double)limit * 0.999999);
    }
}

/* Steps of many shapes, each 1 to 16 times as slow as it would be alone. */
Test(cost, an_unsteady_machine_does_not_carry_the_prices_away)
{
    static const double truth[TR_COST_PARTS] = {4e6, 1.5e5, 100, 2e5, 100, 5e4};
    static const uint32_t seqs[] = {1, 2, 4, 8, 16}, chunks[] = {0, 32, 128, 256};
    uint64_t random = 1;
    for (int round = 0; round < 300; round++) {
        struct tr_cost c;
        tr_cost_init(&c, 92 << 20);
        for (int i = 0; i < 180; i++) {
            struct tr_cost_work w = {.n[TR_COST_STEP] = 1};
            double ns = 0;
            for (uint32_t s = 0; s < seqs[i / 12 % 5]; s++)
                tr_cost_add_decode(&w, 1000);
            if (chunks[i / 3 % 4])
                tr_cost_add_prefill(&w, i % 3 * 400, chunks[i / 3 % 4]);
            for (int p = 0; p < TR_COST_PARTS; p++)
                ns += truth[p] * (double)w.n[p];
            random = random * 6364136223846793005u + 1442695040888963407u;
            tr_cost_learn(&c, &w, (uint64_t)(ns * (1 + (double)(random >> 40) / 0x1p24 * 15)));
        }
        for (int p = 0; p < TR_COST_PARTS; p++)
            cr_assert_leq(c.price[p], 1e9, "price %d is %g", p, c.price[p]);
    }
}
