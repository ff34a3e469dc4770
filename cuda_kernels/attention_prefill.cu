/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/attention_prefill.cu - attention of prefill tiles, exact (attention.cuh says which those are).
 *
 * A block of 128 threads has 32 queries (the rows of a tile times the heads of a group) of one KV head, and goes
 * through the partitions of what they see, ascending, as attention.inl means it.  Within a partition it is two
 * matrix products with fmaf in a given order, so as much as float units can do:
 *   scores    32 queries x 256 positions: a thread has 8 x 8 of them, 64 fmaf for every 8 values of K (16 bytes of
 *             F16, and 8 conversions) and 8 of q;
 *   softmax   a warp has a quarter of the sixteen lanes of the meaning, a thread one query;
 *   values    32 queries x head_dim: a thread has 8 x 4 of them (two such pieces above 128 dimensions, 4 x 4 up to
 *             64), 32 fmaf for every 4 values of V and 8 weights.
 * K and V come through shared memory, 16 rows (dimensions of K, positions of V) at a time, by cp.async two stages
 * ahead; all 32 queries share them.  At head_dim 128 a block holds q (16 KiB), scores (36 KiB) and three stages
 * (24 KiB), so two blocks are on a processor, one of which computes while the other one waits.
 * Arithmetic: 2 * 32 * 256 * 128 fmaf a partition are 16.4 k clocks of a processor's 128 units; its 128 KiB of K
 * and V come from the L2, which gives them in less than 4 k.  So the float units are the limit, and some 70 % of
 * them are expected.  A prompt of 4k at 32 heads: 69 G fmaf a layer, 3 ms of an H200's 33 T fmaf/s at 70 %; tensor
 * cores (attention_prefill_fast.cu) are expected to take a tenth of it, but sum in an order of their own. */
#include "cuda_kernels/attention_stream.cuh"

/* ---- scores ---- */

/* A thread's eight positions and the first of its eight queries. */
struct square {
    uint32_t at;
    uint32_t query;
};

/* Adds the dimensions of a stage, from d on, to acc[position][query]. */
template <enum tr_ops_kv TYPE>
static __device__ __forceinline__ void
score(const struct tr_attend_args &a, const struct tr_piece &w, uint32_t base, uint32_t d,
      struct square me, const uint8_t *stage, const float *q, float acc[8][8])
{
    float scale[8];
    if (TYPE == TR_OPS_KV_Q8_0) {
        const uint8_t *head = tr_kv_k(a.kv, w.blocks[(base + me.at) / TR_OPS_KV_BLOCK], w.head_kv);
        load<TR_OPS_KV_F16, 8>((const uint8_t *)(tr_kv_scales(head, a.kv.dim) +
                                                 d / 32 * TR_OPS_KV_BLOCK +
                                                 me.at % TR_OPS_KV_BLOCK),
                               scale);
    }
    TR_UNROLL_BY(4)
    for (uint32_t u = 0; u < ROWS; u++) {
        float k[8], y[8];
        load<TYPE, 8>(stage + (u * TR_PARTITION + me.at) * size_of<TYPE>::value, k);
        load_floats<8>(q + (d + u) * WIDTH + me.query, y);
        TR_UNROLL
        for (uint32_t j = 0; j < 8; j++) {
            if (TYPE == TR_OPS_KV_Q8_0)
                k[j] *= scale[j];
            TR_UNROLL
            for (uint32_t i = 0; i < 8; i++)
                acc[j][i] = fmaf(y[i], k[j], acc[j][i]);
        }
    }
}

/* The scaled scores to p[position][query]; those that are not seen are minus infinity. */
static __device__ __forceinline__ void put_scores(const struct tr_attend_args &a,
                                                  const struct tr_seen *seen, uint32_t base,
                                                  struct square me, float acc[8][8], float *p)
{
    TR_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        struct tr_seen s = tr_clip(seen[me.query + i], base);
        TR_UNROLL
        for (uint32_t j = 0; j < 8; j++)
            acc[j][i] = me.at + j >= s.from && me.at + j < s.end ? tr_scaled(a, acc[j][i])
                                                                 : TR_MINUS_INFINITY;
    }
    TR_UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        float4 *to = (float4 *)(p + (me.at + j) * WIDTH + me.query);
        to[0] = make_float4(acc[j][0], acc[j][1], acc[j][2], acc[j][3]);
        to[1] = make_float4(acc[j][4], acc[j][5], acc[j][6], acc[j][7]);
    }
}

/* ---- softmax ---- */

