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
#include "cuda_kernels/product_unit.cuh"

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
