/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/product_few.cuh - products of few rows: what a launch is given, how a block's shared memory is cut, and
 * what a warp fetches into its ring.  Why so: product_few.cu, the only one to include it. */
#ifndef TR_CUDA_KERNELS_PRODUCT_FEW_CUH
#define TR_CUDA_KERNELS_PRODUCT_FEW_CUH

#include "cuda_kernels/product.cuh"
#include "cuda_kernels/strip.h"

extern "C" {
#include "base/assert.h"
}

static constexpr uint32_t WARP = 32, WARPS = 8, THREADS = WARPS * WARP;
/* Of a block's shared memory: what any device of 8.0 and later gives, and two blocks on one of 9.0. */
static constexpr uint32_t SHARED_MOST = 99 << 10;

/* A launch: matrices of one type that meet the same rows. */
struct job {
    struct {
        const uint8_t *packed;
        float *out;
        uint32_t n_out;
        uint32_t first; /* its first strip in the count over all */
    } part[TR_OPS_PRODUCTS];
    uint32_t n_parts;
    uint32_t n_in;
    uint32_t n_rows;
    struct tr_act a;
};

/* Shapes for a type T and up to R rows. */
template <enum tr_tensor_type T, uint32_t R> struct shape {
    static constexpr bool FLOATS = tr_cuda_low(T) == 0;
    /* What is multiplied beside the sums: the weights' scale with the activations', and a minimum with what it
     * is for; of Q2_K that are two sums of activations. */
    static constexpr uint32_t N =
        FLOATS ? 0 : 1 + tr_cuda_mins(T) + (tr_cuda_mins(T) && tr_cuda_halves(T));
    /* Bytes of a K-block, and K-blocks of a unit. */
    static constexpr uint32_t BLOCK =
        FLOATS ? TR_CUDA_K * TR_CUDA_STRIP * tr_cuda_element(T) : tr_cuda_block_bytes(T);
    static constexpr uint32_t UNIT = FLOATS ? 1 : R >= 4 || BLOCK > 800 ? 2 : 4;
    /* A unit in the ring: the head of its super-block, weights, rows of activations (16 bytes longer, so that
     * each begins in another bank), their numbers [N][UNIT][R]. */
    static constexpr uint32_t HEAD = tr_cuda_head_bytes(T);
    static constexpr uint32_t X_AT = HEAD + UNIT * BLOCK;
    static constexpr uint32_t X_ROW = FLOATS ? TR_CUDA_K * 4 : UNIT * TR_CUDA_K + 16;
    static constexpr uint32_t NUMBERS_AT = X_AT + R * X_ROW;
    static constexpr uint32_t STAGE = (NUMBERS_AT + N * UNIT * R * 4 + 15) / 16 * 16;
    /* A round's sums [K-block][32 R], numbers of the weights [N][K-block][32], of activations
     * [N][K-block][R]. */
    static constexpr uint32_t SLOTS = WARPS * UNIT;
    static constexpr uint32_t OF_WEIGHTS_AT = SLOTS * TR_CUDA_STRIP * R * 4;
    static constexpr uint32_t OF_X_AT = OF_WEIGHTS_AT + N * SLOTS * TR_CUDA_STRIP * 4;
    static constexpr uint32_t BUFFER = OF_X_AT + N * SLOTS * R * 4;
    static constexpr uint32_t BUFFERS = R == 16 ? 1 : 2;
    static constexpr uint32_t FIT = (SHARED_MOST - BUFFERS * BUFFER) / (WARPS * STAGE);
    static constexpr uint32_t STAGES = FIT < 2 ? 2 : FIT > 6 ? 6 : FIT;
    static constexpr uint32_t BUFFERS_AT = WARPS * STAGES * STAGE;
    static constexpr uint32_t SHARED = BUFFERS_AT + BUFFERS * BUFFER;
    static constexpr bool FITS = SHARED <= SHARED_MOST;
    /* A thread adds for so many rows of an output. */
    static constexpr uint32_t PER_THREAD = R == 1 ? 1 : 2;
    /* A signed quant lies at the top of its byte. */
    static constexpr uint32_t UP = tr_cuda_signed(T) ? 8 - tr_cuda_low(T) - tr_cuda_high(T) : 0;
};

/* Where the sum of row r of an output is among those of a K-block: rows by eights, so that what a warp writes
 * at once and reads at once lies together. */
template <uint32_t R> static __device__ uint32_t sum_at(uint32_t output, uint32_t r)
{
    return R == 16 ? r / 8 * 256 + output * 8 + r % 8 : output * R + r;
}

/* ---- what a warp fetches ---- */

/* Where a lane finds its pieces of a unit; the next unit of its warp is a round further, and a round is whole
 * super-blocks, so all go on by constants. */
struct source {
    const uint8_t *weights, *head, *x, *number[3];
};

template <enum tr_tensor_type T, uint32_t R>
static __device__ struct source source_of(const struct job &j, const uint8_t *strip, uint32_t warp,
                                          uint32_t lane)
{
    typedef shape<T, R> S;
    const uint32_t first = warp * S::UNIT;
    struct source from = {};
    from.weights = strip + (S::FLOATS ? first * S::BLOCK : tr_cuda_block_at(T, first)) + lane * 16;
    if (S::FLOATS)
        return from;
    from.head = strip + tr_cuda_head_at(T, first) + lane * 16;
    const uint32_t row = lane / (S::UNIT * 2), piece = lane % (S::UNIT * 2);
    from.x = (const uint8_t *)j.a.q + (size_t)row * j.n_in + first * TR_CUDA_K + piece * 16;
    const size_t at =
        ((size_t)(lane / S::UNIT) * (j.n_in / TR_CUDA_K) + first + lane % S::UNIT) * 4;
    from.number[0] = (const uint8_t *)j.a.d + at;
    from.number[1] = (S::N == 2 ? (const uint8_t *)j.a.s : (const uint8_t *)j.a.low) + at;
    from.number[2] = (const uint8_t *)j.a.sum + at;
    return from;
}

