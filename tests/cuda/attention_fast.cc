/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on tensor cores: within the bound that cuda_kernels/attention_prefill_fast.cu states, of exact attention. */
#include "attention_rig.h"

extern "C" {
#include "cpu_kernels/half.h"
}

/* K, or V, of a position as the F16 cache has it. */
static double stored(const cache &c, const struct run &r, uint32_t head, uint32_t pos, uint32_t d,
                     bool v)
{
    const uint8_t *block =
        c.bytes.data() +
        ((size_t)cache::LAYER * c.kv.n_blocks + c.tables[r.seq][pos / 32]) * c.kv.block_bytes;
    const uint16_t *h = (const uint16_t *)(const void *)block +
                        (size_t)(v ? c.s.n_head_kv + head : head) * c.s.dim * 32;
    return (double)tr_f16_to_f32(h[v ? pos % 32 * c.s.dim + d : d * 32 + pos % 32]);
}

/* What row `pos` may differ by, per dimension, and what is right, in double. */
struct truth {
    std::vector<double> right;
    std::vector<double> bound;
};

static struct truth truth_of(const cache &c, const struct run &r, uint32_t pos, uint32_t head_kv,
                             const float *q)
{
    uint32_t dim = c.s.dim, from = c.s.window && pos + 1 > c.s.window ? pos + 1 - c.s.window : 0;
    double scale = 1 / sqrt((double)dim), off = 0, sum = 0, top = -1e300;
    std::vector<double> s(pos + 1);
    for (uint32_t j = from; j <= pos; j++) {
        double dot = 0, size = 0;
        for (uint32_t d = 0; d < dim; d++) {
            double x = (double)q[d] * stored(c, r, head_kv, j, d, false);
            dot += x;
            size += fabs(x);
        }
        s[j] = dot * scale;
        if (c.s.soft_cap > 0)
            s[j] = c.s.soft_cap * tanh(s[j] / c.s.soft_cap);
        off = fmax(off, size * scale * 0x1p-11);
        top = fmax(top, s[j]);
    }
    struct truth t = {std::vector<double>(dim, 0), std::vector<double>(dim, 0)};
    for (uint32_t j = from; j <= pos; j++)
        sum += s[j] = exp(s[j] - top);
    for (uint32_t d = 0; d < dim; d++) {
        double size = 0;
        for (uint32_t j = from; j <= pos; j++) {
            double x = s[j] / sum * stored(c, r, head_kv, j, d, true);
            t.right[d] += x;
            size += fabs(x);
        }
        t.bound[d] = (exp(2 * off) - 1 + 0x1p-10) * size;
    }
    return t;
}

static void check(const struct shape &s, const std::vector<uint32_t> &lengths,
                  const std::vector<struct run> &runs)
{
    cache c(s, lengths, 1);
    struct attended a = attend_on_host(c, runs);
    uint32_t n_head = s.n_head_kv * s.group, row = 0;
    size_t room = tr_cuda_attention_room(4, 1024, 512, n_head, s.n_head_kv, s.dim);
    std::vector<double> right, bound;
    for (const struct run &r : runs) {
        for (uint32_t i = 0; i < r.n; i++, row++) {
            for (uint32_t h = 0; h < n_head; h++) {
                struct truth t = truth_of(c, r, r.first + i, h / s.group,
                                          &a.q[((size_t)row * n_head + h) * s.dim]);
                right.insert(right.end(), t.right.begin(), t.right.end());
                bound.insert(bound.end(), t.bound.begin(), t.bound.end());
            }
        }
    }
    in_both_orders([&](const char *order) {
        std::vector<float> got = attend_on_device(c, runs, a, false, room);
        size_t far = 0, other = 0;
        double worst = 0;
        for (size_t i = 0; i < got.size(); i++) {
            double x = fabs((double)got[i] - right[i]) / bound[i];
            far += !(x <= 1);
            worst = fmax(worst, x);
            other += got[i] != a.want[i];
        }
        claim(far == 0 && other > 0,
              "fast attention, %u x %u heads of %u, cap %g, window %u%s: %zu of %zu are too far, "
              "the worst %g bounds; %zu differ from exact",
              s.n_head_kv, s.group, s.dim, (double)s.soft_cap, s.window, order, far, got.size(),
              worst, other);
    });
}

int main()
{
    check({TR_OPS_KV_F16, 2, 4, 64, 0, 0}, {70}, {{0, 0, 70}});
    check({TR_OPS_KV_F16, 1, 1, 128, 0, 0}, {165}, {{0, 100, 65}});
    check({TR_OPS_KV_F16, 1, 7, 48, 0, 7}, {90}, {{0, 20, 64}});
    check({TR_OPS_KV_F16, 1, 9, 80, 4, 40}, {100}, {{0, 36, 64}});
    check({TR_OPS_KV_F16, 1, 2, 256, 0, 50}, {96}, {{0, 32, 64}});
    check({TR_OPS_KV_F16, 1, 3, 16, 0, 0}, {99, 33, 64},
          {{1, 32, 1}, {0, 3, 60}, {2, 0, 64}, {0, 98, 1}});
    return suite_end();
}
