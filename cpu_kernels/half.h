/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/half.h - IEEE half precision and bfloat16 in plain C.
 *
 * Pure functions; any process, any thread.  The same results as F16C. */
#ifndef TR_CPU_KERNELS_HALF_H
#define TR_CPU_KERNELS_HALF_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Exact one way, round to nearest even the other (overflow is infinity, NaNs stay NaN and become
 * quiet). */
float tr_f16_to_f32(uint16_t h);
uint16_t tr_f32_to_f16(float f);

float tr_bf16_to_f32(uint16_t h);

#ifdef __cplusplus
}
#endif

#endif
