/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over paged KV: right, and the same bits however rows, blocks and threads fall. */
#include "fixture.h"

#include <math.h>

/* One sequence of n positions with random q, k, v, in a cache of its own. */
struct seq {
    enum tr_ops_kv type;
    uint32_t n;
    uint32_t n_head;
    uint32_t n_head_kv;
    uint32_t dim;
    float *q;
    float *k;
    float *v;
    struct tr_attend_params p;
};

static struct seq sequence(enum tr_ops_kv type, uint32_t n, uint32_t n_head, uint32_t n_head_kv,
                           uint32_t dim)
{
    struct seq s = {type, n, n_head, n_head_kv, dim, NULL, NULL, NULL, {.scale = 0.125F}};
    s.q = floats((size_t)n * n_head * dim);
    s.k = floats((size_t)n * n_head_kv * dim);
    s.v = floats((size_t)n * n_head_kv * dim);
    return s;
}

static void drop(struct seq *s)
{
    free(s->q);
    free(s->k);
    free(s->v);
}

/* A cache of two layers with more blocks than needed; every byte is NaN in every type. */
static struct tr_kv cache(const struct seq *s)
{
    struct tr_kv kv = {.type = s->type,
                       .n_layer = 2,
                       .n_blocks = s->n / 32 + 8,
                       .n_head_kv = s->n_head_kv,
                       .head_dim = s->dim,
                       .block_bytes = tr_kv_block_bytes(s->type, s->n_head_kv, s->dim)};
    size_t bytes = kv.n_layer * kv.n_blocks * kv.block_bytes;
    cr_assert_neq(kv.block_bytes, 0);
    kv.mem = memory(bytes);
    memset(kv.mem, 0xFF, bytes);
    return kv;
}

static uint32_t *random_table(uint32_t n_blocks)
{
    uint32_t *t = memory(n_blocks * sizeof *t);
    for (uint32_t i = 0; i < n_blocks; i++)
        t[i] = i;
    for (uint32_t i = n_blocks - 1; i > 0; i--) {
        uint32_t j = rnd_in(0, i);
        uint32_t x = t[i];
        t[i] = t[j];
        t[j] = x;
    }
    return t;
}

/* The whole sequence in chunks of at most `chunk` rows (0: random sizes), as prefill or decode
 * would do it. */
static float *run(const struct seq *s, enum tr_cpu_level level, uint32_t n_threads, uint32_t chunk)
{
    struct tr_dev *dev = device(TR_OPS_INT8, level, n_threads);
    struct tr_kv kv = cache(s);
    uint32_t *blocks = random_table(kv.n_blocks);
    size_t qw = (size_t)s->n_head * s->dim;
    size_t kw = (size_t)s->n_head_kv * s->dim;
    float *out = memory(s->n * qw * sizeof *out);
    struct tr_place *places = memory(s->n * sizeof *places);

    for (uint32_t at = 0; at < s->n;) {
        uint32_t n = chunk ? chunk : rnd_in(1, 70);
        n = n < s->n - at ? n : s->n - at;
        for (uint32_t i = 0; i < n; i++)
            places[i] = (struct tr_place){blocks, at + i};
        OPS->kv_write(dev, &kv, 1, places, n, s->k + at * kw, s->v + at * kw);
        OPS->attention(dev, &kv, 1, places, n, s->q + at * qw, s->n_head, &s->p, out + at * qw);
        at += n;
    }
    OPS->close(dev);
    free(kv.mem);
    free(blocks);
    free(places);
    return out;
}

