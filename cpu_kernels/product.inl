/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/product.inl - strips of weights against tiles of rows.
 *
 * Included by each instruction level after its lanes and its
 *   TILE                the most rows that meet a strip at once: 4 or 8
 *   quant_tile(R, ...)  the integer products of R rows
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

/* Some strips of a product, a row after the other: `out` is the first strip's first column. */
struct piece {
    const uint8_t *strip;
    const struct tr_act *a;
    float *out;
    size_t n_out;     /* columns of a row of out */
    uint32_t n_lanes; /* of them in this strip */
};

/* R rows from `row` on against one strip: fills out[row + r, 0..n_lanes) of this strip. */
TR_INLINE void tile(const int R, const enum tr_tensor_type type, const struct piece *p,
                    uint32_t row, struct ahead next)
{
    v16 acc[TILE];
    TR_UNROLL
    for (int r = 0; r < R; r++) {
        /* Rows of outputs may be whole pages apart: the lines are fetched while sums are made. */
        __builtin_prefetch(p->out + (row + (size_t)r) * p->n_out, 1);
        acc[r] = v16_set1(0.0F);
    }
    if (type == TR_T_F32 || type == TR_T_F16 || type == TR_T_BF16)
        float_tile(R, type, p->strip, p->a, row, next, acc);
    else
        quant_tile(R, type, p->strip, p->a, row, next, acc);
    TR_UNROLL
    for (int r = 0; r < R; r++) {
        float *o = p->out + (row + (size_t)r) * p->n_out;
        if (p->n_lanes == 16)
            v16_store(o, acc[r]);
        else
            v16_store_n(o, acc[r], p->n_lanes);
    }
}

/* Rows [row, end) against one strip, while the next one is asked for. */
TR_INLINE void strip_rows(const enum tr_tensor_type type, const struct piece *p, uint32_t row,
                          uint32_t end, size_t strip_bytes)
{
    const uint8_t *next = p->strip + strip_bytes;
    uint32_t n = (end - row) / TILE + (uint32_t)__builtin_popcount((end - row) % TILE);
    uint32_t i = 0;

    for (; end - row >= TILE; row += TILE, i++)
        tile(TILE, type, p, row, ahead_of(next, strip_bytes, p->a->dim, i, n));
#if TILE > 4
    if ((end - row) & 4) {
        tile(4, type, p, row, ahead_of(next, strip_bytes, p->a->dim, i++, n));
        row += 4;
    }
#endif
    if ((end - row) & 2) {
        tile(2, type, p, row, ahead_of(next, strip_bytes, p->a->dim, i++, n));
        row += 2;
    }
    if ((end - row) & 1)
        tile(1, type, p, row, ahead_of(next, strip_bytes, p->a->dim, i, n));
}

/* Bytes of activations that are gone through for every strip: they should stay in a second cache
 * beside the strips. */
#define ROWS_BYTES ((size_t)512 << 10)

TR_INLINE void product(const enum tr_tensor_type type, const struct tr_mat *w,
                       const struct tr_act *a, uint32_t first, uint32_t last, float *out)
{
    size_t strip_bytes = tr_strip_bytes(type, w->n_in);
    size_t row_bytes = (size_t)a->dim * (tr_quant_form(type).block ? 1 : sizeof(float));
    size_t some = ROWS_BYTES / row_bytes / TILE * TILE;
    some = some < 4 * (size_t)TILE ? 4 * (size_t)TILE : some;

    for (size_t row = 0; row < a->n_rows; row += some) {
        size_t end = row + some < a->n_rows ? row + some : a->n_rows;
        for (uint32_t s = first; s < last; s++) {
            struct piece p = {.strip = (const uint8_t *)w->packed + s * strip_bytes,
                              .a = a,
                              .out = out + (size_t)s * 16,
                              .n_out = w->n_out,
                              .n_lanes = w->n_out - s * 16 < 16 ? w->n_out - s * 16 : 16};
            strip_rows(type, &p, (uint32_t)row, (uint32_t)end, strip_bytes);
        }
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
