/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/attention_units.cuh - which block of the decode kernel does what (attention_decode.cu says why so).
 *
 * Every block makes the same plan from the same places, by prefix sums over the rows: which rows are the decode
 * kernel's, which of them are split, and so what a task's number means.  A split row's tasks are its partitions, a
 * whole row's all of them; each for each item, a KV head's queries.  Whole rows come first: they take longest.
 *
 * Only attention_decode.cu includes this. */
#ifndef TR_CUDA_KERNELS_ATTENTION_UNITS_CUH
#define TR_CUDA_KERNELS_ATTENTION_UNITS_CUH

#include "cuda_kernels/attention.cuh"

enum {
    THREADS = 128,
    WARPS = THREADS / 32,
    ROWS = TR_DECODE_ROWS, /* in a launch */
    QUERIES = 8,           /* of a unit at most */
    PREFILL = -2,          /* in plan.pos: another kernel's row */
};

/* tr_dev's room for it: counters, zero between launches, then slots. */
struct room {
    uint32_t *next; /* tasks that have been taken, but for the first one of each block */
    uint32_t *done; /* [ROWS, items]: partitions that lie in slots */
    float *slots;
    uint32_t n_slots;
    uint32_t tiles; /* of queries, for each KV head */
    uint32_t items; /* n_head_kv * tiles: what a row is cut into, beside its partitions */
};

/* Of a row: the partitions that it sees. */
struct parts {
    uint32_t first;
    uint32_t n;
};

static __device__ struct parts parts_of(const struct tr_attend_args &a, uint32_t pos)
{
    struct tr_seen s = tr_seen_at(pos, a.window);
    uint32_t first = s.from / TR_PARTITION;
    return {first, (s.end - 1) / TR_PARTITION - first + 1};
}

struct plan {
    uint32_t pos[ROWS];         /* TR_NO_POS or PREFILL: nothing to do */
    uint32_t whole_at[ROWS];    /* whole rows before it */
    uint32_t part_at[ROWS];     /* partitions of split rows before it */
    uint32_t joined[ROWS / 32]; /* a bit a row: it goes on where the one before it stands */
    uint32_t sums[4][WARPS];
};

/* Whole rows, and partitions of split ones. */
struct work {
    uint32_t n_whole;
    uint32_t n_parts;
};

/* Sum over the lanes up to this one. */
static __device__ uint32_t sum_up(uint32_t v, uint32_t lane)
{
    for (uint32_t by = 1; by < 32; by *= 2) {
        uint32_t below = __shfl_up_sync(~0u, v, by);
        v += lane >= by ? below : 0;
    }
    return v;
}

/* What the warps before this one have, and all of them. */
static __device__ uint32_t before(const uint32_t *sums, uint32_t warp, uint32_t *all)
{
    uint32_t n = 0;
    *all = 0;
    for (uint32_t w = 0; w < WARPS; w++) {
        n += w < warp ? sums[w] : 0;
        *all += sums[w];
    }
    return n;
}

static __device__ bool is_run(const struct plan *p, const struct tr_attend_args &a, uint32_t row)
{
    uint32_t first = row / a.tile * a.tile;
    if (first + a.tile > a.n_rows)
        return false;
    for (uint32_t r = first + 1; r < first + a.tile; r++) {
        if (!(p->joined[r / 32] >> r % 32 & 1))
            return false;
    }
    return true;
}

/* Positions, and in sums[0] the partitions of all rows.  A warp has the rows [first, end), 32 at a time. */
static __device__ void plan_positions(struct plan *p, const struct tr_attend_args &a,
                                      uint32_t first, uint32_t end)
{
    uint32_t lane = threadIdx.x % 32, n = 0;
    for (uint32_t r0 = first; a.tile && r0 < end; r0 += 32) {
        uint32_t r = r0 + lane;
        uint32_t bits = __ballot_sync(~0u, r < end && r % a.tile != 0 && tr_goes_on(a.places, r));
        if (lane == 0)
            p->joined[r0 / 32] = bits;
    }
    __syncthreads();
    for (uint32_t r = first + lane; r < end; r += 32) {
        uint32_t pos = a.places[r].pos;
        if (pos != TR_NO_POS && a.tile && is_run(p, a, r))
            pos = (uint32_t)PREFILL;
        p->pos[r] = pos;
        n += pos < (uint32_t)PREFILL ? parts_of(a, pos).n : 0;
    }
    n = sum_up(n, lane);
    if (lane == 31)
        p->sums[0][threadIdx.x / 32] = n;
    __syncthreads();
}

/* part_at, counted from the warp's first row, of the rows that are worth splitting, and in whole_at how many
 * partitions those have; in sums[1] the warp's. */
