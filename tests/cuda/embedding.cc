/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a packed matrix of every type: the floats that the CPU reads out of its own form. */
#include "weights.h"

/* All rows of it, in an order of their own, some of them twice. */
static void both(enum tr_tensor_type type, uint32_t n_in, uint32_t n_out)
{
    std::vector<uint8_t> rows = random_rows(type, n_in, n_out);
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < n_out + 3; i++)
        tokens.push_back((i * 7 + 5) % n_out);
    uint32_t n = (uint32_t)tokens.size();
    struct tr_mat m;
    packed_room cpu(tr_ops_cpu.mat_bytes(plain(), type, n_in, n_out));
    tr_ops_cpu.mat_prepare(plain(), &m, type, n_in, n_out, rows.data(), cpu.p);
    std::vector<float> want((size_t)n * n_in);
    tr_ops_cpu.embed(plain(), &m, tokens.data(), n, want.data());

    struct tr_dev dev = device(true);
    packed_room host(tr_cuda_mat_bytes(&dev, type, n_in, n_out));
    tr_cuda_mat_prepare(&dev, &m, type, n_in, n_out, rows.data(), host.p);
    on_device<uint8_t> packed(
        std::vector<uint8_t>((uint8_t *)host.p, (uint8_t *)host.p + host.len));
    tr_cuda_mat_adopt(&dev, &m, type, n_in, n_out, packed.p);
    in_both_orders([&](const char *order) {
        on_device<uint32_t> ids(tokens);
        on_device<float> out(want.size());
        tr_cuda_embed(&dev, &m, ids.p, n, out.p);
        claim(same(out.get(), want), "rows of %s [%u, %u]%s", type_name(type), n_out, n_in, order);
    });
}

int main()
{
    for (auto &t : all_types) {
        both(t.type, least_in(t.type), 3);
        both(t.type, 3 * least_in(t.type), 70);
    }
    both(TR_T_F32, 5, 33);
    both(TR_T_F16, 129, 2);
    both(TR_T_BF16, 7, 64);
    return suite_end();
}
