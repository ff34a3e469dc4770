/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/rope.h - rotary embedding of one row (the table is described in ops.h).
 *
 * Compiled once for all instruction levels: one part in a thousand of a step's time. */
#ifndef TR_CPU_KERNELS_ROPE_H
#define TR_CPU_KERNELS_ROPE_H

#include "cpu_kernels/ops.h"

/* Turns x [n_head, head_dim] in place; pos < r->n_filled. */
void tr_rope_row(const struct tr_rope *r, float *x, uint32_t pos, uint32_t n_head,
                 uint32_t head_dim);

#endif
