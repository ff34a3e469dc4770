/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/group.inl - quants out of a strip, in lanes of whole numbers.
 *
 * Included by the levels that have such lanes (i16), before what multiplies them. */

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
