/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/product_few.cu - matrix products of 1 to 16 rows: decoding (matmul of cpu_kernels/ops.h).
 *
 * What limits it: the weights' bytes, each read once.  So the questions are how many bytes are under way, and
 * whether the instructions that a byte costs fit beside them.  (Figures are arithmetic and counts of machine
 * code for 9.0; nothing is measured.)
 *
 * Launch: a block of 8 warps has one strip (32 outputs) and all of K; the blocks are the strips of all matrices
 * that read the same rows and have the same type (q, k, v; gate and up).  4,096 outputs are 128 blocks for 132
 * processors, 14,336 twice are 896, a vocabulary of 128k 4,000: the processors take the next one when one is
 * done, and two stand on a processor (99 KB of shared memory and 128 registers at most), so that one's
 * beginning (first bytes) is another's middle.
 *
 * K is shared: a unit is 2 or 4 K-blocks (1.2 to 2.5 KB) with the activations that meet them, and in a round
 * each warp has one, which it alone copies (cp.async, a ring of 2 to 6 units a warp), so nobody waits for
 * others' bytes.  By Little's law an H200 wants 4.8 TB/s * 0.7 us = 3.4 MB under way, 26 KB a processor; of a
 * block these are all units of the ring but one: 35 KB and more with one row, 20 KB with 8, 10 KB and more with
 * 16, twice that with two blocks.  An A100 (2 TB/s, 108 processors) wants 13 KB.
 *
 * Products of a unit are exact whole numbers on the tensor cores: m16n8k32 with weights as the 16 rows and
 * activations as the 8 columns (as many as there are; the others are copies of the first ones), so one row of
 * activations costs what eight do: 2 instructions a K-block of the strip (of types with a scale for 16 elements
 * 4 of half the depth), where dp4a would take 8 a row on a pipe of half the rate.
 *
 * Instructions: a processor of an H200 gets 20 bytes a clock, a K-block of Q4_K in 28 clocks, that is in 112
 * issue slots.  It takes about 80 of them with one row (36 for sums and numbers, 34 to fetch and to turn the
 * ring, 8 to add), 150 with 8 and 200 with 16 (14 to add for two rows and 16 outputs): so one row should be bound
 * by memory, 8 come to about 70 % of its rate at best, 16 to about half.  Q8_0, with 210 slots: 90, 150, 210.
 *
 * The sum over K has an order (N2), the sums of units have none: warps leave them in shared memory, meet, and
 * then a thread goes through the K-blocks of the round for one or two rows of an output, in order, with the
 * accumulator in a register.  There are two such buffers, so those that add meet the others one round later
 * only (with 16 rows one: shared memory is short, and all add).  The longest chain, 14,336 / 32 fmaf, is under
 * 2 us beside 10 us of bytes.
 *
 * Float types: no tensor cores; a lane has an output and makes the sum of each K-block by fmaf, from zero, and
 * the threads that add go through those sums.  One instruction an element and row, so beyond 8 rows it is these
 * that limit, not bytes.
 *
 * What it does not do: with 16 rows activations are as many bytes as a strip of 4-bit weights, and come from the
 * second cache once a strip; two strips a block would halve that, and the number of blocks.  Fewer than 64
 * strips (1,024 outputs alone) do not fill a device.
 *
 * Bits: fmaf(2^n * sum, scale / 2^n * d, acc) is fmaf(sum, scale * d, acc): no number is near the ends of
 * the exponent's range (N3, and F16 scales).  2^n is where the bits of a signed quant lie in a byte
 * (strip.h). */
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

/* ---- products ---- */

