/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/rope.c - rotary embedding: the table of angles, and turning one row. */
#include "cpu_kernels/rope.h"

#include <math.h>

size_t tr_rope_bytes(uint32_t n_rot, uint32_t n_ctx)
{
    return (size_t)n_rot * n_ctx * sizeof(float);
}

void tr_rope_init(struct tr_rope *r, enum tr_rope_style style, uint32_t n_rot, uint32_t n_ctx,
                  const double *freq, float amplitude, void *mem)
{
    float *table = mem;
    uint32_t half = n_rot / 2;

    for (uint32_t pos = 0; pos < n_ctx; pos++) {
        float *c = table + (size_t)pos * n_rot;
        for (uint32_t i = 0; i < half; i++) {
            float angle = (float)pos * (float)freq[i];
            c[i] = (float)cos((double)angle) * amplitude;
            c[half + i] = (float)sin((double)angle) * amplitude;
        }
    }
    *r = (struct tr_rope){.style = style, .n_rot = n_rot, .n_ctx = n_ctx, .cos_sin = table};
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
