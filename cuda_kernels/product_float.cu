/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/product_float.cu - products of many rows with float weights, with the CPU's bits.
 *
 * An output is a chain of fmaf over 32 elements of K from zero, added to the sum of the blocks before (N2 of
 * cpu_kernels/ops.h), so there are no tensor cores in it: 2 n_in instructions of 64 or 128 lanes a processor,
 * a 15th (sm_80: a 16th) of what the fast path (product_float_fast.cu) may expect.  It is there for F32 weights
 * and for --deterministic.
 *
 * A block of 256 threads makes 64 outputs of 128 rows, a thread 4 of 8: three loads of 16 bytes from shared
 * memory for 32 fmaf, and two blocks a processor by registers (32 sums, 32 of the block of K).  What comes next
 * is on its way in registers while a block of K is computed. */
#include "cuda_kernels/tiles.cuh"

namespace
{

enum {
    THREADS = 256,
    STRIPS = 2,
    OUTPUTS = STRIPS * TR_CUDA_STRIP,
    ROWS = 128,
    OUT_EACH = 4,
    ROW_EACH = 8,
    EACH = OUT_EACH * ROW_EACH,
    K = TR_CUDA_K,
    X_LINE = ROWS + 4, /* so that a row's elements, stored by lanes, meet few banks twice */
};

struct alignas(16) four {
    float at[4];
};

struct alignas(16) piece {
    uint32_t word[4];
};

/* Element i of 16 bytes of weights. */
template <enum tr_tensor_type T> static __device__ float element(const struct piece &p, uint32_t i)
{
    if (T == TR_T_F32)
        return tr_float_of(p.word[i]);
    const uint32_t half = p.word[i / 2] >> i % 2 * 16;
    return T == TR_T_F16 ? tr_from_half((uint16_t)half) : tr_float_of(half << 16);
}

/* 32 elements of K on their way: a thread's pieces of weights and elements of rows. */
template <enum tr_tensor_type T> struct ahead {
    static constexpr uint32_t E = 16 / tr_cuda_element(T);         /* elements of a piece */
    static constexpr uint32_t GROUPS = K / E;                      /* pieces of an output */
    static constexpr uint32_t PIECES = OUTPUTS * GROUPS / THREADS; /* of a thread */
    static constexpr uint32_t XS = ROWS * K / THREADS;

    struct piece w[PIECES];
    float x[XS];

    /* What is not there is not read; zeros in its place are not used. */
    __device__ void load(const struct tr_tile &tile, const struct tr_act &a, size_t strip_bytes,
                         uint32_t k)
    {
        const uint32_t t = threadIdx.x, o = t % OUTPUTS, strip = tile.strip + o / TR_CUDA_STRIP;
        TR_UNROLL
        for (uint32_t i = 0; i < PIECES; i++) {
            const uint32_t at = k + (t / OUTPUTS + i * (THREADS / OUTPUTS)) * E;
            w[i] = piece{};
            if (at < a.dim && strip < tile.n_strips)
                w[i] = *(const struct piece *)(tile.packed + strip * strip_bytes +
                                               tr_cuda_element_at(T, at, o % TR_CUDA_STRIP));
        }
        TR_UNROLL
        for (uint32_t i = 0; i < XS; i++) {
            const uint32_t row = tile.row + t / K + i * (THREADS / K), at = k + t % K;
            x[i] = row < a.n_rows && at < a.dim ? a.x[(size_t)row * a.dim + at] : 0.0f;
        }
    }

    __device__ void store(float *ws, float *xs) const
    {
        const uint32_t t = threadIdx.x;
        TR_UNROLL
        for (uint32_t i = 0; i < PIECES * E; i++)
            ws[((t / OUTPUTS + i / E * (THREADS / OUTPUTS)) * E + i % E) * OUTPUTS + t % OUTPUTS] =
                element<T>(w[i / E], i % E);
        TR_UNROLL
        for (uint32_t i = 0; i < XS; i++)
            xs[t % K * X_LINE + t / K + i * (THREADS / K)] = x[i];
    }
};

/* Where a tile is is found out anew at the end, rather than kept in registers. */
static __device__ void store(const struct tr_tiles &tiles, const float acc[EACH])
{
    const struct tr_tile tile = tr_tile_of(tiles, tr_anew(blockIdx.x), STRIPS, ROWS);
    const uint32_t t = tr_anew(threadIdx.x);
    const uint32_t o = tile.strip * TR_CUDA_STRIP + t % (OUTPUTS / OUT_EACH) * OUT_EACH;
    const uint32_t r = tile.row + t / (OUTPUTS / OUT_EACH) * ROW_EACH;
    TR_UNROLL
    for (uint32_t i = 0; i < EACH; i++)
        if (r + i / OUT_EACH < tiles.n_rows && o + i % OUT_EACH < tile.n_out)
            tile.out[(size_t)(r + i / OUT_EACH) * tile.n_out + o + i % OUT_EACH] = acc[i];
}

template <enum tr_tensor_type T>
static __global__ void __launch_bounds__(THREADS, 2)
    product_float(TR_GIVEN struct tr_tiles tiles, TR_GIVEN struct tr_act a, size_t strip_bytes)
{
    TR_SHARED(float, ws, K *OUTPUTS);
    TR_SHARED(float, xs, K *X_LINE);
    const struct tr_tile tile = tr_tile_of(tiles, blockIdx.x, STRIPS, ROWS);
    const uint32_t o = threadIdx.x % (OUTPUTS / OUT_EACH) * OUT_EACH;
    const uint32_t r = threadIdx.x / (OUTPUTS / OUT_EACH) * ROW_EACH;
    float acc[EACH] = {};
    ahead<T> next;
    next.load(tile, a, strip_bytes, 0);
    for (uint32_t k0 = 0; k0 < a.dim; k0 += K) {
        const uint32_t left = a.dim - k0, n = left < K ? left : (uint32_t)K;
        __syncthreads(); /* the last block of K has been read */
        next.store(ws, xs);
        __syncthreads();
        if (k0 + K < a.dim)
            next.load(tile, a, strip_bytes, k0 + K);
        float sum[EACH] = {};
        TR_ROLLED
        for (uint32_t k = 0; k < n; k++) {
            const struct four w = *(const struct four *)(ws + k * OUTPUTS + o);
            struct four x[2] = {*(const struct four *)(xs + k * X_LINE + r),
                                *(const struct four *)(xs + k * X_LINE + r + 4)};
            TR_UNROLL
            for (uint32_t i = 0; i < EACH; i++)
                sum[i] = fmaf(x[i / OUT_EACH / 4].at[i / OUT_EACH % 4], w.at[i % OUT_EACH], sum[i]);
        }
        TR_UNROLL
        for (uint32_t i = 0; i < EACH; i++)
            acc[i] = acc[i] + sum[i];
    }
    store(tiles, acc);
}

} // namespace

void tr_cuda_product_float(struct tr_dev *dev, enum tr_tensor_type type, struct tr_tiles *tiles,
                           const struct tr_act *a)
{
    const dim3 n(tr_tiles_make(tiles, STRIPS, ROWS));
    const size_t strip_bytes = tr_cuda_strip_bytes(type, a->dim);
    if (type == TR_T_F16)
        TR_LAUNCH(product_float<TR_T_F16>, n, dim3(THREADS), 0, dev->stream, *tiles, *a,
                  strip_bytes);
    else if (type == TR_T_BF16)
        TR_LAUNCH(product_float<TR_T_BF16>, n, dim3(THREADS), 0, dev->stream, *tiles, *a,
                  strip_bytes);
    else
        TR_LAUNCH(product_float<TR_T_F32>, n, dim3(THREADS), 0, dev->stream, *tiles, *a,
                  strip_bytes);
}
