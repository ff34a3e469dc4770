/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/products.c - activations on their way into products, and the products. */
#include "cpu_kernels/dev.h"

#include "base/assert.h"
#include "cpu_kernels/quant.h"
#include "cpu_kernels/strip.h"

size_t tr_cpu_act_bytes(const struct tr_dev *dev, uint32_t max_rows, uint32_t dim)
{
    (void)dev;
    size_t blocks = (size_t)max_rows * (dim / TR_QK);
    return tr_cpu_align(blocks * TR_QK) + 4 * tr_cpu_align(blocks * 4);
}

void tr_cpu_act_init(struct tr_dev *dev, struct tr_act *a, uint32_t max_rows, uint32_t dim,
                     void *mem)
{
    (void)dev;
    TR_ASSERT((uintptr_t)mem % TR_OPS_ALIGN == 0);
    size_t blocks = (size_t)max_rows * (dim / TR_QK);
    uint8_t *p = mem;
    *a = (struct tr_act){.dim = dim, .max_rows = max_rows};
    a->q = (int8_t *)p;
    p += tr_cpu_align(blocks * TR_QK);
    a->d = (float *)(void *)p;
    p += tr_cpu_align(blocks * 4);
    a->s = (float *)(void *)p;
    p += tr_cpu_align(blocks * 4);
    a->sum = (int32_t *)(void *)p;
    p += tr_cpu_align(blocks * 4);
    a->low = (int32_t *)(void *)p;
}

/* Strips that are handed out together where rows are many: as many as a level may want side by side
 * (ACROSS in product.inl). */
enum { STRIPS_TOGETHER = 3 };

/* The strips of several products, one after the other, `together` at a time. */
struct product_job {
    const struct tr_act *a;
    uint32_t together;
    uint32_t n;
    struct {
        tr_product_fn *fn;
        const struct tr_mat *w;
        float *out;
        uint32_t first; /* its groups of strips, in the count over all products: [first, end) */
        uint32_t end;
    } part[TR_OPS_PRODUCTS];
};

static void product_strips(void *arg, uint32_t from, uint32_t to)
{
    const struct product_job *j = arg;
    for (uint32_t p = 0; p < j->n; p++) {
        uint32_t first = from > j->part[p].first ? from : j->part[p].first;
        uint32_t end = to < j->part[p].end ? to : j->part[p].end;
        if (first >= end)
            continue;
        uint32_t n_strips = tr_strip_count(j->part[p].w->n_out);
        uint32_t last = (end - j->part[p].first) * j->together;
        j->part[p].fn(j->part[p].w, j->a, (first - j->part[p].first) * j->together,
                      last < n_strips ? last : n_strips, j->part[p].out);
    }
}

/* Groups of strips that are worth a chunk: two microseconds or so. */
static uint32_t groups_grain(const struct tr_act *a, uint32_t together)
{
    uint64_t one = (uint64_t)a->dim * TR_STRIP * a->n_rows * together;
    return one < 2 * TR_CPU_PARALLEL_MIN ? (uint32_t)(2 * TR_CPU_PARALLEL_MIN / one) : 1;
}

void tr_cpu_matmul_n(struct tr_dev *dev, uint32_t n, const struct tr_mat *const *w,
                     const struct tr_act *a, float *const *out)
{
    struct product_job job = {.a = a, .together = a->n_rows < 4 ? 1 : STRIPS_TOGETHER};
    uint32_t n_groups = 0;
    TR_ASSERT(n <= TR_OPS_PRODUCTS && a->n_rows);
    tr_cpu_flush(dev);
    for (uint32_t i = 0; i < n; i++) {
        TR_ASSERT(a->dim == w[i]->n_in);
        if (w[i]->row_major) {
            tr_blas_product(&dev->blas, a->x, w[i]->packed, a->n_rows, w[i]->n_in, w[i]->n_out,
                            out[i]);
            continue;
        }
        uint32_t first = n_groups;
        n_groups += (tr_strip_count(w[i]->n_out) + job.together - 1) / job.together;
        job.part[job.n].fn = dev->k->product[w[i]->type];
        job.part[job.n].w = w[i];
        job.part[job.n].out = out[i];
        job.part[job.n].first = first;
        job.part[job.n++].end = n_groups;
    }
    tr_threads_ranges(dev->threads, n_groups, groups_grain(a, job.together), product_strips, &job);
}

void tr_cpu_matmul(struct tr_dev *dev, const struct tr_mat *w, const struct tr_act *a, float *out)
{
    tr_cpu_matmul_n(dev, 1, &w, a, &out);
}
