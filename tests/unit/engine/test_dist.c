/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/dist.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

enum { MAX = 3000 };

static struct tr_cand cand[MAX];

static void check_sorted(uint32_t n)
{
    uint64_t ids = 0;
    tr_cand_sort(cand, n);
    for (uint32_t i = 0; i < n; i++) {
        ids += cand[i].id;
        cr_assert(i == 0 || cand[i - 1].v > cand[i].v ||
                  (cand[i - 1].v == cand[i].v && cand[i - 1].id < cand[i].id));
    }
    cr_assert_eq(ids, (uint64_t)n * (n ? n - 1 : 0) / 2);
}

Test(dist, sorts_by_falling_value_and_rising_id_whatever_the_order_was)
{
    srand(2);
    for (uint32_t n = 0; n < MAX; n = n * 3 / 2 + 1) {
        for (uint32_t kind = 0; kind < 6; kind++) {
            for (uint32_t i = 0; i < n; i++) {
                double organ = i < n / 2 ? i : n - i;
                double v[] = {rand(), rand() % 5, i, -(double)i, 1, organ};
                cand[i] = (struct tr_cand){.v = v[kind], .id = (i * 7 + 3) % n};
                if (n % 7 == 0)
                    cand[i].id = n - 1 - i;
            }
            check_sorted(n);
        }
    }
}

static float x[MAX];
static float bmax[MAX];
static float scratch[MAX];
static double bsum[2 * MAX];

static void fill(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = (float)(rand() % 4000) / 100.0F - 20.0F;
}

Test(dist, its_exponential_is_close_to_the_library_s)
{
    struct tr_dist d;
    for (uint32_t i = 0; i < MAX; i++)
        x[i] = -(float)i * 0.029F;
    tr_dist_scan(&d, x, MAX, bmax, bsum);
    for (uint32_t b = 0; b < d.n_blocks; b++) {
        float w[TR_DIST_BLOCK];
        uint32_t n = tr_dist_weights(&d, b, 0, 1, w);
        for (uint32_t i = 0; i < n; i++) {
            double t = exp((double)x[b * TR_DIST_BLOCK + i]);
            cr_assert_lt(fabs((double)w[i] - t), 3e-7 * t);
        }
    }
}

Test(dist, nothing_weighs_exactly_nothing)
{
    struct tr_dist d;
    float w[TR_DIST_BLOCK];
    x[0] = 0;
    x[1] = -INFINITY;
    x[2] = NAN;
    x[3] = -88;
    x[4] = -1e30F;
    tr_dist_scan(&d, x, 5, bmax, bsum);
    cr_assert_eq(tr_dist_weights(&d, 0, 0, 1, w), 5);
    cr_assert_eq(w[0], 1);
    for (uint32_t i = 1; i < 5; i++)
        cr_assert_eq(w[i], 0);
    cr_assert_eq(tr_dist_sum(&d, 0, 1), 1);
    cr_assert_eq(tr_dist_at(&d, 0, 1, 0.999999), 0);
}

Test(dist, the_floor_lets_at_least_k_through_and_gather_finds_them_all)
{
    struct tr_dist d;
    srand(4);
    for (uint32_t round = 0; round < 200; round++) {
        uint32_t n = 1 + (uint32_t)rand() % MAX;
        uint32_t k = 1 + (uint32_t)rand() % 60;
        fill(n);
        tr_dist_scan(&d, x, n, bmax, bsum);
        double floor = tr_dist_floor(&d, k, scratch);
        uint32_t got = tr_dist_gather(&d, floor, cand, 0);
        uint32_t want = 0;
        for (uint32_t i = 0; i < n; i++)
            want += (double)x[i] >= floor;
        cr_assert_eq(got, want);
        cr_assert_geq(got, k < n ? k : n);
        uint32_t best = tr_dist_argmax(&d);
        for (uint32_t i = 0; i < n; i++)
            cr_assert(x[i] < x[best] || (x[i] == x[best] && i >= best));
    }
}

