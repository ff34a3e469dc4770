/* SPDX-License-Identifier: Apache-2.0 */
/* Formats of GGUF and their packed form. */
#include "fixture.h"

#include "cpu_kernels/strip.h"

#include <math.h>

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

Test(quant, every_half_survives_the_way_to_float_and_back)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = tr_f16_to_f32((uint16_t)h);
        uint16_t back = tr_f32_to_f16(f);
        if (isnan(f))
            cr_assert_eq(back, h | 0x200, "%04x became %04x", h, back);
        else
            cr_assert_eq(back, h, "%04x became %04x", h, back);
    }
}

Test(quant, half_values_are_what_the_format_says)
{
    cr_assert_eq(tr_f16_to_f32(0x3C00), 1.0F);
    cr_assert_eq(tr_f16_to_f32(0xC000), -2.0F);
    cr_assert_eq(tr_f16_to_f32(0x0001), 0x1p-24F);
    cr_assert_eq(tr_f16_to_f32(0x7BFF), 65504.0F);
    cr_assert(isinf(tr_f16_to_f32(0x7C00)));
}

Test(quant, floats_round_to_the_nearest_half_and_ties_to_even)
{
    for (uint32_t i = 0; i < 200000; i++) {
        /* Exponents from below the smallest subnormal to above the largest half. */
        uint32_t u = (rnd() & 0x807FFFFFU) | (rnd_in(95, 145) << 23);
        if (i % 4 == 0)
            u &= ~0xFFFU; /* ties and their neighbours */
        float f = from_bits(u);
        uint16_t h = tr_f32_to_f16(f);
        double got = tr_f16_to_f32(h);
        if (fabs((double)f) >= 65520.0) {
            cr_assert(isinf(got));
            continue;
        }
        double lower = tr_f16_to_f32((uint16_t)(h - ((h & 0x7FFF) != 0)));
        uint16_t up = (uint16_t)(h + 1);
        double upper = (up & 0x7FFF) == 0x7C00 ? copysign(65536.0, f) : tr_f16_to_f32(up);
        double e = fabs(got - (double)f);
        cr_assert_leq(e, fabs(lower - (double)f), "%a", (double)f);
        cr_assert_leq(e, fabs(upper - (double)f), "%a", (double)f);
        if (e != 0 && (e == fabs(upper - (double)f) || e == fabs(lower - (double)f)))
            cr_assert_eq(h & 1, 0, "%a is a tie", (double)f);
    }
}

Test(quant, rows_are_measured_and_unfilled_blocks_refused)
{
    cr_assert_eq(tr_quant_row_bytes(TR_T_Q4_1, 64), 40);
    cr_assert_eq(tr_quant_row_bytes(TR_T_Q4_0, 64), 36);
    cr_assert_eq(tr_quant_row_bytes(TR_T_Q8_0, 64), 68);
    cr_assert_eq(tr_quant_row_bytes(TR_T_BF16, 5), 10);
    cr_assert_eq(tr_quant_row_bytes(TR_T_Q4_1, 33), 0);
    cr_assert_eq(tr_quant_row_bytes(TR_T_Q6_K, 512), 420);
    cr_assert_eq(tr_quant_row_bytes(TR_T_Q6_K, 128), 0);
    cr_assert_eq(tr_quant_row_bytes(TR_T_Q8_K, 256), 0);
    cr_assert_not(tr_quant_known(TR_T_Q8_1));
}

Test(quant, blocks_mean_what_the_format_says)
{
    uint8_t q4_1[20] = {0x00, 0x38, 0x00, 0xBC}; /* d 0.5, m -1 */
    uint8_t q4_0[18] = {0x00, 0x38};
    uint8_t q8_0[34] = {0x00, 0x38};
    float out[32];

    q4_1[4] = 0xF3;
    tr_quant_row(TR_T_Q4_1, q4_1, 32, out);
    cr_assert_eq(out[0], 3 * 0.5F - 1);
    cr_assert_eq(out[16], 15 * 0.5F - 1);
    cr_assert_eq(out[1], -1.0F);
    q4_0[2 + 15] = 0x0F;
    tr_quant_row(TR_T_Q4_0, q4_0, 32, out);
    cr_assert_eq(out[15], 3.5F);
    cr_assert_eq(out[31], -4.0F);
    q8_0[2 + 31] = 0x80;
    tr_quant_row(TR_T_Q8_0, q8_0, 32, out);
    cr_assert_eq(out[31], -64.0F);
}

Test(strip, a_packed_row_reads_back_as_its_source)
{
    for (int t = 0; t < N_TYPES; t++) {
        uint32_t n_in = 3 * least(all_types[t]);
        uint32_t n_out = 37;
        uint8_t *rows = random_rows(all_types[t], n_in, n_out);
        uint8_t *mem = memory(tr_strip_bytes(all_types[t], n_in) * tr_strip_count(n_out));
        float a[768];
        float b[768];
        tr_strip_pack(all_types[t], n_in, n_out, rows, mem);
        for (uint32_t r = 0; r < n_out; r++) {
            tr_quant_row(all_types[t], rows + r * tr_quant_row_bytes(all_types[t], n_in), n_in, a);
            tr_strip_row(all_types[t], n_in, mem, r, b);
            cr_assert_arr_eq(a, b, n_in * sizeof *a, "type %d row %u", (int)all_types[t], r);
        }
        free(rows);
        free(mem);
    }
}

Test(strip, a_decode_step_reads_hardly_more_than_the_file_holds)
{
    for (int t = FIRST_QUANT; t < N_TYPES; t++) {
        double file = (double)tr_quant_row_bytes(all_types[t], 1024) * TR_STRIP;
        double packed = (double)tr_strip_bytes(all_types[t], 1024);
        cr_assert_geq(packed, file);
        cr_assert_lt(packed / file, 1.04, "type %d: %.3f", (int)all_types[t], packed / file);
    }
}
