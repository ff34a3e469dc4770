/* SPDX-License-Identifier: Apache-2.0 */
/* The exponential and the hyperbolic tangent of the kernels, against the C library's in double.  Plain C
 * is looked at, which the other levels equal bit for bit (test_rows.c, test_attention.c). */
#include "cpu_kernels/lanes_generic.h"

#include "cpu_kernels/kernels.h"

#include <criterion/criterion.h>

/* The rest of the file is not used here. */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "cpu_kernels/rows.inl"

/* The largest relative error over all floats of [from, to], `step` apart in their bits. */
static double worst(v16 (*got)(v16), double (*exact)(double), float from, float to, uint32_t step)
{
    uint32_t first;
    uint32_t last;
    double most = 0;
    memcpy(&first, &from, sizeof first);
    memcpy(&last, &to, sizeof last);
    for (uint32_t u = first; u <= last; u += 16 * step) {
        v16 x;
        TR_EACH_LANE
        {
            uint32_t bits = u + (uint32_t)l * step < last ? u + (uint32_t)l * step : last;
            memcpy(&x.f[l], &bits, sizeof bits);
        }
        v16 y = got(x);
        TR_EACH_LANE
        {
            double e = fabs(y.f[l] / exact(x.f[l]) - 1);
            most = e > most || isnan(e) ? e : most;
        }
    }
    return most;
}

static v16 exp_of(v16 x)
{
    return v16_exp(x);
}

static v16 tanh_of(v16 x)
{
    return v16_tanh(x);
}

Test(curves, exp_is_as_near_as_it_says)
{
    cr_assert_lt(worst(exp_of, exp, 0x1p-126F, 88.0F, 997), 2e-7);
    cr_assert_lt(worst(exp_of, exp, -0x1p-126F, -87.0F, 997), 2e-7);
    cr_assert_eq(v16_exp(v16_set1(0.0F)).f[0], 1.0F, "what a merge of partitions relies on");
    cr_assert_eq(v16_exp(v16_set1(-87.1F)).f[0], 0.0F);
    cr_assert_eq(v16_exp(v16_set1(-INFINITY)).f[0], 0.0F);
    cr_assert_eq(v16_exp(v16_set1(INFINITY)).f[0], v16_exp(v16_set1(88.0F)).f[0]);
    cr_assert(isnan(v16_exp(v16_set1(NAN)).f[0]));
}

Test(curves, tanh_is_as_near_as_it_says)
{
    cr_assert_lt(worst(tanh_of, tanh, 0x1p-126F, 300.0F, 997), 3e-7);
    cr_assert_lt(worst(tanh_of, tanh, -0x1p-126F, -300.0F, 997), 3e-7);
    cr_assert_eq(v16_tanh(v16_set1(0.0F)).f[0], 0.0F);
    cr_assert_eq(v16_tanh(v16_set1(INFINITY)).f[0], 1.0F);
    cr_assert_eq(v16_tanh(v16_set1(-INFINITY)).f[0], -1.0F);
    cr_assert(isnan(v16_tanh(v16_set1(NAN)).f[0]));
}

/* Of silu and gelu what a factor of one lets through; relative to the exact value where that is not
 * next to nothing. */
Test(curves, silu_and_gelu_are_near_everywhere)
{
    for (double x = -80; x < 80; x += 0.00131) {
        float silu = (float)x;
        float gelu = (float)x;
        float one = 1;
        silu_mul(&silu, &one, 1);
        gelu_mul(&gelu, &one, 1);
        double a = (double)(float)x;
        double s = a / (1 + exp(-a));
        double u = 2 * sqrt(2 / M_PI) * (a + 0.044715 * a * a * a);
        double g = a / (1 + exp(-u));
        cr_assert_float_eq(silu, s, 4e-7 * fabs(s) + 1e-33, "silu(%g) is %g", a, (double)silu);
        /* The rounding of u counts as much as u is large. */
        cr_assert_float_eq(gelu, g, (4e-7 + 2e-7 * fabs(u)) * fabs(g) + 1e-33, "gelu(%g) is %g", a,
                           (double)gelu);
    }
}
