/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/product_many.cu - products of many rows with quantised weights, on int8 tensor cores.
 *
 * One m16n8k32 is one K-block of 32 of 16 outputs and 8 rows, exactly: whole numbers.  (Types with a scale for
 * 16 elements: two m16n8k16.)  The float part of add_block in cpu_kernels/generic.c is done on the fragment of
 * sums, K-block by K-block in ascending order, each lane for its own sums, so the bits are the CPU's whatever the
 * tile.  Sums are not converted: they are counted onto a float's bits (MAGIC), from which one subtraction takes
 * them as a float.
 *
 * That float part is the limit, not the tensor cores.  For an mma and its four sums a lane a warp has to issue 12
 * instructions (subtract, scale times scale, fmaf), 16 with minima, 20 with halves; with loads, unpacking and a
 * share of the copies the compiler makes about 18, 23 and 33 of it for sm_90 (wide tiles, Q8_0, Q4_K, Q6_K).  A
 * scheduler issues one a clock and could do an mma of int8 in 4 clocks, so at most 44, 35 and 24 % of the dense
 * BF16 peak (half of the int8 one) are expected.  sm_80 has 16 lanes of floats to a scheduler: 24 clocks for the
 * 12, beside 16 that its BF16 peak would take.  In fast mode (dev->exact false) one fmaf takes the sum out of
 * MAGIC and multiplies it with the weights' scale: about 14, 19 and 30 instructions, at most 57, 42 and 27 %
 * expected on sm_90.  The two modes differ in where a product is rounded.
 *
 * Wide tiles: 8 warps, 128 outputs of 128 rows; a warp has a strip (32 outputs) of 64 rows, 64 sums a lane, so
 * that unpacking 32 outputs' weights and loading their scales is shared by 16 mma.  Types with halves have 16
 * outputs a warp (64 a block): their scales take the registers.  Two blocks a processor at 128 registers, and a
 * stage of four K-blocks each (20 to 37 KiB) beside the one that is computed: a stage lasts some 4,000 clocks,
 * longer than memory takes to answer.  9 KiB a K-block (Q8_0) and about 500 clocks: 18 bytes a clock and
 * processor from the second cache, which should give 24.
 * Narrow tiles, where wide ones would leave processors idle (few rows, or few outputs): 32 outputs of 64 rows, 4
 * warps of 16 by 32, four stages ahead.
 * Products of one pass over K cannot be split over K: floats are summed in order. */
#include "cuda_kernels/product_many.cuh"

namespace
{

/* ---- weights in registers ---- */

/* Bits [at, at + n) of every byte, moved to bit `to`. */
static __device__ uint32_t field(uint32_t w, uint32_t at, uint32_t n, uint32_t to)
{
    uint32_t by = (to - at) & 31;
    return (w << by | w >> ((32 - by) & 31)) & ((1u << n) - 1) * 0x01010101u << to;
}

/* The fragments of a block: a[tile][row half + 2 * k half], a word of which is four neighbours in K.  Types with
 * a bias have their quants in the upper bits, with the highest turned over: (q - bias) << UP as int8. */
template <enum tr_tensor_type T, uint32_t MT>
static __device__ void weights(const uint8_t *part, uint32_t first, uint32_t a[MT][4])
{
    typedef form<T> F;
    const uint32_t lane = threadIdx.x % 32, row = first + lane / 4, c = lane % 4;
    if (F::LOW == 8) {
        TR_UNROLL
        for (uint32_t t = 0; t < MT; t++)
            tr_ldmatrix4(a[t], part + lane / 16 * 512 + (first + 16 * t + lane % 16) * 16);
        return;
    }
    uint32_t four_bits[4];
    if (F::LOW == 4 && MT == 2)
        tr_ldmatrix4(four_bits, part + (first + lane) * 16);
    else if (F::LOW == 4)
        tr_ldmatrix2(four_bits, part + (first + lane % 16) * 16);
    const uint8_t *two = part, *upper = part + F::LOW * 128;
    TR_UNROLL
    for (uint32_t j = 0; j < 2 * MT; j++) {
        uint32_t r = row + 8 * j;
        uint32_t bit = F::HIGH == 1 ? word_at(upper, r) : 0;
        TR_UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t q = F::LOW == 4 ? field(four_bits[j], 4 * half, 4, F::UP)
                                     : field(word_at(two, 2 * r + half), 2 * c, 2, F::UP);
            if (F::HIGH == 1)
                q |= field(bit, c + 4 * half, 1, F::UP + F::LOW);
            if (F::HIGH == 2)
                q |= field(word_at(upper, 2 * r + half), 2 * c, 2, F::UP + F::LOW);
            a[j / 2][j % 2 + 2 * half] = q;
        }
    }
}

