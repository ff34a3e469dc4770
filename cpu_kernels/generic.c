/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/generic.c - the kernels in plain C: the meaning of every operation (N6). */
#include "cpu_kernels/lanes_generic.h"

#include "cpu_kernels/ahead.h"
#include "cpu_kernels/kernels.h"
#include "cpu_kernels/kv.h"
#include "cpu_kernels/quant.h"
#include "cpu_kernels/strip.h"

#define TILE 4
#define SUMS TILE

/* One output's block of 32 weights against one row's block of 32 activations: what is added to the
 * accumulator.  Whole numbers are exact; each multiplication and each fmaf of floats rounds once.
 *
 *   One scale for the block (Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K):
 *     acc = fmaf(sum((q - bias) * x), scale * d, acc)      scale = d of the weights * sc, exactly
 *     acc = fmaf(minimum, s, acc), where there are minima  minimum = m, or -(dmin * mn), exactly
 *   A scale for either half (Q2_K Q3_K Q6_K):
 *     acc = fmaf(sum(sc of its half * (q - bias) * x), d of the weights * d, acc)
 *     acc = fmaf(mn0 * low + mn1 * high, -dmin * d, acc), where there are minima
 *
 * where x, d, s, low are the activations of struct tr_act, and high is sum - low. */
static float add_block(const struct tr_quant_form *f, const struct tr_quant_block *w,
                       const struct tr_act *a, size_t at, float acc)
{
    const int8_t *x = a->q + at * 32;
    int32_t half[2] = {0, 0};
    for (int k = 0; k < 32; k++)
        half[k / 16] += (w->q[k] - f->bias) * x[k];

    float d = tr_f16_to_f32(w->d);
    float m = f->mins ? tr_f16_to_f32(w->m) : 0.0F;
    if (f->halves) {
        int32_t sum = w->sc[0] * half[0] + w->sc[1] * half[1];
        acc = fmaf((float)sum, d * a->d[at], acc);
        if (f->mins) {
            int32_t mins = w->mn[0] * a->low[at] + w->mn[1] * (a->sum[at] - a->low[at]);
            acc = fmaf((float)mins, (0.0F - m) * a->d[at], acc);
        }
        return acc;
    }
    if (f->block == TR_QK_SUPER) {
        d *= (float)w->sc[0];
        m = (0.0F - m) * (float)w->mn[0];
    }
    acc = fmaf((float)(half[0] + half[1]), d * a->d[at], acc);
    return f->mins ? fmaf(m, a->s[at], acc) : acc;
}

/* R rows from `row` on against a strip: blocks in ascending order into one accumulator (N2). */
static void quant_tile(const int S, const int R, const enum tr_tensor_type type,
                       const uint8_t *strip, size_t strip_bytes, const struct tr_act *a,
                       uint32_t row, struct ahead next, v16 *acc)
{
    (void)S; /* always one */
    (void)strip_bytes;
    struct tr_quant_form f = tr_quant_form(type);
    size_t n_blocks = a->dim / 32;
    for (size_t b = 0; b < n_blocks; b++) {
        ask(&next);
        TR_EACH_LANE
        {
            struct tr_quant_block w;
            tr_strip_block(type, a->dim, strip, b, (uint32_t)l, &w);
            for (int r = 0; r < R; r++)
                acc[r].f[l] = add_block(&f, &w, a, (row + (size_t)r) * n_blocks + b, acc[r].f[l]);
        }
    }
}

#include "cpu_kernels/product.inl"
#include "cpu_kernels/rows.inl"
#include "cpu_kernels/kv.inl"

#include "cpu_kernels/attention.inl"

const struct tr_kernels tr_kernels_generic = TR_KERNEL_TABLE;