/* How a partition is joined to what a query has: not at all if it sees none of it. */
enum how { SEES_NOTHING, FIRST, LATER };

struct softmax {
    float top[QUERIES]; /* over the partitions so far */
    float total[QUERIES];
    float was[QUERIES]; /* how much they weigh when this one is joined, */
    float now[QUERIES]; /* and how much this one */
    uint32_t how[QUERIES];
    float max[4][QUERIES];    /* over a warp's lanes of the meaning */
    float sum[4][4][QUERIES]; /* each of them */
};

/* Scores to weights, in place, for positions [lo, hi) of the partition, multiples of 16.  Warp w has the lanes 4w
 * to 4w + 3 of sixteen, a thread one query. */
static __device__ __forceinline__ void soften(float *p, uint32_t lo, uint32_t hi, struct softmax *x)
{
    uint32_t i = threadIdx.x % 32, warp = threadIdx.x / 32;
    float top = TR_MINUS_INFINITY, sum[4] = {0, 0, 0, 0};
    float *of = p + warp * 4 * WIDTH + i;
    for (uint32_t j = lo; j < hi; j += 16) {
        TR_UNROLL
        for (uint32_t l = 0; l < 4; l++)
            top = tr_larger(of[(j + l) * WIDTH], top);
    }
    x->max[warp][i] = top;
    __syncthreads();
    top = tr_larger(tr_larger(x->max[0][i], x->max[1][i]), tr_larger(x->max[2][i], x->max[3][i]));
    bool sees = top > TR_MINUS_INFINITY;
    for (uint32_t j = lo; j < hi; j += 16) {
        TR_UNROLL
        for (uint32_t l = 0; l < 4; l++) {
            float w = sees ? tr_exp(of[(j + l) * WIDTH] - top) : 0;
            sum[l] += w;
            of[(j + l) * WIDTH] = w;
        }
    }
    TR_UNROLL
    for (uint32_t l = 0; l < 4; l++)
        x->sum[warp][l][i] = sum[l];
    __syncthreads();
    if (warp > 0)
        return;
    /* Folded in halves: lanes 8 apart, 4 apart, 2, 1. */
    TR_UNROLL
    for (uint32_t l = 0; l < 4; l++)
        sum[l] = (sum[l] + x->sum[2][l][i]) + (x->sum[1][l][i] + x->sum[3][l][i]);
    float all = (sum[0] + sum[2]) + (sum[1] + sum[3]);
    float was_top = x->top[i], new_top = tr_larger(top, was_top);
    x->how[i] = !sees ? SEES_NOTHING : was_top == TR_LOWEST ? FIRST : LATER;
    if (!sees)
        return;
    float was = tr_exp(was_top - new_top), now = tr_exp(top - new_top);
    x->total[i] = x->total[i] * was + all * now;
    x->top[i] = new_top;
    x->was[i] = was;
    x->now[i] = now;
}

/* ---- values ---- */

/* A thread's share of V: QV queries from `query` on, four dimensions from d on, and again 128 further. */
struct strip {
    uint32_t query;
    uint32_t d;
};

/* Adds the positions of a stage, from `at` on in the partition. */
template <enum tr_ops_kv TYPE, int QV, int NV>
static __device__ __forceinline__ void
weigh(const struct tr_attend_args &a, const struct tr_piece &w, const struct tr_seen *seen,
      uint32_t base, uint32_t at, bool whole, struct strip me, const uint8_t *stage, const float *p,
      float acc[NV][QV][4])
{
    const uint16_t *scales = nullptr;
    if (TYPE == TR_OPS_KV_Q8_0)
        scales = tr_kv_scales(tr_kv_k(a.kv, w.blocks[(base + at) / TR_OPS_KV_BLOCK], w.head_kv) +
                                  tr_kv_apart(a.kv),
                              a.kv.dim);
    TR_UNROLL_BY(4)
    for (uint32_t u = 0; u < ROWS; u++) {
        float y[QV];
        load_floats<QV>(p + (at + u) * WIDTH + me.query, y);
        bool sees[QV];
        TR_UNROLL
        for (uint32_t i = 0; i < QV && !whole; i++) {
            struct tr_seen s = seen[me.query + i];
            sees[i] = base + at + u >= s.from && base + at + u < s.end;
        }
        TR_UNROLL
        for (uint32_t n = 0; n < NV; n++) {
            uint32_t d = me.d + n * 128;
            float v[4];
            if (d >= a.kv.dim)
                break;
            load<TYPE, 4>(stage + (u * a.kv.dim + d) * size_of<TYPE>::value, v);
            if (TYPE == TR_OPS_KV_Q8_0) {
                float s =
                    tr_from_half(scales[((at + u) % TR_OPS_KV_BLOCK) * (a.kv.dim / 32) + d / 32]);
                TR_UNROLL
                for (uint32_t x = 0; x < 4; x++)
                    v[x] *= s;
            }
            TR_UNROLL
            for (uint32_t i = 0; i < QV; i++) {
                TR_UNROLL
                for (uint32_t x = 0; x < 4; x++) {
                    if (whole || sees[i])
                        acc[n][i][x] = fmaf(y[i], v[x], acc[n][i][x]);
                }
            }
        }
    }
}