/* Of the outputs 8 m + lane / 4 the groups lane % 4 (lo) and 4 + lane % 4 (hi), a quant in a byte. */
template <enum tr_tensor_type T>
static __device__ void spread(const uint8_t *block, uint32_t lane, uint32_t lo[4], uint32_t hi[4])
{
    constexpr uint32_t LOW = tr_cuda_low(T), HIGH = tr_cuda_high(T), UP = shape<T, 1>::UP;
    const uint32_t p = lane % 4;
    const uint8_t *upper = block + tr_cuda_high_at(T);
    if constexpr (LOW >= 4)
        tr_ldmatrix4(lo, block + lane * 16);
    if constexpr (LOW == 8)
        tr_ldmatrix4(hi, block + 512 + lane * 16);
    TR_UNROLL
    for (uint32_t m = 0; m < 4; m++) {
        const uint32_t output = 8 * m + lane / 4;
        if constexpr (LOW == 4) {
            const uint32_t w = lo[m], mask = 0x0f0f0f0fu << UP;
            lo[m] = w << UP & mask;
            hi[m] = (UP == 4 ? w : w >> (4 - UP)) & mask;
        } else if constexpr (LOW == 2) {
            const uint2 w = *(const uint2 *)(block + output * 8);
            lo[m] = (w.x >> 2 * p & 0x03030303u) << UP;
            hi[m] = (w.y >> 2 * p & 0x03030303u) << UP;
        }
        if constexpr (HIGH == 2) {
            const uint2 w = *(const uint2 *)(upper + output * 8);
            lo[m] |= (w.x >> 2 * p & 0x03030303u) << (UP + LOW);
            hi[m] |= (w.y >> 2 * p & 0x03030303u) << (UP + LOW);
        } else if constexpr (HIGH == 1) {
            const uint32_t w = *(const uint32_t *)(upper + output * 4) >> p;
            lo[m] |= (w & 0x01010101u) << (UP + LOW);
            hi[m] |= (w >> 4 & 0x01010101u) << (UP + LOW);
        }
    }
}

/* Scale of half h of an output's K-block, of types that have two. */
template <enum tr_tensor_type T>
static __device__ int half_scale(const uint8_t *block, uint32_t h, uint32_t output)
{
    const uint8_t byte = block[tr_cuda_scale_at(T) + h * TR_CUDA_STRIP + output];
    return tr_cuda_mins(T) ? byte & 15 : (int8_t)byte;
}

/* Sixteen outputs from 16 t on by 8 rows of activations b: d as a tensor core leaves it. */
template <enum tr_tensor_type T>
static __device__ void multiply(const uint8_t *block, const uint32_t lo[4], const uint32_t hi[4],
                                uint32_t t, const uint32_t b[2], uint32_t lane, int d[4])
{
    const uint32_t a[4] = {lo[2 * t], lo[2 * t + 1], hi[2 * t], hi[2 * t + 1]};
    d[0] = d[1] = d[2] = d[3] = 0;
    if (!tr_cuda_halves(T)) {
        tr_mma_s8(d, a, b);
        return;
    }
    int e[4] = {0, 0, 0, 0};
    tr_mma_s8_16(d, a, b[0]);
    tr_mma_s8_16(e, a + 2, b[1]);
    TR_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t output = 16 * t + i / 2 * 8 + lane / 4;
        d[i] = d[i] * half_scale<T>(block, 0, output) + e[i] * half_scale<T>(block, 1, output);
    }
}

/* The sums of a K-block, to where they are added from; b: its activations, of 8 rows, then of 8 more. */
template <enum tr_tensor_type T, uint32_t R>
static __device__ void block_sums(const uint8_t *block, const uint32_t *b, uint32_t lane, int *sums)
{
    uint32_t lo[4] = {}, hi[4] = {};
    spread<T>(block, lane, lo, hi);
    TR_UNROLL
    for (uint32_t t = 0; t < 2; t++) {
        TR_UNROLL
        for (uint32_t c = 0; c < (R + 7) / 8; c++) {
            int d[4];
            multiply<T>(block, lo, hi, t, b + 2 * c, lane, d);
            const uint32_t output = 16 * t + lane / 4, row = 8 * c + lane % 4 * 2;
            if (row >= R)
                continue;
            if constexpr (R == 1) {
                sums[output] = d[0];
                sums[output + 8] = d[2];
            } else {
                *(uint2 *)(sums + sum_at<R>(output, row)) = uint2{(uint32_t)d[0], (uint32_t)d[1]};
                *(uint2 *)(sums + sum_at<R>(output + 8, row)) =
                    uint2{(uint32_t)d[2], (uint32_t)d[3]};
            }
        }
    }
}

