/* SPDX-License-Identifier: Apache-2.0 */
/* The norms: exact ones by memcmp, a row by a whole block within rounding. */
#include "suite.h"

static const uint32_t row_counts[] = {1, 3, 8, 17};
static const uint32_t dims[] = {16, 33, 64, 576, 1000};

struct input {
    uint32_t rows, dim;
    std::vector<float> x, y, w, post;
    input(uint32_t r, uint32_t d)
        : rows(r), dim(d), x(floats((size_t)r * d)), y(floats((size_t)r * d)), w(floats(d)),
          post(floats(d))
    {
    }
};

struct output {
    std::vector<float> x, out;
};

enum which { PLAIN, ADD, POST, N_WHICH };
static const char *const names[] = {"rms_norm", "add_rms_norm", "norm_add_rms_norm"};

static output by_cpu(which k, const input &in)
{
    output o = {in.x, std::vector<float>(in.x.size())};
    float *x = o.x.data(), *out = o.out.data();
    const float *y = in.y.data(), *w = in.w.data(), *post = in.post.data();
    if (k == PLAIN)
        tr_ops_cpu.rms_norm(plain(), x, w, 1e-5f, in.rows, in.dim, out);
    else if (k == ADD)
        tr_ops_cpu.add_rms_norm(plain(), x, y, w, 1e-5f, in.rows, in.dim, out);
    else
        tr_ops_cpu.norm_add_rms_norm(plain(), x, y, post, w, 1e-5f, in.rows, in.dim, out);
    return o;
}

static output by_device(which k, const input &in, bool exact)
{
    struct tr_dev dev = device(exact);
    on_device<float> x(in.x), y(in.y), w(in.w), post(in.post), out(in.x.size());
    if (k == PLAIN)
        tr_cuda_rms_norm(&dev, x.p, w.p, 1e-5f, in.rows, in.dim, out.p);
    else if (k == ADD)
        tr_cuda_add_rms_norm(&dev, x.p, y.p, w.p, 1e-5f, in.rows, in.dim, out.p);
    else
        tr_cuda_norm_add_rms_norm(&dev, x.p, y.p, post.p, w.p, 1e-5f, in.rows, in.dim, out.p);
    return {x.get(), out.get()};
}

static void norms_of(const input &in)
{
    for (int i = 0; i < N_WHICH; i++) {
        which k = (which)i;
        output want = by_cpu(k, in);
        in_both_orders([&](const char *order) {
            output exact = by_device(k, in, true), fast = by_device(k, in, false);
            claim(same(exact.x, want.x) && same(exact.out, want.out), "%s of %u rows of %u%s",
                  names[i], in.rows, in.dim, order);
            /* Sums of dim squares in two orders: a few units of 2^-24 apart. */
            claim(distance(fast.out, want.out) < 1e-6 && distance(fast.x, want.x) < 1e-6,
                  "fast %s of %u rows of %u%s", names[i], in.rows, in.dim, order);
        });
    }
}

static void heads(uint32_t rows, uint32_t n_head, uint32_t head_dim)
{
    std::vector<float> x = floats((size_t)rows * n_head * head_dim), w = floats(head_dim), want = x;
    tr_ops_cpu.head_norm(plain(), want.data(), w.data(), 1e-6f, rows, n_head, head_dim);
    in_both_orders([&](const char *order) {
        struct tr_dev dev = device(false);
        on_device<float> dx(x), dw(w);
        tr_cuda_head_norm(&dev, dx.p, dw.p, 1e-6f, rows, n_head, head_dim);
        claim(same(dx.get(), want), "%u rows of %u heads of %u%s", rows, n_head, head_dim, order);
    });
}

int main()
{
    for (uint32_t rows : row_counts)
        for (uint32_t dim : dims)
            norms_of(input(rows, dim));
    heads(3, 5, 64);
    heads(1, 9, 80);
    return suite_end();
}
