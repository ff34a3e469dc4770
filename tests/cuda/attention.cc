/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: the CPU's bits for all types, shapes and mixtures of rows. */
#include "attention_rig.h"

/* Room for all that could be split; for some of it; for none. */
enum room { ALL = 1, SOME = 2, NONE = 4 };

/* Rows of all kinds against the host, in both orders, with each of these rooms. */
static void check(const cache &c, const std::vector<struct run> &runs, const char *what,
                  unsigned rooms)
{
    struct attended a = attend_on_host(c, runs);
    uint32_t n_head = c.s.n_head_kv * c.s.group;
    size_t none = tr_cuda_attention_room(0, 1, 1, n_head, c.s.n_head_kv, c.s.dim);
    size_t all = tr_cuda_attention_room(64, 1024, 512, n_head, c.s.n_head_kv, c.s.dim);
    in_both_orders([&](const char *order) {
        for (unsigned room = ALL; room <= NONE; room *= 2) {
            if (!(rooms & room))
                continue;
            size_t len = room == ALL ? all : room == SOME ? none + (all - none) / 160 : none;
            claim(same(attend_on_device(c, runs, a, true, len, room == ALL ? 2 : 1), a.want),
                  "%s, %s, %u x %u heads of %u, cap %g, window %u, room %zu%s", what,
                  name_of(c.s.type), c.s.n_head_kv, c.s.group, c.s.dim, (double)c.s.soft_cap,
                  c.s.window, len, order);
        }
        /* A device whose blocks are too small for the prefill kernel has the decode kernel alone. */
        if (c.s.type == TR_OPS_KV_F32 && c.s.dim > 128)
            claim(same(attend_on_device(c, runs, a, true, all, 1, 99 << 10), a.want),
                  "%s, heads of %u, 99 KiB of shared memory%s", what, c.s.dim, order);
    });
}

/* One new position of each of several sequences, contexts from 1 to 4 partitions; two rows are not there. */
static void decode(const struct shape &s)
{
    cache c(s, {1, 40, 256, 257, 777}, 1);
    check(c, {{4, 776, 1}, {0, 0, 0}, {1, 39, 1}, {0, 0, 1}, {2, 255, 1}, {3, 256, 1}, {0, 0, 0}},
          "decode", ALL | SOME | NONE);
}

/* More partitions than a warp, and a block, joins at once. */
static void far_decode(const struct shape &s)
{
    cache c(s, {33100, 8500}, 0, true);
    check(c, {{0, 33099, 1}, {1, 8499, 1}}, "far decode", ALL);
}

/* More rows than a launch has, at all sorts of positions. */
static void many(const struct shape &s)
{
    cache c(s, {600, 30, 300});
    const uint32_t lengths[] = {600, 30, 300};
    std::vector<struct run> runs;
    for (uint32_t i = 0; i < 560; i++)
        runs.push_back(
            {i % 3, i % 20 == 7 ? 3 * i / 4 % lengths[i % 3] : i % lengths[i % 3], i % 50 != 49});
    check(c, runs, "many rows", SOME);
}

/* Rows that look like runs: of one sequence, but backwards; one position after the other, but of two sequences. */
static void lookalikes(const struct shape &s)
{
    cache c(s, {64, 64});
    std::vector<struct run> runs;
    for (uint32_t i = 0; i < 64; i++)
        runs.push_back({0, 63 - i, 1});
    for (uint32_t i = 0; i < 64; i++)
        runs.push_back({i % 2, i, 1});
    check(c, runs, "lookalikes", ALL);
}

/* A prompt, from its beginning or in the middle. */
static void prefill(const struct shape &s, uint32_t first, uint32_t n)
{
    cache c(s, {first + n}, 0, false, true);
    check(c, {{0, first, n}}, "prefill", ALL);
}

/* Rows that are alone before, between and after runs of all lengths; two sequences share their first blocks. */
static void mixture(const struct shape &s)
{
    cache c(s, {300, 290, 100, 40}, 4);
    check(c,
          {{2, 99, 1},
           {0, 0, 0},
           {0, 236, 37},
           {3, 0, 40},
           {1, 289, 1},
           {0, 0, 0},
           {2, 10, 9},
           {1, 250, 20}},
          "mixture", ALL);
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
    lookalikes({TR_OPS_KV_F16, 1, 2, 16, 0, 0});
    many({TR_OPS_KV_F16, 1, 1, 16, 0, 0});
    far_decode({TR_OPS_KV_F16, 1, 1, 16, 0, 0});
    prefill({TR_OPS_KV_F16, 2, 4, 16, 0, 0}, 0, 70);
    prefill({TR_OPS_KV_F16, 1, 1, 64, 0, 0}, 230, 64);
    prefill({TR_OPS_KV_F16, 1, 7, 32, 30, 100}, 480, 68);
    prefill({TR_OPS_KV_F16, 1, 2, 128, 0, 0}, 0, 64);
    prefill({TR_OPS_KV_F16, 1, 3, 80, 0, 0}, 100, 64);
    prefill({TR_OPS_KV_F16, 1, 9, 256, 0, 7}, 252, 64);
    prefill({TR_OPS_KV_Q8_0, 1, 3, 64, 0, 0}, 220, 80);
    prefill({TR_OPS_KV_Q8_0, 1, 1, 160, 9, 40}, 250, 64);
    prefill({TR_OPS_KV_F32, 2, 2, 48, 0, 0}, 200, 66);
    prefill({TR_OPS_KV_F32, 1, 1, 208, 0, 0}, 0, 64);
    mixture({TR_OPS_KV_F16, 2, 3, 32, 0, 0});
    mixture({TR_OPS_KV_F16, 1, 8, 16, 0, 50});
    mixture({TR_OPS_KV_Q8_0, 1, 4, 32, 20, 0});
    mixture({TR_OPS_KV_F32, 2, 1, 16, 0, 200});
    return suite_end();
}
