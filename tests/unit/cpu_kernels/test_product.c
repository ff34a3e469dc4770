/* SPDX-License-Identifier: Apache-2.0 */
/* Products: right within tolerance, the same bits at every level, row count, place and thread. */
#include "fixture.h"

#include <math.h>

struct weights {
    enum tr_tensor_type type;
    uint32_t n_in;
    uint32_t n_out;
    uint8_t *rows;
};

static struct weights weights(enum tr_tensor_type type, uint32_t n_in, uint32_t n_out)
{
    return (struct weights){type, n_in, n_out, random_rows(type, n_in, n_out)};
}

/* Of any shape, one block long and more. */
static struct weights some_weights(int i, uint32_t most_out)
{
    enum tr_tensor_type type = all_types[i % N_TYPES];
    uint32_t block = least(type);
    return weights(type, block * rnd_in(1, block == 32 ? 20 : 4), rnd_in(1, most_out));
}

/* out = x * W^T by a device of its own. */
static float *compute(const struct weights *w, enum tr_ops_math math, enum tr_cpu_level level,
                      uint32_t n_threads, const float *x, uint32_t n_rows)
{
    struct tr_dev *dev = device(math, level, n_threads);
    size_t bytes = OPS->mat_bytes(dev, w->type, w->n_in, w->n_out);
    cr_assert_neq(bytes, 0);
    void *mem = memory(bytes);
    void *act_mem = memory(OPS->act_bytes(dev, n_rows, w->n_in));
    float *out = memory((size_t)n_rows * w->n_out * sizeof *out);
    struct tr_mat m;
    struct tr_act a;

    OPS->mat_prepare(dev, &m, w->type, w->n_in, w->n_out, w->rows, mem);
    OPS->act_init(dev, &a, n_rows, w->n_in, act_mem);
    OPS->act_set(dev, &a, x, n_rows);
    OPS->matmul(dev, &m, &a, out);
    OPS->close(dev);
    free(mem);
    free(act_mem);
    return out;
}

/* |got - exact| as a part of the sum of |terms|, at most. */
static double worst(const struct weights *w, const float *x, uint32_t n_rows, const float *got)
{
    float *row = memory(w->n_in * sizeof *row);
    double worst_error = 0;
    for (uint32_t o = 0; o < w->n_out; o++) {
        tr_quant_row(w->type, w->rows + o * tr_quant_row_bytes(w->type, w->n_in), w->n_in, row);
        for (uint32_t r = 0; r < n_rows; r++) {
            double sum = 0;
            double size = 1e-30;
            for (uint32_t k = 0; k < w->n_in; k++) {
                double term = (double)row[k] * x[(size_t)r * w->n_in + k];
                sum += term;
                size += fabs(term);
            }
            double e = fabs(got[(size_t)r * w->n_out + o] - sum) / size;
            worst_error = e > worst_error || isnan(e) ? e : worst_error;
        }
    }
    free(row);
    return worst_error;
}

static const enum tr_ops_math maths[] = {TR_OPS_INT8, TR_OPS_BLAS, TR_OPS_F32};

Test(product, is_near_the_exact_sum_in_every_math_mode_and_type)
{
    for (int t = 0; t < N_TYPES; t++) {
        uint32_t n_in = least(all_types[t]) == 32 ? 160 : 512;
        struct weights w = weights(all_types[t], n_in, 53);
        float *x = floats((size_t)9 * n_in);
        for (int m = 0; m < 3; m++) {
            float *out = compute(&w, maths[m], TR_CPU_AVX512, 1, x, 9);
            bool quantised = maths[m] == TR_OPS_INT8 && tr_quant_blocked(w.type);
            double e = worst(&w, x, 9, out);
            cr_assert_lt(e, quantised ? 0.01 : 1e-6, "type %d math %d: %g", (int)w.type, m, e);
            free(out);
        }
        free(x);
        free(w.rows);
    }
}