/* Logits over many powers of two in weight, with ties, and some that weigh nothing. */
Test(dist, the_top_of_a_sort_is_the_front_of_the_whole_sort)
{
    enum { N = 3000 };
    static struct tr_cand all[N], top[N];
    static struct tr_classes classes;
    uint64_t bits = 7;
    for (int round = 0; round < 40; round++) {
        uint32_t n = round < 4 ? (uint32_t)round * 100 : N - (uint32_t)round;
        struct tr_curve curve = {.ref = 3, .scale = 0.25 * (round + 1)};
        for (uint32_t i = 0; i < n; i++) {
            bits = bits * 6364136223846793005U + 1442695040888963407U;
            double v = 3 - (double)(bits >> 40) / (double)(1 << 24) * (round % 7 ? 20 : 400);
            if (round % 3 == 0)
                v = 3 - (double)(bits >> 61) / 2;
            all[i] = top[i] = (struct tr_cand){.v = v, .id = i};
        }
        tr_cand_sort(all, n);
        tr_classes_init(&classes, curve, n ? all[0].v : 0);
        tr_classes_count(&classes, top, n, 1.5);
        tr_classes_count(&classes, top, n, -INFINITY);
        for (uint32_t i = 0; i < n; i++)
            if (top[i].v >= 1.5)
                tr_classes_count(&classes, top + i, 1, INFINITY);
        double enough = round % 5 == 4 ? INFINITY : classes.total * round / 40;
        uint32_t m = tr_cand_sort_top(top, n, &classes, enough);
        cr_assert(m <= n);
        double front = 0;
        for (uint32_t i = 0; i < m; i++) {
            cr_assert(top[i].id == all[i].id && top[i].v == all[i].v, "round %d place %u", round,
                      i);
            front += tr_curve_at(&curve, top[i].v);
        }
        cr_assert(m == n || front >= enough);
        if (round == 8)
            cr_assert(m < n / 2, "%u of %u", m, n);
    }
}

Test(dist, a_running_sum_adds_up_groups_by_themselves)
{
    struct tr_run run = {.before = 2};
    double want = 2, group = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        double w = 1.0 / (i + 3);
        tr_run_add(&run, w);
        group += w;
        cr_assert_eq(tr_run_sum(&run), want + group);
        if (i % TR_DIST_GROUP == TR_DIST_GROUP - 1) {
            want += group;
            group = 0;
        }
    }
}

/* The sums of blocks and groups are those that the total is made of, and each id is met by the targets
 * between the sum before it and the one behind it. */
Test(dist, a_target_meets_the_id_whose_weight_it_falls_into)
{
    enum { N = 2 * TR_DIST_BLOCK * TR_DIST_GROUP + 77 };
    static float logits[N], maxima[N];
    static double sums[N];
    struct tr_dist d;
    srand(9);
    for (uint32_t i = 0; i < N; i++)
        logits[i] = rand() % 3 ? (float)(rand() % 1000) / 100.0F : -INFINITY;
    tr_dist_scan(&d, logits, N, maxima, sums);
    double total = tr_dist_sum(&d, d.max, 1), groups = 0;
    for (uint32_t g = 0; g < tr_dist_groups(N); g++)
        groups += sums[d.n_blocks + g];
    cr_assert_eq(groups, total);
    double run = 0;
    for (uint32_t b = 0; b < d.n_blocks; b++) {
        float w[TR_DIST_BLOCK];
        uint32_t n = tr_dist_weights(&d, b, d.max, 1, w);
        for (uint32_t i = 0; i < n; i++) {
            double middle = run + (double)w[i] / 2;
            run += (double)w[i];
            if (w[i] > 1e-6F * (float)total / N)
                cr_assert_eq(tr_dist_at(&d, d.max, 1, middle), b * TR_DIST_BLOCK + i);
        }
    }
    cr_assert_eq(tr_dist_at(&d, d.max, 1, 2 * total) / TR_DIST_BLOCK, d.n_blocks - 1);
}