static void exact(const struct seq *s, uint32_t pos, uint32_t head, double *out)
{
    size_t kv_head = head / (s->n_head / s->n_head_kv);
    const float *q = s->q + ((size_t)pos * s->n_head + head) * s->dim;
    double total = 0;
    memset(out, 0, s->dim * sizeof *out);
    for (size_t j = s->p.window && pos >= s->p.window ? pos + 1 - s->p.window : 0; j <= pos; j++) {
        const float *k = s->k + (j * s->n_head_kv + kv_head) * s->dim;
        const float *v = s->v + (j * s->n_head_kv + kv_head) * s->dim;
        double score = 0;
        for (size_t d = 0; d < s->dim; d++)
            score += (double)q[d] * k[d];
        score *= 0.125;
        double cap = s->p.soft_cap;
        double p = exp(cap > 0 ? cap * tanh(score / cap) : score);
        total += p;
        for (size_t d = 0; d < s->dim; d++)
            out[d] += p * v[d];
    }
    for (size_t d = 0; d < s->dim; d++)
        out[d] /= total;
}

static const enum tr_ops_kv kv_types[] = {TR_OPS_KV_F16, TR_OPS_KV_Q8_0, TR_OPS_KV_F32};

Test(attention, is_near_the_exact_softmax_for_every_cache_type)
{
    static const double tolerance[] = {4e-3, 6e-2, 4e-6};
    for (int t = 0; t < 3; t++) {
        struct seq s = sequence(kv_types[t], 600, 4, 2, 64);
        float *out = run(&s, TR_CPU_AVX512, 1, 0);
        double expected[64];
        for (uint32_t pos = 0; pos < s.n; pos += 7) {
            for (uint32_t h = 0; h < s.n_head; h++) {
                exact(&s, pos, h, expected);
                for (uint32_t d = 0; d < s.dim; d++)
                    cr_assert_float_eq(out[((size_t)pos * s.n_head + h) * s.dim + d], expected[d],
                                       tolerance[t], "type %d pos %u head %u", t, pos, h);
            }
        }
        free(out);
        drop(&s);
    }
}

Test(attention, window_and_cap_are_near_the_exact_softmax)
{
    struct seq s = sequence(TR_OPS_KV_F32, 700, 2, 1, 64);
    static const uint32_t windows[] = {1, 31, 100, 256, 300, 0};
    for (int i = 0; i < 6; i++) {
        s.p.window = windows[i];
        s.p.soft_cap = i % 2 ? 2.0F : 0.0F;
        float *out = run(&s, TR_CPU_AVX512, 1, 0);
        double expected[64];
        for (uint32_t pos = 0; pos < s.n; pos++) {
            exact(&s, pos, pos % 2, expected);
            for (uint32_t d = 0; d < s.dim; d++)
                cr_assert_float_eq(out[((size_t)pos * 2 + pos % 2) * s.dim + d], expected[d], 4e-6,
                                   "window %u pos %u", windows[i], pos);
        }
        free(out);
    }
    drop(&s);
}

Test(attention, chunks_threads_and_block_order_change_no_bit)
{
    static const uint32_t heads[][3] = {{9, 3, 64}, {4, 4, 32}, {16, 1, 96}, {10, 2, 128}};
    for (int t = 0; t < 3; t++) {
        for (int i = 0; i < 4; i++) {
            struct seq s =
                sequence(kv_types[t], i == 0 ? 560 : 300, heads[i][0], heads[i][1], heads[i][2]);
            size_t bytes = (size_t)s.n * s.n_head * s.dim * sizeof(float);
            float *single = run(&s, TR_CPU_AVX512, 1, 1);
            float *whole = run(&s, TR_CPU_AVX512, 2, s.n);
            float *mixed = run(&s, TR_CPU_AVX512, 2, 0);
            cr_assert_arr_eq(whole, single, bytes, "type %d heads %u", t, s.n_head);
            cr_assert_arr_eq(mixed, single, bytes, "type %d heads %u", t, s.n_head);
            free(single);
            free(whole);
            free(mixed);
            drop(&s);
        }
    }
}

Test(attention, all_levels_give_the_bits_of_plain_c, .timeout = 300)
{
    for (int t = 0; t < 3; t++) {
        struct seq s = sequence(kv_types[t], 290, 6, 2, 64);
        size_t bytes = (size_t)s.n * s.n_head * s.dim * sizeof(float);
        float *plain = run(&s, TR_CPU_GENERIC, 1, 0);
        float *avx2 = run(&s, TR_CPU_AVX2, 2, 0);
        float *avx512 = run(&s, TR_CPU_AVX512, 2, 0);
        cr_assert_arr_eq(avx2, plain, bytes, "cache type %d", t);
        cr_assert_arr_eq(avx512, plain, bytes, "cache type %d", t);
        free(plain);
        free(avx2);
        free(avx512);
        drop(&s);
    }
}

