/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/attention.cuh - what the kernels of attention share (cpu_kernels/attention.inl is the meaning).
 *
 * Rows come in batches of any mixture, and who stands where is only known on the device.  So rows are cut into
 * tiles of `tile` rows at multiples of it: a tile whose rows are one run (the same sequence at consecutive
 * positions) is the prefill kernel's, all others are the decode kernel's, row by row.  Both kernels find out by
 * tr_is_run for themselves, from the same places, so no list is handed over, and a launch depends on the number
 * of rows alone.  At both ends of a prompt's chunk less than a tile of rows is done by the decode kernel, which
 * reads K and V for each: 2 * (tile - 1) of hundreds. */
#ifndef TR_CUDA_KERNELS_ATTENTION_CUH
#define TR_CUDA_KERNELS_ATTENTION_CUH

#include "cuda_kernels/curves.cuh"
#include "cuda_kernels/kv.cuh"

#define TR_LOWEST                                                                                  \
    (-3.402823466e+38f) /* -FLT_MAX: the maximum of nothing; finite, see attention.inl */
#define TR_MINUS_INFINITY tr_float_of(0xFF800000u)

enum { TR_PARTITION = TR_OPS_KV_PART, TR_PART_BLOCKS = TR_OPS_KV_PART / TR_OPS_KV_BLOCK };

/* One call of attention, as kernels are given it. */
struct tr_attend_args {
    struct tr_kv_layer kv;
    enum tr_ops_kv type;
    const struct tr_place *places;
    const float *q; /* [n_rows, n_head, dim] */
    float *out;
    uint32_t n_rows;
    uint32_t n_head;
    uint32_t group; /* heads that read one KV head */
    uint32_t tile;  /* rows of a prefill tile: a power of two, at most 64; 0: none is */
    float scale;
    float cap; /* 0: none */
    float uncap;
    uint32_t window; /* 0: all */
};

/* Positions [from, end) are seen. */
struct tr_seen {
    uint32_t from;
    uint32_t end;
};
static __device__ __forceinline__ struct tr_seen tr_seen_at(uint32_t pos, uint32_t window)
{
    uint32_t end = pos + 1;
    return {window > 0 && end > window ? end - window : 0, end};
}

/* What of it lies in the partition at `base`, counted from there; empty: {0, 0}. */
static __device__ __forceinline__ struct tr_seen tr_clip(struct tr_seen s, uint32_t base)
{
    if (s.end <= base || s.from >= base + TR_PARTITION)
        return {0, 0};
    return {s.from > base ? s.from - base : 0,
            s.end - base < TR_PARTITION ? s.end - base : (uint32_t)TR_PARTITION};
}

/* Whether row r goes on where the row before it stands. */
static __device__ __forceinline__ bool tr_goes_on(const struct tr_place *places, uint32_t r)
{
    struct tr_place a = places[r - 1], b = places[r];
    return a.blocks == b.blocks && b.pos == a.pos + 1 && a.pos != TR_NO_POS && b.pos != TR_NO_POS;
}

/* Whether the tile that begins at `row` is one run, asked by all threads of a block, of which there are as many as
 * a tile has rows at least; `word` is in shared memory. */
static __device__ __forceinline__ bool tr_is_run(const struct tr_attend_args &a, uint32_t row,
                                                 uint32_t *word)
{
    if (threadIdx.x == 0)
        *word = row + a.tile <= a.n_rows;
    __syncthreads();
    if (*word && threadIdx.x > 0 && threadIdx.x < a.tile &&
        !tr_goes_on(a.places, row + threadIdx.x))
        *word = 0;
    __syncthreads();
    return *word;
}

/* A score as it is before softmax: scaled, with the cap. */
static __device__ __forceinline__ float tr_scaled(const struct tr_attend_args &a, float dot)
{
    float x = dot * a.scale;
    return a.cap > 0 ? a.cap * tr_tanh(x * a.uncap) : x;
}

/* Two neighbouring values of K or V, as they are stored and as floats; those of Q8_0 are still to be
 * multiplied by their scales, which is exact. */
template <enum tr_ops_kv TYPE> struct tr_two;
template <> struct tr_two<TR_OPS_KV_F16> {
    uint32_t raw;
    __device__ __forceinline__ float2 floats() const
    {
        return make_float2(tr_from_half((uint16_t)raw), tr_from_half((uint16_t)(raw >> 16)));
    }
};
template <> struct tr_two<TR_OPS_KV_Q8_0> {
    uint16_t raw;
    __device__ __forceinline__ float2 floats() const
    {
        return make_float2((float)(int8_t)raw, (float)(int8_t)(raw >> 8));
    }
};
template <> struct tr_two<TR_OPS_KV_F32> {
    float2 raw;
    __device__ __forceinline__ float2 floats() const
    {
        return raw;
    }
};

/* attention_decode.cu: all rows but those of prefill tiles, at most TR_DECODE_ROWS of them (a multiple of 64).
 * `room` is tr_dev's. */
enum { TR_DECODE_ROWS = 512 };
void tr_attend_decode(struct tr_dev *dev, const struct tr_attend_args *a);
/* attention_prefill.cu: the prefill tiles, with the CPU's bits, where a block's shared memory is large enough. */
bool tr_attend_prefill_fits(const struct tr_dev *dev, enum tr_ops_kv type, uint32_t dim);
void tr_attend_prefill(struct tr_dev *dev, const struct tr_attend_args *a);
/* attention_prefill_fast.cu: the prefill tiles of an F16 cache on tensor cores. */
void tr_attend_prefill_fast(struct tr_dev *dev, const struct tr_attend_args *a);

#endif
