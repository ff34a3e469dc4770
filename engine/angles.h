/* SPDX-License-Identifier: Apache-2.0 */
/* engine/angles.h - a table of angles of RoPE that grows as sequences do, where operations find it.
 *
 * Path: http > tokens > subq > engine > [step] > ring > detok > event > socket
 *
 * The host fills it, so that its numbers are the same for every device; what is new of it is uploaded where
 * the device is apart, and else both tables are the same memory.
 *
 * Who may call: who runs the passes (engine/forward.h). */
#ifndef TR_ENGINE_ANGLES_H
#define TR_ENGINE_ANGLES_H

#include "cpu_kernels/ops.h"

struct tr_angles {
    struct tr_rope host; /* n_rot is 0: there are none */
    struct tr_rope dev;  /* what operations are given */
};

/* Without any position, for mem of the operations (tr_rope_bytes); freq and amplitude as in tr_rope_init.
 * 0, or -ENOMEM. */
int tr_angles_init(struct tr_angles *a, const struct tr_ops *ops, enum tr_rope_style style,
                   uint32_t n_rot, uint32_t n_ctx, const double *freq, float amplitude, void *mem);

/* Up to n <= n_ctx positions, in order with the operations. */
void tr_angles_reach(struct tr_angles *a, const struct tr_ops *ops, struct tr_dev *dev, uint32_t n);

void tr_angles_fini(struct tr_angles *a); /* zeroed is fine */

#endif
