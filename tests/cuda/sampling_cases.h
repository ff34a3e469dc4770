/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cuda/sampling_cases.h - steps with random picks, sampled by engine/sample.c and by the device. */
#ifndef TR_TESTS_CUDA_SAMPLING_CASES_H
#define TR_TESTS_CUDA_SAMPLING_CASES_H

#include "cpu_kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The seed's step, by both; whether all answers have the same bits, and if not, which has not (in *what).
 * `kinds` of steps there are; seed % kinds says which this is. */
enum { SAMPLING_KINDS = 12 };
bool sampling_case(const struct tr_ops *ops, struct tr_dev *dev, uint32_t seed, char what[256]);

#ifdef __cplusplus
}
#endif

#endif