/* ---- the kernel ---- */

/* The tile's queries into q[dimension][query], and what they see. */
static __device__ __forceinline__ void begin(const struct tr_attend_args &a,
                                             const struct tr_piece &w, float *q,
                                             struct tr_seen *seen, struct softmax *x)
{
    for (uint32_t e = threadIdx.x; e < QUERIES * a.kv.dim; e += THREADS) {
        uint32_t i = e / a.kv.dim, d = e % a.kv.dim;
        q[d * WIDTH + i] = i < w.n ? a.q[tr_piece_place(a, w, i) + d] : 0;
    }
    uint32_t i = threadIdx.x;
    if (i < QUERIES) {
        seen[i] = {0, 0};
        if (i < w.n)
            seen[i] = tr_seen_at(w.pos + (w.first + i) / a.group, a.window);
        x->top[i] = TR_LOWEST;
        x->total[i] = 0;
    }
}

/* Positions of the partition at `base` that all queries see; the first one ends first, the last one begins last. */
static __device__ __forceinline__ struct tr_seen
seen_by_all(const struct tr_piece &w, const struct tr_seen *seen, uint32_t base)
{
    return tr_clip({seen[w.n - 1].from, seen[0].end}, base);
}

/* Joins the partition in acc to out. */
template <int QV, int NV>
static __device__ __forceinline__ void join(const struct softmax *x, struct strip me,
                                            const float acc[NV][QV][4], float out[NV][QV][4])
{
    TR_UNROLL
    for (uint32_t i = 0; i < QV; i++) {
        uint32_t how = x->how[me.query + i];
        float was = x->was[me.query + i], now = x->now[me.query + i];
        TR_UNROLL
        for (uint32_t n = 0; n < NV; n++) {
            TR_UNROLL
            for (uint32_t e = 0; e < 4; e++) {
                if (how == FIRST)
                    out[n][i][e] = acc[n][i][e];
                else if (how == LATER)
                    out[n][i][e] = out[n][i][e] * was + acc[n][i][e] * now;
            }
        }
    }
}

template <int QV, int NV>
static __device__ __forceinline__ void finish(const struct tr_attend_args &a,
                                              const struct tr_piece &w, const struct softmax *x,
                                              struct strip me, const float out[NV][QV][4])
{
    TR_UNROLL
    for (uint32_t i = 0; i < QV; i++) {
        float total = x->total[me.query + i];
        TR_UNROLL
        for (uint32_t n = 0; n < NV; n++) {
            uint32_t d = me.d + n * 128;
            if (me.query + i < w.n && d < a.kv.dim)
                *(float4 *)(a.out + tr_piece_place(a, w, me.query + i) + d) =
                    make_float4(out[n][i][0] / total, out[n][i][1] / total, out[n][i][2] / total,
                                out[n][i][3] / total);
        }
    }
}

