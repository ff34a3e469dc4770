/* SPDX-License-Identifier: Apache-2.0 */
/* Norm, residual, activation, rotation and quantising of rows. */
#include "fixture.h"

#include <math.h>

static const uint32_t dims[] = {576, 1536, 64, 1, 15, 17, 100};
enum { N_DIMS = sizeof dims / sizeof dims[0], ROWS = 11, N_RESULTS = 10 };

static float *copy(const float *x, size_t n)
{
    float *y = memory(n * sizeof *y);
    memcpy(y, x, n * sizeof *y);
    return y;
}

/* All row operations of one device on the same input, results behind each other. */
static float *all_rows(struct tr_dev *dev, uint32_t dim, uint32_t n_rows, const float *x,
                       const float *y, const float *w)
{
    size_t n = (size_t)n_rows * dim;
    float *out = memory(N_RESULTS * n * sizeof *out);
    OPS->rms_norm(dev, x, w, 1e-5F, n_rows, dim, out);
    memcpy(out + n, x, n * sizeof *x);
    OPS->add_rms_norm(dev, out + n, y, w, 1e-5F, n_rows, dim, out + 2 * n);
    memcpy(out + 3 * n, x, n * sizeof *x);
    OPS->silu_mul(dev, out + 3 * n, y, n_rows, dim);
    memcpy(out + 4 * n, x, n * sizeof *x);
    OPS->add(dev, out + 4 * n, y, n_rows, dim);
    memcpy(out + 5 * n, x, n * sizeof *x);
    OPS->gelu_mul(dev, out + 5 * n, y, n_rows, dim);
    memcpy(out + 6 * n, x, n * sizeof *x);
    OPS->add_bias(dev, out + 6 * n, w, n_rows, dim);
    memcpy(out + 7 * n, x, n * sizeof *x);
    OPS->scale(dev, out + 7 * n, 1.7F, n_rows, dim);
    memcpy(out + 8 * n, x, n * sizeof *x);
    OPS->norm_add_rms_norm(dev, out + 8 * n, y, w, w, 1e-5F, n_rows, dim, out + 9 * n);
    return out;
}

Test(rows, are_near_the_exact_values)
{
    struct tr_dev *dev = device(TR_OPS_INT8, TR_CPU_AVX512, 1);
    for (int i = 0; i < N_DIMS; i++) {
        uint32_t dim = dims[i];
        size_t n = dim;
        float *x = floats(n);
        float *y = floats(n);
        float *w = floats(n);
        float *out = all_rows(dev, dim, 1, x, y, w);
        double sx = 0;
        double sxy = 0;
        for (size_t k = 0; k < n; k++) {
            sx += (double)x[k] * x[k];
            sxy += ((double)x[k] + y[k]) * ((double)x[k] + y[k]);
        }
        for (size_t k = 0; k < n; k++) {
            double a = x[k];
            double norm = a / sqrt(sx / dim + 1e-5) * w[k];
            double norm_sum = (a + y[k]) / sqrt(sxy / dim + 1e-5) * w[k];
            double silu = a / (1 + exp(-a)) * y[k];
            cr_assert_float_eq(out[k], norm, 2e-6 * (1 + fabs(norm)));
            cr_assert_float_eq(out[n + k], a + y[k], 1e-6 * (1 + fabs(a)));
            cr_assert_float_eq(out[2 * n + k], norm_sum, 2e-6 * (1 + fabs(norm_sum)));
            cr_assert_float_eq(out[3 * n + k], silu, 2e-6 * (1e-3 + fabs(silu)));
            cr_assert_eq(out[4 * n + k], x[k] + y[k]);
            double gelu = a / 2 * (1 + tanh(sqrt(2 / M_PI) * (a + 0.044715 * a * a * a))) * y[k];
            cr_assert_float_eq(out[5 * n + k], gelu, 2e-6 * (1e-3 + fabs(gelu)));
            cr_assert_eq(out[6 * n + k], x[k] + w[k]);
            cr_assert_eq(out[7 * n + k], x[k] * 1.7F);
        }
        free(x);
        free(y);
        free(w);
        free(out);
    }
    OPS->close(dev);
}

