/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/product.inl - strips of weights against tiles of rows.
 *
 * Included by each instruction level after its lanes and its
 *   TILE                   the most rows that meet a strip at once: 4 or 8
 *   ACROSS, ACROSS_ROWS    where it pays: how many strips meet how many rows at once
 *   SUMS                   the most sums that a tile makes
 *   quant_tile(S, R, ...)  the integer products of S strips and R rows
 * A strip is read from memory once and stays in the caches while tile after tile of rows meets it.
 * Which tile a row falls into changes nothing in its own sum (N1).
 */

TR_INLINE v16 load_weights(const enum tr_tensor_type type, const uint8_t *strip, size_t k)
{
    if (type == TR_T_F16)
        return v16_load_f16((const uint16_t *)(const void *)strip + k * 16);
    if (type == TR_T_BF16)
        return v16_load_bf16((const uint16_t *)(const void *)strip + k * 16);
    return v16_load((const float *)(const void *)strip + k * 16);
}

/* Float products of R rows: from zero within 32 elements of K, then added (N2). */
TR_INLINE void float_tile(const int R, const enum tr_tensor_type type, const uint8_t *strip,
                          const struct tr_act *a, uint32_t row, struct ahead next, v16 *acc)
{
    const float *x = a->x + (size_t)row * a->dim;
    for (size_t k0 = 0; k0 < a->dim; k0 += 32) {
        size_t k1 = k0 + 32 < a->dim ? k0 + 32 : a->dim;
        v16 t[TILE];
        ask(&next);
        TR_UNROLL
        for (int r = 0; r < R; r++)
            t[r] = v16_set1(0.0F);
        for (size_t k = k0; k < k1; k++) {
            v16 w = load_weights(type, strip, k);
            TR_UNROLL
            for (int r = 0; r < R; r++)
                t[r] = v16_fma(v16_set1(x[(size_t)r * a->dim + k]), w, t[r]);
        }
        TR_UNROLL
        for (int r = 0; r < R; r++)
            acc[r] = v16_add(acc[r], t[r]);
    }
}

/* Some strips of a product: `out` is the first strip's first column. */
struct piece {
    const uint8_t *strip;
    size_t strip_bytes;
    const struct tr_act *a;
    float *out;
    size_t n_out;     /* columns of a row of out */
    uint32_t n_lanes; /* of them in these strips */
};

/* R rows from `row` on against S strips: fills their columns of out[row + r]. */
TR_INLINE void tile(const int S, const int R, const enum tr_tensor_type type, const struct piece *p,
                    uint32_t row, struct ahead next)
{
    v16 acc[SUMS];
    TR_UNROLL
    for (int i = 0; i < S * R; i++) {
        /* Rows of outputs may be whole pages apart: the lines are fetched while sums are made. */
        __builtin_prefetch(p->out + (row + (size_t)(i % R)) * p->n_out + (size_t)(i / R) * 16, 1);
        acc[i] = v16_set1(0.0F);
    }
    if (type == TR_T_F32 || type == TR_T_F16 || type == TR_T_BF16)
        float_tile(R, type, p->strip, p->a, row, next, acc);
    else
        quant_tile(S, R, type, p->strip, p->strip_bytes, p->a, row, next, acc);
    TR_UNROLL
    for (int i = 0; i < S * R; i++) {
        const uint32_t before = (uint32_t)(i / R) * 16;
        float *o = p->out + (row + (size_t)(i % R)) * p->n_out + before;
        if (p->n_lanes >= before + 16)
            v16_store(o, acc[i]);
        else
            v16_store_n(o, acc[i], p->n_lanes - before);
    }
}

/* Bytes of a strip that 32 elements of K have, in whole lines: a constant, so that asking for them
 * is no loop. */
TR_INLINE size_t block_lines(const enum tr_tensor_type type)
{
    const struct tr_quant_form f = tr_quant_form(type);
    const size_t bytes = f.block ? tr_strip_quant_bytes(type) +
                                       (tr_strip_scale_bytes(type) * 32 + f.block - 1) / f.block
                                 : (size_t)f.bytes * 32 * 16;
    return (bytes + 63) / 64 * 64;
}

/* Rows [row, end) against one strip, while the next one is asked for.  One or two rows wait for
 * memory and for nothing else: they ask for all of it. */
TR_INLINE void strip_rows(const enum tr_tensor_type type, const struct piece *p, uint32_t row,
                          uint32_t end)
{
    const uint8_t *behind = p->strip + p->strip_bytes;
    const struct ahead all = {(uintptr_t)behind, block_lines(type)};
    const uint32_t n = (end - row) / TILE + (TILE > 4 && ((end - row) & 4));

    if (n) {
        struct asked next = ask_for(behind, p->strip_bytes, p->a->dim, n);
        for (; end - row >= TILE; row += TILE)
            tile(1, TILE, type, p, row, ahead_of(&next));
#if TILE > 4
        if ((end - row) & 4) {
            tile(1, 4, type, p, row, ahead_of(&next));
            row += 4;
        }
#endif
    }
    if ((end - row) & 2) {
        tile(1, 2, type, p, row, all);
        row += 2;
    }
    if ((end - row) & 1)
        tile(1, 1, type, p, row, all);
}

