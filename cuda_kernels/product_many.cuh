/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/product_many.cuh - products of many rows: shapes of tiles and of their stages, and how a stage comes from
 * memory.  Why so: product_many.cu, the only one to include it. */
#ifndef TR_CUDA_KERNELS_PRODUCT_MANY_CUH
#define TR_CUDA_KERNELS_PRODUCT_MANY_CUH

#include "cuda_kernels/tiles.cuh"

namespace
{

static constexpr uint32_t DEEP = 4; /* K-blocks in a stage */

/* What a type is made of, and bytes in its strips (strip.h). */
template <enum tr_tensor_type T> struct form {
    static constexpr uint32_t LOW = tr_cuda_low(T), HIGH = tr_cuda_high(T);
    static constexpr bool SUPER = tr_cuda_super(T), HALVES = tr_cuda_halves(T),
                          MINS = tr_cuda_mins(T);
    static constexpr uint32_t HEAD = tr_cuda_head_bytes(T), BLOCK = tr_cuda_block_bytes(T);
    static constexpr uint32_t SCALES = tr_cuda_scale_at(T);
    /* Signed quants are put at the top of their byte: 2^UP times as large. */
    static constexpr uint32_t UP = tr_cuda_signed(T) ? 8 - LOW - HIGH : 0;
};

/* A block of threads: STRIPS strips meet ROWS rows; a warp has MT * 16 outputs of one strip and NT * 8 rows. */
template <uint32_t STRIPS_, uint32_t MT_, uint32_t NT_, uint32_t ROW_WARPS_, uint32_t STAGES_,
          uint32_t AT_ONCE_>
struct tiles_of {
    static constexpr uint32_t STRIPS = STRIPS_, MT = MT_, NT = NT_, STAGES = STAGES_,
                              AT_ONCE = AT_ONCE_;
    static constexpr uint32_t STRIP_WARPS = 2 / MT; /* that share a strip's outputs */
    static constexpr uint32_t WARPS = STRIPS * STRIP_WARPS * ROW_WARPS_;
    static constexpr uint32_t THREADS = WARPS * 32;
    static constexpr uint32_t ROWS = NT * 8 * ROW_WARPS_;
};
typedef tiles_of<1, 1, 4, 2, 4, 4> narrow;
template <bool HALVES> struct wide_of {
    typedef tiles_of<4, 2, 8, 2, 2, 2> type;
};
template <> struct wide_of<true> {
    typedef tiles_of<2, 1, 8, 2, 2, 2> type; /* its scales take more registers */
};

/* A stage in shared memory: the weights of DEEP blocks of K, with their super-block's scales before them, the rows'
 * quants, and of every row and block what the scales need. */
template <enum tr_tensor_type T, class S> struct stage_of {
    typedef form<T> F;
    static constexpr uint32_t STRIP_BYTES = F::HEAD + DEEP * F::BLOCK;
    static constexpr uint32_t ROW_BYTES = DEEP * TR_CUDA_K;
    static constexpr uint32_t SIDE_BYTES = DEEP * S::ROWS * 4;
    static constexpr uint32_t ROWS_AT = S::STRIPS * STRIP_BYTES;
    static constexpr uint32_t D_AT = ROWS_AT + S::ROWS * ROW_BYTES;
    static constexpr uint32_t SIDES = F::MINS ? (F::HALVES ? 3 : 2) : 1;
    static constexpr uint32_t BYTES = D_AT + SIDES * SIDE_BYTES;
    /* Behind the stages a warp has its strip's products of scales (scale_table). */
    static constexpr uint32_t TABLE_BYTES = F::SUPER && !F::HALVES ? DEEP * TR_CUDA_STRIP * 8 : 0;
    static constexpr uint32_t ALL_BYTES = S::STAGES * BYTES + S::WARPS * TABLE_BYTES;
};

struct many {
    struct tr_tiles tiles;
    uint32_t dim;
    uint32_t strip_bytes;
    const int8_t *q; /* as in struct tr_act */
    const float *d, *s;
    const int32_t *low, *sum;
};

struct alignas(16) four {
    float at[4];
};

/* 2^23 + 2^22: an accumulator that starts as this float's bits and counts whole numbers of less than 2^22 is
 * this float and the number. */
static constexpr float MAGIC = 12582912.0f;
static constexpr int MAGIC_BITS = 0x4B400000;

static __device__ float f16_at(const uint8_t *p, uint32_t i)
{
    return tr_from_half(((const uint16_t *)(const void *)p)[i]);
}

static __device__ uint32_t word_at(const uint8_t *p, uint32_t i)
{
    return ((const uint32_t *)(const void *)p)[i];
}

static __device__ four four_at(const uint8_t *p, uint32_t i)
{
    return *(const four *)(const void *)(p + (size_t)i * 4);
}

/* Row r of a stage has its pieces of 16 bytes in another order, so that the eight rows that ldmatrix reads at
 * once (block_of_k) lie in different banks. */
static __device__ uint32_t swizzle(uint32_t r)
{
    return r / 4 % 4 * 2 + r % 2;
}

/* ---- from memory ---- */

/* What a thread fetches for every stage.  Rows and strips that are not there are not fetched: what is computed of
 * what lies in their place meets nothing else, and is not stored. */
template <enum tr_tensor_type T, class S> struct fetch {
    typedef form<T> F;
    typedef stage_of<T, S> G;
    /* In pieces of 16 bytes. */
    static constexpr uint32_t STRIP_THREADS = S::THREADS / S::STRIPS;
    static constexpr uint32_t STRIP_PIECES = G::STRIP_BYTES / 16;
    static constexpr uint32_t ROW_PIECES = G::ROW_BYTES / 16, ROW_STEP = S::THREADS / ROW_PIECES;
    static constexpr uint32_t N_ROWS = S::ROWS / ROW_STEP, SIDE_STEP = S::THREADS / S::ROWS;

    const struct many &m;
    const uint8_t *strip; /* the thread's first piece of its strip; NULL: no such strip */
    const int8_t *row;    /* its first piece of a row */
    uint32_t side;        /* its first scale of a row, from the first row's */
    uint32_t there;       /* bit i: its i-th row; bit N_ROWS: the row of its scales */
    tr_spot shared;

    __device__ fetch(const struct many &many, const struct tr_tile &tile, const uint8_t *to)
        : m(many), shared(tr_spot_of(to))
    {
        const uint32_t t = threadIdx.x, s = tile.strip + t / STRIP_THREADS;
        const uint32_t rows = m.tiles.n_rows - tile.row;
        strip = s < tile.n_strips ? tile.packed + (size_t)s * m.strip_bytes + t % STRIP_THREADS * 16
                                  : nullptr;
        row = m.q + (size_t)(tile.row + t / ROW_PIECES) * m.dim + t % ROW_PIECES * 16;
        side = (tile.row + t % S::ROWS) * (m.dim / TR_CUDA_K) + t / S::ROWS;
        there = t % S::ROWS < rows ? 1u << N_ROWS : 0;
        for (uint32_t i = 0; i < N_ROWS; i++)
            there |= t / ROW_PIECES + i * ROW_STEP < rows ? 1u << i : 0;
    }

    /* A third of a stage: K-blocks from `block` on, as far as they are there. */
    template <bool WHOLE>
    __device__ void start_n(uint32_t third, tr_spot to, uint32_t block, uint32_t n) const
    {
        if (third == 0 && strip)
            start_strip<WHOLE>(to, block, n);
        if (third == 1)
            start_rows<WHOLE>(to, block, n);
        if (third == 2)
            start_sides<WHOLE>(to, block, n);
    }
    __device__ void start(uint32_t third, uint32_t stage, uint32_t block) const
    {
        const uint32_t left = m.dim / TR_CUDA_K - block;
        if (left >= DEEP)
            start_n<true>(third, shared + stage * G::BYTES, block, DEEP);
        else
            start_n<false>(third, shared + stage * G::BYTES, block, left);
    }

    template <bool WHOLE> __device__ void start_strip(tr_spot to, uint32_t block, uint32_t n) const
    {
        const uint32_t first = threadIdx.x % STRIP_THREADS;
        const uint8_t *from = strip + (size_t)block * F::BLOCK;
        to = to + (threadIdx.x / STRIP_THREADS * G::STRIP_BYTES + first * 16);
        if constexpr (F::SUPER)
            from += (size_t)(block / TR_CUDA_PARTS) * F::HEAD;
        TR_UNROLL
        for (uint32_t i = 0; i < STRIP_PIECES; i += STRIP_THREADS) {
            const uint32_t at = (first + i) * 16;
            const uint8_t *here = from + i * 16;
            if constexpr (F::SUPER)
                here -= at < F::HEAD ? block % TR_CUDA_PARTS * F::BLOCK : 0;
            if ((WHOLE && i + STRIP_THREADS <= STRIP_PIECES) || at < F::HEAD + n * F::BLOCK)
                tr_copy16(to + i * 16, here);
        }
    }

    template <bool WHOLE> __device__ void start_rows(tr_spot to, uint32_t block, uint32_t n) const
    {
        const uint32_t r = threadIdx.x / ROW_PIECES, piece = threadIdx.x % ROW_PIECES;
        const int8_t *from = row + block * TR_CUDA_K;
        to = to + (G::ROWS_AT + r * G::ROW_BYTES + (piece ^ swizzle(r)) * 16);
        TR_UNROLL
        for (uint32_t i = 0; i < N_ROWS; i++)
            if (there >> i & 1 && (WHOLE || piece * 16 < n * TR_CUDA_K))
                tr_copy16(to + i * (ROW_STEP * G::ROW_BYTES),
                          from + (size_t)(i * ROW_STEP) * m.dim);
    }

    template <bool WHOLE> __device__ void start_sides(tr_spot to, uint32_t block, uint32_t n) const
    {
        to = to + (G::D_AT + threadIdx.x * 4);
        TR_UNROLL
        for (uint32_t i = 0; i < DEEP; i += SIDE_STEP)
            if (there >> N_ROWS & 1 && (WHOLE || threadIdx.x / S::ROWS + i < n)) {
                const uint32_t at = side + block + i;
                const tr_spot here = to + i * S::ROWS * 4;
                tr_copy4(here, m.d + at);
                if constexpr (F::MINS && F::HALVES) {
                    tr_copy4(here + G::SIDE_BYTES, m.low + at);
                    tr_copy4(here + 2 * G::SIDE_BYTES, m.sum + at);
                } else if constexpr (F::MINS) {
                    tr_copy4(here + G::SIDE_BYTES, m.s + at);
                }
            }
    }
};

} // namespace

#endif
