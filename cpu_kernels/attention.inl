/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/attention.inl - causal attention over stored K and V.
 *
 * Included by each instruction level after its lanes, rows.inl and kv.inl.  V16_ACC is the lanes'.
 *
 * One query's numbers, whatever shares its tile and whoever computes its partitions (N1, N4):
 *   score[j] = scale * sum over d ascending of q[d] * k[j][d], one fma chain from zero;
 *     with a cap: score[j] = cap * tanh(score[j] * (1 / cap))
 *   per partition of 256 absolute positions, over those it sees: m = max score,
 *     p[j] = exp(score[j] - m),
 *     l = sum of p (lane j mod 16, folded), o[d] = sum over j ascending of p[j] * v[j][d], fma
 *   partitions merged in ascending order; the result is o / l.
 *
 * How it is laid out for speed: a tile of queries that read the same KV head meets the same K and
 * V, so that each vector of them is loaded and converted once per tile.  A tile's accumulators fill
 * the registers (V16_ACC of them): with few queries it goes over more positions, or dimensions, at
 * a time.  Over the queries of a task the partition is the outer loop: its K and V stay in the
 * caches while tile after tile meets them. */

#include "base/assert.h"

#include <float.h>

enum {
    QUERIES = V16_ACC >= 24 ? 12 : 6, /* the most queries in a tile */
    AHEAD = 2,                        /* blocks that are asked for before they are needed */
    ALONE = 4,                        /* so few queries wait for memory */
    TASK_QUERIES = TR_ATTEND_QUERIES, /* that share a partition while it is near */
    STRIDE = TR_OPS_HEAD_MAX + 16,    /* floats from query to query in a tile's arrays: not a power
                                         of two, or they would share the cache's sets */
    PART_BLOCKS = TR_OPS_KV_PART / TR_OPS_KV_BLOCK,
};

_Static_assert((int)TR_OPS_KV_PART <= (int)TR_OPS_HEAD_MAX, "a partition's scores fit into STRIDE");

/* A query of a task. */
struct query {
    const float *q;
    float *out;    /* the weighted sums of the partitions so far are kept here */
    uint32_t from; /* it sees positions [from, end) */
    uint32_t end;
    bool begun; /* out holds something */
};

/* A task's queries and what is known of them: the lanes of a tile lie behind each other. */
struct task {
    struct query u[TASK_QUERIES];
    float max[TASK_QUERIES];
    float sum[TASK_QUERIES];
};

/* What a tile works on within one partition. */
struct tile {
    uint32_t lo[QUERIES]; /* each query sees [lo, hi) of the partition; hi is 0 if none of it */
    uint32_t hi[QUERIES];
    uint32_t all_lo; /* and all of them [all_lo, all_hi), which may be empty */
    uint32_t all_hi;
    float max[16];
    float sum[16];
    float q[QUERIES][STRIDE];
    float p[QUERIES][STRIDE];    /* scores, then weights */
    float part[QUERIES][STRIDE]; /* weighted sums of V */
};

/* The part of [from, end) that lies in the `size` positions from `base` on, counted from there. */
TR_INLINE bool clip(uint32_t from, uint32_t end, uint32_t base, uint32_t size, uint32_t *lo,
                    uint32_t *hi)
{
    *lo = *hi = 0;
    if (end <= base || from >= base + size)
        return false;
    *lo = from > base ? from - base : 0;
    *hi = end - base < size ? end - base : size;
    return true;
}

/* --- scores --- */

/* Scores of Q queries against S times 16 positions of a block, from its position `first` on; they
 * are `at` in the partition.  The head at `next` is read after this one. */
