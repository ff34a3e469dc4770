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
 * (five on a processor; four or three with many queries), and each finds the units for itself (attention_units.cuh),
 * below a thousand clocks, where a launch of its own would cost two thousand for every layer.  Blocks take what comes
 * next from a counter.  8 KV heads, batch 1 at 32k: 1,024 units for 660 blocks; batch 256 at 2k: 16,384, in 25 rounds.
 * Rows that are not worth splitting (no more than a quarter of a block's share), and those for which there is no
 * more room, are whole tasks, which come first: their block goes through the partitions and keeps the sums in
 * registers.  A slot is (head_dim + 2) floats a query, written and read once: 3 % of a unit's bytes. */
#include "cuda_kernels/attention_slots.cuh"

/* Blocks on a processor at once: what the registers allow, 96 to 168 a thread. */
static constexpr int blocks_at_once(int nq, int qg)
{
    return qg > 4 ? 3 : nq > 4 || qg > 2 ? 4 : 5;
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
            if (me.some) {
                weigh<TYPE, QG>(a, in, heads, p, me, acc);
                TR_UNROLL
                for (uint32_t j = 0; j < QG; j++) {
                    const struct query *of = &queries[me.query + j];
                    out[j] = joined(out[j], of->was, acc[j], of->now, i == 0);
                }
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
