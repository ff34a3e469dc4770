/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/quant_tile.inl - quantised weights against int8 rows, in lanes.
 *
 * Included by the levels that have lanes of whole numbers (i16), before product.inl, after
 *   half_sums(S, R, type, planes, apart, h, q, dim, sum)  sum[s * R + r] += half h (0 or 1) of the
 *       block at planes + s * apart times the sixteen activations at q + r * dim, exactly
 * What comes out is what generic.c says, bit for bit.  Whole numbers below 2^24 are exact in single
 * precision, so sums of halves are scaled and added there, where it costs least: no type comes
 * above 2^24 (the largest, Q6_K: 2 * 16 * 32 * 127 * 128). */

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

/* Block b of S strips from `strip` on, against R rows whose block is the at-th. */
struct meeting {
    const uint8_t *strip;
    size_t strip_bytes;
    const struct tr_act *a;
    size_t b;
    size_t at;
};

TR_INLINE const uint8_t *planes_at(const enum tr_tensor_type type, const struct meeting *t)
{
    return t->strip + t->b * tr_strip_quant_bytes(type);
}

TR_INLINE struct scales scales_at(const enum tr_tensor_type type, const struct meeting *t, int s)
{
    const uint8_t *strip = t->strip + (size_t)s * t->strip_bytes;
    return scales_of(type, strip + t->a->dim / 32 * tr_strip_quant_bytes(type), t->b);
}

/* A block whose 32 elements have one scale. */
TR_INLINE void whole_block(const int S, const int R, const enum tr_tensor_type type,
                           const struct meeting *t, v16 *acc)
{
    const struct tr_quant_form f = tr_quant_form(type);
    const struct tr_act *a = t->a;
    const size_t n_blocks = a->dim / 32;
    i16 sum[SUMS];
    TR_UNROLL
    for (int r = 0; r < R; r++) {
        i16 minus = i16_sub(i16_set1(0), i16_set1(a->sum[t->at + (size_t)r * n_blocks]));
        minus = times_bias(minus, f.bias);
        TR_UNROLL
        for (int s = 0; s < S; s++)
            sum[s * R + r] = minus;
    }
    TR_UNROLL
    for (int h = 0; h < 2; h++)
        half_sums(S, R, type, planes_at(type, t), t->strip_bytes, h, a->q + t->at * 32, a->dim, sum);

    TR_UNROLL
    for (int s = 0; s < S; s++) {
        struct scales at = scales_at(type, t, s);
        v16 d = v16_load_f16(at.d);
        v16 m = f.mins ? v16_load_f16(at.d + 16) : d;
        if (f.block == TR_QK_SUPER) {
            d = v16_mul(d, v16_load_u8(at.sub));
            m = v16_mul(v16_sub(v16_set1(0.0F), m), v16_load_u8(at.sub + 16));
        }
        TR_UNROLL
        for (int r = 0; r < R; r++) {
            size_t i = t->at + (size_t)r * n_blocks;
            v16 *to = &acc[s * R + r];
            *to = v16_fma(v16_from_i16(sum[s * R + r]), v16_mul(d, v16_set1(a->d[i])), *to);
            if (f.mins)
                *to = v16_fma(m, v16_set1(a->s[i]), *to);
        }
    }
}

/* A block whose halves have scales of their own. */
TR_INLINE void halved_block(const int S, const int R, const enum tr_tensor_type type,
                            const struct meeting *t, v16 *acc)
{
    const struct tr_quant_form f = tr_quant_form(type);
    const struct tr_act *a = t->a;
    const size_t n_blocks = a->dim / 32;
    v16 x[SUMS];
    TR_UNROLL
    for (int h = 0; h < 2; h++) {
        i16 sum[SUMS];
        TR_UNROLL
        for (int r = 0; r < R; r++) {
            size_t i = t->at + (size_t)r * n_blocks;
            i16 low = i16_set1(a->low[i]);
            i16 minus = h ? i16_sub(low, i16_set1(a->sum[i])) : i16_sub(i16_set1(0), low);
            minus = times_bias(minus, f.bias);
            TR_UNROLL
            for (int s = 0; s < S; s++)
                sum[s * R + r] = minus;
        }
        half_sums(S, R, type, planes_at(type, t), t->strip_bytes, h, a->q + t->at * 32, a->dim, sum);
        TR_UNROLL
        for (int s = 0; s < S; s++) {
            const uint8_t *sub = scales_at(type, t, s).sub + (size_t)h * 16;
            v16 sc = f.mins ? v16_load_u4(sub, 0) : v16_load_i8((const int8_t *)sub);
            TR_UNROLL
            for (int i = s * R; i < (s + 1) * R; i++) {
                v16 y = v16_from_i16(sum[i]);
                x[i] = h ? v16_fma(y, sc, x[i]) : v16_mul(y, sc);
            }
        }
    }
    TR_UNROLL
    for (int s = 0; s < S; s++) {
        struct scales at = scales_at(type, t, s);
        v16 d = v16_load_f16(at.d);
        v16 m = f.mins ? v16_sub(v16_set1(0.0F), v16_load_f16(at.d + 16)) : d;
        v16 mn0 = v16_load_u4(at.sub, 4);
        v16 mn1 = v16_load_u4(at.sub + 16, 4);
        TR_UNROLL
        for (int r = 0; r < R; r++) {
            size_t i = t->at + (size_t)r * n_blocks;
            v16 *to = &acc[s * R + r];
            v16 scale = v16_set1(a->d[i]);
            *to = v16_fma(x[s * R + r], v16_mul(d, scale), *to);
            if (f.mins) {
                v16 u = v16_mul(mn0, v16_set1((float)a->low[i]));
                u = v16_fma(mn1, v16_set1((float)(a->sum[i] - a->low[i])), u);
                *to = v16_fma(u, v16_mul(m, scale), *to);
            }
        }
    }
}

/* R rows from `row` on against S strips. */
TR_INLINE void quant_tile(const int S, const int R, const enum tr_tensor_type type,
                          const uint8_t *strip, size_t strip_bytes, const struct tr_act *a,
                          uint32_t row, struct ahead next, v16 *acc)
{
    const size_t n_blocks = a->dim / 32;
    struct meeting t = {
        .strip = strip, .strip_bytes = strip_bytes, .a = a, .at = row * n_blocks};

    for (; t.b < n_blocks; t.b++, t.at++) {
        ask(&next);
        if (tr_quant_form(type).halves)
            halved_block(S, R, type, &t, acc);
        else
            whole_block(S, R, type, &t, acc);
    }
}
