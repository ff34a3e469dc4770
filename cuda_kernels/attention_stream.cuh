/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/attention_stream.cuh - exact attention of prompts: K and V on their way through shared memory, a stage after
 * the other.  Why so: attention_prefill.cu, the only one to include it. */
#ifndef TR_CUDA_KERNELS_ATTENTION_STREAM_CUH
#define TR_CUDA_KERNELS_ATTENTION_STREAM_CUH

#include "cuda_kernels/attention_piece.cuh"

enum {
    THREADS = 128,
    QUERIES = 32, /* of a block */
    ROWS = 16,    /* of K, or V, in a stage */
    STAGES = 3,
    WIDTH = QUERIES + 4, /* floats from row to row of scores and of q: 16-byte loads, other banks */
};

template <enum tr_ops_kv TYPE> struct size_of {
    enum : uint32_t { value = TYPE == TR_OPS_KV_F16 ? 2 : TYPE == TR_OPS_KV_Q8_0 ? 1 : 4 };
};

/* Of 256 dimensions, or positions. */
template <enum tr_ops_kv TYPE> struct stage_of {
    enum : uint32_t { bytes = ROWS * 256 * size_of<TYPE>::value };
};

/* What comes through shared memory for a partition: first K, ROWS dimensions of all its positions at a time, then
 * V, ROWS positions at a time.  `lo` and `hi` are the blocks of the partition that somebody sees. */
struct flow {
    uint32_t base;
    uint32_t lo;
    uint32_t hi;
    uint32_t n_k; /* stages of K, */
    uint32_t n;   /* and of both */
};

static __device__ __forceinline__ struct flow flow_of(const struct tr_attend_args &a,
                                                      const struct tr_piece &w, uint32_t base)
{
    struct tr_seen s = tr_clip({w.from, w.end}, base);
    uint32_t lo = s.from / TR_OPS_KV_BLOCK;
    uint32_t hi = (s.end + TR_OPS_KV_BLOCK - 1) / TR_OPS_KV_BLOCK;
    return {base, lo, hi, a.kv.dim / ROWS, a.kv.dim / ROWS + (hi - lo) * (TR_OPS_KV_BLOCK / ROWS)};
}

/* Asks for a stage: of K [ROWS, 256 positions], of V [ROWS, dim]. */
template <enum tr_ops_kv TYPE>
static __device__ __forceinline__ void ask(const struct tr_attend_args &a, const struct tr_piece &w,
                                           const struct flow &f, uint32_t stage, uint8_t *to)
{
    const uint32_t size = size_of<TYPE>::value, piece = TR_OPS_KV_BLOCK * size / 16;
    const uint32_t *blocks = w.blocks + f.base / TR_OPS_KV_BLOCK;
    if (stage < f.n_k) {
        /* A block's row is 32 positions: `piece` copies of 16 bytes. */
        uint32_t n = (f.hi - f.lo) * ROWS * piece;
        for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
            uint32_t c = i % piece, d = i / piece % ROWS, b = f.lo + i / (piece * ROWS);
            const uint8_t *k = tr_kv_k(a.kv, blocks[b], w.head_kv);
            tr_copy16(to + (d * TR_PARTITION + b * TR_OPS_KV_BLOCK) * size + c * 16,
                      k + (stage * ROWS + d) * TR_OPS_KV_BLOCK * size + c * 16);
        }
    } else {
        uint32_t j = (stage - f.n_k) * ROWS, b = f.lo + j / TR_OPS_KV_BLOCK;
        const uint8_t *v = tr_kv_k(a.kv, blocks[b], w.head_kv) + tr_kv_apart(a.kv) +
                           j % TR_OPS_KV_BLOCK * a.kv.dim * size;
        for (uint32_t i = threadIdx.x * 16; i < ROWS * a.kv.dim * size; i += THREADS * 16)
            tr_copy16(to + i, v + i);
    }
}

/* The stages of all partitions, one after the other. */
struct stream {
    uint8_t *ring;
    struct flow asked; /* the partition of the stage that is asked for next */
    uint32_t stage;    /* and which one of it */
    uint32_t n_asked;
    uint32_t n_taken;
};

/* Asks for one more, if there is one. */
template <enum tr_ops_kv TYPE>
static __device__ __forceinline__ void ask_next(const struct tr_attend_args &a,
                                                const struct tr_piece &w, struct stream *s)
{
    if (s->stage == s->asked.n && s->asked.base + TR_PARTITION < w.end) {
        s->asked = flow_of(a, w, s->asked.base + TR_PARTITION);
        s->stage = 0;
    }
    if (s->stage < s->asked.n)
        ask<TYPE>(a, w, s->asked, s->stage++,
                  s->ring + s->n_asked % STAGES * stage_of<TYPE>::bytes);
    s->n_asked++;
    tr_copy_commit();
}

/* The next one, when it is there; the one before it is free from then on and is asked for again.  All threads of
 * the block meet. */
template <enum tr_ops_kv TYPE>
static __device__ __forceinline__ const uint8_t *take(const struct tr_attend_args &a,
                                                      const struct tr_piece &w, struct stream *s)
{
    tr_copy_wait<STAGES - 2>();
    __syncthreads();
    ask_next<TYPE>(a, w, s);
    return s->ring + s->n_taken++ % STAGES * stage_of<TYPE>::bytes;
}

/* N (4 or 8) neighbouring values as floats; those of Q8_0 without their scales. */
template <enum tr_ops_kv TYPE, int N>
static __device__ __forceinline__ void load(const uint8_t *from, float *x)
{
    const uint32_t words = N * size_of<TYPE>::value / 4;
    uint32_t raw[words];
    if constexpr (words == 1) {
        raw[0] = *(const uint32_t *)from;
    } else if constexpr (words == 2) {
        uint2 v = *(const uint2 *)from;
        raw[0] = v.x, raw[1] = v.y;
    } else {
        TR_UNROLL
        for (uint32_t i = 0; i < words; i += 4) {
            uint4 v = *(const uint4 *)(from + i * 4);
            raw[i] = v.x, raw[i + 1] = v.y, raw[i + 2] = v.z, raw[i + 3] = v.w;
        }
    }
    TR_UNROLL
    for (uint32_t i = 0; i < N; i++) {
        if (TYPE == TR_OPS_KV_F32)
            x[i] = tr_float_of(raw[i]);
        else if (TYPE == TR_OPS_KV_F16)
            x[i] = tr_from_half((uint16_t)(raw[i / 2] >> 16 * (i % 2)));
        else
            x[i] = (float)(int8_t)(raw[i / 4] >> 8 * (i % 4));
    }
}

/* N (4 or 8) floats in shared memory. */
template <int N> static __device__ __forceinline__ void load_floats(const float *from, float *x)
{
    TR_UNROLL
    for (uint32_t i = 0; i < N; i += 4) {
        float4 v = *(const float4 *)(from + i);
        x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
    }
}

#endif
