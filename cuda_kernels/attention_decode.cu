/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/attention_decode.cu - attention of rows that stand alone, split over the context, exact.
 *
 * A unit is one partition of 256 positions of one row and one KV head: NQ queries (the heads of a group, eight at
 * most) against 256 positions of K and V, 128 KiB of F16 at head_dim 128.  Units of a row are independent; what
 * they find goes to slots, and the block that finishes last joins them in ascending order, which is what
 * attention.inl owes.  So one launch does all.
 *
 * A block of 128 threads does a unit:
 *   scores    a thread has two positions (K lies transposed, so 16 threads read a line of 64 bytes) and sums over
 *             the dimensions in order for NQ queries, which it reads from shared memory, four dimensions a load;
 *   softmax   sixteen threads a query, as the sixteen lanes of the meaning;
 *   values    a thread has two dimensions and NQ / groups queries, and sums over the positions in order.
 * K and V go from memory to registers, sixteen rows ahead: 128 threads * 16 * 4 bytes are 8 KiB a block, and five
 * blocks on a processor 40 KiB; the H200 needs 4.8 TB/s * 0.7 us / 132 = 25 KiB a processor under way.
 * Arithmetic: 2 * 256 * 128 fmaf a query, and one conversion a value for each group of threads that shares it.
 * With 4 queries a unit is expected to issue 14 k warp instructions, 3.5 k clocks of a processor that issues four
 * a clock; its 128 KiB take 6.5 k clocks of a processor's share of the memory.  So bytes are the limit up to
 * groups of 8, and tensor cores would gain nothing.
 *
 * Which blocks do what: contexts are known on the device alone, so the grid is as many blocks as fit at once
 * (BLOCKS on each processor), and each finds the units for itself by prefix sums over the rows: below a thousand
 * clocks, where a launch of its own would cost two thousand for every layer.  Blocks take what comes next from a
 * counter.  8 KV heads, batch 1 at 32k: 1,024 units for 660 blocks; batch 256 at 2k: 16,384, in 25 rounds.
 * Rows that are not worth splitting (no more than a quarter of a block's share), and those for which there is no
 * more room, are whole tasks, which come first: their block goes through the partitions and keeps the sums in
 * registers.  A slot is (head_dim + 2) floats a query, written and read once: 3 % of a unit's bytes. */
#include "cuda_kernels/attention.cuh"

enum {
    THREADS = 128,
    WARPS = THREADS / 32,
    ROWS = TR_DECODE_ROWS, /* in a launch */
    QUERIES = 8,           /* of a unit at most */
    STRIDE = TR_PARTITION +
             16,  /* floats from query to query of the scores: half a warp further in the banks */
    PREFILL = -2, /* in plan.pos: another kernel's row */
};

/* Blocks on a processor at once: what the registers allow, 96 or 128 a thread. */
static constexpr int blocks_at_once(int nq, int qg)
{
    return nq > 4 || qg > 2 ? 4 : 5;
}

/* Rows of K, or V, that a thread loads before it uses them, while it uses as many. */
template <enum tr_ops_kv TYPE> struct ahead_of {
    enum : uint32_t { rows = TYPE == TR_OPS_KV_F16 ? 16 : 8 };
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

/* ---- who does what ---- */

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

/* ---- scores ---- */

/* AHEAD dimensions of two neighbouring positions of K. */
template <enum tr_ops_kv TYPE> struct some_k {
    enum : uint32_t { AHEAD = ahead_of<TYPE>::rows };
    struct tr_two<TYPE> x[AHEAD];
    uint32_t scales;

    __device__ __forceinline__ void load(const uint8_t *head, uint32_t dim, uint32_t pos,
                                         uint32_t d)
    {
        const struct tr_two<TYPE> *from =
            (const struct tr_two<TYPE> *)head + (d * TR_OPS_KV_BLOCK + pos) / 2;
        TR_UNROLL
        for (uint32_t u = 0; u < AHEAD; u++)
            x[u] = from[u * (TR_OPS_KV_BLOCK / 2)];
        if (TYPE == TR_OPS_KV_Q8_0)
            scales = *(const uint32_t *)(tr_kv_scales(head, dim) + d / 32 * TR_OPS_KV_BLOCK + pos);
    }

    /* Adds their products with q[i][d...] to acc[i]. */
    template <int NQ>
    __device__ __forceinline__ void dot(const float *q, uint32_t dim, uint32_t d,
                                        float2 acc[NQ]) const
    {
        float2 s = make_float2(1, 1);
        if (TYPE == TR_OPS_KV_Q8_0)
            s = make_float2(tr_from_half((uint16_t)scales), tr_from_half((uint16_t)(scales >> 16)));
        TR_UNROLL
        for (uint32_t u = 0; u < AHEAD; u += 4) {
            float2 k[4];
            TR_UNROLL
            for (uint32_t v = 0; v < 4; v++) {
                k[v] = x[u + v].floats();
                if (TYPE == TR_OPS_KV_Q8_0)
                    k[v] = make_float2(k[v].x * s.x, k[v].y * s.y);
            }
            TR_UNROLL
            for (uint32_t i = 0; i < NQ; i++) {
                float4 y = *(const float4 *)(q + i * dim + d + u);
                acc[i].x = fmaf(y.x, k[0].x, acc[i].x);
                acc[i].y = fmaf(y.x, k[0].y, acc[i].y);
                acc[i].x = fmaf(y.y, k[1].x, acc[i].x);
                acc[i].y = fmaf(y.y, k[1].y, acc[i].y);
                acc[i].x = fmaf(y.z, k[2].x, acc[i].x);
                acc[i].y = fmaf(y.z, k[2].y, acc[i].y);
                acc[i].x = fmaf(y.w, k[3].x, acc[i].x);
                acc[i].y = fmaf(y.w, k[3].y, acc[i].y);
            }
        }
    }
};

/* The scaled scores of this thread's two positions; those that are not seen are minus infinity. */
template <enum tr_ops_kv TYPE, int NQ>
static __device__ __forceinline__ void score(const struct tr_attend_args &a, struct tr_seen s,
                                             const uint8_t *const *heads, const float *q, float *p)
{
    uint32_t dim = a.kv.dim, at = threadIdx.x * 2, pos = at % TR_OPS_KV_BLOCK;
    uint32_t block = at - pos;
    const uint32_t AHEAD = ahead_of<TYPE>::rows;
    float2 acc[NQ];
    TR_UNROLL
    for (uint32_t i = 0; i < NQ; i++)
        acc[i] = make_float2(0, 0);
    if (block < s.end && block + TR_OPS_KV_BLOCK > s.from) {
        const uint8_t *head = heads[block / TR_OPS_KV_BLOCK];
        struct some_k<TYPE> x, y;
        x.load(head, dim, pos, 0);
        for (uint32_t d = 0;; d += 2 * AHEAD) {
            if (d + AHEAD < dim)
                y.load(head, dim, pos, d + AHEAD);
            x.template dot<NQ>(q, dim, d, acc);
            if (d + AHEAD >= dim)
                break;
            if (d + 2 * AHEAD < dim)
                x.load(head, dim, pos, d + 2 * AHEAD);
            y.template dot<NQ>(q, dim, d + AHEAD, acc);
            if (d + 2 * AHEAD >= dim)
                break;
        }
    }
    TR_UNROLL
    for (uint32_t i = 0; i < NQ; i++) {
        bool x = at >= s.from && at < s.end, y = at + 1 >= s.from && at + 1 < s.end;
        *(float2 *)(p + i * STRIDE + at) =
            make_float2(x ? tr_scaled(a, acc[i].x) : TR_MINUS_INFINITY,
                        y ? tr_scaled(a, acc[i].y) : TR_MINUS_INFINITY);
    }
}

/* What is known of a query. */
struct query {
    float max; /* of this partition */
    float sum;
    float top; /* of those that are joined, and */
    float total;
    float was; /* how much what is joined already weighs when this one is, and how much this one */
    float now;
};

/* Joins a partition whose maximum and sum are known: how they weigh. */
static __device__ __forceinline__ void join(struct query *q)
{
    float top = tr_larger(q->max, q->top);
    q->was = tr_exp(q->top - top);
    q->now = tr_exp(q->max - top);
    q->total = q->total * q->was + q->sum * q->now;
    q->top = top;
}

/* Scores to weights, in place; sixteen threads have a query.  Whole warps that have no query leave at once; half a
 * warp that has none does as the others and keeps nothing. */
template <int NQ> static __device__ __forceinline__ void soften(float *p, struct query *queries)
{
    uint32_t i = threadIdx.x / 16, lane = threadIdx.x % 16;
    bool mine = i < NQ;
    if (threadIdx.x / 32 * 2 >= NQ)
        return;
    float *of = p + (mine ? i : 0) * STRIDE + lane;
    float x[16], top = TR_MINUS_INFINITY, total = 0;
    TR_UNROLL
    for (uint32_t j = 0; j < 16; j++) {
        x[j] = of[j * 16];
        top = tr_larger(x[j], top);
    }
    for (int by = 8; by >= 1; by /= 2)
        top = tr_larger(__shfl_xor_sync(~0u, top, by, 16), top);
    TR_UNROLL
    for (uint32_t j = 0; j < 16; j++) {
        float w = tr_exp(x[j] - top);
        total += w;
        if (mine)
            of[j * 16] = w;
    }
    for (int by = 8; by >= 1; by /= 2)
        total += __shfl_down_sync(~0u, total, (unsigned)by, 16);
    if (mine && lane == 0) {
        queries[i].max = top;
        queries[i].sum = total;
        join(&queries[i]);
    }
}

/* ---- weighted values ---- */

/* AHEAD positions of V, two neighbouring dimensions of each. */
template <enum tr_ops_kv TYPE> struct some_v {
    enum : uint32_t { AHEAD = ahead_of<TYPE>::rows };
    struct tr_two<TYPE> x[AHEAD];
    uint16_t scale[TYPE == TR_OPS_KV_Q8_0 ? (uint32_t)AHEAD : 1u];

    __device__ __forceinline__ void load(const uint8_t *const *heads, size_t apart, uint32_t dim,
                                         uint32_t d, uint32_t j)
    {
        const uint8_t *head = heads[j / TR_OPS_KV_BLOCK] + apart;
        j %= TR_OPS_KV_BLOCK;
        const struct tr_two<TYPE> *from = (const struct tr_two<TYPE> *)head + (j * dim + d) / 2;
        TR_UNROLL
        for (uint32_t u = 0; u < AHEAD; u++) {
            x[u] = from[u * (dim / 2)];
            if (TYPE == TR_OPS_KV_Q8_0)
                scale[u] = tr_kv_scales(head, dim)[(j + u) * (dim / 32) + d / 32];
        }
    }

    __device__ __forceinline__ float2 at(uint32_t u) const
    {
        float2 v = x[u].floats();
        if (TYPE == TR_OPS_KV_Q8_0) {
            float s = tr_from_half(scale[u]);
            v = make_float2(v.x * s, v.y * s);
        }
        return v;
    }

    /* Adds those of the positions from j on that are seen, times the weights of the queries at p. */
    template <int QG>
    __device__ __forceinline__ void weigh(const float *p, uint32_t j, struct tr_seen s,
                                          float2 acc[QG]) const
    {
        bool all = j >= s.from && j + AHEAD <= s.end;
        TR_UNROLL
        for (uint32_t u = 0; u < AHEAD; u += 4) {
            TR_UNROLL
            for (uint32_t i = 0; i < QG; i++) {
                float4 w = *(const float4 *)(p + i * STRIDE + j + u);
                TR_UNROLL
                for (uint32_t v = 0; v < 4; v++) {
                    float y = v == 0 ? w.x : v == 1 ? w.y : v == 2 ? w.z : w.w;
                    if (all || (j + u + v >= s.from && j + u + v < s.end)) {
                        acc[i].x = fmaf(y, at(u + v).x, acc[i].x);
                        acc[i].y = fmaf(y, at(u + v).y, acc[i].y);
                    }
                }
            }
        }
    }
};

/* What is joined of V, and a partition that comes after it. */
static __device__ __forceinline__ float2 joined(float2 out, float was, float2 part, float now,
                                                bool first)
{
    return first ? part : make_float2(out.x * was + part.x * now, out.y * was + part.y * now);
}

/* Which dimensions and queries a thread has of V. */
struct share {
    uint32_t d;
    uint32_t query; /* the first of QG */
    bool some;      /* it has any */
};

/* The weighted values of a partition. */
template <enum tr_ops_kv TYPE, int QG>
static __device__ __forceinline__ void weigh(const struct tr_attend_args &a, struct tr_seen s,
                                             const uint8_t *const *heads, const float *p,
                                             struct share me, float2 acc[QG])
{
    const uint32_t AHEAD = ahead_of<TYPE>::rows;
    uint32_t dim = a.kv.dim, j = s.from / AHEAD * AHEAD;
    size_t apart = tr_kv_apart(a.kv);
    struct some_v<TYPE> x, y;
    p += me.query * STRIDE;
    TR_UNROLL
    for (uint32_t i = 0; i < QG; i++)
        acc[i] = make_float2(0, 0);
    x.load(heads, apart, dim, me.d, j);
    for (;; j += 2 * AHEAD) {
        if (j + AHEAD < s.end)
            y.load(heads, apart, dim, me.d, j + AHEAD);
        x.template weigh<QG>(p, j, s, acc);
        if (j + AHEAD >= s.end)
            break;
        if (j + 2 * AHEAD < s.end)
            x.load(heads, apart, dim, me.d, j + 2 * AHEAD);
        y.template weigh<QG>(p, j + AHEAD, s, acc);
        if (j + 2 * AHEAD >= s.end)
            break;
    }
}

/* ---- slots ---- */

/* A slot: maxima, sums, and from the 16th float on what the queries have of V. */
static __host__ __device__ inline size_t slot_floats(uint32_t n_queries, uint32_t dim)
{
    return 2 * QUERIES + (size_t)n_queries * dim;
}

/* The only partition that is joined so far. */
template <int NQ, int QG>
static __device__ __forceinline__ void write_slot(float *slot, uint32_t dim, struct share me,
                                                  const struct query *queries, const float2 out[QG])
{
    if (threadIdx.x < NQ) {
        slot[threadIdx.x] = queries[threadIdx.x].max;
        slot[QUERIES + threadIdx.x] = queries[threadIdx.x].sum;
    }
    TR_UNROLL
    for (uint32_t j = 0; j < QG; j++) {
        if (me.some)
            *(float2 *)(slot + 2 * QUERIES + (size_t)(me.query + j) * dim + me.d) = out[j];
    }
}

/* Of the n <= THREADS partitions in slots from `slot` on: how much what came before weighs when each is joined, and
 * how much itself, and the sums.  A warp has a query. */
template <int NQ>
static __device__ __forceinline__ void weigh_slots(const float *slot, size_t apart, uint32_t n,
                                                   struct query *queries, float2 *w)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = threadIdx.x / 32; i < NQ; i += WARPS) {
        float top = queries[i].top, total = queries[i].total;
        for (uint32_t t0 = 0; t0 < n; t0 += 32) {
            uint32_t t = t0 + lane, some = n - t0 < 32 ? n - t0 : 32;
            float m = t < n ? tr_load_fresh(slot + t * apart + i) : TR_MINUS_INFINITY;
            float sum = t < n ? tr_load_fresh(slot + t * apart + QUERIES + i) : 0;
            float up = m;
            for (uint32_t by = 1; by < 32; by *= 2) {
                float below = __shfl_up_sync(~0u, up, by);
                up = lane >= by ? tr_larger(below, up) : up;
            }
            up = tr_larger(up, top);
            float was = __shfl_up_sync(~0u, up, 1);
            was = tr_exp((lane ? was : top) - up);
            float now = tr_exp(m - up);
            if (t < n)
                w[i * THREADS + t] = make_float2(was, now);
            sum *= now;
            for (uint32_t l = 0; l < some; l++)
                total = total * __shfl_sync(~0u, was, (int)l) + __shfl_sync(~0u, sum, (int)l);
            top = __shfl_sync(~0u, up, 31);
        }
        if (lane == 0) {
            queries[i].top = top;
            queries[i].total = total;
        }
    }
}

