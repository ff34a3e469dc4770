/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/attention.inl - storing K and V, and causal attention over them.
 *
 * Included by each instruction level after its lanes and rows.inl.
 *
 * One query's numbers, whatever shares its tile (N1, N4):
 *   score[j] = scale * sum over d ascending of q[d] * k[j][d], one fma chain from zero;
 *     with a cap: score[j] = cap * tanh(score[j] * (1 / cap))
 *   per partition of 256 absolute positions, over those it sees: m = max score,
 *     p[j] = exp(score[j] - m),
 *     l = sum of p (lane j mod 16, folded), o[d] = sum over j ascending of p[j] * v[j][d], fma
 *   partitions merged in ascending order; the result is o / l.
 * Stored values are dequantised exactly (int8 times f16 fits in a float), so the type of the cache
 * changes the inputs of these sums, not their order. */

enum { QUERIES = 8 }; /* the most queries in a tile */

/* --- storing --- */

static void kv_write_head_q8_0(uint32_t dim, uint8_t *k_head, uint8_t *v_head, uint32_t off,
                               const float *k, const float *v)
{
    size_t values = (size_t)dim * TR_OPS_KV_BLOCK;
    uint16_t *k_scale = (uint16_t *)(void *)(k_head + values);
    uint16_t *v_scale = (uint16_t *)(void *)(v_head + values);
    int8_t q[32];
    int32_t sum;

    for (uint32_t b = 0; b < dim / 32; b++) {
        k_scale[b * TR_OPS_KV_BLOCK + off] = tr_f32_to_f16(quantise_block(k + b * 32, q, &sum));
        for (uint32_t i = 0; i < 32; i++)
            k_head[(b * 32 + i) * TR_OPS_KV_BLOCK + off] = (uint8_t)q[i];
        v_scale[off * (dim / 32) + b] = tr_f32_to_f16(quantise_block(v + b * 32, q, &sum));
        memcpy(v_head + (size_t)off * dim + b * 32, q, 32);
    }
}

static void kv_write_head_f16(uint32_t dim, uint16_t *k_head, uint16_t *v_head, uint32_t off,
                              const float *k, const float *v)
{
    for (uint32_t d = 0; d < dim; d += 16) {
        uint16_t h[16];
        v16_store_f16(h, v16_load(k + d));
        for (uint32_t i = 0; i < 16; i++)
            k_head[(d + i) * TR_OPS_KV_BLOCK + off] = h[i];
        v16_store_f16(v_head + (size_t)off * dim + d, v16_load(v + d));
    }
}

static void kv_write_head_f32(uint32_t dim, float *k_head, float *v_head, uint32_t off,
                              const float *k, const float *v)
{
    for (uint32_t d = 0; d < dim; d++)
        k_head[d * TR_OPS_KV_BLOCK + off] = k[d];
    memcpy(v_head + (size_t)off * dim, v, dim * sizeof *v);
}

static void kv_write(const struct tr_kv *kv, uint8_t *block, uint32_t off, const float *k,
                     const float *v)
{
    uint32_t dim = kv->head_dim;
    for (uint32_t h = 0; h < kv->n_head_kv; h++, k += dim, v += dim) {
        uint8_t *kh = block + tr_kv_k_offset(kv, h);
        uint8_t *vh = block + tr_kv_v_offset(kv, h);
        if (kv->type == TR_OPS_KV_Q8_0)
            kv_write_head_q8_0(dim, kh, vh, off, k, v);
        else if (kv->type == TR_OPS_KV_F16)
            kv_write_head_f16(dim, (void *)kh, (void *)vh, off, k, v);
        else
            kv_write_head_f32(dim, (void *)kh, (void *)vh, off, k, v);
    }
}

/* --- reading --- */

/* Sixteen positions (half 0 or 1 of the block) of dimension d of K. */
TR_INLINE v16 load_k(const enum tr_ops_kv type, const uint8_t *head, uint32_t dim, uint32_t d,
                     uint32_t half)
{
    size_t at = (size_t)d * TR_OPS_KV_BLOCK + (size_t)half * 16;
    if (type == TR_OPS_KV_F16)
        return v16_load_f16((const uint16_t *)(const void *)head + at);
    if (type == TR_OPS_KV_F32)
        return v16_load((const float *)(const void *)head + at);
    const uint16_t *scales =
        (const uint16_t *)(const void *)(head + (size_t)dim * TR_OPS_KV_BLOCK) +
        (size_t)(d / 32) * TR_OPS_KV_BLOCK + (size_t)half * 16;
    return v16_mul(v16_load_i8((const int8_t *)head + at), v16_load_f16(scales));
}

