/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/weights.c - weight matrices: packed at load, rows of them looked up. */
#include "cpu_kernels/dev.h"

#include "base/assert.h"
#include "cpu_kernels/quant.h"
#include "cpu_kernels/strip.h"

#include <string.h>

/* The type a weight has once packed. */
static enum tr_tensor_type packed_type(const struct tr_dev *dev, enum tr_tensor_type type)
{
    if (dev->math == TR_OPS_BLAS || (dev->math == TR_OPS_F32 && tr_quant_blocked(type)))
        return TR_T_F32;
    return type;
}

size_t tr_cpu_mat_bytes(const struct tr_dev *dev, enum tr_tensor_type type, uint32_t n_in,
                        uint32_t n_out)
{
    /* Above this sizes could overflow; no model comes near. */
    const uint32_t limit = 1U << 28;
    if (n_in < 1 || n_out < 1 || n_in > limit || n_out > limit ||
        tr_quant_row_bytes(type, n_in) == 0)
        return 0;
    if (dev->math == TR_OPS_BLAS)
        return (size_t)n_in * n_out * sizeof(float);
    return tr_strip_count(n_out) * tr_strip_bytes(packed_type(dev, type), n_in);
}

void tr_cpu_mat_adopt(struct tr_dev *dev, struct tr_mat *m, enum tr_tensor_type type, uint32_t n_in,
                      uint32_t n_out, const void *mem)
{
    TR_ASSERT((uintptr_t)mem % TR_OPS_ALIGN == 0);
    *m = (struct tr_mat){.packed = mem,
                         .type = packed_type(dev, type),
                         .n_in = n_in,
                         .n_out = n_out,
                         .row_major = dev->math == TR_OPS_BLAS};
}

struct prepare_job {
    enum tr_tensor_type type;
    uint32_t n_in;
    uint32_t n_out;
    const uint8_t *data;
    uint8_t *mem;
    enum tr_tensor_type packed;
    bool row_major;
};

/* Strip i, or sixteen rows for BLAS. */
static void prepare_strip(void *arg, uint32_t i)
{
    const struct prepare_job *j = arg;
    uint32_t first = i * TR_STRIP;
    uint32_t n = j->n_out - first < TR_STRIP ? j->n_out - first : TR_STRIP;
    size_t row_bytes = tr_quant_row_bytes(j->type, j->n_in);
    const uint8_t *rows = j->data + first * row_bytes;
    uint8_t *strip = j->mem + i * tr_strip_bytes(j->packed, j->n_in);

    if (j->row_major) {
        float *out = (float *)(void *)j->mem + (size_t)first * j->n_in;
        tr_quant_row(j->type, rows, (size_t)n * j->n_in, out);
    } else if (j->packed == j->type) {
        tr_strip_pack(j->type, j->n_in, n, rows, strip);
    } else {
        /* Dequantised, 32 elements of K at a time: no memory is needed for it. */
        float *out = (float *)(void *)strip;
        memset(strip, 0, tr_strip_bytes(TR_T_F32, j->n_in));
        for (uint32_t r = 0; r < n; r++, rows += row_bytes) {
            for (uint32_t k0 = 0; k0 < j->n_in; k0 += TR_QK) {
                struct tr_quant_block b;
                float x[TR_QK];
                tr_quant_block_read(j->type, rows, k0 / TR_QK, &b);
                tr_quant_block_floats(j->type, &b, x);
                for (uint32_t k = 0; k < TR_QK; k++)
                    out[(size_t)(k0 + k) * TR_STRIP + r] = x[k];
            }
        }
    }
}

void tr_cpu_mat_prepare(struct tr_dev *dev, struct tr_mat *m, enum tr_tensor_type type,
                        uint32_t n_in, uint32_t n_out, const void *data, void *mem)
{
    TR_ASSERT(tr_cpu_mat_bytes(dev, type, n_in, n_out) != 0);
    tr_cpu_mat_adopt(dev, m, type, n_in, n_out, mem);
    struct prepare_job job = {.type = type,
                              .n_in = n_in,
                              .n_out = n_out,
                              .data = data,
                              .mem = mem,
                              .packed = m->type,
                              .row_major = m->row_major};
    tr_threads_for(dev->threads, tr_strip_count(n_out), prepare_strip, &job);
}
