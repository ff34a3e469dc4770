/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/rope.c - rotary embedding: the table of angles, and turning one row. */
#include "cpu_kernels/rope.h"

#include "base/assert.h"

#include <math.h>

size_t tr_rope_bytes(uint32_t n_rot, uint32_t n_ctx)
{
    return (size_t)n_rot * n_ctx * sizeof(float);
}

void tr_rope_init(struct tr_rope *r, enum tr_rope_style style, uint32_t n_rot, uint32_t n_ctx,
                  const double *freq, float amplitude, void *mem)
{
    TR_ASSERT(n_rot <= TR_OPS_HEAD_MAX);
    *r = (struct tr_rope){
        .style = style, .n_rot = n_rot, .n_ctx = n_ctx, .amplitude = amplitude, .cos_sin = mem};
    for (uint32_t i = 0; i < n_rot / 2; i++)
        r->freq[i] = (float)freq[i];
}

void tr_rope_reach(struct tr_rope *r, uint32_t n)
{
    uint32_t half = r->n_rot / 2;
    TR_ASSERT(n <= r->n_ctx);
    for (; r->n_filled < n; r->n_filled++) {
        float *c = r->cos_sin + (size_t)r->n_filled * r->n_rot;
        for (uint32_t i = 0; i < half; i++) {
            float angle = (float)r->n_filled * r->freq[i];
            c[i] = (float)cos((double)angle) * r->amplitude;
            c[half + i] = (float)sin((double)angle) * r->amplitude;
        }
    }
}

void tr_rope_row(const struct tr_rope *r, float *x, uint32_t pos, uint32_t n_head,
                 uint32_t head_dim)
{
    uint32_t half = r->n_rot / 2;
    const float *c = r->cos_sin + (size_t)pos * r->n_rot;
    const float *s = c + half;
    bool adjacent = r->style == TR_ROPE_ADJACENT;
    uint32_t step = adjacent ? 2 : 1;     /* from pair to pair */
    uint32_t apart = adjacent ? 1 : half; /* within a pair */

    for (uint32_t h = 0; h < n_head; h++, x += head_dim) {
        for (uint32_t i = 0; i < half; i++) {
            float *p = x + (size_t)i * step;
            float a = p[0];
            float b = p[apart];
            p[0] = a * c[i] - b * s[i];
            p[apart] = a * s[i] + b * c[i];
        }
    }
}
