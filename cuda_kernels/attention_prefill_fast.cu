/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/attention_prefill_fast.cu - attention of prefill tiles on tensor cores, where the CPU's bits are not
 * asked for (attention.cuh says which tiles those are).
 *
 * A block of four warps has 64 queries (the rows of a tile times the heads of a group) of one KV head, a warp 16 of
 * them, and goes through what they see 64 positions at a time (32 above 128 dimensions, for the registers) with one
 * softmax on the way: a running maximum and sum per query, and what is there already is scaled down when the maximum
 * rises.  Both products are mma.m16n8k16 of halves with sums in float; K (transposed, as it is stored) and V are
 * halves as they are stored, and both lie so that ldmatrix.trans makes fragments of them.
 *
 * How far from exact: q and the weights are rounded to halves, 2^-11 of each.  With e = 2^-11 * scale * sum(|q k|)
 * for the worst position, a result differs from the exact one by no more than
 * (exp(2 e) - 1 + 2^-10) * sum(weight * |v|), which tests/cuda/attention_fast.cc holds it to.  What a row does not
 * see weighs nothing, but unlike in the exact kernels a V that is infinite at a later row of the same tile reaches
 * the rows before it (0 * infinity).
 *
 * q is in registers (32 of them at head_dim 128), sums too (64), scores (32): under 168 registers and 70 KiB for two
 * stages of K and V, so three blocks are on an H100's processor and one computes weights while another one
 * multiplies.  64 queries meet 32 KiB of K and V in 2 * 64 * 64 * 128 multiplications: bytes from the L2 are far from
 * the limit.  A prompt of 4k at 32 heads is 137 GFLOP a layer; mma.sync reaches some two thirds of what wgmma does on
 * sm_90, and with softmax beside it a third of the dense peak is expected, 0.4 ms. */
#include "cuda_kernels/attention_piece.cuh"

enum {
    THREADS = 128,
    QUERIES = 64, /* of a block */
    OF_WARP = 16,
    PAD = 16, /* bytes behind each row in shared memory: eight rows of ldmatrix in other banks */
};

/* DIM: head_dim rounded up to what there is code for. */
template <int DIM> struct shape {
    enum : uint32_t {
        positions = DIM > 128 ? 32 : 64, /* at a time */
        k_row = positions * 2 + PAD,
        v_row = DIM * 2 + PAD,
        v_at = DIM * k_row,
        stage = v_at + positions * v_row,
    };
};

/* Asks for K and V of the positions from j on, as far as there are blocks of them. */
template <int DIM>
static __device__ __forceinline__ void ask(const struct tr_attend_args &a, const struct tr_piece &w,
                                           uint32_t j, uint8_t *to)
{
    const uint32_t per_row =
        TR_OPS_KV_BLOCK * 2 / 16; /* copies of 16 bytes in a block's row of K */
    uint32_t dim = a.kv.dim;
    for (uint32_t b = 0; b < shape<DIM>::positions / TR_OPS_KV_BLOCK; b++, j += TR_OPS_KV_BLOCK) {
        if (j >= w.end)
            break;
        const uint8_t *k = tr_kv_k(a.kv, w.blocks[j / TR_OPS_KV_BLOCK], w.head_kv);
        const uint8_t *v = k + tr_kv_apart(a.kv);
        for (uint32_t i = threadIdx.x; i < dim * per_row; i += THREADS)
            tr_copy16(to + i / per_row * shape<DIM>::k_row + b * TR_OPS_KV_BLOCK * 2 +
                          i % per_row * 16,
                      k + i * 16);
        for (uint32_t i = threadIdx.x; i < TR_OPS_KV_BLOCK * dim / 8; i += THREADS)
            tr_copy16(to + shape<DIM>::v_at +
                          (b * TR_OPS_KV_BLOCK + i / (dim / 8)) * shape<DIM>::v_row +
                          i % (dim / 8) * 16,
                      v + i * 16);
    }
}

/* V of positions that nobody sees: what lies there is nobody's and may be anything. */
template <int DIM>
static __device__ __forceinline__ void clear_unseen(const struct tr_piece &w, uint32_t dim,
                                                    uint32_t j, uint8_t *stage)
{
    for (uint32_t i = threadIdx.x; i < shape<DIM>::positions * dim / 2; i += THREADS) {
        uint32_t at = i / (dim / 2), x = i % (dim / 2);
        if (j + at < w.from || j + at >= w.end)
            *(uint32_t *)(stage + shape<DIM>::v_at + at * shape<DIM>::v_row + x * 4) = 0;
    }
}

/* Two fragments of a B of 16 x 16 from rows of shared memory: its columns 0..7 in b[0..1], 8..15 in b[2..3]. */
static __device__ __forceinline__ void load_b(uint32_t b[4], const uint8_t *rows, uint32_t width,
                                              uint32_t lane)
{
    tr_ldmatrix4_trans(b, rows + lane % 16 * width + lane / 16 * 16);
}