/* Sixteen dimensions from d on of V at position j of the block; scales: see v_scales. */
TR_INLINE v16 load_v(const enum tr_ops_kv type, const uint8_t *head, const float *scales,
                     uint32_t dim, uint32_t d, uint32_t j)
{
    size_t at = (size_t)j * dim + d;
    if (type == TR_OPS_KV_F16)
        return v16_load_f16((const uint16_t *)(const void *)head + at);
    if (type == TR_OPS_KV_F32)
        return v16_load((const float *)(const void *)head + at);
    return v16_mul(v16_load_i8((const int8_t *)head + at),
                   v16_set1(scales[(size_t)j * (dim / 32) + d / 32]));
}

/* The scales of V in a block as floats, [32 positions, dim / 32]: dim of them. */
TR_INLINE void v_scales(const uint8_t *head, uint32_t dim, float *scales)
{
    const uint16_t *h = (const uint16_t *)(const void *)(head + (size_t)dim * TR_OPS_KV_BLOCK);
    for (uint32_t i = 0; i < dim; i += 16)
        v16_store(scales + i, v16_load_f16(h + i));
}

/* A tile of up to QUERIES queries of one sequence that read one KV head. */
struct query {
    const float *q;
    float *out;
    uint32_t from; /* it sees positions [from, end) */
    uint32_t end;
    uint32_t lo; /* of the present partition [lo, hi); hi is 0 when it sees none of it */
    uint32_t hi;
    bool begun; /* max, sum and o hold something */
    float max;
    float sum;
};

struct tile_state {
    struct query query[QUERIES];
    uint32_t n_queries;
    float p[QUERIES][TR_OPS_KV_PART];     /* scores, then weights, of the present partition */
    float part[QUERIES][TR_OPS_HEAD_MAX]; /* weighted sum of V in the present partition */
    float o[QUERIES][TR_OPS_HEAD_MAX];    /* the same of all partitions before */
};

/* Scores of Q queries against the 32 positions of a block. */
TR_INLINE void score_block(const int Q, const enum tr_ops_kv type, struct tile_state *t,
                           const uint8_t *k_head, uint32_t dim, uint32_t at)
{
    v16 a[QUERIES];
    v16 b[QUERIES];
    TR_UNROLL
    for (int i = 0; i < Q; i++)
        a[i] = b[i] = v16_set1(0.0F);
    for (uint32_t d = 0; d < dim; d++) {
        v16 k0 = load_k(type, k_head, dim, d, 0);
        v16 k1 = load_k(type, k_head, dim, d, 1);
        TR_UNROLL
        for (int i = 0; i < Q; i++) {
            v16 q = v16_set1(t->query[i].q[d]);
            a[i] = v16_fma(q, k0, a[i]);
            b[i] = v16_fma(q, k1, b[i]);
        }
    }
    TR_UNROLL
    for (int i = 0; i < Q; i++) {
        v16_store(&t->p[i][at], a[i]);
        v16_store(&t->p[i][at + 16], b[i]);
    }
}

/* Adds positions [j0, j1) of a block, `at` in the partition, to the parts of queries [i0, i0+Q). */
TR_INLINE void weigh_block(const int Q, const enum tr_ops_kv type, struct tile_state *t,
                           uint32_t i0, const uint8_t *v_head, uint32_t dim, uint32_t at,
                           uint32_t j0, uint32_t j1)
{
    float scales[TR_OPS_HEAD_MAX];
    if (type == TR_OPS_KV_Q8_0)
        v_scales(v_head, dim, scales);
    for (uint32_t d = 0; d < dim; d += 16) {
        v16 acc[QUERIES];
        TR_UNROLL
        for (int i = 0; i < Q; i++)
            acc[i] = v16_load(&t->part[i0 + (uint32_t)i][d]);
        for (uint32_t j = j0; j < j1; j++) {
            v16 v = load_v(type, v_head, scales, dim, d, j);
            TR_UNROLL
            for (int i = 0; i < Q; i++)
                acc[i] = v16_fma(v16_set1(t->p[i0 + (uint32_t)i][at + j]), v, acc[i]);
        }
        TR_UNROLL
        for (int i = 0; i < Q; i++)
            v16_store(&t->part[i0 + (uint32_t)i][d], acc[i]);
    }
}