Test(product, all_levels_give_the_bits_of_plain_c, .timeout = 300)
{
    for (int i = 0; i < 10 * N_TYPES; i++) {
        struct weights w = some_weights(i, 90);
        uint32_t n_rows = i % 3 == 0 ? rnd_in(1, 70) : rnd_in(1, 9);
        float *x = floats((size_t)n_rows * w.n_in);
        enum tr_ops_math math = i % 5 == 4 ? TR_OPS_F32 : TR_OPS_INT8;
        float *plain = compute(&w, math, TR_CPU_GENERIC, 1, x, n_rows);
        for (int level = TR_CPU_AVX2; level <= TR_CPU_AVX512; level++) {
            float *out = compute(&w, math, (enum tr_cpu_level)level, 1, x, n_rows);
            cr_assert_arr_eq(out, plain, (size_t)n_rows * w.n_out * sizeof *out,
                             "type %d [%u, %u] x %u, level %d", (int)w.type, w.n_out, w.n_in,
                             n_rows, level);
            free(out);
        }
        free(plain);
        free(x);
        free(w.rows);
    }
}

/* All bits of quants and of whole-number scales alike; F16 scales as they were. */
static void fill_but_scales(const struct weights *w, uint8_t byte)
{
    struct tr_quant_form f = tr_quant_form(w->type);
    size_t at = scale_at(w->type);
    size_t n = f.mins ? 4 : 2;
    for (size_t i = 0; i < tr_quant_row_bytes(w->type, w->n_in) * w->n_out; i++) {
        if (i % f.bytes < at || i % f.bytes >= at + n)
            w->rows[i] = byte;
    }
}

Test(product, extreme_quants_stay_exact_at_every_level)
{
    enum { OUT = 56 }; /* enough for strips side by side, and a part of one */
    static const uint8_t bytes[] = {0x80, 0x7F, 0xFF, 0x00};
    for (int t = FIRST_QUANT * 4; t < N_TYPES * 4; t++) {
        uint32_t n_in = 2 * least(all_types[t / 4]);
        struct weights w = weights(all_types[t / 4], n_in, OUT);
        fill_but_scales(&w, bytes[t % 4]);
        float *x = memory(sizeof(float) * 5 * n_in);
        for (uint32_t i = 0; i < 5 * n_in; i++)
            x[i] = i / 32 % 2 ? 3.0F : -3.0F;
        float *plain = compute(&w, TR_OPS_INT8, TR_CPU_GENERIC, 1, x, 5);
        cr_assert_lt(worst(&w, x, 5, plain), 1e-5, "type %d", (int)w.type);
        for (int level = TR_CPU_AVX2; level <= TR_CPU_AVX512; level++) {
            float *out = compute(&w, TR_OPS_INT8, (enum tr_cpu_level)level, 1, x, 5);
            cr_assert_arr_eq(out, plain, sizeof(float) * 5 * OUT, "type %d level %d", (int)w.type,
                             level);
            free(out);
        }
        free(plain);
        free(x);
        free(w.rows);
    }
}

Test(product, a_row_is_the_same_alone_and_in_any_company, .timeout = 300)
{
    for (int i = 0; i < 4 * N_TYPES; i++) {
        struct weights w = some_weights(i, 300);
        enum tr_ops_math math = i % 3 == 2 ? TR_OPS_F32 : TR_OPS_INT8;
        enum tr_cpu_level level = (enum tr_cpu_level)(TR_CPU_AVX2 + i % 3);
        float *row = floats(w.n_in);
        float *alone = compute(&w, math, level, 1, row, 1);
        for (uint32_t threads = 1; threads <= 2; threads++) {
            uint32_t n_rows = rnd_in(1, 70);
            uint32_t at = rnd_in(0, n_rows - 1);
            float *x = floats((size_t)n_rows * w.n_in);
            memcpy(x + (size_t)at * w.n_in, row, w.n_in * sizeof *row);
            float *out = compute(&w, math, level, threads, x, n_rows);
            cr_assert_arr_eq(out + (size_t)at * w.n_out, alone, w.n_out * sizeof *out,
                             "row %u of %u, %u threads", at, n_rows, threads);
            free(out);
            free(x);
        }
        free(row);
        free(alone);
        free(w.rows);
    }
}

/* So many that they go through the caches in several parts. */
Test(product, many_long_rows_are_each_what_they_are_alone)
{
    static const enum tr_tensor_type types[] = {TR_T_F32, TR_T_Q8_0};
    static const uint32_t n_in[] = {4099, 18 * 1024};
    for (int i = 0; i < 2; i++) {
        enum { ROWS = 77, OUT = 19 };
        struct weights w = weights(types[i], n_in[i], OUT);
        float *x = floats((size_t)ROWS * w.n_in);
        for (int level = TR_CPU_AVX2; level <= TR_CPU_AVX512; level++) {
            float *all = compute(&w, TR_OPS_INT8, (enum tr_cpu_level)level, 2, x, ROWS);
            for (size_t r = 0; r < ROWS; r++) {
                float *one =
                    compute(&w, TR_OPS_INT8, (enum tr_cpu_level)level, 1, x + r * w.n_in, 1);
                cr_assert_arr_eq(all + r * OUT, one, OUT * sizeof *one, "type %d level %d row %zu",
                                 (int)w.type, level, r);
                free(one);
            }
            free(all);
        }
        free(x);
        free(w.rows);
    }
}

