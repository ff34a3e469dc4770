/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/quant_tile.inl - quantised weights against int8 rows, in lanes.
 *
 * Included by the levels that have lanes of whole numbers (i16), before product.inl, after
 *   dot(R, max, w, q, dim, sum)  sum[r] += four groups w (unsigned bytes up to max) times the
 *                                sixteen activations at q + r * dim, exactly
 * What comes out is what generic.c says, bit for bit.  Whole numbers below 2^24 are exact in single
 * precision, so sums of halves are scaled and added there, where it costs least: no type comes
 * above 2^24 (the largest, Q6_K: 2 * 16 * 32 * 127 * 128). */

/* Group g of a block: four neighbours in K for each of sixteen outputs, as unsigned bytes. */
TR_INLINE i16 group(const enum tr_tensor_type type, const uint8_t *planes, const int g)
{
    const struct tr_quant_form f = tr_quant_form(type);
    if (f.low == 8)
        return i16_load(planes + (size_t)g * 64);
    i16 x;
    if (f.low == 4)
        x = i16_shift_bytes(i16_load(planes + (size_t)(g % 4) * 64), g < 4 ? 0 : -4);
    else
        x = i16_shift_bytes(i16_load(planes + (size_t)(g / 4) * 64), -2 * (g % 4));
    x = i16_and(x, i16_set1(((1 << f.low) - 1) * 0x01010101));
    if (f.high) {
        const uint8_t *upper = planes + (size_t)f.low * 64;
        const int from = f.high == 2 ? 2 * (g % 4) : g;
        i16 y = i16_load(upper + (f.high == 2 ? (size_t)(g / 4) * 64 : 0));
        y = i16_shift_bytes(y, f.low - from);
        x = i16_or_and(x, y, i16_set1((((1 << f.high) - 1) << f.low) * 0x01010101));
    }
    return x;
}

/* sum[r] += half h (0 or 1) of a block times the rows' sixteen activations. */
TR_INLINE void half_sums(const int R, const enum tr_tensor_type type, const uint8_t *planes,
                         const int h, const int8_t *q, size_t dim, i16 *sum)
{
    const struct tr_quant_form f = tr_quant_form(type);
    i16 w[4] = {group(type, planes, 4 * h), group(type, planes, 4 * h + 1),
                group(type, planes, 4 * h + 2), group(type, planes, 4 * h + 3)};
    dot(R, (1 << (f.low + f.high)) - 1, w, q + (size_t)h * 16, dim, sum);
}

/* Where the scales of block b are. */
struct scales {
    const uint16_t *d; /* F16 [16], then the minima's where there are some */
    const uint8_t *sub;
};

TR_INLINE struct scales scales_of(const enum tr_tensor_type type, const uint8_t *scales, size_t b)
{
    const struct tr_quant_form f = tr_quant_form(type);
    const size_t parts = f.block / 32;
    const uint8_t *s = scales + b / parts * tr_strip_scale_bytes(type);
    return (struct scales){(const uint16_t *)(const void *)s,
                           s + (f.mins ? 64 : 32) + b % parts * TR_STRIP_SUB};
}

/* What a sum starts with, given minus the sum of its activations: what the bias will have added.  In
 * lanes, where shifts have time: 15 % faster for 8 rows of Q6_K than scalars that are spread. */
TR_INLINE i16 times_bias(i16 minus, const int bias)
{
    return bias ? i16_shift_left(minus, __builtin_ctz((unsigned)bias)) : i16_set1(0);
}

/* A block whose 32 elements have one scale. */
TR_INLINE void whole_block(const int R, const enum tr_tensor_type type, const uint8_t *planes,
                           struct scales s, const struct tr_act *a, size_t at, v16 *acc)
{
    const struct tr_quant_form f = tr_quant_form(type);
    const size_t n_blocks = a->dim / 32;
    i16 sum[TILE];
    TR_UNROLL
    for (int r = 0; r < R; r++)
        sum[r] = times_bias(i16_sub(i16_set1(0), i16_set1(a->sum[at + (size_t)r * n_blocks])), f.bias);
    half_sums(R, type, planes, 0, a->q + at * 32, a->dim, sum);
    half_sums(R, type, planes, 1, a->q + at * 32, a->dim, sum);

