/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding and storing K and V: the CPU's bits, and rows that are not there touch nothing. */
#include "suite.h"

static const uint32_t POSITIONS[] = {0, 1, 37, 31, TR_NO_POS, 63, 32, TR_NO_POS, 64};
enum { ROWS = sizeof(POSITIONS) / sizeof(*POSITIONS), N_CTX = 65 };

static void rope(enum tr_rope_style style, uint32_t n_head, uint32_t head_dim, uint32_t n_rot)
{
    std::vector<float> table(tr_rope_bytes(n_rot, N_CTX) / sizeof(float));
    std::vector<double> freq;
    for (uint32_t i = 0; i < n_rot / 2; i++)
        freq.push_back(pow(10000, -2.0 * i / n_rot));
    struct tr_rope r;
    tr_rope_init(&r, style, n_rot, N_CTX, freq.data(), 1.25f, table.data());
    tr_rope_reach(&r, N_CTX);

    std::vector<struct tr_place> places;
    for (uint32_t pos : POSITIONS)
        places.push_back({nullptr, pos});
    std::vector<float> x = floats((size_t)ROWS * n_head * head_dim), want = x;
    tr_ops_cpu.rope(plain(), &r, want.data(), places.data(), ROWS, n_head, head_dim);
    in_both_orders([&](const char *order) {
        struct tr_dev dev = device(true);
        on_device<float> dx(x), dt(table);
        on_device<struct tr_place> dp(places);
        struct tr_rope on = r;
        on.cos_sin = dt.p;
        tr_cuda_rope(&dev, &on, dx.p, dp.p, ROWS, n_head, head_dim);
        claim(same(dx.get(), want), "rope of style %d, %u heads of %u, %u turned%s", (int)style,
              n_head, head_dim, n_rot, order);
    });
}

/* Some blocks of values that quantise to nothing, one with a huge one. */
static std::vector<float> values(size_t n)
{
    std::vector<float> v = floats(n);
    for (size_t i = 0; i < n; i++) {
        if (i / 32 % 7 == 3)
            v[i] *= 0x1p-60f;
        if (i / 32 % 7 == 5)
            v[i] = i % 32 == 4 ? -60000.0f : v[i] * 0x1p-20f;
    }
    return v;
}

static void kv_write(enum tr_ops_kv type, uint32_t n_head_kv, uint32_t head_dim)
{
    struct tr_kv kv = {};
    kv.type = type;
    kv.n_layer = 2;
    kv.n_blocks = 5;
    kv.n_head_kv = n_head_kv;
    kv.head_dim = head_dim;
    kv.block_bytes = tr_kv_block_bytes(type, n_head_kv, head_dim);
    std::vector<uint8_t> before(kv.n_layer * kv.n_blocks * kv.block_bytes, 0xEE), want = before;
    std::vector<uint32_t> table = {3, 0, 4};
    size_t width = (size_t)n_head_kv * head_dim;
    std::vector<float> k = values(ROWS * width), v = values(ROWS * width);
    std::vector<struct tr_place> places;
    for (uint32_t pos : POSITIONS)
        places.push_back({pos == TR_NO_POS ? nullptr : table.data(), pos});
    kv.mem = want.data();
    tr_ops_cpu.kv_write(plain(), &kv, 1, places.data(), ROWS, k.data(), v.data());
    in_both_orders([&](const char *order) {
        struct tr_dev dev = device(true);
        on_device<uint8_t> mem(before);
        on_device<uint32_t> dt(table);
        on_device<float> dk(k), dv(v);
        std::vector<struct tr_place> there = places;
        for (struct tr_place &p : there)
            p.blocks = p.blocks ? dt.p : nullptr;
        on_device<struct tr_place> dp(there);
        struct tr_kv on = kv;
        on.mem = mem.p;
        tr_cuda_kv_write(&dev, &on, 1, dp.p, ROWS, dk.p, dv.p);
        claim(same(mem.get(), want), "K and V of type %d, %u heads of %u%s", (int)type, n_head_kv,
              head_dim, order);
    });
}

int main()
{
    for (enum tr_rope_style style : {TR_ROPE_ADJACENT, TR_ROPE_HALF}) {
        rope(style, 3, 64, 64);
        rope(style, 1, 16, 16);
        rope(style, 5, 80, 32);
        rope(style, 2, 256, 256);
    }
    for (uint32_t head_dim : {32u, 64u, 96u, 256u}) {
        kv_write(TR_OPS_KV_F16, 3, head_dim);
        kv_write(TR_OPS_KV_Q8_0, 3, head_dim);
        kv_write(TR_OPS_KV_F32, 3, head_dim);
    }
    kv_write(TR_OPS_KV_F16, 3, 16);
    kv_write(TR_OPS_KV_F32, 1, 80);
    return suite_end();
}
