/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/cache.c - the shape of the KV cache, and attention over it. */
#include "cpu_kernels/dev.h"

#include "base/assert.h"
#include "cpu_kernels/kv.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

size_t tr_kv_block_bytes(enum tr_ops_kv type, uint32_t n_head_kv, uint32_t head_dim)
{
    uint32_t unit = type == TR_OPS_KV_Q8_0 ? 32 : 16;
    if (n_head_kv < 1 || n_head_kv > 1U << 16 || head_dim < unit || head_dim % unit != 0 ||
        head_dim > TR_OPS_HEAD_MAX)
        return 0;
    return tr_cpu_align(2 * (size_t)n_head_kv * tr_kv_head_bytes(type, head_dim));
}

/* --- attention: cut into tasks ---
 *
 * An item is a run of rows of one sequence; a task is an item against one KV head, or some
 * partitions of that.  Only an item that alone would keep a thread longer than its share is split:
 * its tasks leave their partitions in slots, and the last one to finish joins them. */

enum {
    ITEMS = 512,            /* cut at a time */
    SPLITS = 1024,          /* KV heads of items that are split, at a time */
    SLOT_BYTES = 32 << 20,  /* touched only as far as they are used */
    TILE_QUERIES = 12,      /* an item of no more queries may be split */
    TASKS_PER_THREAD = 4,   /* so that one whose core is shared takes fewer */
    ALONE_MAX = 128 * 1024, /* multiply-adds that are not worth waking others for */
    COSTS = 256,            /* classes of cost, four to a power of two */
};

struct item {
    uint32_t row;
    uint32_t n_rows;
    uint32_t first_part;
    uint32_t n_parts;
    uint32_t unit;       /* partitions of a task */
    uint32_t n_units;    /* tasks for each KV head */
    uint32_t first_task; /* tasks before it */
    uint32_t split;      /* of its first KV head in `left`, if n_units > 1 */
    size_t slots;        /* floats */
    uint64_t cost;       /* of one KV head */
};

struct tr_attend_room {
    uint32_t n_items;
    struct item items[ITEMS];
    uint16_t order[ITEMS];         /* dearest first */
    _Atomic uint32_t left[SPLITS]; /* tasks that have not finished */
    float *slots;
};

struct tr_attend_room *tr_attend_room_new(void)
{
    struct tr_attend_room *m = calloc(1, sizeof *m);
    if (m)
        m->slots = aligned_alloc(TR_OPS_ALIGN, SLOT_BYTES);
    if (m && m->slots)
        return m;
    free(m);
    return NULL;
}

void tr_attend_room_free(struct tr_attend_room *m)
{
    if (m)
        free(m->slots);
    free(m);
}