TR_INLINE void score_tile(const int Q, const int S, const enum tr_ops_kv type, struct tile *t,
                          const uint8_t *head, const uint8_t *next, uint32_t dim, uint32_t first,
                          uint32_t at)
{
    v16 acc[QUERIES][2];
    TR_UNROLL
    for (int i = 0; i < Q; i++) {
        TR_UNROLL
        for (int s = 0; s < S; s++)
            acc[i][s] = v16_set1(0.0F);
    }
    for (uint32_t d0 = 0; d0 < dim; d0 += 32) {
        uint32_t d1 = dim - d0 < 32 ? dim : d0 + 32;
        v16 scale[2];
        TR_UNROLL
        for (int s = 0; s < S; s++)
            scale[s] = load_k_scale(type, head, dim, d0, first + 16 * (uint32_t)s);
        for (uint32_t d = d0; d < d1; d++) {
            v16 k[2];
            TR_UNROLL
            for (int s = 0; s < S; s++)
                k[s] = load_k(type, head, scale[s], d, first + 16 * (uint32_t)s);
            prefetch_kv(type, next, (size_t)d * TR_OPS_KV_BLOCK, TR_OPS_KV_BLOCK);
            TR_UNROLL
            for (int i = 0; i < Q; i++) {
                v16 q = v16_set1(t->q[i][d]);
                TR_UNROLL
                for (int s = 0; s < S; s++)
                    acc[i][s] = v16_fma(q, k[s], acc[i][s]);
            }
        }
    }
    TR_UNROLL
    for (int i = 0; i < Q; i++) {
        TR_UNROLL
        for (int s = 0; s < S; s++)
            v16_store(&t->p[i][at + 16 * (uint32_t)s], acc[i][s]);
    }
}

/* All positions of a block, `at` in the partition. */
TR_INLINE void score_block(const int Q, const enum tr_ops_kv type, struct tile *t,
                           const uint8_t *head, const uint8_t *next, uint32_t dim, uint32_t at)
{
    if (Q * 2 <= V16_ACC) {
        score_tile(Q, 2, type, t, head, next, dim, 0, at);
        return;
    }
    score_tile(Q, 1, type, t, head, next, dim, 0, at);
    score_tile(Q, 1, type, t, head, next, dim, 16, at + 16);
}

/* The scores of positions j..j+15 with those outside [lo, hi) at minus infinity: they weigh 0. */
static v16 hide(v16 x, uint32_t j, uint32_t lo, uint32_t hi)
{
    float f[16];
    v16_store(f, x);
    for (uint32_t l = 0; l < 16; l++) {
        if (j + l < lo || j + l >= hi)
            f[l] = -INFINITY;
    }
    return v16_load(f);
}

/* Scores to scaled scores, in place, and their maximum; those that are not seen are hidden. */
static float scale_scores(float *p, uint32_t lo, uint32_t hi, const struct tr_attend_params *a)
{
    bool capped = a->soft_cap > 0;
    v16 cap = v16_set1(a->soft_cap);
    v16 uncap = v16_set1(capped ? 1.0F / a->soft_cap : 0.0F);
    v16 scale = v16_set1(a->scale);
    v16 top = v16_set1(-INFINITY);
    for (uint32_t j = lo / 16 * 16; j < hi; j += 16) {
        v16 x = v16_mul(v16_load(p + j), scale);
        if (capped)
            x = v16_mul(cap, v16_tanh(v16_mul(x, uncap)));
        if (j < lo || hi - j < 16)
            x = hide(x, j, lo, hi);
        top = v16_max(x, top);
        v16_store(p + j, x);
    }
    return v16_top(top);
}

/* Scaled scores to weights, in place, and their sum. */
static float soften(float *p, uint32_t lo, uint32_t hi, float max)
{
    v16 m = v16_set1(max);
    v16 total = v16_set1(0.0F);
    for (uint32_t j = lo / 16 * 16; j < hi; j += 16) {
        v16 w = v16_exp(v16_sub(v16_load(p + j), m));
        total = v16_add(total, w);
        v16_store(p + j, w);
    }
    return v16_sum(total);
}

/* --- weighted values --- */

/* Some blocks of V: those from `first` of a partition on. */
struct values {
    const uint8_t *const *head; /* head[b]; AHEAD more are read after the last */
    const float *scales;        /* of Q8_0, see load_v_scales; [blocks, dim] */
    uint32_t first;
    uint32_t end;
};

/* Adds positions [j0, j1) of each block of v to D times 16 dimensions, from d on, of the parts of
 * queries [i0, i0 + Q). */