Test(rows, all_levels_and_threads_give_the_bits_of_plain_c)
{
    for (int i = 0; i < N_DIMS; i++) {
        uint32_t n_rows = i == 0 ? 70 : ROWS;
        size_t n = (size_t)n_rows * dims[i];
        float *x = floats(n);
        float *y = floats(n);
        float *w = floats(dims[i]);
        struct tr_dev *plain = device(TR_OPS_INT8, TR_CPU_GENERIC, 1);
        float *expected = all_rows(plain, dims[i], n_rows, x, y, w);
        OPS->close(plain);
        for (int level = TR_CPU_GENERIC; level <= TR_CPU_AVX512; level++) {
            struct tr_dev *dev = device(TR_OPS_INT8, (enum tr_cpu_level)level, 2);
            float *out = all_rows(dev, dims[i], n_rows, x, y, w);
            cr_assert_arr_eq(out, expected, N_RESULTS * n * sizeof *out, "dim %u level %d", dims[i],
                             level);
            free(out);
            OPS->close(dev);
        }
        free(x);
        free(y);
        free(w);
        free(expected);
    }
}

Test(rows, the_norms_in_one_pass_give_the_bits_of_the_single_ones)
{
    for (int i = 0; i < N_DIMS; i++) {
        uint32_t dim = dims[i];
        size_t n = (size_t)ROWS * dim;
        size_t bytes = n * sizeof(float);
        float *x = floats(n);
        float *y = floats(n);
        float *w_post = floats(dim);
        float *w_next = floats(dim);
        float *one = copy(x, n);
        float *t = memory(bytes);
        float *next = memory(bytes);
        struct tr_dev *dev = device(TR_OPS_INT8, TR_CPU_AVX512, 2);
        OPS->rms_norm(dev, y, w_post, 1e-6F, ROWS, dim, t);
        OPS->add(dev, one, t, ROWS, dim);
        OPS->rms_norm(dev, one, w_next, 1e-6F, ROWS, dim, next);
        OPS->norm_add_rms_norm(dev, x, y, w_post, w_next, 1e-6F, ROWS, dim, y);
        cr_assert_arr_eq(x, one, bytes);
        cr_assert_arr_eq(y, next, bytes, "out may be y");
        /* A head is a row of its own. */
        OPS->rms_norm(dev, x, w_next, 1e-6F, ROWS, dim, t);
        OPS->head_norm(dev, x, w_next, 1e-6F, 1, ROWS, dim);
        cr_assert_arr_eq(x, t, bytes);
        OPS->close(dev);
        free(x);
        free(y);
        free(w_post);
        free(w_next);
        free(one);
        free(t);
        free(next);
    }
}

Test(rows, gelu_is_sound_far_out)
{
    static const float far[] = {0.0F,    -0.0F, 5.5F,   -5.5F,  12.0F,    -12.0F,
                                -200.0F, 3e38F, -3e38F, 1e-42F, INFINITY, -INFINITY};
    enum { N = sizeof far / sizeof far[0] };
    float expected[N];
    for (int level = TR_CPU_GENERIC; level <= TR_CPU_AVX512; level++) {
        struct tr_dev *dev = device(TR_OPS_INT8, (enum tr_cpu_level)level, 1);
        float gate[N];
        float up[N];
        memcpy(gate, far, sizeof far);
        for (int i = 0; i < N; i++)
            up[i] = 1.0F;
        OPS->gelu_mul(dev, gate, up, 1, N);
        for (int i = 0; i < N; i++) {
            double x = far[i];
            double exact =
                x < -100 ? 0 : x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
            if (isinf(exact))
                cr_assert_eq(gate[i], far[i]);
            else
                cr_assert_float_eq(gate[i], exact, fabs(exact) * 1e-5 + 1e-30, "gelu(%g) = %g", x,
                                   (double)gate[i]);
        }
        if (level == TR_CPU_GENERIC)
            memcpy(expected, gate, sizeof gate);
        cr_assert_arr_eq(gate, expected, sizeof gate);
        OPS->close(dev);
    }
}

