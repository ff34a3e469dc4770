/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/attention_slots.cuh - what partitions of a split row leave for the block that joins them.
 *
 * Only attention_decode.cu includes this. */
#ifndef TR_CUDA_KERNELS_ATTENTION_SLOTS_CUH
#define TR_CUDA_KERNELS_ATTENTION_SLOTS_CUH

#include "cuda_kernels/attention_part.cuh"

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
        TR_UNROLL_BY((8 / QG))
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

#endif