TR_INLINE void weigh_tile(const int Q, const int D, const enum tr_ops_kv type, struct tile *t,
                          uint32_t i0, const struct values *v, uint32_t dim, uint32_t d,
                          uint32_t j0, uint32_t j1)
{
    v16 acc[QUERIES][4];
    float(*part)[STRIDE] = &t->part[i0];
    TR_UNROLL
    for (int i = 0; i < Q; i++) {
        TR_UNROLL
        for (int x = 0; x < D; x++)
            acc[i][x] = v16_load(&part[i][d + 16 * (uint32_t)x]);
    }
    for (uint32_t b = v->first; b < v->end; b++) {
        const uint8_t *head = v->head[b];
        const float *scales = type == TR_OPS_KV_Q8_0 ? v->scales + (size_t)b * dim : NULL;
        float(*p)[STRIDE] = (float(*)[STRIDE]) & t->p[i0][b * TR_OPS_KV_BLOCK];
        for (uint32_t j = j0; j < j1; j++) {
            v16 y[4];
            TR_UNROLL
            for (int x = 0; x < D; x++)
                y[x] = load_v(type, head, scales, dim, d + 16 * (uint32_t)x, j);
            prefetch_kv(type, v->head[b + AHEAD], (size_t)j * dim + d, 16 * (uint32_t)D);
            TR_UNROLL
            for (int i = 0; i < Q; i++) {
                v16 w = v16_set1(p[i][j]);
                TR_UNROLL
                for (int x = 0; x < D; x++)
                    acc[i][x] = v16_fma(w, y[x], acc[i][x]);
            }
        }
    }
    TR_UNROLL
    for (int i = 0; i < Q; i++) {
        TR_UNROLL
        for (int x = 0; x < D; x++)
            v16_store(&part[i][d + 16 * (uint32_t)x], acc[i][x]);
    }
}

TR_INLINE void weigh_blocks(const int Q, const enum tr_ops_kv type, struct tile *t, uint32_t i0,
                            const struct values *v, uint32_t dim, uint32_t j0, uint32_t j1)
{
    uint32_t d = 0;
    if (Q * 4 <= V16_ACC) {
        for (; dim - d >= 64; d += 64)
            weigh_tile(Q, 4, type, t, i0, v, dim, d, j0, j1);
    }
    if (Q * 2 <= V16_ACC) {
        for (; dim - d >= 32; d += 32)
            weigh_tile(Q, 2, type, t, i0, v, dim, d, j0, j1);
    }
    for (; d < dim; d += 16)
        weigh_tile(Q, 1, type, t, i0, v, dim, d, j0, j1);
}

/* Positions [j0, j1) of the only block of v, for one query. */
static __attribute__((noinline)) void weigh_alone(enum tr_ops_kv type, struct tile *t, uint32_t i,
                                                  const struct values *v, uint32_t dim, uint32_t j0,
                                                  uint32_t j1)
{
    if (type == TR_OPS_KV_F16)
        weigh_blocks(1, TR_OPS_KV_F16, t, i, v, dim, j0, j1);
    else if (type == TR_OPS_KV_Q8_0)
        weigh_blocks(1, TR_OPS_KV_Q8_0, t, i, v, dim, j0, j1);
    else
        weigh_blocks(1, TR_OPS_KV_F32, t, i, v, dim, j0, j1);
}

/* A block that not all queries see whole.  What all see of it is added for all at once, what is
 * before and after that for each alone, in ascending order.  A position that a query does not see
 * never touches it, not even with weight 0: its V might be infinite. */
TR_INLINE void weigh_edge(const int Q, const enum tr_ops_kv type, struct tile *t,
                          const struct values *all, uint32_t dim, uint32_t b)
{
    struct values v = *all;
    uint32_t at = b * TR_OPS_KV_BLOCK;
    uint32_t lo;
    uint32_t hi;
    uint32_t all_lo;
    uint32_t all_hi;
    v.first = b;
    v.end = b + 1;
    bool some = t->all_lo < t->all_hi &&
                clip(t->all_lo, t->all_hi, at, TR_OPS_KV_BLOCK, &all_lo, &all_hi);
    for (uint32_t i = 0; i < (uint32_t)Q; i++) {
        clip(t->lo[i], t->hi[i], at, TR_OPS_KV_BLOCK, &lo, &hi);
        uint32_t end = some ? all_lo : hi;
        if (lo < end)
            weigh_alone(type, t, i, &v, dim, lo, end);
    }
    if (!some)
        return;
    weigh_blocks(Q, type, t, 0, &v, dim, all_lo, all_hi);
    for (uint32_t i = 0; i < (uint32_t)Q; i++) {
        clip(t->lo[i], t->hi[i], at, TR_OPS_KV_BLOCK, &lo, &hi);
        if (hi > all_hi)
            weigh_alone(type, t, i, &v, dim, all_hi, hi);
    }
}

