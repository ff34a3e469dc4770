/* SPDX-License-Identifier: Apache-2.0 */
/* Activations quantised for products: the CPU's bits, also of blocks that are nothing, not numbers, or halfway
 * between two quants. */
#include "suite.h"

enum { QK = 32 };

/* Memory of activations, where act_init places them. */
struct numbers {
    std::vector<int8_t> q;
    std::vector<float> d, s;
    std::vector<int32_t> sum, low;
};

/* Any NaN is as good as another. */
static bool same_floats(const std::vector<float> &a, const std::vector<float> &b)
{
    bool same = a.size() == b.size();
    for (size_t i = 0; same && i < a.size(); i++)
        same = (std::isnan(a[i]) && std::isnan(b[i])) || memcmp(&a[i], &b[i], sizeof(float)) == 0;
    return same;
}

static bool same_numbers(const numbers &a, const numbers &b)
{
    return same(a.q, b.q) && same_floats(a.d, b.d) && same_floats(a.s, b.s) && same(a.sum, b.sum) &&
           same(a.low, b.low);
}

static std::vector<float> rows_of(uint32_t rows, uint32_t dim)
{
    std::vector<float> x = floats((size_t)rows * dim);
    for (size_t i = 0; i < x.size(); i++) {
        switch (i / QK % 9) {
        case 1: /* halfway between quants */
            x[i] = i % QK ? (float)(int)rnd_in(0, 252) / 2.0f - 63.0f : 127.0f;
            break;
        case 2:
            x[i] = i % 2 ? 0.0f : -0.0f;
            break;
        case 3: /* too small to be anything, and just not */
            x[i] = i % QK == 5 ? (i / QK % 2 ? 0x1p-50f : 0x1.fffffep-51f) : 0.0f;
            break;
        case 4:
            x[i] = i % QK == 17 ? INFINITY : x[i];
            break;
        case 5:
            x[i] = i % QK == 31 ? -NAN : x[i];
            break;
        case 6:
            x[i] *= 1e37f;
            break;
        case 7:
            x[i] *= 1e-38f;
            break;
        default:
            break;
        }
    }
    return x;
}

static numbers by_cpu(const std::vector<float> &x, uint32_t rows, uint32_t dim)
{
    size_t blocks = dim % QK ? 0 : (size_t)rows * (dim / QK),
           len = tr_ops_cpu.act_bytes(plain(), rows, dim);
    void *mem = aligned_alloc(TR_OPS_ALIGN, len + TR_OPS_ALIGN);
    struct tr_act a;
    tr_ops_cpu.act_init(plain(), &a, rows, dim, mem);
    tr_ops_cpu.act_set(plain(), &a, x.data(), rows);
    numbers n = {{a.q, a.q + blocks * QK},
                 {a.d, a.d + blocks},
                 {a.s, a.s + blocks},
                 {a.sum, a.sum + blocks},
                 {a.low, a.low + blocks}};
    free(mem);
    return n;
}

template <class T>
static std::vector<T> part(const std::vector<uint8_t> &mem, const uint8_t *base, const T *at,
                           size_t n)
{
    std::vector<T> v(n);
    if (n)
        memcpy(v.data(), mem.data() + ((const uint8_t *)at - base), n * sizeof(T));
    return v;
}

/* In memory for twice the rows: what belongs to the others is not touched. */
static void both(uint32_t rows, uint32_t dim)
{
    std::vector<float> x = rows_of(rows, dim);
    numbers want = by_cpu(x, rows, dim);
    in_both_orders([&](const char *order) {
        struct tr_dev dev = device(true);
        struct tr_act a;
        on_device<uint8_t> mem(std::vector<uint8_t>(tr_cuda_act_bytes(&dev, 2 * rows, dim), 0xa5));
        on_device<float> dx(x);
        size_t blocks = dim % QK ? 0 : (size_t)rows * (dim / QK);
        tr_cuda_act_init(&dev, &a, 2 * rows, dim, mem.p);
        tr_cuda_act_set(&dev, &a, dx.p, rows);
        claim(a.x == dx.p && a.n_rows == rows && a.dim == dim, "%u rows of %u", rows, dim);
        std::vector<uint8_t> got = mem.get();
        numbers n = {part(got, mem.p, a.q, blocks * QK), part(got, mem.p, a.d, blocks),
                     part(got, mem.p, a.s, blocks), part(got, mem.p, a.sum, blocks),
                     part(got, mem.p, a.low, blocks)};
        claim(same_numbers(n, want), "%u rows of %u quantised%s", rows, dim, order);
        size_t touched = 0;
        for (uint8_t byte : got)
            touched += byte != 0xa5;
        claim(touched <= blocks * (QK + 16), "%u rows of %u: %zu bytes touched%s", rows, dim,
              touched, order);
    });
}

int main()
{
    both(1, 32);
    both(3, 96);
    both(17, 576);
    both(2, 1536);
    both(300, 64);
    both(4, 33); /* for float weights alone */
    return suite_end();
}
