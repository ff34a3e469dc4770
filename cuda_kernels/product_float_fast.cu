/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/product_float_fast.cu - products of many rows with F16 and BF16 weights on tensor cores, not with
 * the CPU's bits.
 *
 * Activations are rounded to the weights' type (F16: beyond its range to the largest number there), products are
 * exact, and sums are made in float in the tensor cores' order.  So an output is off by at most about u * sum of
 * |x * w|, u = 2^-11 for F16 and 2^-8 for BF16, whose activations have 8 bits.
 *
 * A block of 8 warps makes 128 outputs of 128 rows; a warp a strip (32 outputs) of 64 rows, 64 sums a lane, so
 * that 6 ldmatrix feed 16 mma.  Per 32 elements of K a block takes 8 KiB of weights, as they lie, by cp.async,
 * two stages ahead, and 16 KiB of activations through registers, where they are rounded, one stage ahead.  32 mma
 * of m16n8k16 a warp in that time, four warps to a scheduler (two blocks at 128 registers, 40 KiB): 128 mma of 8
 * clocks on sm_80, of 4 at best on sm_90, so 1,024 or 512 clocks, in which the two blocks read 48 KiB: 48 or 96
 * bytes a clock and processor.  The second cache gives some 24 to 32: it is what limits, to about half of the
 * dense peak on sm_80 and a quarter to a third on sm_90, all expected.  What would help is fewer bytes: activations
 * rounded once, before (a third less), and larger tiles. */
#include "cuda_kernels/tiles.cuh"

namespace
{

enum {
    THREADS = 256,
    STRIPS = 4,
    ROWS = 128,
    K = 32,     /* elements of K in a stage */
    STAGES = 3, /* of weights; of rows 2 */
    PIECE = 8,  /* elements in 16 bytes */
    GROUPS = K / PIECE,
    STRIP_BYTES = TR_CUDA_STRIP * K * 2,
    W_BYTES = STRIPS * STRIP_BYTES,
    X_BYTES = ROWS * K * 2,
    ROWS_EACH = ROWS * GROUPS / THREADS, /* pieces of rows of a thread */
    TILES = 8,                           /* of 8 rows, of a warp */
};

struct alignas(16) piece {
    uint32_t word[4];
};

struct alignas(16) four {
    float at[4];
};

/* Row r of a stage has its four pieces in another order, so that the eight rows that ldmatrix reads at once lie
 * in different banks. */
static __device__ uint32_t row_at(uint32_t r, uint32_t group)
{
    return r * K * 2 + (group ^ r / 2 % 4) * 16;
}

/* Eight elements of a row from k on; zeros where none are. */
static __device__ void load_row(const struct tr_act &a, uint32_t row, uint32_t k, float x[PIECE])
{
    const float *p = a.x + (size_t)row * a.dim + k;
    if (row < a.n_rows && k + PIECE <= a.dim && (uintptr_t)p % 16 == 0) {
        const struct four low = *(const struct four *)p, high = *(const struct four *)(p + 4);
        TR_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            x[i] = low.at[i];
            x[4 + i] = high.at[i];
        }
        return;
    }
    TR_UNROLL
    for (uint32_t i = 0; i < PIECE; i++)
        x[i] = row < a.n_rows && k + i < a.dim ? p[i] : 0.0f;
}

template <enum tr_tensor_type T> struct stages {
    const struct tr_tile tile;
    const struct tr_act &a;
    uint8_t *w, *x; /* in shared memory */
    size_t strip_bytes;
    float ahead[ROWS_EACH][PIECE];

    /* Elements that are not there are zeros in both, so that nothing meets what shared memory holds; outputs
     * that are not there meet it, and are not stored. */
    __device__ void start_weights(uint32_t stage, uint32_t k) const
    {
        TR_UNROLL
        for (uint32_t i = threadIdx.x; i < W_BYTES / 16; i += THREADS) {
            const uint32_t strip = tile.strip + i / (STRIP_BYTES / 16), at = i % (STRIP_BYTES / 16);
            uint8_t *to = w + stage * W_BYTES + i * 16;
            if (k + at / TR_CUDA_STRIP * PIECE >= a.dim)
                *(struct piece *)to = piece{};
            else if (strip < tile.n_strips)
                tr_copy16(to, tile.packed + strip * strip_bytes + (size_t)k * (TR_CUDA_STRIP * 2) +
                                  at * 16);
        }
    }
    __device__ void load_rows(uint32_t k)
    {
        TR_UNROLL
        for (uint32_t i = 0; i < ROWS_EACH; i++)
            load_row(a, tile.row + threadIdx.x / GROUPS + i * (THREADS / GROUPS),
                     k + threadIdx.x % GROUPS * PIECE, ahead[i]);
    }
    __device__ void store_rows(uint32_t stage) const
    {
        TR_UNROLL
        for (uint32_t i = 0; i < ROWS_EACH; i++) {
            const uint32_t r = threadIdx.x / GROUPS + i * (THREADS / GROUPS);
            struct piece p;
            TR_UNROLL
            for (uint32_t j = 0; j < 4; j++)
                p.word[j] = T == TR_T_F16 ? tr_two_halves(ahead[i][2 * j], ahead[i][2 * j + 1])
                                          : tr_two_bfloats(ahead[i][2 * j], ahead[i][2 * j + 1]);
            *(struct piece *)(x + stage * X_BYTES + row_at(r, threadIdx.x % GROUPS)) = p;
        }
    }
};