/* Scores [lo, hi) to weights, in place; notes maximum and sum of the partition. */
static void soften(float *p, uint32_t lo, uint32_t hi, const struct tr_attend_params *a, float *max,
                   float *sum)
{
    bool capped = a->soft_cap > 0;
    v16 cap = v16_set1(a->soft_cap);
    v16 uncap = v16_set1(capped ? 1.0F / a->soft_cap : 0.0F);
    uint32_t start = lo / 16 * 16;
    for (uint32_t j = start; j < hi; j += 16) {
        v16 x = v16_mul(v16_load(p + j), v16_set1(a->scale));
        if (capped)
            x = v16_mul(cap, v16_tanh(v16_mul(x, uncap)));
        v16_store(p + j, x);
    }
    for (uint32_t j = start; j < lo; j++)
        p[j] = -INFINITY; /* weighs nothing */
    for (uint32_t j = hi; j % 16 != 0; j++)
        p[j] = -INFINITY;
    v16 top = v16_set1(-INFINITY);
    for (uint32_t j = start; j < hi; j += 16) {
        v16 x = v16_load(p + j);
        top = v16_max(x, top);
    }
    float lanes[16];
    v16_store(lanes, top);
    float m = lanes[0];
    for (int l = 1; l < 16; l++)
        m = lanes[l] > m ? lanes[l] : m;
    v16 total = v16_set1(0.0F);
    for (uint32_t j = start; j < hi; j += 16) {
        v16 w = v16_exp(v16_sub(v16_load(p + j), v16_set1(m)));
        total = v16_add(total, w);
        v16_store(p + j, w);
    }
    *max = m;
    *sum = v16_sum(total);
}

/* Joins the present partition to what came before it. */
static void merge(struct query *u, float *o, const float *part, uint32_t dim, float max, float sum)
{
    if (!u->begun) {
        u->begun = true;
        memcpy(o, part, dim * sizeof *o);
        u->max = max;
        u->sum = sum;
        return;
    }
    float both[16] = {0};
    float top = max > u->max ? max : u->max;
    both[0] = u->max - top;
    both[1] = max - top;
    v16_store(both, v16_exp(v16_load(both)));
    v16 was = v16_set1(both[0]);
    v16 now = v16_set1(both[1]);
    for (uint32_t d = 0; d < dim; d += 16)
        v16_store(o + d, v16_add(v16_mul(v16_load(o + d), was), v16_mul(v16_load(part + d), now)));
    u->sum = u->sum * both[0] + sum * both[1];
    u->max = top;
}

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

/* The weighted sums of V over one block.  What all queries see of it is added for all at once,
 * what is before and after that for each alone, in ascending order.  A position that a query does
 * not see never touches it, not even with weight 0: its V might be infinite. */
TR_INLINE void weigh(const int Q, const enum tr_ops_kv type, struct tile_state *t,
                     const uint8_t *v_head, uint32_t dim, uint32_t at)
{
    uint32_t lo[QUERIES];
    uint32_t hi[QUERIES];
    uint32_t all_lo = 0;
    uint32_t all_hi = TR_OPS_KV_BLOCK;
    for (int i = 0; i < Q; i++) {
        clip(t->query[i].lo, t->query[i].hi, at, TR_OPS_KV_BLOCK, &lo[i], &hi[i]);
        all_lo = lo[i] > all_lo ? lo[i] : all_lo;
        all_hi = hi[i] < all_hi ? hi[i] : all_hi;
    }
    if (all_lo >= all_hi) {
        for (uint32_t i = 0; i < (uint32_t)Q; i++)
            weigh_block(1, type, t, i, v_head, dim, at, lo[i], hi[i]);
        return;
    }
    for (uint32_t i = 0; i < (uint32_t)Q; i++) {
        if (lo[i] < all_lo)
            weigh_block(1, type, t, i, v_head, dim, at, lo[i], all_lo);
    }
    weigh_block(Q, type, t, 0, v_head, dim, at, all_lo, all_hi);
    for (uint32_t i = 0; i < (uint32_t)Q; i++) {
        if (hi[i] > all_hi)
            weigh_block(1, type, t, i, v_head, dim, at, all_hi, hi[i]);
    }
}

TR_INLINE void attend_part(const int Q, const enum tr_ops_kv type, const struct tr_attend *a,
                           struct tile_state *t, uint32_t base, uint32_t lo, uint32_t hi)
{
    const struct tr_kv *kv = a->kv;
    uint32_t dim = kv->head_dim;
    uint32_t first = lo / TR_OPS_KV_BLOCK;
    uint32_t end = (hi + TR_OPS_KV_BLOCK - 1) / TR_OPS_KV_BLOCK;
    const uint32_t *ids = a->blocks + base / TR_OPS_KV_BLOCK;
    float max[QUERIES];
    float sum[QUERIES];