/* d and m of the output `lane`, of those at `at`. */
template <enum tr_tensor_type T>
static __device__ void scales(const uint8_t *at, uint32_t lane, float *d, float *m)
{
    const uint16_t *f16 = (const uint16_t *)at + lane;
    *d = tr_from_half(f16[0]) * (1.0f / (1 << shape<T, 1>::UP));
    *m = tr_cuda_mins(T) ? tr_from_half(f16[TR_CUDA_STRIP]) : 0.0f;
    if (tr_cuda_super(T))
        *m = 0.0f - *m;
}

/* What sums of a K-block are multiplied by for the output `lane`: words [N] at strides of SLOTS * 32.  d and m
 * are its super-block's. */
template <enum tr_tensor_type T, uint32_t R>
static __device__ void weight_numbers(const uint8_t *block, float d, float m, uint32_t lane,
                                      uint32_t *to)
{
    constexpr uint32_t STRIDE = shape<T, R>::SLOTS * TR_CUDA_STRIP;
    const uint8_t *small = block + tr_cuda_scale_at(T);
    if (!tr_cuda_super(T))
        scales<T>(small, lane, &d, &m);
    const bool scaled = tr_cuda_super(T) && !tr_cuda_halves(T);
    to[0] = tr_bits_of(scaled ? d * (float)small[lane] : d);
    if (tr_cuda_mins(T))
        to[STRIDE] = tr_bits_of(scaled ? m * (float)small[TR_CUDA_STRIP + lane] : m);
    if (tr_cuda_mins(T) && tr_cuda_halves(T))
        to[2 * STRIDE] = small[lane] >> 4 | (uint32_t)(small[TR_CUDA_STRIP + lane] >> 4) << 16;
}

/* A unit of quants: sums and numbers of its n K-blocks into the slots from `slot` on. */
template <enum tr_tensor_type T, uint32_t R>
static __device__ void quant_unit(const uint8_t *stage, uint32_t n, uint32_t slot, uint8_t *buffer,
                                  uint32_t lane)
{
    typedef shape<T, R> S;
    int *sums = (int *)buffer + slot * TR_CUDA_STRIP * R;
    uint32_t *of_weights = (uint32_t *)(buffer + S::OF_WEIGHTS_AT) + slot * TR_CUDA_STRIP + lane;
    uint32_t *of_x = (uint32_t *)(buffer + S::OF_X_AT) + slot * R;
    float d = 0.0f, m = 0.0f;
    if (tr_cuda_super(T))
        scales<T>(stage, lane, &d, &m);
    /* Four pieces of 8 rows each: both halves of two K-blocks, or with 16 rows of one. */
    const uint32_t row = R == 16 ? lane / 16 * 8 + lane % 8 : lane % 8 % R;
    const uint32_t piece = R == 16 ? lane / 8 % 2 : lane / 8;
    const uint8_t *x = stage + S::X_AT + row * S::X_ROW + piece * 16;
    uint32_t b[4] = {};
    TR_UNROLL
    for (uint32_t i = 0; i < S::UNIT; i++) {
        if (i >= n)
            break;
        const uint8_t *block = stage + S::HEAD + i * S::BLOCK;
        if (R == 16 || i % 2 == 0)
            tr_ldmatrix4(b, x + i * TR_CUDA_K);
        block_sums<T, R>(block, R == 16 ? b : b + i % 2 * 2, lane, sums + i * TR_CUDA_STRIP * R);
        weight_numbers<T, R>(block, d, m, lane, of_weights + i * TR_CUDA_STRIP);
    }
    if (lane < S::UNIT * R) {
        const uint32_t *from = (const uint32_t *)(stage + S::NUMBERS_AT) + lane;
        TR_UNROLL
        for (uint32_t i = 0; i < S::N; i++)
            of_x[i * S::SLOTS * R + lane] = from[i * S::UNIT * R];
    }
}

