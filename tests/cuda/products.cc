/* SPDX-License-Identifier: Apache-2.0 */
/* Products of few rows: the plain level's bits, for every type, shape and number of rows. */
#include "acts.h"

static void product(const matrix &w, uint32_t n_rows)
{
    const uint32_t n_in = w.cpu.n_in, n_out = w.cpu.n_out;
    activations a(n_rows, n_in);
    std::vector<float> want((size_t)n_rows * n_out);
    tr_ops_cpu.matmul(plain(), &w.cpu, &a.cpu, want.data());
    in_both_orders([&](const char *order) {
        struct tr_dev dev = device(true);
        on_device<float> out(want.size());
        tr_cuda_matmul(&dev, &w.cuda, &a.cuda, out.p);
        claim(same(out.get(), want), "%u rows by %s [%u, %u]%s", n_rows, type_name(w.cpu.type),
              n_out, n_in, order);
    });
}

/* All counts of rows that few rows are, and one more. */
static void rows(enum tr_tensor_type type, uint32_t n_in, uint32_t n_out)
{
    matrix w(type, n_in, n_out);
    for (uint32_t n = 1; n <= 17; n++)
        product(w, n);
}

/* What SmolLM2 has: its layers' matrices in full, some of its output head. */
static void the_model()
{
    const uint32_t layer[][2] = {{576, 576}, {576, 192}, {576, 1536}, {1536, 576}};
    for (auto &l : layer) {
        matrix w(TR_T_Q4_1, l[0], l[1]);
        for (uint32_t n_rows : {1u, 2u, 8u})
            product(w, n_rows);
    }
    matrix head(TR_T_Q8_0, 576, 1000);
    for (uint32_t n_rows : {1u, 7u, 16u})
        product(head, n_rows);
    /* Q8_0 in several rounds, outputs that do not fill a strip. */
    product(matrix(TR_T_Q8_0, 1536, 33), 4);
}

/* More rounds than a warp's ring has places. */
static void long_sums()
{
    product(matrix(TR_T_Q4_K, 6400, 32), 1);
    product(matrix(TR_T_Q6_K, 3328, 20), 1);
    product(matrix(TR_T_Q2_K, 4096, 32), 4);
    product(matrix(TR_T_Q5_K, 2304, 32), 16);
    product(matrix(TR_T_F16, 1700, 32), 1);
}

/* Matrices of one launch, and a type of its own between them. */
static void several_at_once()
{
    const uint32_t n_in = 256, n_rows = 3;
    matrix q(TR_T_Q4_K, n_in, 70), k(TR_T_Q6_K, n_in, 33), v(TR_T_Q4_K, n_in, 32),
        g(TR_T_Q4_K, n_in, 5);
    const matrix *all[] = {&q, &k, &v, &g};
    activations a(n_rows, n_in);
    in_both_orders([&](const char *order) {
        struct tr_dev dev = device(true);
        on_device<float> o0(n_rows * 70), o1(n_rows * 33), o2(n_rows * 32), o3(n_rows * 5);
        on_device<float> *outs[] = {&o0, &o1, &o2, &o3};
        const struct tr_mat *w[] = {&q.cuda, &k.cuda, &v.cuda, &g.cuda};
        float *out[] = {o0.p, o1.p, o2.p, o3.p};
        tr_cuda_matmul_n(&dev, 4, w, &a.cuda, out);
        for (int i = 0; i < 4; i++) {
            std::vector<float> want(outs[i]->n);
            tr_ops_cpu.matmul(plain(), &all[i]->cpu, &a.cpu, want.data());
            claim(same(outs[i]->get(), want), "product %d of four%s", i, order);
        }
    });
}

int main()
{
    for (auto &t : all_types)
        for (uint32_t n_rows : {1u, 3u, 8u, 9u})
            product(matrix(t.type, 2 * least_in(t.type), 33), n_rows);
    /* Elements that fill neither a block nor a load. */
    for (enum tr_tensor_type type : {TR_T_F32, TR_T_F16, TR_T_BF16})
        for (uint32_t n_in : {1u, 45u})
            product(matrix(type, n_in, 40), 2);
    rows(TR_T_Q4_1, 64, 32);
    rows(TR_T_Q8_0, 32, 1);
    the_model();
    long_sums();
    several_at_once();
    return suite_end();
}