struct attend_job {
    const struct tr_dev *dev;
    struct tr_attend_room *m;
    const struct tr_place *places;
    uint32_t n_tasks;
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

/* Rows of a run that make an item: fewer when there would be too few items for all threads. */
static uint32_t rows_per_item(uint32_t n_rows, uint32_t n_head_kv, uint32_t group,
                              uint32_t n_threads)
{
    uint32_t rows = group < TR_ATTEND_QUERIES ? TR_ATTEND_QUERIES / group : 1;
    uint32_t least = group < TILE_QUERIES ? TILE_QUERIES / group : 1;
    while (n_threads > 1 && rows / 2 >= least &&
           (n_rows + rows - 1) / rows * n_head_kv < TASKS_PER_THREAD * n_threads)
        rows /= 2;
    return rows;
}

/* A row that is not there sees nothing. */
static void clear_row(const struct attend_job *j, uint32_t r)
{
    size_t width = (size_t)j->a.n_head * j->a.kv->head_dim;
    memset(j->a.out + r * width, 0, width * sizeof(float));
}

/* Cuts rows [r, n_rows) into items until there is no room for more; returns the first row left. */
static uint32_t cut(struct attend_job *j, uint32_t r, uint32_t n_rows, uint32_t rows,
                    uint32_t group)
{
    struct tr_attend_room *m = j->m;
    for (m->n_items = 0; r < n_rows && m->n_items < ITEMS;) {
        if (j->places[r].pos == TR_NO_POS) {
            clear_row(j, r++);
            continue;
        }
        uint32_t n = run_length(j->places, r, n_rows - r < rows ? n_rows : r + rows);
        uint32_t pos = j->places[r].pos;
        uint32_t window = j->a.p.window;
        uint32_t from = window > 0 && pos + 1 > window ? pos + 1 - window : 0;
        struct item *t = &m->items[m->n_items++];
        *t = (struct item){.row = r, .n_rows = n, .first_part = from / TR_OPS_KV_PART};
        t->n_parts = (pos + n - 1) / TR_OPS_KV_PART - t->first_part + 1;
        t->unit = t->n_parts;
        t->n_units = 1;
        /* Reading K and V costs about as much as four queries. */
        t->cost = (uint64_t)(pos + n - from) * ((uint64_t)n * group + 4);
        r += n;
    }
    return r;
}

/* Splits the items that cost more than a fair share. */
static void split(struct attend_job *j, uint64_t total, uint32_t group, uint32_t n_threads)
{
    struct tr_attend_room *m = j->m;
    uint32_t heads = j->a.kv->n_head_kv;
    uint64_t share = total / (TASKS_PER_THREAD * n_threads) + 1;
    uint32_t n_splits = 0;
    size_t used = 0;
    for (uint32_t i = 0; i < m->n_items; i++) {
        struct item *t = &m->items[i];
        if (t->cost <= share || t->n_parts == 1 || t->n_rows * group > TILE_QUERIES)
            continue;
        size_t floats = (size_t)heads * t->n_rows * group * t->n_parts *
                        tr_attend_slot_floats(j->a.kv->head_dim);
        if (n_splits + heads > SPLITS || floats > SLOT_BYTES / sizeof(float) - used)
            continue;
        uint64_t unit = t->n_parts * share / t->cost;
        t->unit = unit > 0 ? (uint32_t)unit : 1;
        t->n_units = (t->n_parts + t->unit - 1) / t->unit;
        t->split = n_splits;
        t->slots = used;
        t->cost = t->cost / t->n_units;
        /* Relaxed: the threads are given the tasks afterwards. */
        for (uint32_t h = 0; h < heads; h++)
            atomic_store_explicit(&m->left[n_splits++], t->n_units, memory_order_relaxed);
        used += floats;
    }
}

static uint32_t cost_class(uint64_t cost)
{
    uint32_t top = 63 - (uint32_t)__builtin_clzll(cost | 4);
    return top * 4 + (uint32_t)(cost >> (top - 2) & 3);
}

/* Puts the items in order, dearest first to a quarter of a power of two, and counts the tasks. */
static uint32_t arrange(struct tr_attend_room *m, uint32_t heads)
{
    uint16_t first[COSTS] = {0};
    for (uint32_t i = 0; i < m->n_items; i++)
        first[cost_class(m->items[i].cost)]++;
    uint32_t at = 0;
    for (uint32_t c = COSTS; c-- > 0;) {
        uint16_t n = first[c];
        first[c] = (uint16_t)at;
        at += n;
    }
    for (uint32_t i = 0; i < m->n_items; i++)
        m->order[first[cost_class(m->items[i].cost)]++] = (uint16_t)i;
    uint32_t n_tasks = 0;
    for (uint32_t i = 0; i < m->n_items; i++) {
        struct item *t = &m->items[m->order[i]];
        t->first_task = n_tasks;
        n_tasks += t->n_units * heads;
    }
    return n_tasks;
}

static uint32_t share_at(uint32_t n_tasks, uint32_t t, uint32_t n)
{
    return (uint32_t)((uint64_t)n_tasks * t / n);
}

/* The pool gives each of its n threads a range of the n_tasks: dealt out so that each range has its
 * part of the dear ones, and those first.  The i-th task in that order. */
static uint32_t deal(uint32_t i, uint32_t n_tasks, uint32_t n)
{
    uint32_t t = (uint32_t)((uint64_t)i * n / n_tasks);
    while (share_at(n_tasks, t + 1, n) <= i)
        t++;
    uint32_t start = share_at(n_tasks, t, n);
    uint32_t each = n_tasks / n;
    /* Some ranges have one more than `each`. */
    return i - start < each ? (i - start) * n + t : each * n + (start - each * t);
}

/* The item of a task: the last one that begins at or before it. */
static const struct item *item_of(const struct tr_attend_room *m, uint32_t task)
{
    uint32_t lo = 0;
    uint32_t hi = m->n_items;
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        if (m->items[m->order[mid]].first_task <= task)
            lo = mid;
        else
            hi = mid;
    }
    return &m->items[m->order[lo]];
}