Test(attention, rows_of_several_sequences_do_not_meet)
{
    enum { SEQS = 5, N = 100 };
    struct seq s[SEQS];
    float *alone[SEQS];
    uint32_t len[SEQS];
    for (int i = 0; i < SEQS; i++) {
        s[i] = sequence(TR_OPS_KV_F16, N, 9, 3, 64);
        alone[i] = run(&s[i], TR_CPU_AVX512, 1, 0);
        len[i] = 0;
    }
    size_t qw = (size_t)9 * 64;
    size_t kw = (size_t)3 * 64;
    struct tr_dev *dev = device(TR_OPS_INT8, TR_CPU_AVX512, 2);
    struct seq all = s[0];
    all.n = SEQS * 128;
    struct tr_kv kv = cache(&all);
    uint32_t *table = random_table(kv.n_blocks);
    float q[SEQS * 9 * 9 * 64];
    float out[SEQS * 9 * 9 * 64];
    float k[SEQS * 9 * 3 * 64];
    float v[SEQS * 9 * 3 * 64];
    struct tr_place places[SEQS * 9];

    for (int step = 0; step < 12; step++) {
        uint32_t n = 0;
        uint32_t first[SEQS];
        uint32_t count[SEQS];
        for (uint32_t i = 0; i < SEQS; i++) {
            first[i] = n;
            count[i] = step % 2 ? 1 : rnd_in(0, 9);
            for (uint32_t r = 0; r < count[i]; r++, n++) {
                uint32_t pos = len[i] + r;
                places[n] = (struct tr_place){table + (size_t)i * 4, pos};
                memcpy(q + n * qw, s[i].q + pos * qw, qw * sizeof *q);
                memcpy(k + n * kw, s[i].k + pos * kw, kw * sizeof *k);
                memcpy(v + n * kw, s[i].v + pos * kw, kw * sizeof *v);
            }
        }
        OPS->kv_write(dev, &kv, 0, places, n, k, v);
        OPS->attention(dev, &kv, 0, places, n, q, 9, &s[0].p, out);
        for (uint32_t i = 0; i < SEQS; i++) {
            cr_assert_arr_eq(out + first[i] * qw, alone[i] + len[i] * qw,
                             count[i] * qw * sizeof *out);
            len[i] += count[i];
        }
    }
    OPS->close(dev);
    free(kv.mem);
    free(table);
    for (int i = 0; i < SEQS; i++) {
        free(alone[i]);
        drop(&s[i]);
    }
}

/* The last rows of a sequence, one at a time: what decoding does with a long context. */
static float *decode_last(const struct seq *s, enum tr_cpu_level level, uint32_t n_threads,
                          uint32_t last, uint32_t at_once)
{
    struct tr_dev *dev = device(TR_OPS_INT8, level, n_threads);
    struct tr_kv kv = cache(s);
    uint32_t *blocks = random_table(kv.n_blocks);
    size_t qw = (size_t)s->n_head * s->dim;
    float *out = memory(last * qw * sizeof *out);
    struct tr_place *places = memory(s->n * sizeof *places);
    for (uint32_t i = 0; i < s->n; i++)
        places[i] = (struct tr_place){blocks, i};
    OPS->kv_write(dev, &kv, 0, places, s->n, s->k, s->v);
    for (uint32_t i = 0; i < last; i += at_once) {
        uint32_t n = last - i < at_once ? last - i : at_once;
        uint32_t pos = s->n - last + i;
        OPS->attention(dev, &kv, 0, places + pos, n, s->q + pos * qw, s->n_head, &s->p,
                       out + i * qw);
    }
    OPS->close(dev);
    free(kv.mem);
    free(blocks);
    free(places);
    return out;
}