Test(rows, silu_is_sound_far_out)
{
    static const float far[] = {0.0F, -0.0F, 87.5F, -87.5F, 200.0F, -200.0F, 3e38F, -3e38F, 1e-42F};
    enum { N = sizeof far / sizeof far[0] };
    float expected[N];
    for (int level = TR_CPU_GENERIC; level <= TR_CPU_AVX512; level++) {
        struct tr_dev *dev = device(TR_OPS_INT8, (enum tr_cpu_level)level, 1);
        float gate[N];
        float up[N];
        memcpy(gate, far, sizeof far);
        for (int i = 0; i < N; i++)
            up[i] = 1.0F;
        OPS->silu_mul(dev, gate, up, 1, N);
        for (int i = 0; i < N; i++) {
            double x = far[i];
            double exact = x / (1 + exp(-x));
            cr_assert_float_eq(gate[i], exact, fabs(exact) * 1e-6 + 1e-30, "silu(%g) = %g", x,
                               (double)gate[i]);
        }
        if (level == TR_CPU_GENERIC)
            memcpy(expected, gate, sizeof gate);
        cr_assert_arr_eq(gate, expected, sizeof gate);
        OPS->close(dev);
    }
}

Test(rows, quantised_activations_are_the_same_at_every_level_and_near_their_source)
{
    enum { DIM = 320 };
    float *x = floats(ROWS * DIM);
    struct tr_act a[TR_CPU_AVX512 + 1];
    void *mem[TR_CPU_AVX512 + 1];
    for (int level = TR_CPU_GENERIC; level <= TR_CPU_AVX512; level++) {
        struct tr_dev *dev = device(TR_OPS_INT8, (enum tr_cpu_level)level, 1);
        size_t bytes = OPS->act_bytes(dev, ROWS, DIM);
        mem[level] = memory(bytes);
        OPS->act_init(dev, &a[level], ROWS, DIM, mem[level]);
        OPS->act_set(dev, &a[level], x, ROWS);
        cr_assert_arr_eq(mem[level], mem[0], bytes, "level %d", level);
        OPS->close(dev);
    }
    for (size_t i = 0; i < (size_t)ROWS * DIM; i++) {
        double d = a[0].d[i / 32];
        cr_assert_leq(fabs(a[0].q[i] * d - x[i]), d * 0.5001);
        cr_assert_geq(a[0].q[i], -127);
    }
    for (size_t b = 0; b < (size_t)ROWS * DIM / 32; b++) {
        int32_t sum = 0;
        for (size_t i = 0; i < 32; i++)
            sum += a[0].q[b * 32 + i];
        cr_assert_eq(a[0].sum[b], sum);
        for (size_t i = 16; i < 32; i++)
            sum -= a[0].q[b * 32 + i];
        cr_assert_eq(a[0].low[b], sum);
        cr_assert_eq(a[0].s[b], a[0].d[b] * (float)a[0].sum[b]);
    }
    for (int level = 0; level <= TR_CPU_AVX512; level++)
        free(mem[level]);
    free(x);
}