/* The partitions of a row, ascending. */
template <int NQ, int QG>
static __device__ __forceinline__ void join_slots(const float *slot, size_t apart, uint32_t n,
                                                  uint32_t dim, struct share me,
                                                  struct query *queries, float2 *w, float2 out[QG])
{
    for (uint32_t t0 = 0; t0 < n; t0 += THREADS, slot += THREADS * apart) {
        uint32_t some = n - t0 < THREADS ? n - t0 : (uint32_t)THREADS;
        weigh_slots<NQ>(slot, apart, some, queries, w);
        __syncthreads();
        const float *v = slot + 2 * QUERIES + (size_t)me.query * dim + me.d;
        TR_UNROLL_BY(4)
        for (uint32_t t = 0; me.some && t < some; t++, v += apart) {
            TR_UNROLL
            for (uint32_t i = 0; i < QG; i++) {
                float2 weight = w[(me.query + i) * THREADS + t];
                float2 part =
                    make_float2(tr_load_fresh(v + i * dim), tr_load_fresh(v + i * dim + 1));
                out[i] = joined(out[i], weight.x, part, weight.y, t0 + t == 0);
            }
        }
        __syncthreads();
    }
}

/* ---- the kernel ---- */

/* Counts the partition that this block has put into its slot; true for the last one of its row. */
static __device__ bool count(uint32_t *done, uint32_t n, uint32_t *word)
{
    /* What this block has written is there before it is counted, and what others have counted is there before it
     * is read. */
    tr_fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        *word = atomicAdd(done, 1u) == n - 1;
        if (*word)
            *done = 0;
    }
    __syncthreads();
    tr_fence();
    return *word;
}

