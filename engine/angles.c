/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/angles.h"

#include <errno.h>
#include <stdlib.h>

int tr_angles_init(struct tr_angles *a, const struct tr_ops *ops, enum tr_rope_style style,
                   uint32_t n_rot, uint32_t n_ctx, const double *freq, float amplitude, void *mem)
{
    /* Touched only as far as it is filled. */
    void *host = ops->apart ? malloc(tr_rope_bytes(n_rot, n_ctx)) : mem;
    if (!host)
        return -ENOMEM;
    tr_rope_init(&a->host, style, n_rot, n_ctx, freq, amplitude, host);
    a->dev = a->host;
    a->dev.cos_sin = mem;
    return 0;
}

void tr_angles_reach(struct tr_angles *a, const struct tr_ops *ops, struct tr_dev *dev, uint32_t n)
{
    uint32_t had = a->dev.n_filled;
    if (n <= had)
        return;
    tr_rope_reach(&a->host, n);
    size_t at = (size_t)had * a->host.n_rot;
    ops->upload(dev, a->dev.cos_sin + at, a->host.cos_sin + at,
                (size_t)(n - had) * a->host.n_rot * sizeof(float));
    a->dev.n_filled = a->host.n_filled;
}

void tr_angles_fini(struct tr_angles *a)
{
    if (a->host.cos_sin != a->dev.cos_sin)
        free(a->host.cos_sin);
    *a = (struct tr_angles){0};
}