/* What a warp has: 16 queries.  A lane has two of them, lane / 4 and 8 further: of each, of eight neighbouring
 * columns the two from 2 * (lane % 4) on. */
template <int DIM> struct tile {
    enum : uint32_t { columns = shape<DIM>::positions / 8 };
    uint32_t q[DIM / 16][4];
    float s[columns][4]; /* scores, then weights: [0..1] of the first query, [2..3] of the second */
    float out[DIM / 8][4];
    float top[2];
    float sum[2];
    struct tr_seen seen[2];

    /* s = q * K, in units of the exponent to base 2 when `cap` is 0, else of the cap. */
    __device__ __forceinline__ void score(const uint8_t *k, uint32_t dim, uint32_t lane)
    {
        TR_UNROLL
        for (uint32_t c = 0; c < columns; c++)
            s[c][0] = s[c][1] = s[c][2] = s[c][3] = 0;
        TR_UNROLL
        for (uint32_t d = 0; d < DIM / 16; d++) {
            if (d * 16 >= dim)
                break;
            TR_UNROLL
            for (uint32_t c = 0; c < columns; c += 2) {
                uint32_t b[4];
                load_b(b, k + d * 16 * shape<DIM>::k_row + c * 16, shape<DIM>::k_row, lane);
                tr_mma_f16(s[c], q[d], b);
                tr_mma_f16(s[c + 1], q[d], b + 2);
            }
        }
    }

    __device__ __forceinline__ void cap(float cap)
    {
        TR_UNROLL
        for (uint32_t c = 0; c < columns; c++) {
            TR_UNROLL
            for (uint32_t e = 0; e < 4; e++)
                s[c][e] = cap * tr_tanh(s[c][e]);
        }
    }

    /* Scores of what a query does not see: minus infinity. */
    __device__ __forceinline__ void hide(uint32_t j, uint32_t lane)
    {
        TR_UNROLL
        for (uint32_t c = 0; c < columns; c++) {
            TR_UNROLL
            for (uint32_t e = 0; e < 4; e++) {
                uint32_t at = j + c * 8 + lane % 4 * 2 + e % 2;
                if (at < seen[e / 2].from || at >= seen[e / 2].end)
                    s[c][e] = TR_MINUS_INFINITY;
            }
        }
    }

    /* Scores to weights; what is there is scaled to the new maximum.  Four lanes have a query. */
    __device__ __forceinline__ void soften(uint32_t dim)
    {
        TR_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            float m = top[h], total = 0;
            TR_UNROLL
            for (uint32_t c = 0; c < columns; c++)
                m = tr_larger(tr_larger(s[c][2 * h], s[c][2 * h + 1]), m);
            m = tr_larger(__shfl_xor_sync(~0u, m, 1), m);
            m = tr_larger(__shfl_xor_sync(~0u, m, 2), m);
            TR_UNROLL
            for (uint32_t c = 0; c < columns; c++) {
                TR_UNROLL
                for (uint32_t e = 2 * h; e < 2 * h + 2; e++) {
                    s[c][e] = tr_exp2_fast(s[c][e] - m);
                    total += s[c][e];
                }
            }
            float was = tr_exp2_fast(top[h] - m);
            sum[h] = sum[h] * was + total; /* of this lane's columns */
            top[h] = m;
            TR_UNROLL
            for (uint32_t x = 0; x < DIM / 8; x++) {
                if (x * 8 >= dim)
                    break;
                out[x][2 * h] *= was;
                out[x][2 * h + 1] *= was;
            }
        }
    }

    /* out += weights * V. */
    __device__ __forceinline__ void weigh(const uint8_t *v, uint32_t dim, uint32_t lane)
    {
        TR_UNROLL
        for (uint32_t c = 0; c < columns; c += 2) {
            uint32_t p[4] = {tr_to_halves(s[c][0], s[c][1]), tr_to_halves(s[c][2], s[c][3]),
                             tr_to_halves(s[c + 1][0], s[c + 1][1]),
                             tr_to_halves(s[c + 1][2], s[c + 1][3])};
            TR_UNROLL
            for (uint32_t x = 0; x < DIM / 8; x += 2) {
                uint32_t b[4];
                if (x * 8 >= dim)
                    break;
                load_b(b, v + c * 8 * shape<DIM>::v_row + x * 16, shape<DIM>::v_row, lane);
                tr_mma_f16(out[x], p, b);
                tr_mma_f16(out[x + 1], p, b + 2);
            }
        }
    }
};