/* QG: queries that a thread has of V. */
template <enum tr_ops_kv TYPE, int NQ, int QG>
static __global__ void __launch_bounds__(THREADS, blocks_at_once(NQ, QG))
    attend(struct tr_attend_args a, struct room room)
{
    TR_SHARED(struct plan, plan, 1);
    TR_SHARED(float, q, NQ *TR_OPS_HEAD_MAX);
    TR_SHARED(float, p, NQ *STRIDE);
    TR_SHARED(struct query, queries, QUERIES);
    TR_SHARED(const uint8_t *, heads, TR_PART_BLOCKS);
    TR_SHARED(struct task, task, 1);
    TR_SHARED(uint32_t, words, 2); /* the next task; whether this block joins a split one */

    uint32_t dim = a.kv.dim, tid = threadIdx.x;
    struct work work = make_plan(plan, a, room);
    uint32_t n_tasks = (work.n_whole + work.n_parts) * room.items;
    struct share me = {tid % (dim / 2) * 2, tid / (dim / 2) * QG, tid / (dim / 2) < NQ / QG};
    write_zeros(plan, a);

    for (uint32_t t = blockIdx.x; t < n_tasks; t = words[0]) {
        uint32_t taken = 0;
        float2 out[QG];
        if (tid == 0) {
            *task = task_at(plan, a, room, work, t);
            taken = atomicAdd(room.next, 1u); /* not looked at before the task is done */
        }
        if (tid < NQ)
            queries[tid].top = TR_LOWEST, queries[tid].total = 0;
        __syncthreads();
        for (uint32_t e = tid * 4; e < NQ * dim; e += THREADS * 4)
            *(float4 *)(q + e) = e < task->n_queries * dim ? *(const float4 *)(a.q + task->at + e)
                                                           : make_float4(0, 0, 0, 0);
        for (uint32_t i = 0; i < task->n; i++) {
            uint32_t base = (task->part + i) * TR_PARTITION;
            struct tr_seen in = tr_clip(task->seen, base);
            float2 acc[QG];
            if (tid < TR_PART_BLOCKS && tid * TR_OPS_KV_BLOCK < in.end &&
                (tid + 1) * TR_OPS_KV_BLOCK > in.from)
                heads[tid] =
                    tr_kv_k(a.kv, task->blocks[base / TR_OPS_KV_BLOCK + tid], task->head_kv);
            __syncthreads();
            score<TYPE, NQ>(a, in, heads, q, p);
            __syncthreads();
            soften<NQ>(p, queries);
            __syncthreads();
            if (me.some)
                weigh<TYPE, QG>(a, in, heads, p, me, acc);
            TR_UNROLL
            for (uint32_t j = 0; me.some && j < QG; j++) {
                const struct query *of = &queries[me.query + j];
                out[j] = joined(out[j], of->was, acc[j], of->now, i == 0);
            }
            __syncthreads(); /* queries, p and heads are free */
        }
        bool whole = task->of == 1;
        if (!whole) {
            size_t len = slot_floats(NQ, dim), apart = len * room.items;
            float *slot = room.slots + len * task->slot;
            write_slot<NQ, QG>(slot + apart * (task->part - task->first), dim, me, queries, out);
            whole = count(room.done + task->done, task->of, &words[1]);
            if (whole) {
                if (tid < NQ)
                    queries[tid].top = TR_LOWEST, queries[tid].total = 0;
                __syncthreads();
                join_slots<NQ, QG>(slot, apart, task->of, dim, me, queries, (float2 *)p, out);
            }
        }
        TR_UNROLL
        for (uint32_t j = 0; j < QG; j++) {
            if (whole && me.some && me.query + j < task->n_queries) {
                float total = queries[me.query + j].total;
                *(float2 *)(a.out + task->at + (me.query + j) * dim + me.d) =
                    make_float2(out[j].x / total, out[j].y / total);
            }
        }
        __syncthreads(); /* task and queries are free */
        if (tid == 0) {
            /* Every task takes one, so that who takes the last leaves zero for the next launch. */
            if (taken == n_tasks - 1)
                *room.next = 0;
            words[0] = gridDim.x + taken;
        }
        __syncthreads();
    }
}