    for (uint32_t b = first; b < end; b++)
        score_block(Q, type, t, tr_kv_block(kv, a->layer, ids[b]) + tr_kv_k_offset(kv, a->head_kv),
                    dim, b * TR_OPS_KV_BLOCK);
    for (int i = 0; i < Q; i++) {
        if (t->query[i].hi > 0)
            soften(t->p[i], t->query[i].lo, t->query[i].hi, &a->p, &max[i], &sum[i]);
        memset(t->part[i], 0, dim * sizeof t->part[i][0]);
    }
    for (uint32_t b = first; b < end; b++)
        weigh(Q, type, t, tr_kv_block(kv, a->layer, ids[b]) + tr_kv_v_offset(kv, a->head_kv), dim,
              b * TR_OPS_KV_BLOCK);
    for (int i = 0; i < Q; i++) {
        if (t->query[i].hi > 0)
            merge(&t->query[i], t->o[i], t->part[i], dim, max[i], sum[i]);
    }
}

TR_INLINE void attend_tile(const int Q, const enum tr_ops_kv type, const struct tr_attend *a,
                           struct tile_state *t)
{
    uint32_t dim = a->kv->head_dim;
    /* In order of position: the first query begins first, the last one ends last. */
    uint32_t from = t->query[0].from;
    uint32_t end = t->query[t->n_queries - 1].end;

    for (uint32_t base = from / TR_OPS_KV_PART * TR_OPS_KV_PART; base < end;
         base += TR_OPS_KV_PART) {
        uint32_t lo;
        uint32_t hi;
        for (int i = 0; i < Q; i++) {
            struct query *u = &t->query[i];
            clip(u->from, u->end, base, TR_OPS_KV_PART, &u->lo, &u->hi);
        }
        if (clip(from, end, base, TR_OPS_KV_PART, &lo, &hi))
            attend_part(Q, type, a, t, base, lo, hi);
    }
    for (uint32_t i = 0; i < t->n_queries; i++) {
        v16 sum = v16_set1(t->query[i].sum);
        for (uint32_t d = 0; d < dim; d += 16)
            v16_store(t->query[i].out + d, v16_div(v16_load(&t->o[i][d]), sum));
    }
}

/* The tile's size as a constant.  Sizes that have no code of their own are filled up with copies
 * of the first query, whose results are dropped. */
TR_INLINE void attend_typed(const enum tr_ops_kv type, const struct tr_attend *a,
                            struct tile_state *t)
{
#ifdef TR_PLAIN
    attend_tile((int)t->n_queries, type, a, t);
#else
    for (uint32_t i = t->n_queries; i < QUERIES; i++)
        t->query[i] = t->query[0];
    switch (t->n_queries) {
    case 1:
        attend_tile(1, type, a, t);
        break;
    case 2:
        attend_tile(2, type, a, t);
        break;
    case 3:
        attend_tile(3, type, a, t);
        break;
    case 4:
        attend_tile(4, type, a, t);
        break;
    case 5:
    case 6:
        attend_tile(6, type, a, t);
        break;
    default:
        attend_tile(8, type, a, t);
        break;
    }
#endif
}

static __attribute__((noinline)) void attend_f16(const struct tr_attend *a, struct tile_state *t)
{
    attend_typed(TR_OPS_KV_F16, a, t);
}

static __attribute__((noinline)) void attend_q8_0(const struct tr_attend *a, struct tile_state *t)
{
    attend_typed(TR_OPS_KV_Q8_0, a, t);
}

static __attribute__((noinline)) void attend_f32(const struct tr_attend *a, struct tile_state *t)
{
    attend_typed(TR_OPS_KV_F32, a, t);
}

static void attend(const struct tr_attend *a)
{
    uint32_t dim = a->kv->head_dim;
    uint32_t group = a->n_head / a->kv->n_head_kv;
    uint32_t n = a->n_rows * group;
    struct tile_state t;

    /* Whole rows to a tile where they fit: the queries of a row see the same positions. */
    uint32_t step = group < QUERIES ? QUERIES / group * group : QUERIES;
    for (uint32_t first = 0; first < n; first += step) {
        t.n_queries = n - first < step ? n - first : step;
        for (uint32_t i = 0; i < t.n_queries; i++) {
            uint32_t row = (first + i) / group;
            uint32_t head = a->head_kv * group + (first + i) % group;
            size_t at = ((size_t)row * a->n_head + head) * dim;
            uint32_t seen = a->pos + row + 1;
            t.query[i] = (struct query){.q = a->q + at, .out = a->out + at, .end = seen};
            if (a->p.window > 0 && seen > a->p.window)
                t.query[i].from = seen - a->p.window;
        }
        if (a->kv->type == TR_OPS_KV_F16)
            attend_f16(a, &t);
        else if (a->kv->type == TR_OPS_KV_Q8_0)
            attend_q8_0(a, &t);
        else
            attend_f32(a, &t);
    }
}