Test(rows, rotation_turns_the_pairs_of_its_style)
{
    enum { HEADS = 3, DIM = 20, ROT = 16, CTX = 50 };
    double freq[ROT / 2];
    for (int i = 0; i < ROT / 2; i++)
        freq[i] = pow(10000.0, -2.0 * i / ROT);
    struct tr_dev *dev = device(TR_OPS_INT8, TR_CPU_AVX512, 1);
    void *mem = memory(tr_rope_bytes(ROT, CTX));
    struct tr_place places[2] = {{NULL, 0}, {NULL, 49}};

    for (int style = TR_ROPE_ADJACENT; style <= TR_ROPE_HALF; style++) {
        struct tr_rope r;
        float *x = floats((size_t)2 * HEADS * DIM);
        float *before = copy(x, (size_t)2 * HEADS * DIM);
        tr_rope_init(&r, (enum tr_rope_style)style, ROT, CTX, freq, 1.0F, mem);
        tr_rope_reach(&r, CTX);
        OPS->rope(dev, &r, x, places, 2, HEADS, DIM);
        cr_assert_arr_eq(x, before, (size_t)HEADS * DIM * sizeof *x, "position 0 turns nothing");
        for (size_t h = HEADS; h < (size_t)2 * HEADS; h++) {
            const float *b = before + h * DIM;
            const float *t = x + h * DIM;
            for (size_t i = 0; i < ROT / 2; i++) {
                size_t p = style == TR_ROPE_ADJACENT ? 2 * i : i;
                size_t q = style == TR_ROPE_ADJACENT ? 2 * i + 1 : i + ROT / 2;
                double c = cos(49 * freq[i]);
                double s = sin(49 * freq[i]);
                cr_assert_float_eq(t[p], b[p] * c - b[q] * s, 1e-5);
                cr_assert_float_eq(t[q], b[p] * s + b[q] * c, 1e-5);
            }
            cr_assert_arr_eq(t + ROT, b + ROT, (DIM - ROT) * sizeof *t);
        }
        free(x);
        free(before);
    }
    free(mem);
    OPS->close(dev);
}

Test(rows, an_amplitude_stretches_what_is_rotated)
{
    enum { ROT = 16, CTX = 50 };
    const double freq[ROT / 2] = {1, 0.5, 0.25, 0.125, 0.1, 0.05, 0.02, 0.01};
    struct tr_rope plain;
    struct tr_rope stretched;
    void *mem[2] = {memory(tr_rope_bytes(ROT, CTX)), memory(tr_rope_bytes(ROT, CTX))};
    tr_rope_init(&plain, TR_ROPE_HALF, ROT, CTX, freq, 1.0F, mem[0]);
    tr_rope_reach(&plain, CTX);
    tr_rope_init(&stretched, TR_ROPE_HALF, ROT, CTX, freq, 1.25F, mem[1]);
    tr_rope_reach(&stretched, CTX);
    for (size_t i = 0; i < (size_t)ROT * CTX; i++)
        cr_assert_eq(stretched.cos_sin[i], plain.cos_sin[i] * 1.25F);
    free(mem[0]);
    free(mem[1]);
}

Test(rows, a_table_of_angles_grows_to_what_is_reached_and_no_further)
{
    enum { ROT = 16, CTX = 50 };
    const double freq[ROT / 2] = {1, 0.5, 0.25, 0.125, 0.1, 0.05, 0.02, 0.01};
    struct tr_rope whole, grown;
    float *mem[2] = {memory(tr_rope_bytes(ROT, CTX)), memory(tr_rope_bytes(ROT, CTX))};
    for (size_t i = 0; i < (size_t)ROT * CTX; i++)
        mem[1][i] = 7.0F;
    tr_rope_init(&whole, TR_ROPE_HALF, ROT, CTX, freq, 1.0F, mem[0]);
    tr_rope_init(&grown, TR_ROPE_HALF, ROT, CTX, freq, 1.0F, mem[1]);
    tr_rope_reach(&whole, CTX);
    const uint32_t reached[] = {3, 2, 20, 20, 49};
    uint32_t most = 0;
    for (size_t k = 0; k < sizeof reached / sizeof *reached; k++) {
        tr_rope_reach(&grown, reached[k]);
        most = reached[k] > most ? reached[k] : most;
        cr_assert_eq(grown.n_filled, most);
        cr_assert_arr_eq(mem[0], mem[1], (size_t)ROT * most * sizeof(float));
        for (size_t i = (size_t)ROT * most; i < (size_t)ROT * CTX; i++)
            cr_assert_eq(mem[1][i], 7.0F, "position %zu was not asked for", i / ROT);
    }
    free(mem[0]);
    free(mem[1]);
}

