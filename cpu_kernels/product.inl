/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/product.inl - strips of weights against tiles of rows.
 *
 * Included by each instruction level after its lanes and its
 *   TILE                the most rows that meet a strip at once
 *   quant_tile(R, ...)  the integer products
 * A strip is read from memory once and stays in the first cache while tile after tile of rows
 * meets it.  Which tile a row falls into changes nothing in its own sum (N1). */

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
                          const struct tr_act *a, uint32_t row, v16 *acc)
{
    const float *x = a->x + (size_t)row * a->dim;
    for (size_t k0 = 0; k0 < a->dim; k0 += 32) {
        size_t k1 = k0 + 32 < a->dim ? k0 + 32 : a->dim;
        v16 t[TILE];
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

/* R rows from `row` on against one strip: fills out[row + r, 0..n_lanes) of this strip. */
TR_INLINE void tile(const int R, const enum tr_tensor_type type, const uint8_t *strip,
                    const struct tr_act *a, uint32_t row, float *out, size_t n_out,
                    uint32_t n_lanes)
{
    v16 acc[TILE];
    TR_UNROLL
    for (int r = 0; r < R; r++)
        acc[r] = v16_set1(0.0F);
    if (type == TR_T_F32 || type == TR_T_F16 || type == TR_T_BF16)
        float_tile(R, type, strip, a, row, acc);
    else
        quant_tile(R, type, strip, a, row, acc);
    TR_UNROLL
    for (int r = 0; r < R; r++) {
        float *o = out + (row + (size_t)r) * n_out;
        if (n_lanes == 16)
            v16_store(o, acc[r]);
        else
            v16_store_n(o, acc[r], n_lanes);
    }
}

TR_INLINE void product(const enum tr_tensor_type type, const struct tr_mat *w,
                       const struct tr_act *a, uint32_t first, uint32_t last, float *out)
{
    size_t strip_bytes = tr_strip_bytes(type, w->n_in);
    size_t n_out = w->n_out;

    for (uint32_t s = first; s < last; s++) {
        const uint8_t *strip = (const uint8_t *)w->packed + s * strip_bytes;
        float *o = out + (size_t)s * 16;
        uint32_t lanes = w->n_out - s * 16 < 16 ? w->n_out - s * 16 : 16;
        uint32_t row = 0;

        for (; a->n_rows - row >= TILE; row += TILE)
            tile(TILE, type, strip, a, row, o, n_out, lanes);
        switch (a->n_rows - row) {
#if TILE > 4
        case 7:
            tile(7, type, strip, a, row, o, n_out, lanes);
            break;
        case 6:
            tile(6, type, strip, a, row, o, n_out, lanes);
            break;
        case 5:
            tile(5, type, strip, a, row, o, n_out, lanes);
            break;
        case 4:
            tile(4, type, strip, a, row, o, n_out, lanes);
            break;
#endif
#if TILE > 1
        case 3:
            tile(3, type, strip, a, row, o, n_out, lanes);
            break;
        case 2:
            tile(2, type, strip, a, row, o, n_out, lanes);
            break;
        case 1:
            tile(1, type, strip, a, row, o, n_out, lanes);
            break;
#endif
        default:
            break;
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
