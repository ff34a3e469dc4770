/* SPDX-License-Identifier: Apache-2.0 */
/* tests/unit/cpu_kernels/fixture.h - devices, random numbers and random weights for kernel tests. */
#ifndef TR_TESTS_CPU_KERNELS_FIXTURE_H
#define TR_TESTS_CPU_KERNELS_FIXTURE_H

#include "cpu_kernels/ops.h"
#include "cpu_kernels/quant.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define OPS (&tr_ops_cpu)

static uint64_t rng_state = 0x9E3779B97F4A7C15U;

static inline uint32_t rnd(void)
{
    rng_state = rng_state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(rng_state >> 33);
}

static inline uint32_t rnd_in(uint32_t lo, uint32_t hi)
{
    return lo + rnd() % (hi - lo + 1);
}

/* About normal, mean 0, variance 1. */
static inline float rnd_float(void)
{
    float s = 0;
    for (int i = 0; i < 12; i++)
        s += (float)(rnd() & 0xFFFF) / 65536.0F;
    return s - 6.0F;
}

static inline void *memory(size_t bytes)
{
    void *p = aligned_alloc(TR_OPS_ALIGN, (bytes + 63) / 64 * 64 + 64);
    cr_assert_not_null(p);
    memset(p, 0x5A, (bytes + 63) / 64 * 64 + 64);
    return p;
}

static inline float *floats(size_t n)
{
    float *p = memory(n * sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = rnd_float();
    return p;
}

static inline struct tr_dev *device(enum tr_ops_math math, enum tr_cpu_level level,
                                    uint32_t n_threads)
{
    struct tr_errbuf err = {{0}};
    struct tr_cpu_config c = {.math = math, .level_max = level, .n_threads = n_threads};
    struct tr_dev *dev = tr_cpu_open(&c, &err);
    cr_assert_not_null(dev, "%s", err.msg);
    return dev;
}

/* Where the F16 scale is in a block, the minimum's behind it. */
static inline size_t scale_at(enum tr_tensor_type type)
{
    struct tr_quant_form f = tr_quant_form(type);
    if (type == TR_T_Q2_K)
        return f.bytes - 4U;
    return type == TR_T_Q3_K || type == TR_T_Q6_K ? f.bytes - 2U : 0;
}

/* Random GGUF rows of a type: sensible scales, any quants. */
static inline uint8_t *random_rows(enum tr_tensor_type type, uint32_t n_in, uint32_t n_out)
{
    size_t row = tr_quant_row_bytes(type, n_in);
    uint8_t *data = memory(row * n_out);
    cr_assert_neq(row, 0);
    if (!tr_quant_blocked(type)) {
        for (size_t i = 0; i < (size_t)n_in * n_out; i++) {
            float f = rnd_float();
            uint16_t h = tr_f32_to_f16(f);
            uint32_t u;
            memcpy(&u, &f, 4);
            if (type == TR_T_BF16)
                h = (uint16_t)(u >> 16);
            if (type == TR_T_F32)
                memcpy(data + 4 * i, &f, 4);
            else
                memcpy(data + 2 * i, &h, 2);
        }
        return data;
    }
    struct tr_quant_form f = tr_quant_form(type);
    for (uint8_t *p = data; p < data + row * n_out; p += f.bytes) {
        for (size_t i = 0; i < f.bytes; i++)
            p[i] = (uint8_t)rnd();
        bool super = f.block == TR_QK_SUPER;
        uint16_t d = tr_f32_to_f16(rnd_float() * (super ? 0.002F : 0.05F));
        uint16_t m = tr_f32_to_f16(rnd_float() * (super ? 0.01F : 0.3F));
        memcpy(p + scale_at(type), &d, 2);
        if (f.mins)
            memcpy(p + scale_at(type) + 2, &m, 2);
    }
    return data;
}

static const enum tr_tensor_type all_types[] = {
    TR_T_F32,  TR_T_F16,  TR_T_BF16, TR_T_Q8_0, TR_T_Q4_0, TR_T_Q4_1, TR_T_Q5_0,
    TR_T_Q5_1, TR_T_Q2_K, TR_T_Q3_K, TR_T_Q4_K, TR_T_Q5_K, TR_T_Q6_K};
enum { N_TYPES = sizeof all_types / sizeof all_types[0], FIRST_QUANT = 3 };

/* The least n_in of a type: one block. */
static inline uint32_t least(enum tr_tensor_type type)
{
    uint32_t block = tr_quant_form(type).block;
    return block ? block : 32;
}

#endif
