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
    uint32_t a = tr_fair_take(f, "");
    cr_assert_eq(tr_fair_take(f, ""), a);
    tr_fair_serve(f, a, 100);
    cr_assert_null(tr_fair_served(f));
    uint32_t b = tr_fair_take(f, "b");
    cr_assert_neq(a, b);
    cr_assert_not_null(tr_fair_served(f));
    tr_fair_give(f, b);
    cr_assert_null(tr_fair_served(f));
    tr_fair_free(f);
}

Test(fair, a_rest_earns_nothing)
{
    struct tr_fair *f = table(4);
    uint32_t a = tr_fair_take(f, "a"), b = tr_fair_take(f, "b");
    tr_fair_serve(f, a, 10);
    tr_fair_give(f, a);
    tr_fair_serve(f, b, 1000);
    cr_assert_eq(tr_fair_take(f, "a"), a);
    cr_assert_eq(tr_fair_served(f)[a], 1000, "lifted to the least of those at work");
    tr_fair_serve(f, a, 500);
    cr_assert_eq(tr_fair_served(f)[a], 1500);
    cr_assert_eq(tr_fair_served(f)[b], 1000);
    uint32_t c = tr_fair_take(f, "c");
    cr_assert_eq(tr_fair_served(f)[c], 1000);
    tr_fair_free(f);
}

Test(fair, a_debt_is_not_forgotten_by_a_rest)
{
    struct tr_fair *f = table(4);
    uint32_t a = tr_fair_take(f, "a"), b = tr_fair_take(f, "b");
    tr_fair_serve(f, a, 5000);
    tr_fair_give(f, a);
    tr_fair_serve(f, b, 10);
    a = tr_fair_take(f, "a");
    cr_assert_eq(tr_fair_served(f)[a], 5000);
    tr_fair_free(f);
}

Test(fair, after_a_pause_of_all_everybody_begins_where_the_last_one_was)
{
    struct tr_fair *f = table(4);
    uint32_t a = tr_fair_take(f, "a");
    tr_fair_serve(f, a, 700);
    tr_fair_give(f, a);
    uint32_t b = tr_fair_take(f, "b");
    a = tr_fair_take(f, "a");
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
    tr_fair_take(f, "light");
    uint32_t heavy = tr_fair_take(f, "heavy");
    tr_fair_serve(f, heavy, 1u << 30);
    tr_fair_give(f, heavy);
    for (int i = 0; i < 1000; i++) {
        if (i >= HELD)
            tr_fair_give(f, held[i % (HELD)]);
        snprintf(name, sizeof(name), "k%d", i);
        held[i % (HELD)] = tr_fair_take(f, name);
        cr_assert_lt(held[i % (HELD)], N);
        tr_fair_serve(f, held[i % (HELD)], 1);
    }
    heavy = tr_fair_take(f, "heavy");
    cr_assert_eq(tr_fair_served(f)[heavy], 1u << 30, "who was served least is forgotten first");
    tr_fair_free(f);
}