/* ---- the launch ---- */

static uint32_t tiles_of(uint32_t group)
{
    return (group + QUERIES - 1) / QUERIES;
}

/* NQ: the queries of a unit, of which some may be unused. */
static uint32_t queries_of(uint32_t group)
{
    return group <= 1 ? 1 : group <= 2 ? 2 : group <= 4 ? 4 : 8;
}

static size_t counters_len(uint32_t items)
{
    return ((1 + (size_t)ROWS * items) * sizeof(uint32_t) + 63) / 64 * 64;
}

size_t tr_cuda_attention_room(int n_sm, uint32_t n_ctx, uint32_t max_rows, uint32_t n_head,
                              uint32_t n_head_kv, uint32_t head_dim)
{
    uint32_t group = n_head / n_head_kv, items = n_head_kv * tiles_of(group);
    uint32_t rows = max_rows < ROWS ? max_rows : (uint32_t)ROWS;
    uint64_t most = (uint64_t)rows * ((n_ctx + TR_PARTITION - 1) / TR_PARTITION) * items;
    uint64_t enough = (uint64_t)n_sm * blocks_at_once(1, 1) * 32; /* 32 units for each block */
    return counters_len(items) + (most < enough ? most : enough) *
                                     slot_floats(queries_of(group), head_dim) * sizeof(float);
}