    v16 d = v16_load_f16(s.d);
    v16 m = f.mins ? v16_load_f16(s.d + 16) : d;
    if (f.block == TR_QK_SUPER) {
        d = v16_mul(d, v16_load_u8(s.sub));
        m = v16_mul(v16_sub(v16_set1(0.0F), m), v16_load_u8(s.sub + 16));
    }
    TR_UNROLL
    for (int r = 0; r < R; r++) {
        size_t i = at + (size_t)r * n_blocks;
        acc[r] = v16_fma(v16_from_i16(sum[r]), v16_mul(d, v16_set1(a->d[i])), acc[r]);
        if (f.mins)
            acc[r] = v16_fma(m, v16_set1(a->s[i]), acc[r]);
    }
}

/* A block whose halves have scales of their own. */
TR_INLINE void halved_block(const int R, const enum tr_tensor_type type, const uint8_t *planes,
                            struct scales s, const struct tr_act *a, size_t at, v16 *acc)
{
    const struct tr_quant_form f = tr_quant_form(type);
    const size_t n_blocks = a->dim / 32;
    v16 t[TILE];
    TR_UNROLL
    for (int h = 0; h < 2; h++) {
        i16 sum[TILE];
        v16 sc = f.mins ? v16_load_u4(s.sub + (size_t)h * 16, 0)
                        : v16_load_i8((const int8_t *)s.sub + (size_t)h * 16);
        TR_UNROLL
        for (int r = 0; r < R; r++) {
            size_t i = at + (size_t)r * n_blocks;
            i16 low = i16_set1(a->low[i]);
            sum[r] = h ? i16_sub(low, i16_set1(a->sum[i])) : i16_sub(i16_set1(0), low);
            sum[r] = times_bias(sum[r], f.bias);
        }
        half_sums(R, type, planes, h, a->q + at * 32, a->dim, sum);
        TR_UNROLL
        for (int r = 0; r < R; r++) {
            v16 x = v16_from_i16(sum[r]);
            t[r] = h ? v16_fma(x, sc, t[r]) : v16_mul(x, sc);
        }
    }
    v16 d = v16_load_f16(s.d);
    v16 m = f.mins ? v16_sub(v16_set1(0.0F), v16_load_f16(s.d + 16)) : d;
    v16 mn0 = v16_load_u4(s.sub, 4);
    v16 mn1 = v16_load_u4(s.sub + 16, 4);
    TR_UNROLL
    for (int r = 0; r < R; r++) {
        size_t i = at + (size_t)r * n_blocks;
        v16 scale = v16_set1(a->d[i]);
        acc[r] = v16_fma(t[r], v16_mul(d, scale), acc[r]);
        if (f.mins) {
            v16 u = v16_mul(mn0, v16_set1((float)a->low[i]));
            u = v16_fma(mn1, v16_set1((float)(a->sum[i] - a->low[i])), u);
            acc[r] = v16_fma(u, v16_mul(m, scale), acc[r]);
        }
    }
}

/* R rows from `row` on against a strip. */
TR_INLINE void quant_tile(const int R, const enum tr_tensor_type type, const uint8_t *strip,
                          const struct tr_act *a, uint32_t row, struct ahead next, v16 *acc)
{
    const struct tr_quant_form f = tr_quant_form(type);
    const size_t n_blocks = a->dim / 32;
    const uint8_t *scales = strip + n_blocks * tr_strip_quant_bytes(type);

    for (size_t b = 0; b < n_blocks; b++) {
        const uint8_t *planes = strip + b * tr_strip_quant_bytes(type);
        struct scales s = scales_of(type, scales, b);
        ask(&next);
        if (f.halves)
            halved_block(R, type, planes, s, a, row * n_blocks + b, acc);
        else
            whole_block(R, type, planes, s, a, row * n_blocks + b, acc);
    }
}