/* Eight or four elements of a float type, from 16 bytes. */
template <enum tr_tensor_type T> static __device__ void widen(const uint8_t *p, float w[8])
{
    const uint4 v = *(const uint4 *)p;
    const uint32_t u[4] = {v.x, v.y, v.z, v.w};
    TR_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        if (T == TR_T_F32) {
            w[i] = tr_float_of(u[i]);
        } else if (T == TR_T_BF16) {
            w[2 * i] = tr_float_of(u[i] << 16);
            w[2 * i + 1] = tr_float_of(u[i] & 0xffff0000u);
        } else {
            w[2 * i] = tr_from_half((uint16_t)u[i]);
            w[2 * i + 1] = tr_from_half((uint16_t)(u[i] >> 16));
        }
    }
}

/* A K-block of floats, n elements of it where it is not WHOLE: the output `lane` of all rows. */
template <enum tr_tensor_type T, uint32_t R, bool WHOLE>
static __device__ void float_sums(const uint8_t *weights, const float *x, uint32_t n, float sum[R])
{
    constexpr uint32_t PER = 16 / tr_cuda_element(T);
    TR_UNROLL
    for (uint32_t k = 0; k < TR_CUDA_K; k += PER) {
        float w[8];
        if (!WHOLE && k >= n)
            break;
        widen<T>(weights + k * (TR_CUDA_STRIP * 16 / PER), w);
        TR_UNROLL
        for (uint32_t i = 0; i < PER; i++) {
            if (!WHOLE && k + i >= n)
                break;
            TR_UNROLL
            for (uint32_t r = 0; r < R; r++)
                sum[r] = fmaf(x[r * TR_CUDA_K + k + i], w[i], sum[r]);
        }
    }
}

template <enum tr_tensor_type T, uint32_t R>
static __device__ void float_unit(const uint8_t *stage, uint32_t n, uint32_t slot, uint8_t *buffer,
                                  uint32_t lane)
{
    const float *x = (const float *)(stage + shape<T, R>::X_AT);
    float *sums = (float *)buffer + slot * TR_CUDA_STRIP * R;
    float sum[R];
    TR_UNROLL
    for (uint32_t r = 0; r < R; r++)
        sum[r] = 0.0f;
    if (n >= TR_CUDA_K)
        float_sums<T, R, true>(stage + lane * 16, x, n, sum);
    else
        float_sums<T, R, false>(stage + lane * 16, x, n, sum);
    TR_UNROLL
    for (uint32_t r = 0; r < R; r++)
        sums[sum_at<R>(lane, r)] = sum[r];
}

/* ---- the sum over K ---- */

/* One K-block more (add_block of cpu_kernels/generic.c): w and x are at their first numbers. */
template <enum tr_tensor_type T, uint32_t R>
static __device__ float add(uint32_t sum, const uint32_t *w, const uint32_t *x, float acc)
{
    constexpr uint32_t W = shape<T, R>::SLOTS * TR_CUDA_STRIP, X = shape<T, R>::SLOTS * R;
    if (shape<T, R>::FLOATS)
        return acc + tr_float_of(sum);
    const float d = tr_float_of(x[0]);
    acc = fmaf((float)(int)sum, tr_float_of(w[0]) * d, acc);
    if (tr_cuda_mins(T) && tr_cuda_halves(T)) {
        const uint32_t low = x[X], high = x[2 * X] - low;
        const uint32_t mins = (w[2 * W] & 0xffff) * low + (w[2 * W] >> 16) * high;
        return fmaf((float)(int)mins, tr_float_of(w[W]) * d, acc);
    }
    return tr_cuda_mins(T) ? fmaf(tr_float_of(w[W]), tr_float_of(x[X]), acc) : acc;
}

/* The n K-blocks of a round, of the rows and the output that a thread adds for. */
struct acc {
    float row[2];
};
template <enum tr_tensor_type T, uint32_t R>
static __device__ struct acc add_round(const uint8_t *buffer, uint32_t n, uint32_t output,
                                       uint32_t row, struct acc acc)
{
    typedef shape<T, R> S;
    const uint32_t *sums = (const uint32_t *)buffer + sum_at<R>(output, row);
    const uint32_t *w = (const uint32_t *)(buffer + S::OF_WEIGHTS_AT) + output;
    const uint32_t *x = (const uint32_t *)(buffer + S::OF_X_AT) + row;
    TR_UNROLL_BY(8)
    for (uint32_t i = 0; i < n; i++) {
        TR_UNROLL
        for (uint32_t r = 0; r < S::PER_THREAD; r++)
            acc.row[r] = add<T, R>(sums[i * TR_CUDA_STRIP * R + r], w + i * TR_CUDA_STRIP,
                                   x + i * R + r, acc.row[r]);
    }
    return acc;
}