static void attend_task(const struct attend_job *j, uint32_t i)
{
    const struct item *t = item_of(j->m, i);
    struct tr_attend a = j->a;
    size_t width = (size_t)a.n_head * a.kv->head_dim;
    uint32_t unit = (i - t->first_task) % t->n_units;

    a.head_kv = (i - t->first_task) / t->n_units;
    a.n_rows = t->n_rows;
    a.blocks = j->places[t->row].blocks;
    a.pos = j->places[t->row].pos;
    a.q += t->row * width;
    a.out += t->row * width;
    a.first_part = t->first_part;
    a.n_parts = t->n_parts;
    a.part = t->first_part + unit * t->unit;
    a.part_end = unit + 1 == t->n_units ? t->first_part + t->n_parts : a.part + t->unit;
    if (t->n_units > 1)
        a.slots = j->m->slots + t->slots +
                  (size_t)a.head_kv * t->n_rows * (a.n_head / a.kv->n_head_kv) * t->n_parts *
                      tr_attend_slot_floats(a.kv->head_dim);
    j->dev->k->attend(&a);
    /* Acquire and release: the last one sees the slots that the others have filled. */
    if (t->n_units > 1 &&
        atomic_fetch_sub_explicit(&j->m->left[t->split + a.head_kv], 1, memory_order_acq_rel) == 1)
        j->dev->k->attend_merge(&a);
}

static void attend_tasks(void *arg, uint32_t first, uint32_t end)
{
    const struct attend_job *j = arg;
    for (uint32_t i = first; i < end; i++)
        attend_task(j, deal(i, j->n_tasks, tr_threads_count(j->dev->threads)));
}

/* Does the items that have been cut. */
static void run(struct attend_job *j, uint32_t group)
{
    struct tr_attend_room *m = j->m;
    const struct tr_kv *kv = j->a.kv;
    uint32_t n_threads = tr_threads_count(j->dev->threads);
    uint64_t total = 0;
    for (uint32_t i = 0; i < m->n_items; i++)
        total += m->items[i].cost * kv->n_head_kv;
    bool alone = n_threads == 1 || total * kv->head_dim * 2 < ALONE_MAX;
    if (!alone)
        split(j, total, group, n_threads);
    j->n_tasks = arrange(m, kv->n_head_kv);
    if (alone) {
        for (uint32_t i = 0; i < j->n_tasks; i++)
            attend_task(j, i);
        return;
    }
    /* As many tasks in a chunk as are worth waking somebody for. */
    uint64_t one = total * kv->head_dim / j->n_tasks + 1;
    uint32_t grain = one < TR_CPU_PARALLEL_MIN ? (uint32_t)(TR_CPU_PARALLEL_MIN / one) : 1;
    tr_threads_ranges(j->dev->threads, j->n_tasks, grain, attend_tasks, j);
}

void tr_cpu_attention(struct tr_dev *dev, const struct tr_kv *kv, uint32_t layer,
                      const struct tr_place *places, uint32_t n_rows, const float *q,
                      uint32_t n_head, const struct tr_attend_params *p, float *out)
{
    TR_ASSERT(layer < kv->n_layer && n_head % kv->n_head_kv == 0);
    tr_cpu_flush(dev);
    uint32_t group = n_head / kv->n_head_kv;
    uint32_t rows = rows_per_item(n_rows, kv->n_head_kv, group, tr_threads_count(dev->threads));
    struct attend_job job = {
        .dev = dev,
        .m = dev->attend,
        .places = places,
        .a = {.kv = kv, .layer = layer, .n_head = n_head, .p = *p, .q = q, .out = out}};
    for (uint32_t r = 0; r < n_rows;) {
        r = cut(&job, r, n_rows, rows, group);
        run(&job, group);
    }
}