/* The blocks of v: in the middle those that all queries see whole. */
TR_INLINE void weigh(const int Q, const enum tr_ops_kv type, struct tile *t, struct values *v,
                     uint32_t dim)
{
    float scales[PART_BLOCKS * TR_OPS_HEAD_MAX];
    struct values whole = *v;
    if (type == TR_OPS_KV_Q8_0) {
        for (uint32_t b = v->first; b < v->end; b++)
            load_v_scales(v->head[b], dim, scales + (size_t)b * dim);
    }
    v->scales = whole.scales = scales;
    whole.first = (t->all_lo + TR_OPS_KV_BLOCK - 1) / TR_OPS_KV_BLOCK;
    whole.end = t->all_hi / TR_OPS_KV_BLOCK;
    if (whole.first >= whole.end)
        whole.first = whole.end = v->end;
    for (uint32_t b = v->first; b < whole.first; b++)
        weigh_edge(Q, type, t, v, dim, b);
    /* Few queries wait for memory and read it in order; many would spend their time on loading and
     * storing their sums for each block. */
    uint32_t step = Q <= ALONE ? 1 : PART_BLOCKS;
    for (uint32_t end = whole.end; whole.first < end; whole.first = whole.end) {
        whole.end = end - whole.first < step ? end : whole.first + step;
        weigh_blocks(Q, type, t, 0, &whole, dim, 0, TR_OPS_KV_BLOCK);
    }
    for (uint32_t b = whole.end; b < v->end; b++)
        weigh_edge(Q, type, t, v, dim, b);
}

/* --- partitions --- */

/* Joins a partition of n queries, from the task's `first` on, to what came before it.  part[i] is
 * NULL for a query that sees none of it: its max is minus infinity, its sum 0. */
static void merge(struct task *k, uint32_t first, uint32_t n, const float *max, const float *sum,
                  const float *const *part, uint32_t dim)
{
    v16 m0 = v16_load_n(k->max + first, n);
    v16 m1 = v16_load_n(max, n);
    v16 top = v16_max(m1, m0);
    v16 was = v16_exp(v16_sub(m0, top));
    v16 now = v16_exp(v16_sub(m1, top));
    v16 total = v16_mul(v16_load_n(k->sum + first, n), was);
    total = v16_add(total, v16_mul(v16_load_n(sum, n), now));
    v16_store_n(k->max + first, top, n);
    v16_store_n(k->sum + first, total, n);

    float w[2][16];
    v16_store(w[0], was);
    v16_store(w[1], now);
    for (uint32_t i = 0; i < n; i++) {
        struct query *u = &k->u[first + i];
        if (!part[i])
            continue;
        if (!u->begun) {
            memcpy(u->out, part[i], dim * sizeof *u->out);
            u->begun = true;
            continue;
        }
        v16 w0 = v16_set1(w[0][i]);
        v16 w1 = v16_set1(w[1][i]);
        for (uint32_t d = 0; d < dim; d += 16) {
            v16 o = v16_mul(v16_load(u->out + d), w0);
            v16_store(u->out + d, v16_add(o, v16_mul(v16_load(part[i] + d), w1)));
        }
    }
}

static void finish(const struct task *k, uint32_t n, uint32_t dim)
{
    for (uint32_t i = 0; i < n; i++) {
        float *out = k->u[i].out;
        v16 sum = v16_set1(k->sum[i]);
        for (uint32_t d = 0; d < dim; d += 16)
            v16_store(out + d, v16_div(v16_load(out + d), sum));
    }
}

/* Where the partition at `base` of query i of a task is kept until all are there: maximum, sum,
 * and from the 16th float on the weighted sums. */
static float *slot(const struct tr_attend *a, uint32_t i, uint32_t base)
{
    size_t n = (size_t)i * a->n_parts + (base / TR_OPS_KV_PART - a->first_part);
    return a->slots + n * tr_attend_slot_floats(a->kv->head_dim);
}

/* A tile is filled: its queries, what they see, nothing in their sums. */
TR_INLINE void begin_tile(const int Q, struct tile *t, const struct query *u, uint32_t n,
                          uint32_t base, uint32_t dim)
{
    t->all_lo = 0;
    t->all_hi = TR_OPS_KV_PART;
    for (uint32_t i = 0; i < (uint32_t)Q; i++) {
        const struct query *x = &u[i < n ? i : 0];
        clip(x->from, x->end, base, TR_OPS_KV_PART, &t->lo[i], &t->hi[i]);
        t->all_lo = t->lo[i] > t->all_lo ? t->lo[i] : t->all_lo;
        t->all_hi = t->hi[i] < t->all_hi ? t->hi[i] : t->all_hi;
        memcpy(t->q[i], x->q, dim * sizeof *x->q);
        memset(t->part[i], 0, dim * sizeof t->part[i][0]);
    }
}