/* A layer's way from products to products, in x, y and an act: norms, a bias, a rotation, an
 * activation, quantising, and rows that change in number. */
static void chain(struct tr_dev *dev, const float *w, float *x, float *y, uint32_t n_rows,
                  const struct tr_rope *r, const struct tr_place *places, struct tr_act *a)
{
    enum { DIM = 96 };
    OPS->rms_norm(dev, x, w, 1e-5F, n_rows, DIM, y);
    for (int i = 0; i < 5; i++) {
        OPS->add_rms_norm(dev, x, y, w + DIM, 1e-5F, n_rows - 1, DIM, y);
        OPS->add_bias(dev, y, w, n_rows, DIM);
        OPS->rope(dev, r, y, places, n_rows, 3, DIM / 3);
        OPS->silu_mul(dev, y, x, n_rows, DIM);
    }
    OPS->act_set(dev, a, y, n_rows);
}

Test(rows, operations_that_wait_give_the_same_bits)
{
    enum { MANY = 400, DIM = 96, ROT = 32 };
    double freq[ROT / 2];
    struct tr_place places[MANY];
    struct tr_rope rope;
    void *angles = memory(tr_rope_bytes(ROT, MANY));
    for (int i = 0; i < ROT / 2; i++)
        freq[i] = 1.0 / (i + 1);
    for (uint32_t i = 0; i < MANY; i++)
        places[i] = (struct tr_place){NULL, MANY - 1 - i};
    tr_rope_init(&rope, TR_ROPE_HALF, ROT, MANY, freq, 1.0F, angles);
    tr_rope_reach(&rope, MANY);
    float *start = floats((size_t)(MANY + 2) * DIM);
    for (uint32_t n_rows = 2; n_rows <= MANY; n_rows += 199) {
        float *x[2];
        float *y[2];
        struct tr_act a[2];
        void *mem[2];
        for (uint32_t i = 0; i < 2; i++) {
            struct tr_dev *dev = device(TR_OPS_INT8, TR_CPU_AVX512, 1 + 2 * i);
            x[i] = copy(start, (size_t)(MANY + 2) * DIM);
            y[i] = memory(sizeof(float) * MANY * DIM);
            mem[i] = memory(OPS->act_bytes(dev, MANY, DIM));
            OPS->act_init(dev, &a[i], MANY, DIM, mem[i]);
            OPS->defer(dev, i == 1);
            chain(dev, start, x[i], y[i], n_rows, &rope, places, &a[i]);
            OPS->defer(dev, false);
            OPS->close(dev);
        }
        cr_assert_arr_eq(x[0], x[1], (size_t)(MANY + 2) * DIM * sizeof(float));
        cr_assert_arr_eq(y[0], y[1], (size_t)n_rows * DIM * sizeof(float));
        cr_assert_arr_eq(a[0].q, a[1].q, (size_t)n_rows * DIM);
        cr_assert_arr_eq(a[0].d, a[1].d, (size_t)n_rows * DIM / 32 * sizeof(float));
        for (uint32_t i = 0; i < 2; i++) {
            free(x[i]);
            free(y[i]);
            free(mem[i]);
        }
    }
    free(start);
    free(angles);
}

/* Copies row i of src to dst. */
struct copying {
    const float *src;
    float *dst;
    uint32_t dim;
};

static void copy_row(void *arg, uint32_t i)
{
    const struct copying *c = arg;
    memcpy(c->dst + (size_t)i * c->dim, c->src + (size_t)i * c->dim, c->dim * sizeof(float));
}

