/* SPDX-License-Identifier: Apache-2.0 */
/* Products of many rows: the CPU's bits for every type, whatever the tile that an output is in; in fast mode
 * numbers near them. */
#include "acts.h"

#include "cuda_kernels/product.cuh"

/* Rows of activations as both have them; of the device's only what it may read. */
struct rows {
    std::vector<float> x;
    struct tr_act cpu, gpu;
    packed_room room;
    on_device<float> dx, d, s;
    on_device<int8_t> q;
    on_device<int32_t> sum, low;

    static struct tr_act start(uint32_t n, uint32_t dim, const std::vector<float> &x, void *mem)
    {
        struct tr_act a;
        tr_ops_cpu.act_init(plain(), &a, n, dim, mem);
        tr_ops_cpu.act_set(plain(), &a, x.data(), n);
        return a;
    }
    template <class T> static std::vector<T> copy(const T *p, size_t n)
    {
        return std::vector<T>(p, p + n);
    }
    rows(uint32_t n, uint32_t dim)
        : x(floats((size_t)n * dim)), room(tr_ops_cpu.act_bytes(plain(), n, dim)), dx(x),
          d(n * (dim / 32)), s(n * (dim / 32)), q(n * (dim / 32) * 32), sum(n * (dim / 32)),
          low(n * (dim / 32))
    {
        const size_t blocks = (size_t)n * (dim / 32);
        cpu = start(n, dim, x, room.p);
        gpu = cpu;
        if (blocks) {
            q.put(copy(cpu.q, blocks * 32));
            d.put(copy(cpu.d, blocks));
            s.put(copy(cpu.s, blocks));
            sum.put(copy(cpu.sum, blocks));
            low.put(copy(cpu.low, blocks));
        }
        gpu.x = dx.p;
        gpu.q = q.p;
        gpu.d = d.p;
        gpu.s = s.p;
        gpu.sum = sum.p;
        gpu.low = low.p;
    }
};

/* What the CPU makes of it. */
static std::vector<float> right(const struct matrix &w, const struct rows &x)
{
    std::vector<float> out((size_t)x.cpu.n_rows * w.cpu.n_out);
    tr_ops_cpu.matmul(plain(), &w.cpu, &x.cpu, out.data());
    return out;
}

static std::vector<float> by_device(const struct matrix &w, const struct rows &x, bool exact,
                                    int n_sm)
{
    struct tr_dev dev = device(exact);
    dev.n_sm = n_sm;
    const struct tr_mat *m = &w.cuda;
    on_device<float> out((size_t)x.cpu.n_rows * w.cpu.n_out);
    float *o = out.p;
    tr_cuda_matmul_many(&dev, 1, &m, &x.gpu, &o);
    return out.get();
}

/* Few processors make large tiles, many make small ones. */
enum { LARGE = 1, SMALL = 100000 };

static void exact(enum tr_tensor_type type, uint32_t n_in, uint32_t n_out, uint32_t n_rows,
                  int n_sm)
{
    struct matrix w(type, n_in, n_out);
    struct rows x(n_rows, n_in);
    std::vector<float> want = right(w, x);
    in_both_orders([&](const char *order) {
        claim(same(by_device(w, x, true, n_sm), want), "%s [%u, %u] of %u rows, %s tiles%s",
              type_name(type), n_out, n_in, n_rows, n_sm == LARGE ? "large" : "small", order);
    });
}

/* Quantised weights in fast mode: one product of a block is rounded elsewhere. */
static void fast_quantised(enum tr_tensor_type type)
{
    struct matrix w(type, 512, 130);
    struct rows x(70, 512);
    std::vector<float> got = by_device(w, x, false, LARGE), want = right(w, x);
    claim(distance(got, want) < 0x1p-20, "%s in fast mode is off by %g", type_name(type),
          distance(got, want));
    claim(!same(got, want), "%s in fast mode is not the exact product", type_name(type));
    claim(same(by_device(w, x, false, SMALL), want), "%s in small tiles is exact in fast mode too",
          type_name(type));
}

/* sum of |x * w| of an output. */
static double weight_of(const struct matrix &w, const struct rows &x, uint32_t row, uint32_t out)
{
    const uint32_t n_in = w.cpu.n_in;
    std::vector<float> f(n_in);
    double sum = 0;
    tr_quant_row(w.cpu.type, w.rows.data() + tr_quant_row_bytes(w.cpu.type, n_in) * out, n_in,
                 f.data());
    for (uint32_t k = 0; k < n_in; k++)
        sum += fabs((double)f[k] * (double)x.x[(size_t)row * n_in + k]);
    return sum;
}

/* Float weights in fast mode: activations are rounded to the weights' type, of which the unit roundoff is u, and
 * sums of n_in elements to float. */
