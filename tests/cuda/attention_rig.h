/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cuda/attention_rig.h - sequences in a KV cache of the device and of the host, byte by byte the same. */
#ifndef TR_TESTS_CUDA_ATTENTION_RIG_H
#define TR_TESTS_CUDA_ATTENTION_RIG_H

#include "suite.h"

struct shape {
    enum tr_ops_kv type;
    uint32_t n_head_kv;
    uint32_t group;
    uint32_t dim;
    float soft_cap;
    uint32_t window;
};

inline const char *name_of(enum tr_ops_kv type)
{
    return type == TR_OPS_KV_F16 ? "F16" : type == TR_OPS_KV_Q8_0 ? "Q8_0" : "F32";
}

/* Rows [first, first + n) of a sequence are asked for; n 0: a row that is not there. */
struct run {
    uint32_t seq;
    uint32_t first;
    uint32_t n;
};

/* Sequences of given lengths over two layers; blocks lie scattered.  The first `shared` blocks of all sequences are
 * the same ones.  What nobody has written is NaN in every type, and tables end where the sequences do. */
struct cache {
    enum { LAYER = 1 };
    struct shape s;
    bool rising;   /* scores rise with the position, so that most partitions have a new maximum */
    bool infinite; /* V of the last position is, in F16: it must not reach rows before it */
    struct tr_kv kv = {};
    std::vector<std::vector<uint32_t>> tables;
    std::vector<on_device<uint32_t> *> device_tables;
    std::vector<uint8_t> bytes;
    on_device<uint8_t> *mem = nullptr;

    cache(const struct shape &shape, const std::vector<uint32_t> &lengths, uint32_t shared = 0,
          bool rises = false, bool endless = false)
        : s(shape), rising(rises), infinite(endless)
    {
        uint32_t n_blocks = 3;
        for (uint32_t n : lengths)
            n_blocks += (n + 31) / 32;
        std::vector<uint32_t> ids(n_blocks);
        for (uint32_t i = 0; i < n_blocks; i++) {
            uint32_t j = rnd_in(0, i);
            ids[i] = ids[j];
            ids[j] = i;
        }
        kv.type = s.type;
        kv.n_layer = 2;
        kv.n_blocks = n_blocks;
        kv.n_head_kv = s.n_head_kv;
        kv.head_dim = s.dim;
        kv.block_bytes = tr_kv_block_bytes(s.type, s.n_head_kv, s.dim);
        bytes.assign(2 * n_blocks * kv.block_bytes, 0xFF);
        kv.mem = bytes.data();
        uint32_t next = 0;
        for (uint32_t n : lengths) {
            std::vector<uint32_t> t((n + 31) / 32);
            for (uint32_t b = 0; b < t.size(); b++)
                t[b] = b < shared && !tables.empty() ? tables[0][b] : ids[next++];
            tables.push_back(t);
            device_tables.push_back(new on_device<uint32_t>(t));
            fill(tables.size() - 1, n);
        }
        mem = new on_device<uint8_t>(bytes);
    }
    cache(const cache &) = delete;
    ~cache()
    {
        for (on_device<uint32_t> *t : device_tables)
            delete t;
        delete mem;
    }

    /* K and V of all positions of a sequence, by the host. */
    void fill(size_t seq, uint32_t n)
    {
        size_t width = (size_t)s.n_head_kv * s.dim;
        std::vector<float> k = floats(n * width), v = floats(n * width);
        std::vector<struct tr_place> places;
        for (uint32_t i = 0; i < n; i++)
            places.push_back({tables[seq].data(), i});
        for (size_t i = 0; rising && i < k.size(); i += s.dim)
            k[i] += (float)(i / width) / 64;
        if (infinite)
            v[(n - 1) * width] = 1e6f;
        tr_ops_cpu.kv_write(plain(), &kv, LAYER, places.data(), n, k.data(), v.data());
    }

    struct tr_kv on_the_device() const
    {
        struct tr_kv k = kv;
        k.mem = mem->p;
        return k;
    }

    std::vector<struct tr_place> places(const std::vector<struct run> &runs, bool device) const
    {
        std::vector<struct tr_place> p;
        for (const struct run &r : runs) {
            if (r.n == 0)
                p.push_back({nullptr, TR_NO_POS});
            for (uint32_t i = 0; i < r.n; i++)
                p.push_back({device ? device_tables[r.seq]->p : tables[r.seq].data(), r.first + i});
        }
        return p;
    }
};

struct attended {
    std::vector<float> q;
    std::vector<float> want;
    struct tr_attend_params p;
};

/* Random queries, and what the host makes of them. */
inline struct attended attend_on_host(const cache &c, const std::vector<struct run> &runs)
{
    struct attended a;
    std::vector<struct tr_place> places = c.places(runs, false);
    uint32_t n_head = c.s.n_head_kv * c.s.group;
    a.q = floats(places.size() * n_head * c.s.dim);
    for (size_t i = 0; c.rising && i < a.q.size(); i += c.s.dim)
        a.q[i] = fabsf(a.q[i]) + 1;
    a.p = {1.0f / sqrtf((float)c.s.dim), c.s.soft_cap, c.s.window};
    a.want.assign(a.q.size(), 7.0f);
    tr_ops_cpu.attention(plain(), &c.kv, cache::LAYER, places.data(), (uint32_t)places.size(),
                         a.q.data(), n_head, &a.p, a.want.data());
    return a;
}

/* The device's answer; `room` bytes for what is split, `shared` bytes of shared memory a block, 0: all there are. */
inline std::vector<float> attend_on_device(const cache &c, const std::vector<struct run> &runs,
                                           const struct attended &a, bool exact, size_t room,
                                           unsigned times = 1, size_t shared = 0)
{
    std::vector<struct tr_place> places = c.places(runs, true);
    uint32_t n_head = c.s.n_head_kv * c.s.group;
    struct tr_dev dev = device(exact);
    dev.shared_most = shared ? shared : dev.shared_most;
    struct tr_kv kv = c.on_the_device();
    on_device<struct tr_place> dp(places);
    on_device<float> dq(a.q), out(a.q.size());
    on_device<uint8_t> dr(std::vector<uint8_t>(room, 0));
    dev.attend_room = dr.p;
    dev.attend_room_len = room;
    for (unsigned i = 0; i < times; i++) {
        out.put(std::vector<float>(a.q.size(), -7.0f));
        tr_cuda_attention(&dev, &kv, cache::LAYER, dp.p, (uint32_t)places.size(), dq.p, n_head,
                          &a.p, out.p);
    }
    return out.get();
}

#endif