struct alignas(8) scale {
    float d, m;
};

/* Scales of a super-block times those of its K-blocks: a warp makes its strip's once a stage, a lane an output,
 * rather than every lane what it needs in every K-block. */
template <enum tr_tensor_type T>
static __device__ void scale_table(const uint8_t *head, struct scale *table)
{
    typedef form<T> F;
    const uint32_t o = threadIdx.x % 32;
    const float d = f16_at(head, o), m = 0.0f - f16_at(head + TR_CUDA_F16S, o);
    TR_UNROLL
    for (uint32_t k = 0; k < DEEP; k++) {
        const uint8_t *sub = head + F::HEAD + k * F::BLOCK + F::SCALES;
        table[k * TR_CUDA_STRIP + o] = {d * (float)sub[o], m * (float)sub[TR_CUDA_STRIP + o]};
    }
    __syncwarp();
}

/* What outputs `first + lane / 4 + 8 j` multiply a block's sums with. */
template <enum tr_tensor_type T, uint32_t MT, bool EXACT> struct scales {
    static constexpr uint32_t N = 2 * MT;
    float d[N];               /* of the block; with halves: of the super-block */
    float m[N];               /* the minimum, or what low and high minima are multiplied with */
    float sc[N][2], mn[N][2]; /* of the halves */

    __device__ scales(const uint8_t *head, const uint8_t *part, const struct scale *table,
                      uint32_t first)
    {
        typedef form<T> F;
        constexpr float down = 1.0f / (float)(1u << F::UP);
        const uint8_t *f16 = F::SUPER ? head : part + F::SCALES, *sub = part + F::SCALES;
        TR_UNROLL
        for (uint32_t j = 0; j < N; j++) {
            const uint32_t r = first + threadIdx.x % 32 / 4 + 8 * j;
            if constexpr (F::SUPER && !F::HALVES) {
                d[j] = table[r].d;
                m[j] = table[r].m;
                continue;
            }
            d[j] = f16_at(f16, r) * down;
            if constexpr (F::MINS)
                m[j] = f16_at(f16 + TR_CUDA_F16S, r);
            if constexpr (F::HALVES && F::MINS)
                m[j] = 0.0f - m[j];
            if constexpr (F::HALVES) {
                TR_UNROLL
                for (uint32_t half = 0; half < 2; half++) {
                    uint8_t byte = sub[TR_CUDA_STRIP * half + r];
                    sc[j][half] = F::MINS ? (float)(byte & 15) : (float)(int8_t)byte;
                    mn[j][half] = (float)(byte >> 4);
                    if constexpr (!EXACT)
                        sc[j][half] *= d[j];
                }
            }
        }
    }
};

/* ---- a block of K ---- */

/* What one block of K adds to one accumulator: add_block of cpu_kernels/generic.c. */
static __device__ float add_sum(float acc, int sum, float w_d, float x_d)
{
    return fmaf(tr_float_of((uint32_t)sum) - MAGIC, w_d * x_d, acc);
}

/* The same with (sum * w_d) * x_d, where the first product comes out of the magic number by itself, rounded once:
 * one instruction less, another last bit. */
static __device__ float add_fast(float acc, int sum, float w_d, float x_d)
{
    return fmaf(fmaf(tr_float_of((uint32_t)sum), w_d, (0.0f - MAGIC) * w_d), x_d, acc);
}

/* add_sum for sums of halves.  All in it is a whole number that a float holds, up to the last line. */
static __device__ float add_halves(float acc, int first, int second, const float sc[2], float w_d,
                                   float x_d)
{
    float sum = fmaf(tr_float_of((uint32_t)first), sc[0], (0.0f - MAGIC) * sc[0]);
    sum = fmaf(tr_float_of((uint32_t)second) - MAGIC, sc[1], sum);
    return fmaf(sum, w_d * x_d, acc);
}

