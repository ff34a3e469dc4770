/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cuda/acts.h - activations on their way into products, as the CPU quantises them. */
#ifndef TR_TESTS_CUDA_ACTS_H
#define TR_TESTS_CUDA_ACTS_H

#include "weights.h"

/* n_rows of dim: here, and the same on the device. */
struct activations {
    std::vector<float> x;
    packed_room room;
    struct tr_act cpu, cuda;
    on_device<float> dx;
    on_device<uint8_t> copy; /* of what room holds */
    activations(uint32_t n_rows, uint32_t dim)
        : x(floats((size_t)n_rows * dim)), room(tr_ops_cpu.act_bytes(plain(), n_rows, dim)), dx(x),
          copy(room.len + TR_OPS_ALIGN)
    {
        /* A block of zeros, and one next to nothing: both have a scale of 0. */
        for (uint32_t i = 0; i < 32 && i < dim; i++)
            x[i] = 0;
        for (uint32_t i = 32; i < 64 && i < dim; i++)
            x[i] = 0x1p-60f;
        dx.put(x);
        tr_ops_cpu.act_init(plain(), &cpu, n_rows, dim, room.p);
        tr_ops_cpu.act_set(plain(), &cpu, x.data(), n_rows);
        copy.put(std::vector<uint8_t>((uint8_t *)room.p, (uint8_t *)room.p + room.len));
        cuda = cpu;
        cuda.x = dx.p;
        cuda.q = (int8_t *)moved(cpu.q);
        cuda.d = (float *)moved(cpu.d);
        cuda.s = (float *)moved(cpu.s);
        cuda.sum = (int32_t *)moved(cpu.sum);
        cuda.low = (int32_t *)moved(cpu.low);
    }
    void *moved(const void *p) const
    {
        return copy.p + ((const uint8_t *)p - (const uint8_t *)room.p);
    }
};

/* A random matrix: as the CPU has it, and the same on the device. */
struct matrix {
    std::vector<uint8_t> rows;
    packed_room room;
    struct tr_mat cpu, cuda;
    on_device<uint8_t> packed;
    matrix(enum tr_tensor_type type, uint32_t n_in, uint32_t n_out)
        : rows(random_rows(type, n_in, n_out)),
          room(tr_ops_cpu.mat_bytes(plain(), type, n_in, n_out)),
          packed(tr_cuda_mat_bytes(nullptr, type, n_in, n_out))
    {
        struct tr_dev dev = device(true);
        packed_room mem(packed.n);
        tr_ops_cpu.mat_prepare(plain(), &cpu, type, n_in, n_out, rows.data(), room.p);
        tr_cuda_mat_prepare(&dev, &cuda, type, n_in, n_out, rows.data(), mem.p);
        packed.put(std::vector<uint8_t>((uint8_t *)mem.p, (uint8_t *)mem.p + packed.n));
        cuda.packed = packed.p;
    }
};

#endif
