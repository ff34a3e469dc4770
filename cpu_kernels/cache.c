/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/cache.c - the shape of the KV cache, and attention over it. */
#include "cpu_kernels/dev.h"

#include "base/assert.h"
#include "cpu_kernels/kv.h"

/* Rows of a prompt that one task attends with: enough to share what is read of K and V. */
enum { ATTEND_ROWS = 8 };

size_t tr_kv_block_bytes(enum tr_ops_kv type, uint32_t n_head_kv, uint32_t head_dim)
{
    uint32_t unit = type == TR_OPS_KV_Q8_0 ? 32 : 16;
    if (n_head_kv < 1 || n_head_kv > 1U << 16 || head_dim < unit || head_dim % unit != 0 ||
        head_dim > TR_OPS_HEAD_MAX)
        return 0;
    return tr_cpu_align(2 * (size_t)n_head_kv * tr_kv_head_bytes(type, head_dim));
}

struct attend_job {
    const struct tr_dev *dev;
    const struct tr_kv *kv;
    const struct tr_place *places;
    uint32_t n_rows;
    uint32_t rows_per_task;
    struct tr_attend a; /* what all tasks share */
};

/* Rows from r on that stand in one sequence at consecutive positions, below `end`. */
static uint32_t run_length(const struct tr_place *places, uint32_t r, uint32_t end)
{
    uint32_t n = 1;
    while (r + n < end && places[r + n].blocks == places[r].blocks &&
           places[r + n].pos == places[r].pos + n)
        n++;
    return n;
}

/* Some rows against one KV head. */
static void attend_task(const struct attend_job *j, uint32_t i)
{
    struct tr_attend a = j->a;
    size_t width = (size_t)a.n_head * j->kv->head_dim;
    uint32_t first = i / j->kv->n_head_kv * j->rows_per_task;
    uint32_t end = j->n_rows - first < j->rows_per_task ? j->n_rows : first + j->rows_per_task;

    a.head_kv = i % j->kv->n_head_kv;
    for (uint32_t r = first; r < end; r += a.n_rows) {
        a.n_rows = run_length(j->places, r, end);
        a.blocks = j->places[r].blocks;
        a.pos = j->places[r].pos;
        a.q = j->a.q + r * width;
        a.out = j->a.out + r * width;
        j->dev->k->attend(&a);
    }
}

static void attend_tasks(void *arg, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        attend_task(arg, i);
}

/* Tasks that are worth a chunk. */
static uint32_t attend_grain(const struct attend_job *j)
{
    uint64_t seen = 0; /* positions, by all rows */
    for (uint32_t r = 0; r < j->n_rows; r++) {
        uint64_t n = j->places[r].pos + 1U;
        seen += j->a.p.window && j->a.p.window < n ? j->a.p.window : n;
    }
    uint32_t group = j->a.n_head / j->kv->n_head_kv;
    uint64_t one = seen * group * j->kv->head_dim * j->rows_per_task / j->n_rows;
    return one < TR_CPU_PARALLEL_MIN ? (uint32_t)(TR_CPU_PARALLEL_MIN / one) : 1;
}

void tr_cpu_attention(struct tr_dev *dev, const struct tr_kv *kv, uint32_t layer,
                      const struct tr_place *places, uint32_t n_rows, const float *q,
                      uint32_t n_head, const struct tr_attend_params *p, float *out)
{
    TR_ASSERT(layer < kv->n_layer && n_head % kv->n_head_kv == 0);
    tr_cpu_flush(dev);
    if (!n_rows)
        return;
    uint32_t n_threads = tr_threads_count(dev->threads);
    struct attend_job job = {
        .dev = dev,
        .kv = kv,
        .places = places,
        .n_rows = n_rows,
        .rows_per_task = n_rows <= 4 * n_threads ? 1 : ATTEND_ROWS,
        .a = {.kv = kv, .layer = layer, .n_head = n_head, .p = *p, .q = q, .out = out}};
    uint32_t n_parts = (n_rows + job.rows_per_task - 1) / job.rows_per_task;
    tr_threads_ranges(dev->threads, n_parts * kv->n_head_kv, attend_grain(&job), attend_tasks,
                      &job);
}