template <enum tr_ops_kv TYPE, int NQ, int QG>
static void launch(struct tr_dev *dev, const struct tr_attend_args *a, const struct room *room)
{
    TR_LAUNCH((attend<TYPE, NQ, QG>), dim3((unsigned)(dev->n_sm * blocks_at_once(NQ, QG))),
              dim3(THREADS), 0, dev->stream, *a, *room);
}

/* Threads share the queries of a dimension as far as there are threads. */
template <enum tr_ops_kv TYPE, int NQ>
static void launch_shared(struct tr_dev *dev, const struct tr_attend_args *a,
                          const struct room *room)
{
    uint32_t groups = 1;
    while (groups < NQ && groups * 2 * (a->kv.dim / 2) <= THREADS)
        groups *= 2;
    if (groups == 1)
        launch<TYPE, NQ, NQ>(dev, a, room);
    else if (groups == 2)
        launch<TYPE, NQ, (NQ > 2 ? NQ / 2 : 1)>(dev, a, room);
    else if (groups == 4)
        launch<TYPE, NQ, (NQ > 4 ? NQ / 4 : 1)>(dev, a, room);
    else
        launch<TYPE, NQ, 1>(dev, a, room);
}

template <enum tr_ops_kv TYPE>
static void launch_typed(struct tr_dev *dev, const struct tr_attend_args *a,
                         const struct room *room)
{
    switch (queries_of(a->group)) {
    case 1:
        return launch_shared<TYPE, 1>(dev, a, room);
    case 2:
        return launch_shared<TYPE, 2>(dev, a, room);
    case 4:
        return launch_shared<TYPE, 4>(dev, a, room);
    default:
        return launch_shared<TYPE, 8>(dev, a, room);
    }
}

void tr_attend_decode(struct tr_dev *dev, const struct tr_attend_args *a)
{
    struct room r = {};
    r.tiles = tiles_of(a->group);
    r.items = a->kv.n_head_kv * r.tiles;
    size_t counters = counters_len(r.items);
    size_t slot = slot_floats(queries_of(a->group), a->kv.dim) * sizeof(float);
    if (dev->attend_room_len < counters)
        abort(); /* the runtime's mistake */
    r.next = (uint32_t *)dev->attend_room;
    r.done = r.next + 1;
    r.slots = (float *)((char *)dev->attend_room + counters);
    uint64_t slots = (dev->attend_room_len - counters) / slot;
    r.n_slots = slots < UINT32_MAX ? (uint32_t)slots : UINT32_MAX;
    if (a->type == TR_OPS_KV_F16)
        launch_typed<TR_OPS_KV_F16>(dev, a, &r);
    else if (a->type == TR_OPS_KV_Q8_0)
        launch_typed<TR_OPS_KV_Q8_0>(dev, a, &r);
    else
        launch_typed<TR_OPS_KV_F32>(dev, a, &r);
}