Test(product, float_weights_need_no_whole_blocks)
{
    for (int t = 0; t < 3; t++) {
        struct weights w = weights(all_types[t], 45, 19);
        float *x = floats(3 * 45);
        float *plain = compute(&w, TR_OPS_F32, TR_CPU_GENERIC, 1, x, 3);
        float *fast = compute(&w, TR_OPS_INT8, TR_CPU_AVX512, 2, x, 3);
        cr_assert_lt(worst(&w, x, 3, plain), 1e-6);
        cr_assert_arr_eq(plain, fast, sizeof(float) * 3 * 19);
        free(plain);
        free(fast);
        free(x);
        free(w.rows);
    }
}

Test(product, poisoned_scales_and_activations_stay_in_their_row)
{
    enum { OUT = 52 }; /* strips side by side, and a part of one */
    static const uint16_t poison[] = {0x0001, 0x7C00, 0xFC00, 0x7E00, 0x7C01};
    static const float bad[] = {1e-42F, 3e38F, -3e38F, 1e-36F, INFINITY, NAN};
    for (int i = 0; i <= TR_CPU_AVX512 * N_TYPES + N_TYPES - 1; i++) {
        enum tr_cpu_level level = (enum tr_cpu_level)(i / N_TYPES);
        if (i % N_TYPES < FIRST_QUANT)
            continue;
        uint32_t n_in = 2 * least(all_types[i % N_TYPES]);
        struct weights w = weights(all_types[i % N_TYPES], n_in, OUT);
        float *x = floats((size_t)6 * n_in);
        float *clean = compute(&w, TR_OPS_INT8, level, 1, x, 6);
        for (uint32_t j = 0; j < 6; j++)
            x[j % 3 * 2 * n_in + j] = bad[j]; /* rows 0, 2, 4 */
        float *out = compute(&w, TR_OPS_INT8, level, 1, x, 6);
        for (size_t r = 1; r < 6; r += 2)
            cr_assert_arr_eq(out + r * OUT, clean + r * OUT, OUT * sizeof *out);
        cr_assert(isnan(out[(size_t)2 * OUT]), "NaN in a row shows in its outputs");
        free(out);
        for (size_t j = 0; j < 5; j++)
            memcpy(w.rows + j * tr_quant_row_bytes(w.type, n_in) + scale_at(w.type), &poison[j], 2);
        out = compute(&w, TR_OPS_INT8, level, 1, x, 6);
        for (size_t o = 5; o < OUT; o++)
            cr_assert_eq(out[OUT + o], clean[OUT + o], "an output next to poisoned ones");
        free(out);
        free(clean);
        free(x);
        free(w.rows);
    }
}

/* The smallest of everything: whatever the scales of weights and activations, all sums are multiples
 * of 2^-104, which subnormal numbers on the way would not be. */
Test(product, quantised_products_never_meet_a_subnormal_number)
{
    static const uint16_t tiny[] = {0x0001, 0x8001, 0x03FF};
    for (int t = FIRST_QUANT; t < N_TYPES; t++) {
        struct weights w = weights(all_types[t], least(all_types[t]), 48);
        size_t row = tr_quant_row_bytes(w.type, w.n_in);
        struct tr_quant_form f = tr_quant_form(w.type);
        for (size_t p = 0, i = 0; p < row * 48; p += f.bytes, i++) {
            memcpy(w.rows + p + scale_at(w.type), &tiny[i % 3], 2);
            if (f.mins)
                memcpy(w.rows + p + scale_at(w.type) + 2, &tiny[(i + 1) % 3], 2);
        }
        float *x = floats((size_t)60 * w.n_in);
        for (uint32_t i = 0; i < 60 * w.n_in; i++)
            x[i] = ldexpf(x[i], -20 - (int)(i / w.n_in) * 2);
        float *out = compute(&w, TR_OPS_INT8, TR_CPU_AVX512, 1, x, 60);
        bool some = false;
        for (int i = 0; i < 60 * 48; i++) {
            double steps = ldexp((double)out[i], 104);
            cr_assert_eq(steps, nearbyint(steps), "type %d: %a", (int)w.type, (double)out[i]);
            some = some || out[i] != 0;
        }
        cr_assert(some);
        free(out);
        free(x);
        free(w.rows);
    }
}

