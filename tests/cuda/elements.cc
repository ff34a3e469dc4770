/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on elements: the CPU's bits, also far out, where exp has its ends. */
#include "suite.h"

static std::vector<float> wide(size_t n)
{
    static const float corners[] = {0.0f,   -0.0f,  87.0f,  88.0f, 89.0f,
                                    -86.9f, -87.0f, -87.1f, 1e30f, -1e30f};
    std::vector<float> v = floats(n);
    for (size_t i = 0; i < n; i++)
        v[i] = i < sizeof(corners) / sizeof(*corners) ? corners[i] : v[i] * (i % 3 ? 1.0f : 40.0f);
    return v;
}

/* One of them by both, on the same numbers. */
static void both(const char *name, uint32_t rows, uint32_t dim, size_t y_len,
                 const std::function<void(float *x, const float *y)> &cpu,
                 const std::function<void(struct tr_dev *, float *x, const float *y)> &cuda)
{
    std::vector<float> x = wide((size_t)rows * dim), y = floats(y_len), want = x;
    cpu(want.data(), y.data());
    in_both_orders([&](const char *order) {
        struct tr_dev dev = device(true);
        on_device<float> dx(x), dy(y);
        cuda(&dev, dx.p, dy.p);
        claim(same(dx.get(), want), "%s of %u rows of %u%s", name, rows, dim, order);
    });
}

static void all(uint32_t rows, uint32_t dim)
{
    size_t n = (size_t)rows * dim;
    struct tr_dev *p = plain();
    both(
        "add", rows, dim, n, [&](float *x, const float *y) { tr_ops_cpu.add(p, x, y, rows, dim); },
        [&](struct tr_dev *d, float *x, const float *y) { tr_cuda_add(d, x, y, rows, dim); });
    both(
        "add_bias", rows, dim, dim,
        [&](float *x, const float *y) { tr_ops_cpu.add_bias(p, x, y, rows, dim); },
        [&](struct tr_dev *d, float *x, const float *y) { tr_cuda_add_bias(d, x, y, rows, dim); });
    both(
        "scale", rows, dim, 1,
        [&](float *x, const float *) { tr_ops_cpu.scale(p, x, 27.7f, rows, dim); },
        [&](struct tr_dev *d, float *x, const float *) { tr_cuda_scale(d, x, 27.7f, rows, dim); });
    both(
        "silu_mul", rows, dim, n,
        [&](float *x, const float *y) { tr_ops_cpu.silu_mul(p, x, y, rows, dim); },
        [&](struct tr_dev *d, float *x, const float *y) { tr_cuda_silu_mul(d, x, y, rows, dim); });
    both(
        "gelu_mul", rows, dim, n,
        [&](float *x, const float *y) { tr_ops_cpu.gelu_mul(p, x, y, rows, dim); },
        [&](struct tr_dev *d, float *x, const float *y) { tr_cuda_gelu_mul(d, x, y, rows, dim); });
}

int main()
{
    all(1, 64);
    all(3, 1536);
    all(5, 33);
    all(1, 15);
    return suite_end();
}
