/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cuda/weights.h - weights of every type that can be computed with, as a file has them. */
#ifndef TR_TESTS_CUDA_WEIGHTS_H
#define TR_TESTS_CUDA_WEIGHTS_H

#include "suite.h"

extern "C" {
#include "cpu_kernels/quant.h"
}

static const struct {
    enum tr_tensor_type type;
    const char *name;
} all_types[] = {{TR_T_F32, "F32"},   {TR_T_F16, "F16"},   {TR_T_BF16, "BF16"}, {TR_T_Q8_0, "Q8_0"},
                 {TR_T_Q4_0, "Q4_0"}, {TR_T_Q4_1, "Q4_1"}, {TR_T_Q5_0, "Q5_0"}, {TR_T_Q5_1, "Q5_1"},
                 {TR_T_Q2_K, "Q2_K"}, {TR_T_Q3_K, "Q3_K"}, {TR_T_Q4_K, "Q4_K"}, {TR_T_Q5_K, "Q5_K"},
                 {TR_T_Q6_K, "Q6_K"}};

inline const char *type_name(enum tr_tensor_type type)
{
    for (auto &t : all_types)
        if (t.type == type)
            return t.name;
    return "?";
}

/* Where the F16 scale is in a block, the minimum's behind it. */
inline size_t scale_at(enum tr_tensor_type type)
{
    struct tr_quant_form f = tr_quant_form(type);
    if (type == TR_T_Q2_K)
        return f.bytes - 4u;
    return type == TR_T_Q3_K || type == TR_T_Q6_K ? f.bytes - 2u : 0;
}

/* Random GGUF rows of a type: sensible scales, any quants. */
inline std::vector<uint8_t> random_rows(enum tr_tensor_type type, uint32_t n_in, uint32_t n_out)
{
    struct tr_quant_form f = tr_quant_form(type);
    std::vector<uint8_t> data(tr_quant_row_bytes(type, n_in) * n_out);
    if (!f.block) {
        for (size_t i = 0; i < data.size(); i += f.bytes) {
            float x = rnd_float();
            uint32_t bits;
            memcpy(&bits, &x, sizeof(bits));
            uint16_t h = type == TR_T_BF16 ? (uint16_t)(bits >> 16) : tr_f32_to_f16(x);
            if (f.bytes == 4)
                memcpy(&data[i], &bits, 4);
            else
                memcpy(&data[i], &h, 2);
        }
        return data;
    }
    for (uint8_t &byte : data)
        byte = (uint8_t)rnd();
    bool super = f.block == TR_QK_SUPER;
    for (size_t at = 0; at < data.size(); at += f.bytes) {
        uint16_t d = tr_f32_to_f16(rnd_float() * (super ? 0.002f : 0.05f));
        uint16_t m = tr_f32_to_f16(rnd_float() * (super ? 0.01f : 0.3f));
        memcpy(&data[at + scale_at(type)], &d, 2);
        if (f.mins)
            memcpy(&data[at + scale_at(type) + 2], &m, 2);
    }
    return data;
}

/* The least n_in of a type: one block. */
inline uint32_t least_in(enum tr_tensor_type type)
{
    return tr_quant_blocked(type) ? tr_quant_form(type).block : 32;
}

/* Memory of the host for prepared weights, aligned as operations want it. */
struct packed_room {
    void *p;
    size_t len;
    explicit packed_room(size_t n) : p(aligned_alloc(TR_OPS_ALIGN, (n + 63) / 64 * 64)), len(n)
    {
        if (!p)
            exit(2);
        memset(p, 0xa5, len);
    }
    packed_room(const packed_room &) = delete;
    ~packed_room()
    {
        free(p);
    }
};

#endif