template <enum tr_tensor_type T, uint32_t R>
static __global__ void __launch_bounds__(THREADS, 2) few(TR_GIVEN struct job j)
{
    typedef shape<T, R> S;
    TR_SHARED_GIVEN(shared);
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint32_t part = 0;
    for (uint32_t i = 1; i < j.n_parts; i++)
        part = blockIdx.x >= j.part[i].first ? i : part;
    const uint32_t s = blockIdx.x - j.part[part].first;
    const uint8_t *strip = j.part[part].packed + s * tr_cuda_strip_bytes(T, j.n_in);
    const uint32_t n_blocks = (j.n_in + TR_CUDA_K - 1) / TR_CUDA_K;
    const uint8_t *ring = shared + warp * S::STAGES * S::STAGE;
    const tr_spot ring_at = tr_spot_of(shared + warp * S::STAGES * S::STAGE);
    struct source from = source_of<T, R>(j, strip, warp, lane);

    /* Whom a thread adds for: neighbours have the next rows of an output. */
    const uint32_t at = threadIdx.x * S::PER_THREAD;
    const uint32_t output = R == 16 ? at % 256 / 8 : at / R;
    const uint32_t row = R == 16 ? at / 256 * 8 + at % 8 : at % R;
    const bool adds = at < TR_CUDA_STRIP * R && row < j.n_rows;
    struct acc acc = {{0.0f, 0.0f}};

    for (uint32_t i = 0; i + 1 < S::STAGES; i++)
        fetch<T, R>(j, from, i * WARPS + warp, n_blocks, ring_at + i * S::STAGE, lane);
    uint32_t stage = 0, next = S::STAGES - 1, buffer = 0;
    for (uint32_t first = 0; first < n_blocks; first += S::SLOTS) {
        const uint32_t u = first / S::UNIT + warp, n = unit_len<T, R>(u, n_blocks);
        uint8_t *sums = shared + S::BUFFERS_AT + buffer * S::BUFFER;
        fetch<T, R>(j, from, u + (S::STAGES - 1) * WARPS, n_blocks, ring_at + next * S::STAGE,
                    lane);
        tr_copy_wait<S::STAGES - 1>();
        __syncwarp();
        if constexpr (S::FLOATS) {
            if (n)
                float_unit<T, R>(ring + stage * S::STAGE, j.n_in - u * TR_CUDA_K, warp, sums, lane);
        } else {
            quant_unit<T, R>(ring + stage * S::STAGE, n, warp * S::UNIT, sums, lane);
        }
        __syncthreads();
        if (adds)
            acc = add_round<T, R>(sums, n_blocks - first < S::SLOTS ? n_blocks - first : S::SLOTS,
                                  output, row, acc);
        /* With one buffer the next round's sums wait until these are added. */
        if (S::BUFFERS == 1)
            __syncthreads();
        buffer = (buffer + 1) % S::BUFFERS;
        stage = (stage + 1) % S::STAGES;
        next = (next + 1) % S::STAGES;
    }
    const uint32_t column = s * TR_CUDA_STRIP + output;
    TR_UNROLL
    for (uint32_t r = 0; r < S::PER_THREAD; r++)
        if (adds && row + r < j.n_rows && column < j.part[part].n_out)
            j.part[part].out[(size_t)(row + r) * j.part[part].n_out + column] = acc.row[r];
}

/* ---- launches ---- */