Test(product, an_embedded_row_is_the_dequantised_one_in_every_math_mode)
{
    for (int i = 0; i < 3 * N_TYPES; i++) {
        uint32_t n_in = 2 * least(all_types[i / 3]);
        struct weights w = weights(all_types[i / 3], n_in, 33);
        size_t row_bytes = tr_quant_row_bytes(w.type, n_in);
        struct tr_dev *dev = device(maths[i % 3], TR_CPU_AVX512, 1);
        void *mem = memory(OPS->mat_bytes(dev, w.type, n_in, 33));
        struct tr_mat mat;
        struct tr_mat again;
        uint32_t tokens[3] = {32, 0, 17};
        float out[3 * 512];
        float expected[512];
        OPS->mat_prepare(dev, &mat, w.type, n_in, 33, w.rows, mem);
        OPS->mat_adopt(dev, &again, w.type, n_in, 33, mem);
        OPS->embed(dev, &again, tokens, 3, out);
        for (size_t r = 0; r < 3; r++) {
            tr_quant_row(w.type, w.rows + tokens[r] * row_bytes, n_in, expected);
            cr_assert_arr_eq(out + r * n_in, expected, n_in * sizeof *expected, "type %d math %d",
                             (int)w.type, i % 3);
        }
        OPS->close(dev);
        free(mem);
        free(w.rows);
    }
}

Test(product, types_and_shapes_that_cannot_be_computed_have_no_size)
{
    struct tr_dev *dev = device(TR_OPS_INT8, TR_CPU_AVX512, 1);
    cr_assert_eq(OPS->mat_bytes(dev, TR_T_Q8_K, 256, 16), 0);
    cr_assert_eq(OPS->mat_bytes(dev, TR_T_Q4_1, 48, 16), 0);
    cr_assert_eq(OPS->mat_bytes(dev, TR_T_Q6_K, 128, 16), 0);
    cr_assert_eq(OPS->mat_bytes(dev, TR_T_F32, 0, 16), 0);
    cr_assert_eq(OPS->mat_bytes(dev, TR_T_F32, UINT32_MAX, UINT32_MAX), 0);
    OPS->close(dev);
}

Test(product, several_products_of_the_same_rows_are_each_the_product_alone)
{
    static const enum tr_tensor_type types[] = {TR_T_Q4_1, TR_T_F16, TR_T_Q8_0, TR_T_Q4_0};
    for (uint32_t round = 0; round < 24; round++) {
        uint32_t n = round % 4 + 1, n_rows = rnd_in(1, 9);
        struct tr_dev *dev = device(TR_OPS_INT8, TR_CPU_AVX512, round % 3 + 1);
        float *x = floats((size_t)n_rows * 96);
        void *act_mem = memory(OPS->act_bytes(dev, n_rows, 96));
        struct tr_mat mats[4];
        const struct tr_mat *w[4];
        float *out[4];
        float *alone[4];
        struct tr_act a;
        for (uint32_t i = 0; i < n; i++) {
            struct weights data = weights(types[(i + round) % 4], 96, rnd_in(1, 90));
            void *mem = memory(OPS->mat_bytes(dev, data.type, 96, data.n_out));
            OPS->mat_prepare(dev, &mats[i], data.type, 96, data.n_out, data.rows, mem);
            w[i] = &mats[i];
            out[i] = memory((size_t)n_rows * data.n_out * sizeof(float));
            alone[i] = memory((size_t)n_rows * data.n_out * sizeof(float));
            free(data.rows);
        }
        OPS->act_init(dev, &a, n_rows, 96, act_mem);
        OPS->act_set(dev, &a, x, n_rows);
        OPS->matmul_n(dev, n, w, &a, out);
        for (uint32_t i = 0; i < n; i++) {
            OPS->matmul(dev, w[i], &a, alone[i]);
            cr_assert_arr_eq(out[i], alone[i], (size_t)n_rows * w[i]->n_out * sizeof(float));
            free((void *)mats[i].packed);
            free(out[i]);
            free(alone[i]);
        }
        OPS->close(dev);
        free(act_mem);
        free(x);
    }
}
