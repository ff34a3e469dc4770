/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/weights.cu - weight matrices: mat_bytes, mat_prepare, mat_adopt (cpu_kernels/ops.h).
 *
 * All on the host: weights are packed into memory of the host, which the engine keeps over deaths, and go to
 * the device as they are.  So strips are packed by the host's threads. */
#include "cuda_kernels/dev.cuh"
#include "cuda_kernels/strip.h"

extern "C" {
#include "base/assert.h"
#include "cpu_kernels/quant.h"
#include "cpu_kernels/threads.h"
}

size_t tr_cuda_mat_bytes(const struct tr_dev *, enum tr_tensor_type type, uint32_t n_in,
                         uint32_t n_out)
{
    /* Above this sizes could overflow; no model comes near. */
    const uint32_t limit = 1u << 28;
    if (n_in < 1 || n_out < 1 || n_in > limit || n_out > limit ||
        tr_quant_row_bytes(type, n_in) == 0)
        return 0;
    return tr_cuda_strip_count(n_out) * tr_cuda_strip_bytes(type, n_in);
}

void tr_cuda_mat_adopt(struct tr_dev *, struct tr_mat *m, enum tr_tensor_type type, uint32_t n_in,
                       uint32_t n_out, const void *mem)
{
    *m = {};
    m->packed = mem;
    m->type = type;
    m->n_in = n_in;
    m->n_out = n_out;
}

struct job {
    const struct tr_mat *m;
    const void *rows;
    void *mem;
};

static void pack_strips(void *arg, uint32_t s)
{
    const struct job *j = (const struct job *)arg;
    tr_cuda_strip_pack(j->m->type, j->m->n_in, j->m->n_out, j->rows, s, j->mem);
}

void tr_cuda_mat_prepare(struct tr_dev *dev, struct tr_mat *m, enum tr_tensor_type type,
                         uint32_t n_in, uint32_t n_out, const void *data, void *mem)
{
    TR_ASSERT(tr_cuda_mat_bytes(dev, type, n_in, n_out) != 0);
    tr_cuda_mat_adopt(dev, m, type, n_in, n_out, mem);
    struct job job = {m, data, mem};
    uint32_t n = tr_cuda_strip_count(n_out);
    if (dev->threads) {
        tr_threads_for(dev->threads, n, pack_strips, &job);
        return;
    }
    for (uint32_t s = 0; s < n; s++)
        pack_strips(&job, s);
}
