/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/dot_madd.inl - sums of bytes without VNNI: through 16-bit words.
 *
 * vpmaddubsw multiplies unsigned by signed bytes and adds neighbours with saturation at 16 bits.  It
 * never saturates here, nor do the words that are added up: each is at most (products in it) * max *
 * 127 < 2^15, with eight products of nibbles or of five bits, four of six bits.  Bytes of Q8_0 are
 * split in nibbles. */

TR_INLINE i16 four(const int8_t *q)
{
    int32_t x;
    memcpy(&x, q, sizeof x);
    return i16_set1(x);
}

TR_INLINE i16 nibbles(i16 x, const int high)
{
    return i16_and(i16_shift_bytes(x, high ? -4 : 0), i16_set1(0x0F0F0F0F));
}

/* sum[r] += by * the groups x[0..4) times a row's activations, `run` groups of two products in a
 * word at a time. */
TR_INLINE void dot_words(const int R, const int run, const int16_t by, const i16 *x,
                         const int8_t *q, size_t dim, i16 *sum)
{
    TR_UNROLL
    for (int r = 0; r < R; r++) {
        const int8_t *row = q + (size_t)r * dim;
        i16 t = i16_madd_bytes(i16_set1(0), x[0], four(row));
        t = i16_madd_bytes(t, x[1], four(row + 4));
        if (run == 2) {
            sum[r] = i16_madd_words(sum[r], t, by);
            t = i16_set1(0);
        }
        t = i16_madd_bytes(t, x[2], four(row + 8));
        t = i16_madd_bytes(t, x[3], four(row + 12));
        sum[r] = i16_madd_words(sum[r], t, by);
    }
}

TR_INLINE void dot(const int R, const int max, const i16 *w, const int8_t *q, size_t dim, i16 *sum)
{
    if (max < 255) {
        dot_words(R, max > 31 ? 2 : 4, 1, w, q, dim, sum);
        return;
    }
    i16 low[4] = {nibbles(w[0], 0), nibbles(w[1], 0), nibbles(w[2], 0), nibbles(w[3], 0)};
    i16 high[4] = {nibbles(w[0], 1), nibbles(w[1], 1), nibbles(w[2], 1), nibbles(w[3], 1)};
    dot_words(R, 4, 1, low, q, dim, sum);
    dot_words(R, 4, 16, high, q, dim, sum);
}

/* See quant_tile.inl. */
TR_INLINE void half_sums(const int S, const int R, const enum tr_tensor_type type,
                         const uint8_t *planes, size_t apart, const int h, const int8_t *q,
                         size_t dim, i16 *sum)
{
    const struct tr_quant_form f = tr_quant_form(type);
    TR_UNROLL
    for (int s = 0; s < S; s++, planes += apart) {
        i16 w[4] = {group(type, planes, 4 * h), group(type, planes, 4 * h + 1),
                    group(type, planes, 4 * h + 2), group(type, planes, 4 * h + 3)};
        dot(R, (1 << (f.low + f.high)) - 1, w, q + (size_t)h * 16, dim, &sum[s * R]);
    }
}