/* What the minima of a lane's four rows are multiplied with. */
template <enum tr_tensor_type T, class S> struct minima {
    four s;
    float low[4], high[4];

    __device__ minima(const uint8_t *sides, uint32_t at)
    {
        constexpr uint32_t NEXT = stage_of<T, S>::SIDE_BYTES;
        if constexpr (form<T>::MINS && form<T>::HALVES) {
            for (uint32_t n = 0; n < 4; n++) {
                int l = (int)word_at(sides + NEXT, at + n);
                low[n] = (float)l;
                high[n] = (float)((int)word_at(sides + 2 * NEXT, at + n) - l);
            }
        } else if constexpr (form<T>::MINS) {
            s = four_at(sides + NEXT, at);
        }
    }
};

/* One block of K of one tile, the fragments a and b. */
template <enum tr_tensor_type T, class S, bool EXACT>
static __device__ void tile_of_k(const uint32_t a[4], const uint32_t b[2],
                                 const scales<T, S::MT, EXACT> &w, uint32_t tile, uint32_t odd,
                                 const four &d, const minima<T, S> &x, float acc[4])
{
    typedef form<T> F;
    int sum[4] = {MAGIC_BITS, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS};
    int second[4] = {MAGIC_BITS, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS};
    if constexpr (F::HALVES) {
        tr_mma_s8_16(sum, a, b[0]);
        tr_mma_s8_16(second, a + 2, b[1]);
    } else {
        tr_mma_s8(sum, a, b);
    }
    TR_UNROLL
    for (uint32_t e = 0; e < 4; e++) {
        const uint32_t j = 2 * tile + e / 2, n = 2 * odd + e % 2;
        if constexpr (F::HALVES) {
            if constexpr (EXACT) {
                acc[e] = add_halves(acc[e], sum[e], second[e], w.sc[j], w.d[j], d.at[n]);
            } else {
                acc[e] = add_fast(acc[e], sum[e], w.sc[j][0], d.at[n]);
                acc[e] = add_fast(acc[e], second[e], w.sc[j][1], d.at[n]);
            }
        } else {
            acc[e] = EXACT ? add_sum(acc[e], sum[e], w.d[j], d.at[n])
                           : add_fast(acc[e], sum[e], w.d[j], d.at[n]);
        }
        if constexpr (F::HALVES && F::MINS)
            acc[e] =
                fmaf(fmaf(w.mn[j][1], x.high[n], w.mn[j][0] * x.low[n]), w.m[j] * d.at[n], acc[e]);
        else if constexpr (F::MINS)
            acc[e] = fmaf(w.m[j], x.s.at[n], acc[e]);
    }
}

/* A warp's part of a tile: outputs from `first` on of a strip, rows from `row` on. */
template <class S> struct part {
    uint32_t strip, first, row;
    __device__ explicit part(uint32_t thread)
    {
        const uint32_t warp = thread / 32, of_strips = warp % (S::STRIPS * S::STRIP_WARPS);
        strip = of_strips / S::STRIP_WARPS;
        first = of_strips % S::STRIP_WARPS * 16;
        row = warp / (S::STRIPS * S::STRIP_WARPS) * S::NT * 8;
    }
};