/* ASan sees every access at a quarter of the speed; how often bits are compared is for plain builds. */
#ifdef __SANITIZE_ADDRESS__
enum { LONG_CASES = 9, LONG_THREADS_STEP = 2, WINDOW_STEP = 2 };
#else
enum { LONG_CASES = 36, LONG_THREADS_STEP = 1, WINDOW_STEP = 1 };
#endif

/* Partitions of one row are computed by different threads and joined by the last one; with windows
 * that begin anywhere, groups of all sizes, every head_dim, one row at a time or several. */
Test(attention, a_long_context_gives_the_same_bits_on_any_number_of_threads, .timeout = 300)
{
    for (uint32_t i = 0; i < LONG_CASES; i++) {
        enum tr_ops_kv type = kv_types[i % 3];
        uint32_t unit = type == TR_OPS_KV_Q8_0 ? 32 : 16;
        uint32_t group = rnd_in(1, 9);
        uint32_t n_kv = rnd_in(1, 3);
        struct seq s = sequence(type, rnd_in(600, 1500), group * n_kv, n_kv,
                                i < 3 ? 256 : unit * rnd_in(1, 256 / unit / 2));
        enum { LAST = 7 };
        s.p.window = i % 2 ? rnd_in(1, s.n) : 0;
        s.p.soft_cap = i % 4 == 0 ? 5.0F : 0.0F;
        size_t bytes = (size_t)LAST * s.n_head * s.dim * sizeof(float);
        float *plain = decode_last(&s, TR_CPU_GENERIC, 1, LAST, 1);
        for (int level = TR_CPU_AVX2; level <= TR_CPU_AVX512; level++) {
            for (uint32_t threads = 1; threads <= 4; threads += LONG_THREADS_STEP) {
                float *out = decode_last(&s, (enum tr_cpu_level)level, threads, LAST, 1);
                cr_assert_arr_eq(out, plain, bytes, "case %u level %d threads %u", i, level,
                                 threads);
                free(out);
                out = decode_last(&s, (enum tr_cpu_level)level, threads, LAST, rnd_in(2, LAST));
                cr_assert_arr_eq(out, plain, bytes, "case %u level %d threads %u, rows together", i,
                                 level, threads);
                free(out);
            }
        }
        free(plain);
        drop(&s);
    }
}

/* Many rows of different sequences and contexts in one call: more items than are cut at a time. */
Test(attention, many_sequences_in_a_step_do_not_meet)
{
    enum { SEQS = 700, N = 600 };
    struct seq s = sequence(TR_OPS_KV_F16, N, 4, 2, 32);
    struct tr_kv kv = cache(&s);
    uint32_t *blocks = random_table(kv.n_blocks);
    static struct tr_place places[SEQS];
    static struct tr_place all[N];
    size_t qw = (size_t)4 * 32;
    float *q = floats(SEQS * qw);
    float *one = memory(SEQS * qw * sizeof *one);
    float *out = memory(SEQS * qw * sizeof *out);
    struct tr_dev *dev = device(TR_OPS_INT8, TR_CPU_AVX512, 3);
    for (uint32_t i = 0; i < N; i++)
        all[i] = (struct tr_place){blocks, i};
    OPS->kv_write(dev, &kv, 1, all, N, s.k, s.v);
    for (uint32_t i = 0; i < SEQS; i++) {
        places[i] = (struct tr_place){blocks, i % 7 == 0 ? N - 1 - i % 50 : rnd_in(0, N - 1)};
        OPS->attention(dev, &kv, 1, places + i, 1, q + i * qw, 4, &s.p, one + i * qw);
    }
    OPS->attention(dev, &kv, 1, places, SEQS, q, 4, &s.p, out);
    cr_assert_arr_eq(out, one, SEQS * qw * sizeof *out);
    OPS->close(dev);
    free(kv.mem);
    free(blocks);
    free(q);
    free(one);
    free(out);
    drop(&s);
}