/* A tile's partition goes to its slots, or to the task's sums. */
static void end_tile(const struct tr_attend *a, struct task *k, uint32_t first, uint32_t n,
                     const struct tile *t, uint32_t base)
{
    uint32_t dim = a->kv->head_dim;
    const float *part[QUERIES];
    for (uint32_t i = 0; i < n; i++) {
        part[i] = t->hi[i] > 0 ? t->part[i] : NULL;
        if (a->slots && part[i]) {
            float *s = slot(a, first + i, base);
            s[0] = t->max[i];
            s[1] = t->sum[i];
            memcpy(s + 16, part[i], dim * sizeof *s);
        }
    }
    if (!a->slots)
        merge(k, first, n, t->max, t->sum, part, dim);
}

/* The n blocks from position `pos` on in the order in which they are read: K of all, V of all, then
 * AHEAD of what is read next, the K of the blocks before `end`. */
static void list_heads(const struct tr_attend *a, uint32_t pos, uint32_t n, uint32_t end,
                       const uint8_t **head)
{
    const uint32_t *ids = a->blocks + pos / TR_OPS_KV_BLOCK;
    uint32_t last = (end - 1) / TR_OPS_KV_BLOCK - pos / TR_OPS_KV_BLOCK;
    size_t k = tr_kv_k_offset(a->kv, a->head_kv);
    size_t v = tr_kv_v_offset(a->kv, a->head_kv);
    for (uint32_t b = 0; b < n + AHEAD; b++) {
        const uint8_t *block = tr_kv_block(a->kv, a->layer, ids[b < last ? b : last]);
        head[b < n ? b : n + b] = block + k;
        if (b < n)
            head[n + b] = block + v;
    }
}

/* A tile of n queries, the task's q0 and the ones after it, against the partition at `base`.
 * It is filled up to Q with copies of the first, whose results are dropped. */
TR_INLINE void attend_tile(const int Q, const enum tr_ops_kv type, const struct tr_attend *a,
                           struct task *k, uint32_t q0, uint32_t n, uint32_t base)
{
    const struct query *u = k->u + q0;
    uint32_t dim = a->kv->head_dim;
    struct tile t;
    uint32_t lo;
    uint32_t hi;

    /* In order of position: the first query begins first, the last one ends last. */
    if (!clip(u[0].from, u[n - 1].end, base, TR_OPS_KV_PART, &lo, &hi))
        return;
    begin_tile(Q, &t, u, n, base, dim);

    uint32_t first = lo / TR_OPS_KV_BLOCK;
    uint32_t n_blocks = (hi + TR_OPS_KV_BLOCK - 1) / TR_OPS_KV_BLOCK - first;
    /* V of block b of the partition is v.head[b]. */
    const uint8_t *heads[2 * PART_BLOCKS + AHEAD];
    const uint8_t **head = heads + first;
    list_heads(a, base + lo, n_blocks, u[n - 1].end, head);
    struct values v = {.head = heads + n_blocks, .first = first, .end = first + n_blocks};

    for (uint32_t b = 0; b < n_blocks; b++)
        score_block(Q, type, &t, head[b], head[b + AHEAD], dim, (first + b) * TR_OPS_KV_BLOCK);
    for (uint32_t i = 0; i < n; i++)
        t.max[i] = scale_scores(t.p[i], t.lo[i], t.hi[i], &a->p);
    for (uint32_t i = 0; i < n; i++)
        t.sum[i] = soften(t.p[i], t.lo[i], t.hi[i], t.max[i]);
    weigh(Q, type, &t, &v, dim);
    end_tile(a, k, q0, n, &t, base);
}