/* One block of K of a warp. */
template <enum tr_tensor_type T, class S, bool EXACT>
static __device__ void block_of_k(const uint8_t *stage, const struct scale *table, const part<S> &p,
                                  uint32_t k, float acc[S::MT][S::NT][4])
{
    typedef form<T> F;
    typedef stage_of<T, S> G;
    constexpr uint32_t N = S::MT;
    const uint8_t *head = stage + p.strip * G::STRIP_BYTES;
    const uint8_t *weight = head + F::HEAD + k * F::BLOCK;
    uint32_t a[N][4];
    weights<T, N>(weight, p.first, a);
    const scales<T, N, EXACT> w(head, weight, table + k * TR_CUDA_STRIP, p.first);

    /* Column i of the tile 2 t + odd is row 16 t + 4 (i / 2) + 2 odd + i % 2, so that a lane's four columns of
     * two tiles are neighbours. */
    const uint32_t lane = threadIdx.x % 32, i = lane % 8, half = lane / 8 % 2;
    const uint32_t row = p.row + 4 * (i / 2) + 2 * (lane / 16) + i % 2;
    const uint8_t *x =
        stage + G::ROWS_AT + row * G::ROW_BYTES + ((2 * k + half) ^ swizzle(row)) * 16;
    TR_UNROLL
    for (uint32_t t = 0; t < S::NT / 2; t++) {
        const uint32_t at = k * S::ROWS + p.row + 16 * t + 4 * (lane % 4);
        uint32_t b[4];
        tr_ldmatrix4(b, x + 16 * t * G::ROW_BYTES);
        const four d = four_at(stage + G::D_AT, at);
        const minima<T, S> mins(stage + G::D_AT, at);
        TR_UNROLL
        for (uint32_t n = 0; n < 2 * N; n++)
            tile_of_k<T, S, EXACT>(a[n % N], b + n / N * 2, w, n % N, n / N, d, mins,
                                   acc[n % N][2 * t + n / N]);
    }
}

/* ---- a tile ---- */

/* Where a tile is is found out anew at the end, rather than kept in registers. */
template <class S>
static __device__ void store(const struct tr_tiles &tiles, const float acc[S::MT][S::NT][4])
{
    const uint32_t thread = tr_anew(threadIdx.x), lane = thread % 32;
    const struct tr_tile tile = tr_tile_of(tiles, tr_anew(blockIdx.x), S::STRIPS, S::ROWS);
    const part<S> p(thread);
    const uint32_t row = tile.row + p.row + lane % 4 * 4;
    const uint32_t output = (tile.strip + p.strip) * TR_CUDA_STRIP + p.first + lane / 4;
    TR_UNROLL
    for (uint32_t n = 0; n < S::NT; n++) {
        TR_UNROLL
        for (uint32_t i = 0; i < 4 * S::MT; i++) {
            const uint32_t t = i / 4, e = i % 4;
            const uint32_t r = row + n / 2 * 16 + n % 2 * 2 + e % 2;
            const uint32_t o = output + t * 16 + e / 2 * 8;
            if (r < tiles.n_rows && o < tile.n_out)
                tile.out[(size_t)r * tile.n_out + o] = acc[t][n][e];
        }
    }
}

template <enum tr_tensor_type T, class S, bool EXACT>
static __global__ void __launch_bounds__(S::THREADS, S::AT_ONCE)
    product_many(TR_GIVEN struct many m)
{
    typedef stage_of<T, S> G;
    TR_SHARED_GIVEN(shared);
    const part<S> p(threadIdx.x);
    const fetch<T, S> from(m, tr_tile_of(m.tiles, blockIdx.x, S::STRIPS, S::ROWS), shared);
    struct scale *table =
        (struct scale *)(void *)(shared + S::STAGES * G::BYTES + threadIdx.x / 32 * G::TABLE_BYTES);
    const uint32_t n_blocks = m.dim / TR_CUDA_K, n_steps = (n_blocks + DEEP - 1) / DEEP;
    for (uint32_t i = 0; i < S::STAGES - 1; i++) {
        for (uint32_t third = 0; third < 3 && i < n_steps; third++)
            from.start(third, i, i * DEEP);
        tr_copy_commit();
    }

    float acc[S::MT][S::NT][4] = {};
    uint32_t now = 0, next = S::STAGES - 1; /* stages */
    for (uint32_t i = 0; i < n_steps; i++) {
        tr_copy_wait<S::STAGES - 2>();
        __syncthreads(); /* this stage is there for all, and all have left the one before it */
        const uint8_t *stage = shared + now * G::BYTES;
        if constexpr (G::TABLE_BYTES != 0)
            scale_table<T>(stage + p.strip * G::STRIP_BYTES, table);
        const uint32_t left = n_blocks - i * DEEP;
        TR_ROLLED
        for (uint32_t k = 0; k < (left < DEEP ? left : DEEP); k++) {
            if (i + S::STAGES - 1 < n_steps) /* then this stage is a whole one */
                from.start(k, next, (i + S::STAGES - 1) * DEEP);
            block_of_k<T, S, EXACT>(stage, table, p, k, acc);
        }
        tr_copy_commit();
        next = now;
        now = now + 1 == S::STAGES ? 0 : now + 1;
    }
    store<S>(m.tiles, acc);
}