/* The warp's queries; those that the block has not are nobody's and see what the last one does. */
template <int DIM>
static __device__ __forceinline__ void begin(const struct tr_attend_args &a,
                                             const struct tr_piece &w, struct tile<DIM> *t)
{
    const float log2_e = 1.44269504f;
    uint32_t lane = threadIdx.x % 32, i0 = threadIdx.x / 32 * OF_WARP + lane / 4;
    float scale = a.cap > 0 ? a.scale * a.uncap : a.scale * log2_e;
    TR_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t i = i0 + 8 * h < w.n ? i0 + 8 * h : w.n - 1;
        const float *q = a.q + tr_piece_place(a, w, i) + lane % 4 * 2;
        t->seen[h] = tr_seen_at(w.pos + (w.first + i) / a.group, a.window);
        t->top[h] = TR_LOWEST;
        t->sum[h] = 0;
        TR_UNROLL
        for (uint32_t d = 0; d < DIM / 16; d++) {
            if (d * 16 >= a.kv.dim)
                break;
            TR_UNROLL
            for (uint32_t x = 0; x < 2; x++) {
                float2 v = *(const float2 *)(q + d * 16 + x * 8);
                t->q[d][2 * x + h] = tr_to_halves(v.x * scale, v.y * scale);
            }
        }
    }
    TR_UNROLL
    for (uint32_t x = 0; x < DIM / 8; x++)
        t->out[x][0] = t->out[x][1] = t->out[x][2] = t->out[x][3] = 0;
}

template <int DIM>
static __device__ __forceinline__ void finish(const struct tr_attend_args &a,
                                              const struct tr_piece &w, const struct tile<DIM> &t)
{
    uint32_t lane = threadIdx.x % 32, i0 = threadIdx.x / 32 * OF_WARP + lane / 4;
    TR_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float sum = t.sum[h];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        uint32_t i = i0 + 8 * h;
        float *out = a.out + tr_piece_place(a, w, i < w.n ? i : 0) + lane % 4 * 2;
        TR_UNROLL
        for (uint32_t x = 0; x < DIM / 8; x++) {
            if (i < w.n && x * 8 < a.kv.dim)
                *(float2 *)(out + x * 8) =
                    make_float2(t.out[x][2 * h] / sum, t.out[x][2 * h + 1] / sum);
        }
    }
}

/* Grid: (tiles * pieces of QUERIES, KV heads); the last tiles, which see most, begin first. */
template <int DIM>
static __global__ void __launch_bounds__(THREADS) attend(struct tr_attend_args a, uint32_t pieces)
{
    TR_SHARED_GIVEN(given);
    TR_SHARED(uint32_t, word, 1);
    const uint32_t step = shape<DIM>::positions;
    uint32_t block = gridDim.x - 1 - blockIdx.x, lane = threadIdx.x % 32;
    if (!tr_is_run(a, block / pieces * a.tile, word))
        return;
    struct tr_piece w = tr_piece_of<QUERIES>(a, block / pieces * a.tile, block % pieces);
    struct tile<DIM> t;
    begin(a, w, &t);

    /* Between these all queries see everything: the first one ends first, the last one begins last. */
    uint32_t last = (w.first + w.n - 1) / a.group;
    struct tr_seen all = {tr_seen_at(w.pos + last, a.window).from, w.pos + w.first / a.group + 1};
    uint32_t j = w.from / step * step;
    ask<DIM>(a, w, j, given);
    tr_copy_commit();
    for (uint32_t n = 0; j < w.end; j += step, n++) {
        uint8_t *stage = given + n % 2 * shape<DIM>::stage;
        tr_copy_wait<0>();
        __syncthreads(); /* the stage is there, and the other one is free */
        ask<DIM>(a, w, j + step, given + (n + 1) % 2 * shape<DIM>::stage);
        tr_copy_commit();
        if (j < w.from || j + step > w.end) {
            clear_unseen<DIM>(w, a.kv.dim, j, stage);
            __syncthreads();
        }
        t.score(stage, a.kv.dim, lane);
        if (a.cap > 0)
            t.cap(a.cap * 1.44269504f);
        if (j < all.from || j + step > all.end)
            t.hide(j, lane);
        t.soften(a.kv.dim);
        t.weigh(stage + shape<DIM>::v_at, a.kv.dim, lane);
    }
    finish(a, w, t);
}

template <int DIM> static void launch(struct tr_dev *dev, const struct tr_attend_args *a)
{
    uint32_t pieces = (a->tile * a->group + QUERIES - 1) / QUERIES;
    size_t shared = 2 * (size_t)shape<DIM>::stage;
    tr_cuda_note(dev,
                 cudaFuncSetAttribute((const void *)attend<DIM>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                 "cudaFuncSetAttribute");
    TR_LAUNCH(attend<DIM>, dim3(a->n_rows / a->tile * pieces, a->kv.n_head_kv), dim3(THREADS),
              shared, dev->stream, *a, pieces);
}

void tr_attend_prefill_fast(struct tr_dev *dev, const struct tr_attend_args *a)
{
    if (a->kv.dim <= 64)
        launch<64>(dev, a);
    else if (a->kv.dim <= 128)
        launch<128>(dev, a);
    else
        launch<256>(dev, a);
}
