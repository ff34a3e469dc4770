/* SPDX-License-Identifier: Apache-2.0 */
#include "base/exp.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>

/* The distance from the true value, in units of the result's last place. */
static double error_of(double x)
{
    long double want = expl((long double)x);
    double got = tr_exp(x);
    int e;
    (void)frexp(got, &e);
    return fabs((double)(((long double)got - want) / ldexpl(1, e - 53)));
}

Test(exp, is_within_1_05_units_in_the_last_place)
{
    uint64_t state = 1;
    for (uint32_t i = 0; i < 2000000; i++) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        double u = (double)(state >> 11) * 0x1p-53;
        static const double least[] = {-708, -40, -1, -0x1p-20, 0};
        static const double most[] = {-40, 0, 1, 0x1p-20, 709};
        double x = least[i % 5] + u * (most[i % 5] - least[i % 5]);
        cr_assert_lt(error_of(x), 1.05, "%a", x);
    }
}

Test(exp, is_within_it_where_the_table_s_entries_meet)
{
    for (int n = -65000; n < 65000; n++) {
        double x = (n + 0.5) * 0.010830424696249145;
        cr_assert_lt(error_of(x), 1.05, "%a", x);
        cr_assert_lt(error_of(nextafter(x, 1000)), 1.05, "%a", x);
        cr_assert_lt(error_of(nextafter(x, -1000)), 1.05, "%a", x);
    }
}

Test(exp, has_these_bits_everywhere)
{
    static const struct {
        double x, want;
    } rows[] = {
        {-0x1p+0, 0x1.78b56362cef38p-2},
        {0x1p+0, 0x1.5bf0a8b145769p+1},
        {-0x1.999999999999ap-4, 0x1.cf46d99d52b3bp-1},
        {0x1.3333333333333p-2, 0x1.599058c8c1a95p+0},
        {-0x1.5p+3, 0x1.cdfc263f6a0bap-16},
        {-0x1.5dp+6, 0x1.1724770e1384dp-126},
        {-0x1.2c2p+8, 0x1.01fc80984719dp-433},
        {-0x1.61f3333333333p+9, 0x1.a4904f4342895p-1022},
        {0x1.4b33333333333p+4, 0x1.d1df072e9d81ap+29},
        {0x1.5e26666666666p+9, 0x1.3f6d02b17eb6dp+1010},
        {0x1.12e0be826d695p-30, 0x1.000000044b83p+0},
        {-0x1.aaaaaaaaaaaabp+1, 0x1.243dc957d03edp-5},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        cr_assert_eq(tr_exp(rows[i].x), rows[i].want, "%a: %a", rows[i].x, tr_exp(rows[i].x));
}

Test(exp, ends_are_exact)
{
    cr_assert_eq(tr_exp(0.0), 1.0);
    cr_assert_eq(tr_exp(-0.0), 1.0);
    cr_assert_eq(tr_exp(-INFINITY), 0.0);
    cr_assert_eq(tr_exp(NAN), 0.0);
    cr_assert_eq(tr_exp(nextafter(-708.0, -1000)), 0.0);
    cr_assert(isnormal(tr_exp(-708.0)));
    cr_assert(isfinite(tr_exp(709.0)));
    cr_assert_eq(tr_exp(nextafter(709.0, 1000)), INFINITY);
    cr_assert_eq(tr_exp(INFINITY), INFINITY);
}