/* ---- launches ---- */

template <enum tr_tensor_type T, class S, bool EXACT>
static void launch_shape(struct tr_dev *dev, struct many *m)
{
    static bool allowed; /* more shared memory than a kernel may have unasked */
    constexpr uint32_t bytes = stage_of<T, S>::ALL_BYTES;
    static_assert(bytes <= 99 << 10, "what any device of 8.0 and later gives a block");
    const uint32_t n = tr_tiles_make(&m->tiles, S::STRIPS, S::ROWS);
    if (!allowed)
        (void)cudaFuncSetAttribute(product_many<T, S, EXACT>,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    allowed = true;
    TR_LAUNCH((product_many<T, S, EXACT>), dim3(n), dim3(S::THREADS), bytes, dev->stream, *m);
}

template <enum tr_tensor_type T> static void launch(struct tr_dev *dev, struct many *m)
{
    typedef typename wide_of<form<T>::HALVES>::type wide;
    const uint32_t n_rows = m->tiles.n_rows;
    const uint64_t wide_tiles = (uint64_t)(tr_tiles_strips(&m->tiles) / wide::STRIPS) *
                                ((n_rows + wide::ROWS - 1) / wide::ROWS);
    m->strip_bytes = (uint32_t)tr_cuda_strip_bytes(T, m->dim);
    if (n_rows <= narrow::ROWS || wide_tiles * 2 < (uint64_t)dev->n_sm)
        launch_shape<T, narrow, true>(dev, m);
    else if (dev->exact)
        launch_shape<T, wide, true>(dev, m);
    else
        launch_shape<T, wide, false>(dev, m);
}

static void launch_quantised(struct tr_dev *dev, enum tr_tensor_type type,
                             const struct tr_tiles *tiles, const struct tr_act *a)
{
    struct many m = {};
    m.tiles = *tiles;
    m.dim = a->dim;
    m.q = a->q;
    m.d = a->d;
    m.s = a->s;
    m.low = a->low;
    m.sum = a->sum;
    TR_ASSERT((uint64_t)a->n_rows * a->dim <= UINT32_MAX); /* offsets of rows */
#define TYPE(t)                                                                                    \
    case t:                                                                                        \
        launch<t>(dev, &m);                                                                        \
        break
    switch ((int)type) {
        TYPE(TR_T_Q8_0);
        TYPE(TR_T_Q4_0);
        TYPE(TR_T_Q4_1);
        TYPE(TR_T_Q5_0);
        TYPE(TR_T_Q5_1);
        TYPE(TR_T_Q2_K);
        TYPE(TR_T_Q3_K);
        TYPE(TR_T_Q4_K);
        TYPE(TR_T_Q5_K);
        TYPE(TR_T_Q6_K);
    }
#undef TYPE
}

} // namespace

/* Matrices of one type meet the rows in one launch. */
void tr_cuda_matmul_many(struct tr_dev *dev, uint32_t n, const struct tr_mat *const *w,
                         const struct tr_act *a, float *const *out)
{
    for (uint32_t i = 0, done = 0; i < n; i++) {
        struct tr_tiles tiles = {};
        tiles.n_rows = a->n_rows;
        for (uint32_t k = i; k < n; k++)
            if (!(done >> k & 1) && w[k]->type == w[i]->type) {
                tr_tiles_add(&tiles, w[k], out[k]);
                done |= 1u << k;
            }
        if (tiles.n == 0)
            continue;
        if (tr_cuda_low(w[i]->type))
            launch_quantised(dev, w[i]->type, &tiles, a);
        else if (dev->exact || w[i]->type == TR_T_F32)
            tr_cuda_product_float(dev, w[i]->type, &tiles, a);
        else
            tr_cuda_product_float_fast(dev, w[i]->type, &tiles, a);
    }
}