static __device__ void plan_wishes(struct plan *p, const struct tr_attend_args &a, uint32_t items,
                                   uint32_t first, uint32_t end)
{
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = 0, all;
    before(p->sums[0], warp, &all);
    for (uint32_t r0 = first; r0 < end; r0 += 32) {
        uint32_t r = r0 + lane, n = 0;
        if (r < end && p->pos[r] < (uint32_t)PREFILL)
            n = parts_of(a, p->pos[r]).n;
        if (n == 1 || (uint64_t)n * 4 * gridDim.x <= (uint64_t)all * items)
            n = 0;
        uint32_t up = sum_up(n, lane);
        if (r < end) {
            p->part_at[r] = sum + up - n;
            p->whole_at[r] = n;
        }
        sum += __shfl_sync(~0u, up, 31);
    }
    if (lane == 0)
        p->sums[1][warp] = sum;
    __syncthreads();
}

/* The plan of all rows: of those worth splitting the first ones are, as far as there are slots. */
static __device__ struct work make_plan(struct plan *p, const struct tr_attend_args &a,
                                        const struct room &room)
{
    const uint32_t each = ROWS / WARPS;
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = warp * each;
    uint32_t end = first + each < a.n_rows ? first + each : a.n_rows;
    plan_positions(p, a, first, end);
    plan_wishes(p, a, room.items, first, end);

    uint32_t all, base = before(p->sums[1], warp, &all), n_whole = 0, n_parts = 0;
    for (uint32_t r0 = first; r0 < end; r0 += 32) {
        uint32_t r = r0 + lane;
        bool whole = false;
        if (r < end) {
            uint32_t n = p->whole_at[r], at = base + p->part_at[r];
            bool split = n && (uint64_t)(at + n) * room.items <= room.n_slots;
            whole = !split && p->pos[r] < (uint32_t)PREFILL;
            n_parts += split ? n : 0;
            p->part_at[r] = at;
        }
        uint32_t bits = __ballot_sync(~0u, whole);
        if (r < end)
            p->whole_at[r] = n_whole + (uint32_t)__popc(bits & ((1u << lane) - 1));
        n_whole += (uint32_t)__popc(bits);
    }
    n_parts = sum_up(n_parts, lane);
    if (lane == 31) {
        p->sums[2][warp] = n_whole;
        p->sums[3][warp] = n_parts;
    }
    __syncthreads();
    struct work w;
    base = before(p->sums[2], warp, &w.n_whole);
    before(p->sums[3], warp, &w.n_parts);
    for (uint32_t r = first + lane; r < end; r += 32)
        p->whole_at[r] += base;
    __syncthreads();
    return w;
}

/* What a block does between two looks at the counter: a row's item, all of it or a partition. */
struct task {
    const uint32_t *blocks;
    size_t at; /* of its first query in q and out */
    struct tr_seen seen;
    uint32_t head_kv;
    uint32_t n_queries; /* up to NQ: the others are nobody's */
    uint32_t part;      /* the first partition of n */
    uint32_t n;
    uint32_t of;    /* tasks that the item is split into: one for each partition; 1: it is whole */
    uint32_t first; /* the first one's partition */
    uint32_t slot;  /* where its slots are, `items` apart */
    uint32_t done;  /* and which counter it has */
};

/* The last row whose `at` is not above x: rows that have nothing have the same as the next one. */
static __device__ uint32_t find(const uint32_t *at, uint32_t n_rows, uint32_t x)
{
    uint32_t lo = 0, hi = n_rows;
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        if (at[mid] <= x)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static __device__ struct task task_at(const struct plan *p, const struct tr_attend_args &a,
                                      const struct room &room, struct work w, uint32_t t)
{
    struct task k = {};
    uint32_t i = t / room.items, item = t % room.items;
    uint32_t row =
        i < w.n_whole ? find(p->whole_at, a.n_rows, i) : find(p->part_at, a.n_rows, i - w.n_whole);
    uint32_t in_group = item % room.tiles * QUERIES;
    struct parts all = parts_of(a, p->pos[row]);
    k.blocks = a.places[row].blocks;
    k.seen = tr_seen_at(p->pos[row], a.window);
    k.head_kv = item / room.tiles;
    k.at = ((size_t)row * a.n_head + k.head_kv * a.group + in_group) * a.kv.dim;
    k.n_queries = a.group - in_group < QUERIES ? a.group - in_group : (uint32_t)QUERIES;
    k.part = k.first = all.first;
    k.n = all.n;
    k.of = 1;
    if (i >= w.n_whole) {
        k.slot = p->part_at[row] * room.items + item;
        k.done = row * room.items + item;
        k.part += i - w.n_whole - p->part_at[row];
        k.n = 1;
        k.of = all.n;
    }
    return k;
}

/* Rows that are not there. */
static __device__ void write_zeros(const struct plan *p, const struct tr_attend_args &a)
{
    uint32_t width = a.n_head * a.kv.dim;
    for (uint32_t r = blockIdx.x; r < a.n_rows; r += gridDim.x) {
        for (uint32_t i = threadIdx.x; p->pos[r] == TR_NO_POS && i < width; i += THREADS)
            a.out[(size_t)r * width + i] = 0;
    }
}

#endif