/* 16 elements of K of a warp: half `half` of a stage. */
template <enum tr_tensor_type T>
static __device__ void half_of_k(const uint8_t *w, const uint8_t *x, uint32_t first_row,
                                 uint32_t half, float acc[2][TILES][4])
{
    const uint32_t lane = threadIdx.x % 32;
    uint32_t a[2][4];
    TR_UNROLL
    for (uint32_t t = 0; t < 2; t++)
        tr_ldmatrix4(a[t], w + ((2 * half + lane / 16) * TR_CUDA_STRIP + 16 * t + lane % 16) * 16);
    TR_UNROLL
    for (uint32_t n = 0; n < TILES; n += 2) {
        uint32_t b[4];
        tr_ldmatrix4(
            b, x + row_at(first_row + 8 * n + lane / 16 * 8 + lane % 8, 2 * half + lane / 8 % 2));
        TR_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            if (T == TR_T_F16)
                tr_mma_f16(acc[i % 2][n + i / 2], a[i % 2], b + i / 2 * 2);
            else
                tr_mma_bf16(acc[i % 2][n + i / 2], a[i % 2], b + i / 2 * 2);
        }
    }
}

/* Where a tile is is found out anew at the end, rather than kept in registers. */
static __device__ void store(const struct tr_tiles &tiles, const float acc[2][TILES][4])
{
    const uint32_t thread = tr_anew(threadIdx.x), warp = thread / 32, lane = thread % 32;
    const struct tr_tile tile = tr_tile_of(tiles, tr_anew(blockIdx.x), STRIPS, ROWS);
    const uint32_t output = (tile.strip + warp % STRIPS) * TR_CUDA_STRIP + lane / 4;
    const uint32_t row = tile.row + warp / STRIPS * (ROWS / 2) + lane % 4 * 2;
    TR_UNROLL
    for (uint32_t n = 0; n < TILES; n++) {
        TR_UNROLL
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t r = row + 8 * n + i % 2, o = output + i / 4 * 16 + i / 2 % 2 * 8;
            if (r < tiles.n_rows && o < tile.n_out)
                tile.out[(size_t)r * tile.n_out + o] = acc[i / 4][n][i % 4];
        }
    }
}

template <enum tr_tensor_type T>
static __global__ void __launch_bounds__(THREADS, 2)
    product_float_fast(TR_GIVEN struct tr_tiles tiles, TR_GIVEN struct tr_act a, size_t strip_bytes)
{
    TR_SHARED(uint8_t, ws, STAGES * W_BYTES);
    TR_SHARED(uint8_t, xs, 2 * X_BYTES);
    struct stages<T> s = {
        tr_tile_of(tiles, blockIdx.x, STRIPS, ROWS), a, ws, xs, strip_bytes,
        {
        }
    };
    const uint32_t warp = threadIdx.x / 32, n = (a.dim + K - 1) / K;
    float acc[2][TILES][4] = {};
    for (uint32_t i = 0; i < STAGES - 1; i++) {
        if (i < n)
            s.start_weights(i, i * K);
        tr_copy_commit();
    }
    s.load_rows(0);
    s.store_rows(0);
    for (uint32_t i = 0; i < n; i++) {
        tr_copy_wait<STAGES - 2>();
        __syncthreads(); /* this stage is there for all, and all have left the one before it */
        if (i + STAGES - 1 < n)
            s.start_weights((i + STAGES - 1) % STAGES, (i + STAGES - 1) * K);
        tr_copy_commit();
        if (i + 1 < n)
            s.load_rows((i + 1) * K);
        TR_UNROLL
        for (uint32_t half = 0; half < 2; half++)
            half_of_k<T>(ws + i % STAGES * W_BYTES + warp % STRIPS * STRIP_BYTES,
                         xs + i % 2 * X_BYTES, warp / STRIPS * (ROWS / 2), half, acc);
        if (i + 1 < n)
            s.store_rows((i + 1) % 2);
    }
    store(tiles, acc);
}

} // namespace

void tr_cuda_product_float_fast(struct tr_dev *dev, enum tr_tensor_type type,
                                struct tr_tiles *tiles, const struct tr_act *a)
{
    const dim3 n(tr_tiles_make(tiles, STRIPS, ROWS));
    const size_t strip_bytes = tr_cuda_strip_bytes(type, a->dim);
    if (type == TR_T_F16)
        TR_LAUNCH(product_float_fast<TR_T_F16>, n, dim3(THREADS), 0, dev->stream, *tiles, *a,
                  strip_bytes);
    else
        TR_LAUNCH(product_float_fast<TR_T_BF16>, n, dim3(THREADS), 0, dev->stream, *tiles, *a,
                  strip_bytes);
}