template <enum tr_tensor_type T, uint32_t R> static __device__ void go_on(struct source &from)
{
    typedef shape<T, R> S;
    constexpr uint32_t ROUND = S::FLOATS ? S::SLOTS * S::BLOCK : tr_cuda_head_at(T, S::SLOTS);
    from.weights += ROUND;
    if (S::FLOATS)
        return;
    from.head += ROUND;
    from.x += S::SLOTS * TR_CUDA_K;
    for (uint32_t i = 0; i < 3; i++)
        from.number[i] += S::SLOTS * 4;
}

/* n K-blocks of a unit of quants, UNIT of them where it is WHOLE. */
template <enum tr_tensor_type T, uint32_t R, bool WHOLE>
static __device__ void fetch_quants(const struct source &from, uint32_t n_in, uint32_t n_rows,
                                    uint32_t n, tr_spot stage, uint32_t lane)
{
    typedef shape<T, R> S;
    constexpr uint32_t PER_ROW = S::UNIT * 2, PIECES = S::UNIT * S::BLOCK / 16;
    static_assert(R * S::UNIT <= WARP, "a lane has one number");
    tr_spot to = stage + lane * 16;
    if constexpr (S::HEAD > 0)
        if (lane < S::HEAD / 16)
            tr_copy16(to, from.head);
    TR_UNROLL
    for (uint32_t i = 0; i < PIECES; i += WARP)
        if (WHOLE ? i + WARP <= PIECES || i + lane < PIECES : i + lane < n * (S::BLOCK / 16))
            tr_copy16(to + (S::HEAD + i * 16), from.weights + i * 16);
    TR_UNROLL
    for (uint32_t i = 0; i < (R * PER_ROW + WARP - 1) / WARP; i++) {
        const uint32_t row = i * (WARP / PER_ROW) + lane / PER_ROW, piece = lane % PER_ROW;
        if (row < n_rows && row < R && (WHOLE || piece < 2 * n))
            tr_copy16(stage + (S::X_AT + row * S::X_ROW + piece * 16),
                      from.x + (size_t)i * (WARP / PER_ROW) * n_in);
    }
    const uint32_t of = lane / S::UNIT, i = lane % S::UNIT;
    to = stage + (S::NUMBERS_AT + (i * R + of) * 4);
    if (of < n_rows && of < R && (WHOLE || i < n)) {
        TR_UNROLL
        for (uint32_t k = 0; k < S::N; k++)
            tr_copy4(to + k * (S::UNIT * R * 4), from.number[k]);
    }
}

template <enum tr_tensor_type T, uint32_t R>
static __device__ void fetch_floats(const struct job &j, const uint8_t *weights, uint32_t block,
                                    tr_spot stage, uint32_t lane)
{
    typedef shape<T, R> S;
    constexpr uint32_t PER = 16 / tr_cuda_element(T), PIECES = S::BLOCK / 16;
    const uint32_t left = (j.n_in - block * TR_CUDA_K + PER - 1) / PER * TR_CUDA_STRIP;
    TR_UNROLL
    for (uint32_t i = 0; i < PIECES; i += WARP)
        if (i < left)
            tr_copy16(stage + (i + lane) * 16, weights + i * 16);
    const uint32_t k = block * TR_CUDA_K + lane;
    TR_UNROLL
    for (uint32_t r = 0; r < R; r++)
        if (r < j.n_rows && k < j.n_in)
            tr_copy4(stage + (S::X_AT + r * S::X_ROW + lane * 4), j.a.x + (size_t)r * j.n_in + k);
}

/* K-blocks of unit u, of n_blocks in all. */
template <enum tr_tensor_type T, uint32_t R>
static __device__ uint32_t unit_len(uint32_t u, uint32_t n_blocks)
{
    constexpr uint32_t UNIT = shape<T, R>::UNIT;
    const uint32_t first = u * UNIT, left = first < n_blocks ? n_blocks - first : 0;
    return left < UNIT ? left : UNIT;
}

/* The next unit of a warp, which is unit u, or nothing. */
template <enum tr_tensor_type T, uint32_t R>
static __device__ void fetch(const struct job &j, struct source &from, uint32_t u,
                             uint32_t n_blocks, tr_spot stage, uint32_t lane)
{
    typedef shape<T, R> S;
    const uint32_t n = unit_len<T, R>(u, n_blocks);
    if constexpr (S::FLOATS) {
        if (n)
            fetch_floats<T, R>(j, from.weights, u, stage, lane);
    } else if (n == S::UNIT) {
        fetch_quants<T, R, true>(from, j.n_in, j.n_rows, n, stage, lane);
    } else if (n) {
        fetch_quants<T, R, false>(from, j.n_in, j.n_rows, n, stage, lane);
    }
    tr_copy_commit(); /* an empty group too: they are counted */
    go_on<T, R>(from);
}

#endif
