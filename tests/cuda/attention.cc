/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: the CPU's bits for all types, shapes and mixtures of rows. */
#include "attention_rig.h"

/* Rows of all kinds against the host, in both orders.  `room`: for all that could be split; for some; for none. */
static void check(const cache &c, const std::vector<struct run> &runs, const char *what)
{
    struct attended a = attend_on_host(c, runs);
    uint32_t n_head = c.s.n_head_kv * c.s.group;
    size_t none = tr_cuda_attention_room(0, 1, 1, n_head, c.s.n_head_kv, c.s.dim);
    size_t all = tr_cuda_attention_room(64, 1024, 512, n_head, c.s.n_head_kv, c.s.dim);
    const size_t rooms[] = {all, none + (all - none) / 160, none};
    in_both_orders([&](const char *order) {
        for (size_t room : rooms)
            claim(same(attend_on_device(c, runs, a, true, room, room == all ? 2 : 1), a.want),
                  "%s, %s, %u x %u heads of %u, cap %g, window %u, room %zu%s", what,
                  name_of(c.s.type), c.s.n_head_kv, c.s.group, c.s.dim, (double)c.s.soft_cap,
                  c.s.window, room, order);
    });
}

/* One new position of each of several sequences, contexts from 1 to 4 partitions; two rows are not there. */
static void decode(const struct shape &s)
{
    cache c(s, {1, 40, 256, 257, 777}, 1);
    check(c, {{4, 776, 1}, {0, 0, 0}, {1, 39, 1}, {0, 0, 1}, {2, 255, 1}, {3, 256, 1}, {0, 0, 0}},
          "decode");
}

int main()
{
    for (uint32_t dim : {16u, 48u, 64u, 128u, 256u})
        decode({TR_OPS_KV_F16, 2, 3, dim, 0, 0});
    for (uint32_t group : {1u, 2u, 8u, 9u})
        decode({TR_OPS_KV_F16, 2, group, 32, 0, 0});
    decode({TR_OPS_KV_F16, 1, 4, 64, 30, 300});
    decode({TR_OPS_KV_F16, 3, 2, 32, 0, 20});
    decode({TR_OPS_KV_Q8_0, 2, 4, 64, 0, 0});
    decode({TR_OPS_KV_Q8_0, 1, 8, 96, 30, 290});
    decode({TR_OPS_KV_F32, 2, 4, 80, 0, 0});
    decode({TR_OPS_KV_F32, 1, 1, 128, 5, 256});
    return suite_end();
}