/* The tile's size as a constant: the next one that has code of its own. */
TR_INLINE void attend_typed(const enum tr_ops_kv type, const struct tr_attend *a, struct task *k,
                            uint32_t first, uint32_t n, uint32_t base)
{
#ifdef TR_PLAIN
    attend_tile((int)n, type, a, k, first, n, base);
#else
    switch (n) {
    case 1:
        attend_tile(1, type, a, k, first, n, base);
        break;
    case 2:
        attend_tile(2, type, a, k, first, n, base);
        break;
    case 3:
        attend_tile(3, type, a, k, first, n, base);
        break;
    case 4:
        attend_tile(4, type, a, k, first, n, base);
        break;
    case 5:
    case 6:
        attend_tile(6, type, a, k, first, n, base);
        break;
#if V16_ACC >= 24
    case 7:
    case 8:
        attend_tile(8, type, a, k, first, n, base);
        break;
    default:
        attend_tile(12, type, a, k, first, n, base);
        break;
#else
    default:
        break;
#endif
    }
#endif
}

typedef void attend_fn(const struct tr_attend *a, struct task *k, uint32_t first, uint32_t n,
                       uint32_t base);

static __attribute__((noinline)) void attend_f16(const struct tr_attend *a, struct task *k,
                                                 uint32_t first, uint32_t n, uint32_t base)
{
    attend_typed(TR_OPS_KV_F16, a, k, first, n, base);
}

static __attribute__((noinline)) void attend_q8_0(const struct tr_attend *a, struct task *k,
                                                  uint32_t first, uint32_t n, uint32_t base)
{
    attend_typed(TR_OPS_KV_Q8_0, a, k, first, n, base);
}

static __attribute__((noinline)) void attend_f32(const struct tr_attend *a, struct task *k,
                                                 uint32_t first, uint32_t n, uint32_t base)
{
    attend_typed(TR_OPS_KV_F32, a, k, first, n, base);
}

/* Query i of a task: rows in order, the heads of a row that read the KV head. */
static struct query query_of(const struct tr_attend *a, uint32_t i)
{
    uint32_t dim = a->kv->head_dim;
    uint32_t group = a->n_head / a->kv->n_head_kv;
    uint32_t row = i / group;
    size_t at = ((size_t)row * a->n_head + a->head_kv * group + i % group) * dim;
    struct query u = {.q = a->q + at, .out = a->out + at, .end = a->pos + row + 1};
    if (a->p.window > 0 && u.end > a->p.window)
        u.from = u.end - a->p.window;
    return u;
}

static void begin_task(struct task *k, const struct tr_attend *a, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        k->u[i] = query_of(a, first + i);
        k->max[i] = -FLT_MAX; /* finite: its difference to another one is a number */
        k->sum[i] = 0;
    }
}

static void attend(const struct tr_attend *a)
{
    attend_fn *fn = a->kv->type == TR_OPS_KV_F16    ? attend_f16
                    : a->kv->type == TR_OPS_KV_Q8_0 ? attend_q8_0
                                                    : attend_f32;
    uint32_t n = a->n_rows * (a->n_head / a->kv->n_head_kv);
    TR_ASSERT(!a->slots || n <= TASK_QUERIES);

    for (uint32_t q0 = 0; q0 < n; q0 += TASK_QUERIES) {
        uint32_t m = n - q0 < TASK_QUERIES ? n - q0 : TASK_QUERIES;
        struct task k;
        begin_task(&k, a, q0, m);
        for (uint32_t part = a->part; part < a->part_end; part++) {
            for (uint32_t i = 0; i < m; i += QUERIES)
                fn(a, &k, i, m - i < QUERIES ? m - i : QUERIES, part * TR_OPS_KV_PART);
        }
        if (!a->slots)
            finish(&k, m, a->kv->head_dim);
    }
}

/* What attend does with the partitions of a task, from the slots that hold all of them. */
static void attend_merge(const struct tr_attend *a)
{
    uint32_t n = a->n_rows * (a->n_head / a->kv->n_head_kv);
    struct task k;
    begin_task(&k, a, 0, n);
    for (uint32_t p = a->first_part; p < a->first_part + a->n_parts; p++) {
        uint32_t base = p * TR_OPS_KV_PART;
        for (uint32_t i = 0; i < n; i++) {
            const struct query *u = &k.u[i];
            const float *s = slot(a, i, base);
            const float *part = s + 16;
            uint32_t lo;
            uint32_t hi;
            if (clip(u->from, u->end, base, TR_OPS_KV_PART, &lo, &hi))
                merge(&k, i, 1, &s[0], &s[1], &part, a->kv->head_dim);
        }
    }
    finish(&k, n, a->kv->head_dim);
}