/* Grid: (tiles * pieces of QUERIES, KV heads); the last tiles, which see most, begin first. */
template <enum tr_ops_kv TYPE, int QV, int NV>
static __global__ void __launch_bounds__(THREADS, 2)
    attend(struct tr_attend_args a, uint32_t pieces)
{
    TR_SHARED_GIVEN(given);
    TR_SHARED(struct softmax, soft, 1);
    TR_SHARED(struct tr_seen, seen, QUERIES);
    TR_SHARED(uint32_t, word, 1);
    float *p = (float *)given, *q = p + TR_PARTITION * WIDTH;
    uint32_t block = gridDim.x - 1 - blockIdx.x, tid = threadIdx.x;
    if (!tr_is_run(a, block / pieces * a.tile, word))
        return;

    const uint32_t groups = QUERIES / QV;
    struct tr_piece w = tr_piece_of<QUERIES>(a, block / pieces * a.tile, block % pieces);
    struct square mine = {tid / 32 * 64 + tid % 32 / 4 * 8, tid % 4 * 8};
    struct strip me = {tid % groups * QV, tid / groups * 4};
    float out[NV][QV][4] = {};
    struct flow f = flow_of(a, w, w.from / TR_PARTITION * TR_PARTITION);
    struct stream s = {(uint8_t *)(q + a.kv.dim * WIDTH), f, 0, 0, 0};
    begin(a, w, q, seen, soft);
    for (uint32_t i = 1; i < STAGES; i++)
        ask_next<TYPE>(a, w, &s);

    for (;;) {
        float dots[8][8] = {}, acc[NV][QV][4] = {};
        for (uint32_t i = 0; i < f.n_k; i++) {
            const uint8_t *stage = take<TYPE>(a, w, &s);
            if (mine.at / TR_OPS_KV_BLOCK >= f.lo && mine.at / TR_OPS_KV_BLOCK < f.hi)
                score<TYPE>(a, w, f.base, i * ROWS, mine, stage, q, dots);
        }
        put_scores(a, seen, f.base, mine, dots, p);
        __syncthreads();
        soften(p, f.lo * TR_OPS_KV_BLOCK, f.hi * TR_OPS_KV_BLOCK, soft);
        struct tr_seen all = seen_by_all(w, seen, f.base);
        for (uint32_t at = f.lo * TR_OPS_KV_BLOCK; at < f.hi * TR_OPS_KV_BLOCK; at += ROWS) {
            const uint8_t *stage = take<TYPE>(a, w, &s);
            weigh<TYPE, QV, NV>(a, w, seen, f.base, at, at >= all.from && at + ROWS <= all.end, me,
                                stage, p, acc);
        }
        join<QV, NV>(soft, me, acc, out);
        if (f.base + TR_PARTITION >= w.end)
            break;
        f = flow_of(a, w, f.base + TR_PARTITION);
    }
    finish<QV, NV>(a, w, soft, me, out);
}

/* ---- the launch ---- */

static size_t given_bytes(uint32_t dim, size_t stage)
{
    return (TR_PARTITION + (size_t)dim) * WIDTH * sizeof(float) + STAGES * stage;
}

/* 123 KiB and some for 256 dimensions of F32; devices of compute capability 8.6 and 8.9 have 99. */
bool tr_attend_prefill_fits(const struct tr_dev *dev, enum tr_ops_kv type, uint32_t dim)
{
    size_t stage = stage_of<TR_OPS_KV_F32>::bytes;
    if (type == TR_OPS_KV_F16)
        stage = stage_of<TR_OPS_KV_F16>::bytes;
    else if (type == TR_OPS_KV_Q8_0)
        stage = stage_of<TR_OPS_KV_Q8_0>::bytes;
    size_t own = sizeof(struct softmax) + QUERIES * sizeof(struct tr_seen) + 64;
    return given_bytes(dim, stage) + own <= dev->shared_most;
}

template <enum tr_ops_kv TYPE, int QV, int NV>
static void launch(struct tr_dev *dev, const struct tr_attend_args *a)
{
    uint32_t pieces = (a->tile * a->group + QUERIES - 1) / QUERIES;
    size_t shared = given_bytes(a->kv.dim, stage_of<TYPE>::bytes);
    tr_cuda_note(dev,
                 cudaFuncSetAttribute((const void *)attend<TYPE, QV, NV>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                 "cudaFuncSetAttribute");
    TR_LAUNCH((attend<TYPE, QV, NV>), dim3(a->n_rows / a->tile * pieces, a->kv.n_head_kv),
              dim3(THREADS), shared, dev->stream, *a, pieces);
}

template <enum tr_ops_kv TYPE>
static void launch_typed(struct tr_dev *dev, const struct tr_attend_args *a)
{
    if (a->kv.dim <= 64)
        launch<TYPE, 4, 1>(dev, a);
    else if (a->kv.dim <= 128)
        launch<TYPE, 8, 1>(dev, a);
    else
        launch<TYPE, 8, 2>(dev, a);
}

void tr_attend_prefill(struct tr_dev *dev, const struct tr_attend_args *a)
{
    if (a->type == TR_OPS_KV_F16)
        launch_typed<TR_OPS_KV_F16>(dev, a);
    else if (a->type == TR_OPS_KV_Q8_0)
        launch_typed<TR_OPS_KV_Q8_0>(dev, a);
    else
        launch_typed<TR_OPS_KV_F32>(dev, a);
}
