/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/attention_part.cuh - a block of the decode kernel against one partition: scores, weights, weighted
 * values, each sum in the order of cpu_kernels/attention.inl.
 *
 * Only attention_decode.cu includes this. */
#ifndef TR_CUDA_KERNELS_ATTENTION_PART_CUH
#define TR_CUDA_KERNELS_ATTENTION_PART_CUH

#include "cuda_kernels/attention_units.cuh"

/* Floats from query to query of the scores: half a warp further in the banks. */
enum { STRIDE = TR_PARTITION + 16 };

/* Rows of K, or V, that a thread loads before it uses them, while it uses as many. */
template <enum tr_ops_kv TYPE> struct ahead_of {
    enum : uint32_t { rows = TYPE == TR_OPS_KV_F16 ? 16 : 8 };
};

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

#endif