/* n strips of w from s on. */
TR_INLINE struct piece piece_of(const struct tr_mat *w, const struct tr_act *a, size_t strip_bytes,
                                uint32_t s, uint32_t n, float *out)
{
    uint32_t left = w->n_out - s * 16;
    return (struct piece){.strip = (const uint8_t *)w->packed + s * strip_bytes,
                          .strip_bytes = strip_bytes,
                          .a = a,
                          .out = out + (size_t)s * 16,
                          .n_out = w->n_out,
                          .n_lanes = left < 16 * n ? left : 16 * n};
}

#ifdef ACROSS
/* Rows [row, end) against ACROSS strips, in whole tiles; returns the first row that is left. */
TR_INLINE uint32_t across_rows(const enum tr_tensor_type type, const struct piece *p, uint32_t row,
                               uint32_t end)
{
    const size_t bytes = ACROSS * p->strip_bytes;
    struct asked next = ask_for(p->strip + bytes, bytes, p->a->dim, (end - row) / ACROSS_ROWS);
    for (; end - row >= ACROSS_ROWS; row += ACROSS_ROWS)
        tile(ACROSS, ACROSS_ROWS, type, p, row, ahead_of(&next));
    return row;
}
#endif

/* Rows [row, end) against strips [s, last). */
TR_INLINE void strips_rows(const enum tr_tensor_type type, const struct tr_mat *w,
                           const struct tr_act *a, uint32_t s, uint32_t last, uint32_t row,
                           uint32_t end, float *out)
{
    const size_t strip_bytes = tr_strip_bytes(type, w->n_in);
#ifdef ACROSS
    /* Few rows of Q8_0 wait for memory: one tile of a strip reads it evenly, two of three do not. */
    const struct tr_quant_form f = tr_quant_form(type);
    const bool across = f.block && end - row >= (f.low == 8 ? 2 * TILE : ACROSS_ROWS);
    for (; across && last - s >= ACROSS; s += ACROSS) {
        struct piece p = piece_of(w, a, strip_bytes, s, ACROSS, out);
        uint32_t left = across_rows(type, &p, row, end);
        for (uint32_t i = 0; left < end && i < ACROSS; i++) {
            p = piece_of(w, a, strip_bytes, s + i, 1, out);
            strip_rows(type, &p, left, end);
        }
    }
#endif
    for (; s < last; s++) {
        struct piece p = piece_of(w, a, strip_bytes, s, 1, out);
        strip_rows(type, &p, row, end);
    }
}

/* Bytes of activations that are gone through for every strip: they should stay in a second cache
 * beside the strips. */
#define ROWS_BYTES ((size_t)512 << 10)

TR_INLINE void product(const enum tr_tensor_type type, const struct tr_mat *w,
                       const struct tr_act *a, uint32_t first, uint32_t last, float *out)
{
    size_t row_bytes = (size_t)a->dim * (tr_quant_form(type).block ? 1 : sizeof(float));
    size_t some = ROWS_BYTES / row_bytes / TILE * TILE;
    some = some < 4 * (size_t)TILE ? 4 * (size_t)TILE : some;

    for (size_t row = 0; row < a->n_rows; row += some) {
        size_t end = row + some < a->n_rows ? row + some : a->n_rows;
        strips_rows(type, w, a, first, last, (uint32_t)row, (uint32_t)end, out);
    }
}

#define PRODUCT(name, type)                                                                        \
    static void name(const struct tr_mat *w, const struct tr_act *a, uint32_t first,               \
                     uint32_t last, float *out)                                                    \
    {                                                                                              \
        product(type, w, a, first, last, out);                                                     \
    }

PRODUCT(product_f32, TR_T_F32)
PRODUCT(product_f16, TR_T_F16)
PRODUCT(product_bf16, TR_T_BF16)
PRODUCT(product_q8_0, TR_T_Q8_0)
PRODUCT(product_q4_0, TR_T_Q4_0)
PRODUCT(product_q4_1, TR_T_Q4_1)
PRODUCT(product_q5_0, TR_T_Q5_0)
PRODUCT(product_q5_1, TR_T_Q5_1)
PRODUCT(product_q2_k, TR_T_Q2_K)
PRODUCT(product_q3_k, TR_T_Q3_K)
PRODUCT(product_q4_k, TR_T_Q4_K)
PRODUCT(product_q5_k, TR_T_Q5_K)
PRODUCT(product_q6_k, TR_T_Q6_K)