enum { STEP_ROWS = 6, STEP_DIM = 64, STEP_OUT = 40, STEP_WAITING = 30 };

struct step {
    float x[STEP_ROWS * STEP_DIM];
    float product[STEP_ROWS * STEP_OUT];
    float attention[STEP_ROWS * STEP_DIM];
    float copied[STEP_ROWS * STEP_DIM];
};

/* Each reader of rows right behind operations that may wait; at first more of them than may. */
static void read_at_once(struct tr_dev *dev, const float *w, const struct tr_mat *m,
                         struct tr_act *a, const struct tr_kv *kv, struct step *s)
{
    const uint32_t blocks[] = {0};
    const struct tr_attend_params p = {.scale = 0.1F};
    struct copying c = {s->x, s->copied, STEP_DIM};
    struct tr_place places[STEP_ROWS];
    for (uint32_t i = 0; i < STEP_ROWS; i++)
        places[i] = (struct tr_place){blocks, i};
    for (int i = 0; i < STEP_WAITING; i++)
        OPS->add_bias(dev, s->x, w, STEP_ROWS, STEP_DIM);
    OPS->act_set(dev, a, s->x, STEP_ROWS);
    OPS->matmul(dev, m, a, s->product);
    OPS->scale(dev, s->x, 0.3F, STEP_ROWS, STEP_DIM);
    OPS->kv_write(dev, kv, 0, places, STEP_ROWS, s->x, s->x);
    OPS->attention(dev, kv, 0, places, STEP_ROWS, s->x, 1, &p, s->attention);
    OPS->add_bias(dev, s->x, w, STEP_ROWS, STEP_DIM);
    OPS->parallel(dev, STEP_ROWS, copy_row, &c);
}

Test(rows, what_waits_is_done_before_it_is_read)
{
    uint8_t *rows = random_rows(TR_T_Q4_1, STEP_DIM, STEP_OUT);
    float *w = floats(STEP_DIM);
    struct step s[2];
    for (size_t i = 0; i < STEP_ROWS * STEP_DIM; i++)
        s[0].x[i] = s[1].x[i] = rnd_float();
    for (uint32_t i = 0; i < 2; i++) {
        struct tr_dev *dev = device(TR_OPS_INT8, TR_CPU_AVX512, 2);
        void *mat_mem = memory(OPS->mat_bytes(dev, TR_T_Q4_1, STEP_DIM, STEP_OUT));
        void *act_mem = memory(OPS->act_bytes(dev, STEP_ROWS, STEP_DIM));
        struct tr_mat m;
        struct tr_act a;
        struct tr_kv kv = {.type = TR_OPS_KV_F32,
                           .n_layer = 1,
                           .n_blocks = 1,
                           .n_head_kv = 1,
                           .head_dim = STEP_DIM,
                           .block_bytes = tr_kv_block_bytes(TR_OPS_KV_F32, 1, STEP_DIM)};
        kv.mem = memory(kv.block_bytes);
        OPS->mat_prepare(dev, &m, TR_T_Q4_1, STEP_DIM, STEP_OUT, rows, mat_mem);
        OPS->act_init(dev, &a, STEP_ROWS, STEP_DIM, act_mem);
        OPS->defer(dev, i == 1);
        read_at_once(dev, w, &m, &a, &kv, &s[i]);
        OPS->defer(dev, false);
        OPS->close(dev);
        free(mat_mem);
        free(act_mem);
        free(kv.mem);
    }
    cr_assert_arr_eq(s[0].product, s[1].product, sizeof s[0].product);
    cr_assert_arr_eq(s[0].attention, s[1].attention, sizeof s[0].attention);
    cr_assert_arr_eq(s[0].copied, s[1].copied, sizeof s[0].copied);
    cr_assert_arr_eq(s[0].x, s[1].x, sizeof s[0].x);
    free(rows);
    free(w);
}