template <enum tr_tensor_type T, uint32_t R>
static void launch(struct tr_dev *dev, const struct job &j, uint32_t n_strips)
{
    static bool allowed; /* more shared memory than a kernel may have unasked */
    static_assert(shape<T, R>::FITS, "one block's shared memory");
    const int shared = shape<T, R>::SHARED;
    if (!allowed)
        (void)cudaFuncSetAttribute(few<T, R>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    allowed = true;
    TR_LAUNCH((few<T, R>), dim3(n_strips), dim3(THREADS), shared, dev->stream, j);
}

/* Rows [row, row + n) of a job. */
static struct job rows_of(const struct job &j, uint32_t row, uint32_t n)
{
    struct job some = j;
    size_t blocks = (size_t)row * (j.n_in / TR_CUDA_K);
    some.n_rows = n;
    some.a.x += (size_t)row * j.n_in;
    some.a.q += (size_t)row * j.n_in;
    some.a.d += blocks;
    some.a.s += blocks;
    some.a.sum += blocks;
    some.a.low += blocks;
    for (uint32_t i = 0; i < j.n_parts; i++)
        some.part[i].out += (size_t)row * j.part[i].n_out;
    return some;
}

template <enum tr_tensor_type T>
static void launch_rows(struct tr_dev *dev, const struct job &j, uint32_t n_strips)
{
    if (j.n_rows == 1) {
        launch<T, 1>(dev, j, n_strips);
    } else if (j.n_rows <= 4) {
        launch<T, 4>(dev, j, n_strips);
    } else if (j.n_rows <= 8) {
        launch<T, 8>(dev, j, n_strips);
    } else if constexpr (shape<T, 16>::FITS) {
        launch<T, 16>(dev, j, n_strips);
    } else {
        launch<T, 8>(dev, rows_of(j, 0, 8), n_strips);
        launch_rows<T>(dev, rows_of(j, 8, j.n_rows - 8), n_strips);
    }
}

static void launch_type(struct tr_dev *dev, enum tr_tensor_type type, const struct job &j,
                        uint32_t n_strips)
{
    switch ((int)type) {
    case TR_T_F32:
        return launch_rows<TR_T_F32>(dev, j, n_strips);
    case TR_T_F16:
        return launch_rows<TR_T_F16>(dev, j, n_strips);
    case TR_T_BF16:
        return launch_rows<TR_T_BF16>(dev, j, n_strips);
    case TR_T_Q8_0:
        return launch_rows<TR_T_Q8_0>(dev, j, n_strips);
    case TR_T_Q4_0:
        return launch_rows<TR_T_Q4_0>(dev, j, n_strips);
    case TR_T_Q4_1:
        return launch_rows<TR_T_Q4_1>(dev, j, n_strips);
    case TR_T_Q5_0:
        return launch_rows<TR_T_Q5_0>(dev, j, n_strips);
    case TR_T_Q5_1:
        return launch_rows<TR_T_Q5_1>(dev, j, n_strips);
    case TR_T_Q2_K:
        return launch_rows<TR_T_Q2_K>(dev, j, n_strips);
    case TR_T_Q3_K:
        return launch_rows<TR_T_Q3_K>(dev, j, n_strips);
    case TR_T_Q4_K:
        return launch_rows<TR_T_Q4_K>(dev, j, n_strips);
    case TR_T_Q5_K:
        return launch_rows<TR_T_Q5_K>(dev, j, n_strips);
    default:
        return launch_rows<TR_T_Q6_K>(dev, j, n_strips);
    }
}

void tr_cuda_matmul_few(struct tr_dev *dev, uint32_t n, const struct tr_mat *const *w,
                        const struct tr_act *a, float *const *out)
{
    TR_ASSERT(n <= TR_OPS_PRODUCTS && a->n_rows <= TR_CUDA_FEW);
    /* Matrices of a type together, in the order of their first ones. */
    for (uint32_t i = 0, done = 0; i < n; i++) {
        if (done >> i & 1)
            continue;
        struct job j = {};
        uint32_t n_strips = 0;
        j.n_in = a->dim;
        j.n_rows = a->n_rows;
        j.a = *a;
        for (uint32_t k = i; k < n; k++) {
            if (w[k]->type != w[i]->type)
                continue;
            TR_ASSERT(w[k]->n_in == a->dim);
            j.part[j.n_parts++] = {(const uint8_t *)w[k]->packed, out[k], w[k]->n_out, n_strips};
            n_strips += tr_cuda_strip_count(w[k]->n_out);
            done |= 1u << k;
        }
        launch_type(dev, w[i]->type, j, n_strips);
    }
}