/* Windows around the sizes of blocks and partitions; what a row does not see may be NaN. */
Test(attention, a_window_gives_the_same_bits_however_it_is_cut, .timeout = 300)
{
    static const uint32_t windows[] = {1, 2, 15, 16, 31, 32, 33, 64, 255, 256, 257, 288, 1000};
    for (int i = 0; i < 13; i += WINDOW_STEP) {
        struct seq s = sequence(kv_types[i % 3], 540, 4, i % 2 ? 1 : 2, 32);
        s.p.window = windows[i];
        s.p.soft_cap = i % 3 == 1 ? 3.0F : 0.0F;
        size_t bytes = (size_t)s.n * s.n_head * s.dim * sizeof(float);
        float *plain = run(&s, TR_CPU_GENERIC, 1, 1);
        for (int level = TR_CPU_GENERIC; level <= TR_CPU_AVX512; level++) {
            for (uint32_t chunk = 0; chunk <= s.n; chunk += s.n / 2) {
                float *out = run(&s, (enum tr_cpu_level)level, 2, chunk);
                cr_assert_arr_eq(out, plain, bytes, "window %u level %d chunk %u", windows[i],
                                 level, chunk);
                free(out);
            }
        }
        free(plain);
        drop(&s);
    }
}

Test(attention, what_left_the_window_may_be_anything)
{
    struct seq s = sequence(TR_OPS_KV_F32, 400, 3, 1, 64);
    s.p.window = 20;
    float *clean = run(&s, TR_CPU_AVX512, 1, 0);
    for (size_t i = 0; i < 64; i++)
        s.k[(size_t)300 * 64 + i] = s.v[(size_t)300 * 64 + i] = NAN;
    for (int level = TR_CPU_GENERIC; level <= TR_CPU_AVX512; level++) {
        float *out = run(&s, (enum tr_cpu_level)level, 1, 400);
        cr_assert_arr_eq(out, clean, (size_t)300 * 3 * 64 * sizeof *out);
        cr_assert(isnan(out[(size_t)319 * 3 * 64]));
        cr_assert_arr_eq(out + (size_t)320 * 3 * 64, clean + (size_t)320 * 3 * 64,
                         (size_t)80 * 3 * 64 * sizeof *out);
        free(out);
    }
    free(clean);
    drop(&s);
}

Test(attention, an_infinite_value_is_not_seen_before_its_position)
{
    struct seq s = sequence(TR_OPS_KV_F32, 40, 3, 1, 64);
    float *clean = run(&s, TR_CPU_AVX512, 1, 0);
    s.v[(size_t)20 * 64] = INFINITY;
    s.k[(size_t)21 * 64] = NAN;
    for (int level = TR_CPU_GENERIC; level <= TR_CPU_AVX512; level++) {
        float *out = run(&s, (enum tr_cpu_level)level, 1, 40);
        cr_assert_arr_eq(out, clean, (size_t)20 * 3 * 64 * sizeof *out);
        cr_assert(isinf(out[(size_t)20 * 3 * 64]));
        cr_assert(isnan(out[(size_t)21 * 3 * 64]));
        free(out);
    }
    free(clean);
    drop(&s);
}

Test(attention, shapes_that_are_not_served_have_no_size)
{
    cr_assert_eq(tr_kv_block_bytes(TR_OPS_KV_F16, 3, 60), 0);
    cr_assert_eq(tr_kv_block_bytes(TR_OPS_KV_Q8_0, 3, 80), 0);
    cr_assert_eq(tr_kv_block_bytes(TR_OPS_KV_F16, 0, 64), 0);
    cr_assert_eq(tr_kv_block_bytes(TR_OPS_KV_F16, 3, 512), 0);
    cr_assert_eq(tr_kv_block_bytes(TR_OPS_KV_F16, 3, 64), 2 * 3 * 64 * 32 * 2);
    cr_assert_eq(tr_kv_block_bytes(TR_OPS_KV_F16, 1, 80), 2 * 80 * 32 * 2);
}
