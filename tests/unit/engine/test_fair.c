/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/fair.h"

#include <criterion/criterion.h>
#include <stdio.h>

static struct tr_fair *table(uint32_t n)
{
    uint64_t bytes = 0;
    struct tr_fair *f = tr_fair_new(n, &bytes);
    cr_assert(f && bytes > 0);
    return f;
}

Test(fair, one_key_is_compared_with_nobody)
{
    struct tr_fair *f = table(4);
    uint32_t a = tr_fair_take(f, "", 1);
    cr_assert_eq(tr_fair_take(f, "", 1), a);
    tr_fair_serve(f, a, 100);
    cr_assert_null(tr_fair_served(f));
    uint32_t b = tr_fair_take(f, "b", 1);
    cr_assert_neq(a, b);
    cr_assert_not_null(tr_fair_served(f));
    tr_fair_give(f, b);
    cr_assert_null(tr_fair_served(f));
    tr_fair_free(f);
}

Test(fair, a_rest_earns_nothing)
{
    struct tr_fair *f = table(4);
    uint32_t a = tr_fair_take(f, "a", 1), b = tr_fair_take(f, "b", 1);
    tr_fair_serve(f, a, 10);
    tr_fair_give(f, a);
    tr_fair_serve(f, b, 1000);
    cr_assert_eq(tr_fair_take(f, "a", 1), a);
    cr_assert_eq(tr_fair_served(f)[a], 1000, "lifted to the least of those at work");
    tr_fair_serve(f, a, 500);
    cr_assert_eq(tr_fair_served(f)[a], 1500);
    cr_assert_eq(tr_fair_served(f)[b], 1000);
    uint32_t c = tr_fair_take(f, "c", 1);
    cr_assert_eq(tr_fair_served(f)[c], 1000);
    tr_fair_free(f);
}

Test(fair, a_debt_is_not_forgotten_by_a_rest)
{
    struct tr_fair *f = table(4);
    uint32_t a = tr_fair_take(f, "a", 1), b = tr_fair_take(f, "b", 1);
    tr_fair_serve(f, a, 5000);
    tr_fair_give(f, a);
    tr_fair_serve(f, b, 10);
    a = tr_fair_take(f, "a", 1);
    cr_assert_eq(tr_fair_served(f)[a], 5000);
    tr_fair_free(f);
}

Test(fair, after_a_pause_of_all_everybody_begins_where_the_last_one_was)
{
    struct tr_fair *f = table(4);
    uint32_t a = tr_fair_take(f, "a", 1);
    tr_fair_serve(f, a, 700);
    tr_fair_give(f, a);
    uint32_t b = tr_fair_take(f, "b", 1);
    a = tr_fair_take(f, "a", 1);
    cr_assert_eq(tr_fair_served(f)[a], 700);
    cr_assert_eq(tr_fair_served(f)[b], 700);
    tr_fair_free(f);
}

Test(fair, there_is_always_a_place_for_a_key_that_comes)
{
    enum { N = 7, HELD = N - 2 };
    struct tr_fair *f = table(N);
    uint32_t held[HELD];
    char name[16];
    tr_fair_take(f, "light", 1);
    uint32_t heavy = tr_fair_take(f, "heavy", 1);
    tr_fair_serve(f, heavy, 1u << 30);
    tr_fair_give(f, heavy);
    for (int i = 0; i < 1000; i++) {
        if (i >= HELD)
            tr_fair_give(f, held[i % (HELD)]);
        snprintf(name, sizeof(name), "k%d", i);
        held[i % (HELD)] = tr_fair_take(f, name, 1);
        cr_assert_lt(held[i % (HELD)], N);
        tr_fair_serve(f, held[i % (HELD)], 1);
    }
    heavy = tr_fair_take(f, "heavy", 1);
    cr_assert_eq(tr_fair_served(f)[heavy], 1u << 30, "who was served least is forgotten first");
    tr_fair_free(f);
}

/* Keys that always have something to do, and of those with the least the first is served, a token at a
 * time: the rule that the plan has. */
static void serve_in_turn(struct tr_fair *f, const uint32_t *k, uint64_t *had, unsigned n,
                          unsigned turns)
{
    for (unsigned t = 0; t < turns; t++) {
        unsigned best = 0;
        for (unsigned i = 1; i < n; i++)
            if (tr_fair_served(f)[k[i]] < tr_fair_served(f)[k[best]])
                best = i;
        tr_fair_serve(f, k[best], TR_FAIR_ANSWER);
        had[best]++;
    }
}

Test(fair, keys_are_served_by_their_weights)
{
    struct tr_fair *f = table(4);
    uint32_t k[3] = {tr_fair_take(f, "a", 1), tr_fair_take(f, "b", 3), tr_fair_take(f, "c", 7)};
    uint64_t had[3] = {0};

    serve_in_turn(f, k, had, 3, 11000);
    cr_expect(had[0] >= 999 && had[0] <= 1001, "%llu", (unsigned long long)had[0]);
    cr_expect(had[1] >= 2999 && had[1] <= 3001, "%llu", (unsigned long long)had[1]);
    cr_expect(had[2] >= 6998 && had[2] <= 7002, "%llu", (unsigned long long)had[2]);
    tr_fair_free(f);
}

Test(fair, a_weight_that_changes_counts_from_then_on)
{
    struct tr_fair *f = table(4);
    uint32_t k[2] = {tr_fair_take(f, "a", 1), tr_fair_take(f, "b", 1)};
    uint64_t had[2] = {0};

    serve_in_turn(f, k, had, 2, 1000);
    cr_expect_eq(had[0], 500);
    tr_fair_take(f, "b", 1000);
    serve_in_turn(f, k, had, 2, 10010);
    cr_expect(had[0] >= 508 && had[0] <= 512, "%llu", (unsigned long long)had[0]);
    tr_fair_free(f);
}