static void fast_float(enum tr_tensor_type type, double u, uint32_t n_in, uint32_t n_out,
                       uint32_t n_rows)
{
    struct matrix w(type, n_in, n_out);
    struct rows x(n_rows, n_in);
    std::vector<float> want = right(w, x);
    in_both_orders([&](const char *order) {
        std::vector<float> got = by_device(w, x, false, LARGE);
        double worst = 0;
        for (uint32_t r = 0; r < n_rows; r++)
            for (uint32_t o = 0; o < n_out; o++) {
                const size_t i = (size_t)r * n_out + o;
                const double off = fabs((double)got[i] - (double)want[i]);
                worst = fmax(worst, off / (weight_of(w, x, r, o) * (u + n_in * 0x1p-23)));
            }
        claim(worst < 1, "%s [%u, %u] of %u rows in fast mode: %.2f of the bound%s",
              type_name(type), n_out, n_in, n_rows, worst, order);
        claim(!same(got, want), "%s in fast mode is not the exact product", type_name(type));
    });
}

/* Beyond the range of F16: the largest number there, not infinity. */
static void fast_saturates()
{
    struct matrix w(TR_T_F16, 8, 32);
    struct rows x(20, 8);
    for (float &f : x.x)
        f = 1e6f;
    x.dx.put(x.x);
    bool finite = true;
    for (float f : by_device(w, x, false, LARGE))
        finite &= std::isfinite(f);
    claim(finite, "F16 of activations that are too large is finite");
}

/* q, k and v of one file: the types differ, and so do the outputs. */
static void several()
{
    struct rows x(80, 256);
    struct matrix q(TR_T_Q4_K, 256, 140), k(TR_T_Q6_K, 256, 40), v(TR_T_Q4_K, 256, 64),
        f(TR_T_F16, 256, 33);
    const struct matrix *all[] = {&q, &k, &v, &f};
    for (int n_sm : {LARGE, SMALL}) {
        struct tr_dev dev = device(true);
        dev.n_sm = n_sm;
        const struct tr_mat *w[4];
        float *out[4];
        on_device<float> o0(80 * 140), o1(80 * 40), o2(80 * 64), o3(80 * 33);
        const on_device<float> *outs[] = {&o0, &o1, &o2, &o3};
        for (int i = 0; i < 4; i++) {
            w[i] = &all[i]->cuda;
            out[i] = outs[i]->p;
        }
        tr_cuda_matmul_many(&dev, 4, w, &x.gpu, out);
        for (int i = 0; i < 4; i++)
            claim(same(outs[i]->get(), right(*all[i], x)), "product %d of four, %s tiles", i,
                  n_sm == LARGE ? "large" : "small");
    }
}

/* The products of a layer of SmolLM2-135M, and some of its outputs. */
static void smollm2()
{
    static const struct {
        enum tr_tensor_type type;
        uint32_t n_in, n_out;
    } of[] = {{TR_T_Q4_1, 576, 576},
              {TR_T_Q4_1, 576, 192},
              {TR_T_Q4_1, 576, 1536},
              {TR_T_Q4_1, 1536, 576},
              {TR_T_Q8_0, 576, 300}};
    for (auto &m : of) {
        struct matrix w(m.type, m.n_in, m.n_out);
        struct rows x(70, m.n_in);
        claim(same(by_device(w, x, true, LARGE), right(w, x)), "%s [%u, %u] in large tiles",
              type_name(m.type), m.n_out, m.n_in);
        claim(same(by_device(w, x, true, SMALL), right(w, x)), "%s [%u, %u] in small tiles",
              type_name(m.type), m.n_out, m.n_in);
    }
}

int main()
{
    smollm2();
    for (auto &t : all_types) {
        if (!tr_quant_blocked(t.type))
            continue;
        const uint32_t n_in = tr_quant_form(t.type).block == TR_QK ? 9 * 32 : 2 * 256;
        exact(t.type, n_in, 33, 17, SMALL);
        exact(t.type, n_in, 150, 130, LARGE);
        fast_quantised(t.type);
    }
    for (enum tr_tensor_type type : {TR_T_F32, TR_T_F16, TR_T_BF16}) {
        exact(type, 96, 70, 17, LARGE);
        exact(type, 43, 33, 131, LARGE);
    }
    fast_float(TR_T_F16, 0x1p-11, 128, 150, 130);
    fast_float(TR_T_F16, 0x1p-11, 43, 33, 17);
    fast_float(TR_T_BF16, 0x1p-8, 128, 33, 17);
    fast_float(TR_T_BF16, 0x1p-8, 43, 33, 17);
    fast_saturates();
    several();
    return suite_end();
}
