/* SPDX-License-Identifier: Apache-2.0 */
/* Rows and tokens that go where a table says: gather, note_ids. */
#include "suite.h"

static void gathered(uint32_t n_rows, uint32_t n, uint32_t dim)
{
    std::vector<float> x = floats((size_t)n_rows * dim), want((size_t)n * dim);
    std::vector<uint32_t> rows(n);
    for (uint32_t &r : rows)
        r = rnd_in(0, n_rows - 1);
    tr_ops_cpu.gather(plain(), x.data(), rows.data(), n, dim, want.data());
    in_both_orders([&](const char *order) {
        struct tr_dev dev = device(true);
        on_device<float> dx(x), out(want.size());
        on_device<uint32_t> dr(rows);
        tr_cuda_gather(&dev, dx.p, dr.p, n, dim, out.p);
        claim(same(out.get(), want), "%u of %u rows of %u%s", n, n_rows, dim, order);
    });
}

/* Rows of two sequences in scattered blocks, some of which are not there. */
static void noted(uint32_t n_rows)
{
    enum { BLOCKS = 40, PER_SEQ = 20 };
    std::vector<uint32_t> table(BLOCKS), tokens(n_rows), want(BLOCKS * TR_OPS_KV_BLOCK, 7);
    for (uint32_t i = 0; i < BLOCKS; i++)
        table[i] = (i * 13 + 5) % BLOCKS;
    on_device<uint32_t> device_table(table);
    std::vector<struct tr_place> places(n_rows), device_places(n_rows);
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t seq = i % 2, pos = i % 5 == 3 ? TR_NO_POS : i / 2 + 11 * seq;
        bool there = pos != TR_NO_POS;
        tokens[i] = rnd();
        places[i] = {there ? table.data() + seq * PER_SEQ : nullptr, pos};
        device_places[i] = {there ? device_table.p + seq * PER_SEQ : nullptr, pos};
    }
    std::vector<uint32_t> before = want;
    struct tr_kv kv = {};
    kv.n_blocks = BLOCKS;
    kv.ids = want.data();
    tr_ops_cpu.note_ids(plain(), &kv, places.data(), tokens.data(), n_rows);
    in_both_orders([&](const char *order) {
        struct tr_dev dev = device(true);
        on_device<uint32_t> ids(before), dt(tokens);
        on_device<struct tr_place> dp(device_places);
        kv.ids = ids.p;
        tr_cuda_note_ids(&dev, &kv, dp.p, dt.p, n_rows);
        claim(same(ids.get(), want) && !same(want, before), "tokens of %u rows%s", n_rows, order);
    });
}

int main()
{
    gathered(1, 1, 64);
    gathered(9, 5, 576);
    gathered(300, 7, 33);
    gathered(4, 40, 1030);
    noted(1);
    noted(2);
    noted(300);
    return suite_end();
}
